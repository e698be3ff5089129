"""`vllm bench serve` and `sglang.bench_serving`: one JSON object a run (sglang: one a line).

Source: vllm-project/vllm, vllm/benchmarks/serve.py (main: result_json) and sgl-project/sglang,
python/sglang/bench_serving.py (benchmark: result); times in milliseconds, lists of single requests in
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from railwright.errors import RailwrightError
from railwright.measure.loadgen.fields import number, whole
from railwright.measure.loadgen.result import BenchResult, Requests, Summary, from_first, summary_of, tpot_of

MS = 1e-3


def read_vllm(value: Mapping[str, Any], file: str) -> BenchResult:
    """One run. Raises RailwrightError naming file and field."""
    completed = whole(value, "completed", file)
    if completed == 0:
        raise RailwrightError(
            f"{file}: completed: 0; no request was answered, so there is nothing to compare"
        )
    prompts, answers = number(value, "total_input_tokens", file), number(value, "total_output_tokens", file)
    each = _each(value, file)
    tool = "sglang bench_serving" if "sglang" in str(value.get("backend", "")) else "vllm bench serve"
    return BenchResult(
        file=file,
        tool=tool,
        label=str(value.get("label") or ""),
        model=str(value.get("model_id") or ""),
        requests=completed,
        failed=whole(value, "failed", file) or 0,
        duration=number(value, "duration", file),
        concurrency=whole(value, "max_concurrency", file),
        rate=number(value, "request_rate", file),
        prompt=prompts / completed if prompts is not None and completed else None,
        output=answers / completed if answers is not None and completed else None,
        ttft=_summary(value, "ttft", file, None if each is None else each.ttft),
        tpot=_summary(value, "tpot", file, None if each is None else tpot_of(each)),
        end_to_end=_summary(
            value,
            "e2el" if "mean_e2el_ms" in value else "e2e_latency",
            file,
            None if each is None else each.end_to_end,
        ),
        tokens_rate=number(value, "output_throughput", file),
        each=each,
    )


def _summary(value: Mapping[str, Any], name: str, file: str, each: Any) -> Summary:
    """What the file states of a quantity; percentiles it does not state come from its single requests."""
    mean = number(value, f"mean_{name}_ms", file)
    found: dict[float, float] = {}
    for key in value:
        if key.endswith(f"_{name}_ms") and key.startswith(("p", "median")):
            at = 50.0 if key.startswith("median") else _percentile(key.split("_")[0])
            stated = number(value, key, file)
            if at is not None and stated is not None:
                found[at] = stated * MS
    made = summary_of(each) if each is not None else Summary()
    return Summary(mean * MS if mean is not None else made.mean, {**made.percentiles, **found})


def _percentile(text: str) -> float | None:
    try:
        return float(text[1:])
    except ValueError:
        return None


def _each(value: Mapping[str, Any], file: str) -> Requests | None:
    """Single requests, where --save-detailed (sglang: --output-details) was given, but failed ones."""
    lists = {key: value.get(key) for key in ("input_lens", "output_lens", "ttfts", "itls")}
    if not all(isinstance(v, list) and v for v in lists.values()):
        return None
    sizes = {key: len(v) for key, v in lists.items() if isinstance(v, list)}
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{key} {n}" for key, n in sizes.items())
        raise RailwrightError(
            f"{file}: lists of single requests differ in length ({said}); is the file cut off?"
        )
    starts = value.get("start_times")
    count = sizes["ttfts"]
    if not (isinstance(starts, list) and len(starts) == count):
        starts = [float("nan")] * count
    try:
        prompt, output, ttft, start = (
            np.array(v, dtype=float)
            for v in (lists["input_lens"], lists["output_lens"], lists["ttfts"], starts)
        )
        gaps = np.array([float(sum(v)) for v in lists["itls"] or ()])
    except (TypeError, ValueError):
        raise RailwrightError(f"{file}: lists of single requests hold other things than numbers") from None
    good = output > 0
    if not good.any():
        return None
    start = from_first(start)
    return Requests(start[good], prompt[good], output[good], ttft[good], (ttft + gaps)[good])
