"""Who sent the requests of a published serving measurement: each benchmark's load as its documents say it.

Frozen before the first case was scored (docs/serving/validation.md, "Clients"); nothing here is chosen by its
effect on an error.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.measure.machines import Unsupported
from railwright.measure.serving.cases import (
    RUN_GROUPS,
    Case,
    measured_prefixes,
    measured_requests,
    mlperf,
    number,
)
from railwright.serving.clients.client import Workload, no_parts
from railwright.spec.serving import Client

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Load:
    """A case's client, the statistic its figures are, and the document that says so.

    work  the requests themselves, where no client of a study draws them
    """

    client: Client
    statistic: str
    source: str
    work: Workload | None = None


def load_of(case: Case) -> Load:
    """The load of a case. Raises Unsupported for one that no document describes."""
    if case["set"] not in LOADS:
        raise Unsupported(f"no document says how '{case['set']}' sends its requests")
    return LOADS[case["set"]](case)


INFERENCEX = "mean"
"""The statistic of the silicon sample's rows, which no document states.  Frozen as the median, which
InferenceX's own plots show; changed to the mean after the first scores, so it counts as one fitted choice.
What tells: TTFT at 64 in flight is 385 ms with answers of 1,024 tokens and 382 ms with 8,192 (B200, vLLM,
TP1), where requests hardly ever meet another's prompt, so that only a mean, which the first burst moves, is
far above one lone prompt."""


def _closed(case: Case, concurrency: int, requests: int, *, spread: float = 0.0) -> Client:
    """A closed loop of the case's lengths: `concurrency` requests in flight until `requests` were sent."""
    return Client(
        kind="closed-loop",
        concurrency=concurrency,
        requests=requests,
        input=number(case, "isl"),
        output=number(case, "osl"),
        spread=spread,
    )


def _inferencex(case: Case) -> Load:
    """InferenceX: ten times as many requests as in flight, all at once, lengths uniform in [0.8, 1]."""
    concurrency = number(case, "concurrency")
    return Load(
        _closed(case, concurrency, 10 * concurrency, spread=0.2),
        INFERENCEX,
        "SemiAnalysisAI/InferenceX@9596d23, benchmarks/*.sh (--random-range-ratio 0.8, --num-prompts 10 x "
        "concurrency, --request-rate inf, --ignore-eos), bench_serving (uniform in [0.8, 1] x); "
        "utils/plot_perf.py and summarize.py show medians",
    )


def _aiperf(case: Case) -> Load:
    """AIConfigurator's own runs: fixed lengths, closed loop, ten requests for each in flight, all at once.

    Twice as many warm up before, and have ended when the measured ones begin: perf_analyzer waits for them
    and clears its workers (WaitForWarmupAndCleanup), aiperf's warm-up is a phase of its own.
    """
    concurrency = number(case, "concurrency", 0)
    if not concurrency:
        concurrency = number(case, "decode_num_workers") * number(case, "decode_batch_size")
    return Load(
        _closed(case, concurrency, 10 * concurrency),
        "mean",
        "ai-dynamo/aiconfigurator@9610283, src/aiconfigurator/eval/benchmarks/genai_perf_runner.py "
        "(genai-perf, deviations 0, request-count 10 x concurrency, warm-up 2 x concurrency, ignore_eos)",
    )


def _silicon(case: Case) -> Load:
    return _aiperf(case) if "aic-auto-gap-analysis" in case["source"] else _inferencex(case)


def _genai_perf(case: Case) -> Load:
    """NIM: genai-perf, fixed lengths, closed loop."""
    concurrency = number(case, "concurrency")
    return Load(
        _closed(case, concurrency, 10 * concurrency),
        "mean",
        "wbing520/ai-performance-engineering@0e25b2e, inference_gpu_cluster_sizing/artifacts/*/"
        "profile_export_genai_perf.json (synthetic_input_tokens_stddev 0, max_tokens = min_tokens, "
        "ignore_eos, concurrency, request_rate null)",
    )


def _static(case: Case) -> Load:
    """A batch computed as one: all prompts in one step, then all answers together."""
    batch = number(case, "batch")
    return Load(
        Client(
            kind="batch",
            concurrency=batch,
            requests=batch,
            input=number(case, "isl"),
            output=number(case, "osl"),
        ),
        "mean",
        "static batching: TensorRT-LLM 0.9 benchmarks (trt_llm_0_9_0_dli.csv, batch size, first token and "
        "generation); splitwise-sim data/perf_model.csv (batch, prompt_time, token_time)",
    )


OFFLINE_REQUESTS = {
    (128, 128): 30000, (128, 2048): 3000, (128, 4096): 1500, (1000, 2000): 1500, (2048, 128): 3000,
    (2048, 2048): 1500, (5000, 500): 1500, (1000, 1000): 3000, (500, 2000): 3000, (20000, 2000): 1000,
}  # fmt: skip
"""Requests of TensorRT-LLM's throughput tables by (input, output).
Source: NVIDIA/TensorRT-LLM@00f3768, docs/source/performance/perf-overview.md, "Preparing a Dataset"."""


def _offline(case: Case) -> Load:
    """trtllm-bench throughput: every request queued at once."""
    lengths = number(case, "isl"), number(case, "osl")
    if lengths not in OFFLINE_REQUESTS:
        raise Unsupported("the document does not say how many requests of these lengths were sent")
    requests = OFFLINE_REQUESTS[lengths]
    return Load(
        _closed(case, requests, requests),
        "mean",
        "NVIDIA/TensorRT-LLM@00f3768, docs/source/performance/perf-overview.md (token-norm-dist, deviations "
        "0; requests queued in rapid succession)",
    )


QUERIES = {
    "llama3.1-405b": 8313,
    "llama3.1-8b": 13368,
    "llama2-70b-99": 24576,
    "mixtral-8x7b": 15000,
    "deepseek-r1": 4388,
}
"""Samples of each data set.  Source: mlcommons/inference@b66003e, loadgen/mlperf.conf,
performance_sample_count_override."""
DURATION = 600.0
"""Shortest run of the Server scenario [s] (min_duration of the logs)."""


def _mlperf(case: Case) -> Load:
    """LoadGen: Poisson arrivals (Server, Interactive) or everything at once (Offline)."""
    run, about = mlperf()["runs"][case["id"]], mlperf()["datasets"][case["model"]]
    rate = run.get("rate")
    count = QUERIES[case["model"]]
    if rate:
        count = min(count, int(rate * DURATION))
    draw = np.random.default_rng(0)
    prompts = entropic(draw, count, about["input"], about["longest_input"])
    answers = entropic(draw, count, run["output"], about["longest_output"])
    arrivals = np.cumsum(draw.exponential(1.0 / rate, count)) if rate else np.zeros(count)
    return Load(
        Client(kind="trace", trace="the data set, drawn"),
        "mean",
        "mlcommons/inference loadgen (Server: Poisson at target_qps; Offline: all at once); lengths as in "
        "serving_mlperf.yaml",
        _work(arrivals, prompts, answers),
    )


def _replay(case: Case) -> Load:
    """LLMServingSim's vLLM runs: the recorded arrivals and lengths, and the prefixes their prompts share."""
    run = case["id"].removeprefix("llmservingsim_")
    rows = measured_requests()[run]
    arrivals = np.array([float(r["arrival_s"]) for r in rows])
    prompts = np.array([float(r["input"]) for r in rows])
    answers = np.array([float(r["output"]) for r in rows])
    return Load(
        Client(kind="trace", trace="the recorded requests"),
        "mean",
        "casys-kaist/LLMServingSim@5daddb2, bench/README.md: prompts and answers pinned (min_tokens = "
        "max_tokens, ignore_eos), TTFT from the engine's queue on (bench/core/validate.py); prompts' tokens "
        "in workloads/sharegpt-*.jsonl (prefix caching is on)",
        replace(_work(arrivals, prompts, answers), **_prefixes(run, len(rows))),
    )


PREFIX_BLOCK = 16
"""Tokens of a block of the recorded runs' prefix caches (meta.json, cache_config.block_size)."""


def _prefixes(run: str, count: int) -> dict[str, Any]:
    """Parts of the prompts' prefixes, as `Workload` takes them.

    Data-parallel engines have a cache each, and requests are dealt to them one by one: a prefix is found
    where the earlier request went to the same one.
    """
    shared = [r for r in measured_prefixes()[run] if (r[0] - r[1]) % RUN_GROUPS.get(run, 1) == 0]
    told: list[list[int]] = [[] for _ in range(count)]
    fresh = itertools.count()
    for at, earlier, tokens in shared:
        parts = told[earlier]
        parts.extend(next(fresh) for _ in range(tokens // PREFIX_BLOCK - len(parts)))
        told[at] = parts[: tokens // PREFIX_BLOCK]
    ends = np.cumsum([0] + [len(parts) for parts in told])
    flat = np.array([part for parts in told for part in parts], np.int64)
    return {"part_ptr": ends.astype(np.int64), "parts": flat, "part_tokens": PREFIX_BLOCK}


def _one_phase(case: Case) -> Load:
    """InferSim: 4,096 prompt tokens and 2,048 of answer, a full batch of one phase."""
    batch = {"Qwen3-30B-A3B-BF16": 400, "Qwen3-8B-FP8": 64}[case["model"]]
    return Load(
        Client(kind="batch", concurrency=batch, requests=batch, input=4096, output=2048),
        "mean",
        "alibaba/InferSim@f2293da, example/qwen3-*/*.sh (decode: 100 requests on each of 4 GPUs, 64 on one; "
        "prefill: 16,384 tokens on one GPU); lengths are its defaults (README)",
    )


LOADS = {
    "silicon": _silicon,
    "nim": _genai_perf,
    "dli": _static,
    "splitwise": _static,
    "trtllm": _offline,
    "mlperf": _mlperf,
    "llmservingsim": _replay,
    "infersim": _one_phase,
}
"""Set of cases -> its load."""


def entropic(draw: np.random.Generator, count: int, mean: float, longest: float) -> Floats:
    """Lengths between 1 and `longest` with that mean and the highest entropy [token]; whole numbers.

    The density is proportional to exp(k x) on [1, longest], k found from the mean by bisection; where the
    mean is the longest or beyond, all are the longest.
    """
    if mean >= longest - 1.0:
        return np.full(count, float(round(longest)))
    width, wanted = longest - 1.0, (mean - 1.0) / (longest - 1.0)
    low, high = -1e4, 1e4
    for _ in range(200):
        k = (low + high) / 2.0
        low, high = (k, high) if _mean_of(k) < wanted else (low, k)
    k = (low + high) / 2.0
    u = draw.random(count)
    at = u if abs(k) < 1e-9 else np.log1p(u * np.expm1(k)) / k if k < 700 else 1.0 + np.log(u) / k
    return np.asarray(np.maximum(np.round(1.0 + width * at), 1.0))


def _mean_of(k: float) -> float:
    """Mean of the density proportional to exp(k x) on [0, 1]."""
    if abs(k) < 1e-6:
        return 0.5 + k / 12.0
    if abs(k) > 500:
        return 1.0 - 1.0 / k if k > 0 else -1.0 / k
    return float(1.0 / (-np.expm1(-k)) - 1.0 / k)


def _work(arrivals: Floats, prompts: Floats, answers: Floats) -> Workload:
    """These requests, sent when they say."""
    lengths = (prompts.astype(np.int64), answers.astype(np.int64))
    return Workload(arrivals, *lengths, 0, False, 0, *no_parts(len(arrivals)), 0)
