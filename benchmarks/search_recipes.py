"""How far ahead a search's best layout is of layouts that their publishers tuned.

Each case is a published record (measure/data): the same model, GPUs, batch, sequence and number format on the
same machine, searched over what its framework and its year run, and the published layout beside it.
Run: python benchmarks/search_recipes.py [part of a record's name ...]; all of them take about 20 minutes.

Measured: docs/training/search.md.
"""

from __future__ import annotations

import sys
import time
from statistics import median, quantiles

from railwright.measure.training.jobs import job_of, machine_for
from railwright.measure.training.models import architecture_of
from railwright.measure.training.replay import records
from railwright.search import search
from railwright.search.space.changes import told
from railwright.training.software.eras import era_of
from railwright.units import GIB

TUNED = (
    # dense, Hopper: NVIDIA's DGX Cloud benchmarking, Megatron-LM's examples, Megatron-Bridge, MLPerf
    "megatron-llama-fp8-llama3-8b",
    "megatron-llama-fp8-llama3-70b",
    "megatron-llama-fp8-llama3.1-405b",
    "dgxc-v25-04-llama3-8b-h100-64-fp8-gbs1024",
    "dgxc-v25-04-llama3-70b-h100-512-bf16-gbs1024",
    "dgxc-v25-04-llama3-70b-h100-512-fp8-gbs1024",
    "dgxc-v25-04-nemotron4-15b-h100-256-bf16-gbs1024",
    "dgxc-v25-02-gpt3-175b-h100-512-fp8-gbs1024",
    "dgxc-v25-04-llama3-1-405b-h100-1024-bf16-gbs512",
    "dgxc-v25-04-llama3-1-405b-h100-512-fp8-gbs256",
    "mbridge-26-04-01-llama3-70b-h100-64-fp8-pretrain-tp4pp8mbs1gbs256",
    "mbridge-26-06-llama3-1-405b-h100-1024-fp8-pretrain-tp8pp8mbs1gbs1536",
    "mbridge-26-06-llama3-70b-h100-32-fp8-sft-tp4pp4mbs1gbs32",
    "mbridge-26-06-llama3-70b-h100-8-fp8-lora-tp2pp4mbs1gbs32",
    "mlperf-v4-1-gpt3-nvidia-eos-n64-ngc24-09-nemo",
    # dense, Blackwell
    "mbridge-26-04-01-llama3-70b-gb200-64-fp8-pretrain-tp1pp1mbs2gbs256",
    "mbridge-26-04-01-llama3-70b-gb200-64-mxfp8-pretrain-tp2pp4mbs1gbs256",
    "mbridge-26-04-01-llama3-70b-gb200-64-nvfp4-pretrain-tp2pp4mbs1gbs256",
    "mbridge-26-04-01-llama3-70b-gb300-64-mxfp8-pretrain-tp1pp4mbs1gbs256",
    "mbridge-26-06-llama3-70b-gb200-32-mxfp8-sft-tp1pp8mbs1gbs32",
    "dgxc-v25-05-nemotron4-340b-gb200-256-bf16-gbs64",
    "dgxc-v25-05-llama3-1-405b-gb200-256-fp8-pretrain-gbs128",
    "mlperf-v5-0-llama31-405b-nvidia-tyche-ngpu512-ngc25-04-nemo",
    "mlperf-v5-1-llama31-405b-university-of-florida-hpg-dgxb200x8-n32",
    "mlperf-v5-0-llama2-70b-lora-oracle-8xbm-gpu-b200-8",
    # mixtures of experts
    "dgxc-v25-02-grok1-314b-h100-256-bf16-gbs1024",
    "nemo-25.02-mixtral-8x7b-b200-64-fp8-pretrain-gbs256",
    "nemo-25.02-mixtral-8x22b-b200-256-fp8-pretrain-gbs64",
    "mbridge-26-06-qwen3-30b-a3b-h100-16-fp8-pretrain-tp1pp1mbs1gbs1024",
    "mbridge-26-08-qwen3-30b-a3b-gb200-8-mxfp8-pretrain-tp1pp1mbs4gbs512",
    "mbridge-26-06-qwen3-30b-a3b-b300-8-mxfp8-pretrain-tp1pp1mbs8gbs512",
    "mbridge-26-04-01-qwen3-235b-a22b-b200-256-mxfp8-pretrain-tp1pp8mbs1gbs8192",
    "mbridge-26-08-qwen3-235b-a22b-gb300-256-mxfp8-pretrain-tp1pp4mbs2gbs8192",
    "mbridge-26-04-01-gpt-oss-120b-h100-64-bf16-pretrain-tp1pp4mbs1gbs1280",
    "mbridge-26-08-gpt-oss-120b-gb200-64-mxfp8-pretrain-tp1pp1mbs4gbs1280",
    "mbridge-26-04-01-deepseekv3-b200-256-mxfp8-pretrain-tp1pp8mbs1gbs4096",
    "mbridge-26-08-deepseekv3-gb200-256-mxfp8-pretrain-tp1pp4mbs1gbs4096",
    "mbridge-26-06-nemotron-3-nano-h100-16-fp8-pretrain-tp1pp1mbs1gbs1024",
    "mbridge-26-08-nemotron-3-super-gb200-64-mxfp8-pretrain-tp2pp1mbs1gbs512",
)
"""Records of layouts that their publishers chose for speed; torchtitan's tables show features, each by
itself, and are none."""


def gap(name: str) -> tuple[float, float]:
    """Print one case, and return how much more steps the best layout makes than the published one, and the
    share of its step in which the published one's GPU waits for launches."""
    record = next(one for one in records() if one["id"] == name)
    job, began = job_of(record), time.process_time()
    framework = "nemo" if era_of(job).framework == "megatron" else era_of(job).framework  # has adapters too
    found = search(job, architecture_of(record), machine_for(record), top=10, steps=0, framework=framework)
    own, best = found.own, found.best[0]
    assert own is not None, found.own_refused
    more, launches = own.time / best.time - 1, own.step.launch_share
    faster = sum(one.time < own.time * (1 - 1e-6) for one in found.best)
    capacity = own.step.memory.capacity / GIB
    print(
        f"{name}\n  {own.time:.3f} s as published, {best.time:.3f} s found: {more:+.1%}; place "
        f"{faster + 1 if faster < len(found.best) else f'behind {faster}'}; {own.memory / GIB:.0f} -> "
        f"{best.memory / GIB:.0f} of {capacity:.0f} GiB; launches {launches:.0%}; "
        f"{time.process_time() - began:.0f} s\n  {told(own.setting, best.setting)}",
        flush=True,
    )
    return more, launches


def main() -> None:
    asked = sys.argv[1:]
    names = [name for name in TUNED if not asked or any(part in name for part in asked)]
    found = [gap(name) for name in names]
    for what, some in (
        ("all", found),
        ("launches under 5 % of the step", [one for one in found if one[1] < 0.05]),
        ("5 % and more", [one for one in found if one[1] >= 0.05]),
    ):
        if len(some) > 1:
            gains = [gain for gain, _ in some]
            high = quantiles(gains, n=5)[-1]
            print(f"{what}: {len(some)}, median {median(gains):.1%}, a fifth above {high:.1%}")


if __name__ == "__main__":
    main()
