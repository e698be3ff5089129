"""Why a published serving case is missed by much, where documents or the run itself tell."""

from __future__ import annotations

from collections.abc import Callable

from railwright.measure.serving.cases import Case, gpu_of, number

EDGE = (
    "the rate offered is the largest that the submitter's system could hold: where our capacity is "
    "lower, requests queue for the whole run"
)
RULES: tuple[tuple[Callable[[Case], bool], str, str], ...] = (
    (
        lambda c: c["set"] == "mlperf",
        "TPOT p99",
        "lengths are drawn with the highest entropy, which has more answers of few tokens than the data set: "
        "one prompt of another request between two of them is a large share",
    ),
    (lambda c: c["mode"] in ("mlperf_server", "mlperf_interactive"), "TTFT", EDGE),
    (
        lambda c: c["mode"] == "disagg" and not c["concurrency"],
        "TTFT",
        "no document states how many requests are in flight; the batches of all decode workers were taken",
    ),
    (
        lambda c: c["mode"] == "disagg" and gpu_of(c) == "H100",
        "TTFT",
        "5 to 12 s to the first token with 6 to 30 requests in flight on 64 GPUs: not the time of "
        "prompts or transfers",
    ),
    (
        lambda c: c["set"] == "silicon" and "sglang" in c["engine"] and c["mode"] == "agg",
        "TTFT",
        "requests are received every 10 or 30 steps only (--scheduler-recv-interval in InferenceX's script), "
        "which is not modelled",
    ),
    (
        lambda c: c["set"] == "nim" and number(c, "concurrency") >= 250 and number(c, "isl") >= 2000,
        "TTFT",
        "what NIM's engine admits at once beside 32,768 tokens and 256 requests is not documented",
    ),
    (
        lambda c: "aic-auto-gap-analysis" in c["source"] and "trtllm" in c["engine"],
        "TTFT",
        "one Python process streams every token: where it is the slowest part, first tokens wait behind "
        "others' tokens in its queue, which is not modelled",
    ),
    (
        lambda c: c["set"] == "splitwise",
        "TTFT",
        "vLLM of 2023: kernels and NCCL of its time are not measured, and what its allocator takes where "
        "memory runs out is known from another model",
    ),
    (
        lambda c: "RTXPRO6000" in c["system"],
        "T",
        "requests wait for a place near saturation, where a few percent of a step decide; cold engines made "
        "ten steps in their first second",
    ),
    (
        lambda c: c["set"] == "infersim",
        "",
        "H20: no kernel of it is in the tables; an H100's are carried to its tensor cores",
    ),
    (
        lambda c: c["set"] == "dli" and c["system"] in ("L40S", "H100 NVL") and number(c, "tp_size") > 2,
        "T",
        "all-reduces over PCIe, or over bridges that join pairs only: the host's PCIe tree is not in the "
        "record",
    ),
    (
        lambda c: "gpt-oss" in c["model"] and gpu_of(c) == "B200",
        "TPOT",
        "experts in mxfp4: engines of 2026 multiply them with mxfp8 activations, for which there is no "
        "measurement",
    ),
)
"""(which cases, first letters of what is measured, why); the first that fits stands beside large errors."""


def reason_of(case: Case, what: str, high: bool) -> str:
    """Why, or '' where it is not known.

    high  whether ours is above the measured: a queue at the edge of capacity is no reason for the contrary
    """
    rules = (rule for rule in RULES if high or rule[2] != EDGE)
    return next((why for fits, metric, why in rules if what.startswith(metric) and fits(case)), "")
