"""inference-perf: one file a stage (stage_N_lifecycle_metrics.json) or over all
(summary_lifecycle_metrics.json).

Source: kubernetes-sigs/inference-perf, README (report of lifecycle metrics) and docs/metrics.md; times in
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.errors import RailwrightError
from railwright.measure.loadgen.fields import PERCENTILES, number, section, summary, whole
from railwright.measure.loadgen.result import BenchResult, Summary

KEYS = {"median": 50.0, **PERCENTILES}


def read_inference_perf(value: Mapping[str, Any], file: str) -> BenchResult:
    """One stage. Raises RailwrightError naming file and field."""
    load, good = section(value, "load_summary", file), section(value, "successes", file)
    if whole(good, "count", file) == 0:
        raise RailwrightError(f"{file}: successes.count: 0; no request was answered")
    latency, throughput = section(good, "latency", file), section(good, "throughput", file)

    def stated(name: str) -> Summary:
        return summary(section(latency, name, file), file, 1.0, "mean", KEYS)

    return BenchResult(
        file=file,
        tool="inference-perf",
        label="",
        model="",
        requests=whole(good, "count", file),
        failed=whole(section(value, "failures", file), "count", file) or 0,
        duration=number(load, "send_duration", file),
        concurrency=whole(load, "concurrency", file),
        rate=number(load, "achieved_rate", file) or number(load, "requested_rate", file),
        prompt=number(section(good, "prompt_len", file), "mean", file),
        output=number(section(good, "output_len", file), "mean", file),
        ttft=stated("time_to_first_token"),
        tpot=stated("time_per_output_token"),
        end_to_end=stated("request_latency"),
        tokens_rate=number(throughput, "output_tokens_per_sec", file),
    )
