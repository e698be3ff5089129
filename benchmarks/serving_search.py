"""How long a search for the cheapest serving plan takes: 64 GPUs, dense and experts, at a rate and for users.

Bar (issue 7): a full SLO search on 64 GPUs in 10 s.
Run: python benchmarks/serving_search.py [case]
"""

from __future__ import annotations

import sys
import time

from railwright.catalog import load_catalog
from railwright.collectives import Machine, NcclSettings
from railwright.model import load_model
from railwright.search.serving.searching import search_serving
from railwright.search.serving.words import plan_words
from railwright.spec.serving import Client, ServingJob, ServingLayout, Slo
from railwright.spec.study import Cluster, ComputeNetwork

SLO = Slo.model_validate({"ttft": "1 s", "tpot": "50 ms"})
POISSON = {"kind": "poisson", "requests": 1000, "spread": 0.2}
CASES = {
    "llama-3.1-70b, 12 requests/s": (
        "dgx-h100",
        {"model": "llama-3.1-70b", "weights": "fp8", "engine": "vllm-2025"},
        Client(rate=12.0, input=2048, output=512, **POISSON),
    ),
    "llama-3.1-70b, 40 requests/s": (
        "dgx-h100",
        {"model": "llama-3.1-70b", "weights": "fp8", "engine": "trtllm-2025"},
        Client(rate=40.0, input=2048, output=512, **POISSON),
    ),
    "llama-3.1-70b, 128 users": (
        "dgx-h100",
        {"model": "llama-3.1-70b", "weights": "fp8", "engine": "vllm-2025"},
        Client(concurrency=128, input=1024, output=1024, spread=0.2),
    ),
    "deepseek-v3, 8 requests/s": (
        "dgx-h200",
        {"model": "deepseek-v3", "weights": "fp8_block", "engine": "sglang-2025"},
        Client(rate=8.0, input=2048, output=512, **POISSON),
    ),
}


def main() -> None:
    asked = sys.argv[1:] or list(CASES)
    for name in asked:
        server, fields, client = CASES[name]
        network = ComputeNetwork(family="rail-optimised", switch="qm9700")
        machine = Machine.of(
            Cluster(servers=8, server=server, compute=network), load_catalog(), NcclSettings()
        )
        job = ServingJob(name="bar", layout=ServingLayout(tensor=8), client=client, slo=SLO, **fields)
        arch = load_model(job.model)
        wall, cpu = time.perf_counter(), time.process_time()
        result = search_serving(job, arch, machine)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        effort = result.effort
        print(f"{name}: {wall:.1f} s of wall, {cpu:.1f} s of CPU; bar: 10 s")
        print(
            f"  {effort.settings} settings, {effort.priced} step tables, {effort.simulated} runs with "
            f"{effort.requests:,} requests"
        )
        print(f"  {result.best.plan.gpus} GPUs: {plan_words(result.best.plan)}")


if __name__ == "__main__":
    main()
