"""Why a published training step is missed by much, where documents or other records tell.

docs/training/misses.md says more about each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Record = Mapping[str, str]

FAR = 0.1
"""Absolute error from which a reason is given: an 80 % band is about as wide."""
UNKNOWN = "not known"
HIDDEN_ALL_TO_ALLS = (
    ("gpt-oss-120b", "GB200", "26.04"),
    ("qwen3-30b-a3b", "H100", "25.11"),
    ("qwen3-30b-a3b", "H100", "26.02"),
    ("qwen3-235b-a22b", "B300", "26.02"),
)
"""(model, GPU, release): recipes of Megatron-Bridge that hide expert all-to-alls and use no CUDA graphs."""

ALONE_SLOW = ("bigscience-031", "bigscience-053", "bigscience-064")
"""Steps of one layout whose neighbours, with another batch or microbatch, are within 5 % (its chronicle:
1,568 sequences take as long as 2,048, microbatches of 1 take 43 % longer than those of 2, of 4 21 %)."""


def _hides_all_to_alls(r: Record) -> bool:
    release = r["software"].removeprefix("Megatron-Bridge ")
    return any(
        r["model"].startswith(model) and r["gpu"] == gpu and release.startswith(at)
        for model, gpu, at in HIDDEN_ALL_TO_ALLS
    )


RULES: tuple[tuple[Callable[[Record], bool], bool | None, str], ...] = (
    (
        lambda r: r["family"].startswith("vtrain"),
        False,
        "one of vTrain's 16 slow rows: the same servers, groups and messages are right in other rows, so "
        "it is taken for a disturbed run",
    ),
    (
        lambda r: r["family"] == "bigscience-h13824" and r["id"].split("-n")[1].startswith("128-"),
        False,
        "heads of 108, no multiple of 16 bytes: products over them count twice, an estimate",
    ),
    (
        lambda r: r["id"].startswith(ALONE_SLOW),
        False,
        "this step alone is slow: the same layout with another batch or microbatch is within 5 %",
    ),
    (
        lambda r: r["family"].startswith("bigscience"),
        False,
        "gradients and weights over Omni-Path: four links of a server seem to carry little more than two, "
        "which nothing published measures",
    ),
    (
        lambda r: "24.03.01" in r["software"],
        False,
        "this release of NeMo is 2 to 22 % slower than the later ones of its era",
    ),
    (
        lambda r: "gpt-oss" in r["model"] and "26.06.01" in r["software"],
        False,
        "the backward kernel of experts with biases is slow in this release; how slow was measured on one "
        "shape only",
    ),
    (
        _hides_all_to_alls,
        False,
        "expert all-to-alls are hidden without CUDA graphs, which gains less than predicted",
    ),
    (
        lambda r: r["model"].startswith("grok1") and r["gpu"] == "GB200",
        True,
        "its experts' products of 16,384 rows gain something there that our kernels do not have; script and "
        "table differ on expert tensor parallelism",
    ),
    (
        lambda r: r["model"] == "gpt3-175b" and r["software"] == "NeMo 24.05",
        False,
        "this release of NeMo is 4 to 15 % slower than 24.12 on the same jobs, and one era stands for both",
    ),
    (
        lambda r: r["family"].startswith("mlperf-llama3-8b") and r["gpus"] == "512",
        False,
        "reductions and gathers over 256 ranks on eight racks: with 9 channels of NCCL, not 32, it would be "
        "right, and how many it opened is not told",
    ),
    (
        lambda r: r["gpu"] in ("GB200", "GB300") and "Megatron-Bridge 25" in r["software"],
        True,
        "launches bind its experts: one pace of the host stands for releases that launch unlike",
    ),
    (
        lambda r: r["family"].startswith("torchtitan") and r["cp"] not in ("", "1"),
        None,
        "context parallelism of torchtitan: what merges partial results is not modelled",
    ),
    (
        lambda r: r["family"].startswith("torchtitan"),
        False,
        "GPUs limited to 500 W run products slower than our kernels",
    ),
    (
        lambda r: r["family"] == "llmfoundry-mpt-760m-A100" and int(r["seq"]) <= 1024,
        False,
        "on GPUs of 40 GB with half the microbatch the same step is within 4 %; its neighbours with longer "
        "sequences are within 3 %",
    ),
    (
        lambda r: r["family"].startswith("llmfoundry-mpt-30b") and r["seq"] == "8192",
        False,
        "one sequence leaves an eighth of the memory: the allocator's retries are suspected, not shown",
    ),
    (
        lambda r: r["family"].startswith("llmfoundry-mpt-125m"),
        True,
        "long sequences with heads of 64: attention of 2023 is faster on them than our kernel",
    ),
    (
        lambda r: r["family"].startswith("llmfoundry") and r["dtype"] == "fp8",
        False,
        "fp8 of llm-foundry: few records",
    ),
    (
        lambda r: "MaxText" in r["software"] and r["dtype"] == "fp8",
        True,
        "fp8 of JAX: one pace stands for MaxText's Llama 3, too long, and its Llama 2",
    ),
    (
        lambda r: r["kind"] == "lora",
        True,
        "adapters on a GPU of their own: kernels bound by memory seem faster than in all other steps",
    ),
)
"""(which records, whether ours is above the measured (None: either), why); the first that fits stands."""


def reason_of(record: Record, error: float) -> str:
    """Why a prediction is off, `UNKNOWN` where that is not known, '' where it is not off by much.

    error  predicted / measured - 1
    """
    if abs(error) < FAR:
        return ""
    fitting = (why for fits, above, why in RULES if above in (None, error > 0) and fits(record))
    return next(fitting, UNKNOWN)
