"""guidellm: a report with one benchmark for every rate or concurrency of a sweep.

Source: vllm-project/guidellm@ee7a774, src/guidellm/benchmark/schemas (GenerativeMetrics: each quantity by
status, times in milliseconds but request_latency in seconds) and tests/e2e.  Its inter-token latency is per
request without the first token, as TPOT elsewhere; its time per output token counts the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from railwright.errors import RailwrightError
from railwright.measure.loadgen.fields import PERCENTILES, number, section, summary, whole
from railwright.measure.loadgen.result import BenchResult, Requests, Summary, from_first


def read_guidellm(value: Mapping[str, Any], file: str) -> tuple[BenchResult, ...]:
    """Every benchmark of a report. Raises RailwrightError naming file and field."""
    runs = value["benchmarks"]
    if not isinstance(runs, list) or not runs or not all(isinstance(run, Mapping) for run in runs):
        raise RailwrightError(f"{file}: benchmarks: a list of at least one benchmark is expected")
    found = tuple(_run(run, f"{file}: benchmarks.{n}", file, value) for n, run in enumerate(runs))
    return tuple(run for run in found if run.ttft.stated or run.end_to_end.stated)


def _run(run: Mapping[str, Any], place: str, file: str, report: Mapping[str, Any]) -> BenchResult:
    metrics = section(run, "metrics", place)
    strategy = _strategy(run)
    kind = str(strategy.get("type_") or strategy.get("kind") or "")
    concurrency = whole(strategy, "streams", place) or whole(strategy, "max_concurrency", place)
    rate = number(strategy, "rate", place)
    if kind == "synchronous":
        concurrency = 1
    each = _each(run, place)
    totals = section(metrics, "request_totals", place)
    return BenchResult(
        file=file,
        tool="guidellm",
        label=" ".join(str(x) for x in (kind, rate or concurrency or "") if x),
        model=_model(run, report),
        requests=whole(totals, "successful", place) or (len(each) if each is not None else None),
        failed=whole(totals, "errored", place) or 0,
        duration=number(run, "duration", place),
        concurrency=concurrency,
        rate=rate,
        prompt=_good(metrics, "prompt_token_count", place, 1.0).mean,
        output=_good(metrics, "output_token_count", place, 1.0).mean,
        ttft=_good(metrics, "time_to_first_token_ms", place, 1e-3),
        tpot=_good(metrics, "inter_token_latency_ms", place, 1e-3),
        end_to_end=_good(metrics, "request_latency", place, 1.0),
        tokens_rate=_good(metrics, "output_tokens_per_second", place, 1.0).mean,
        each=each,
    )


def _strategy(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """How requests were scheduled: under `config` since 0.4, under `args` before."""
    for outer in ("config", "args", "scheduler"):
        part = run.get(outer)
        if isinstance(part, Mapping):
            inner = part.get("strategy")
            if isinstance(inner, Mapping):
                return inner
    return {}


def _model(run: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    for part in (run.get("config"), run.get("args"), report.get("args"), report.get("metadata")):
        if isinstance(part, Mapping):
            for name in ("model", "backend_model"):
                if isinstance(part.get(name), str):
                    return str(part[name])
    return ""


def _good(metrics: Mapping[str, Any], name: str, place: str, unit: float) -> Summary:
    """A quantity of the answered requests."""
    part = section(section(metrics, name, place), "successful", place)
    found = summary(section(part, "percentiles", place), place, unit, "mean", PERCENTILES)
    mean = number(part, "mean", place)
    return Summary(None if mean is None else mean * unit, found.percentiles)


def _each(run: Mapping[str, Any], place: str) -> Requests | None:
    requests = section(run, "requests", place).get("successful")
    if not isinstance(requests, list) or not requests:
        return None
    rows = []
    for one in requests:
        if not isinstance(one, Mapping):
            return None
        first = number(one, "time_to_first_token_ms", place)
        latency = number(one, "request_latency", place)
        prompt = number(one, "prompt_tokens", place)
        output = number(one, "output_tokens", place)
        if first is None or latency is None or prompt is None or output is None:
            continue
        start = number(one, "request_start_time", place)
        rows.append((float("nan") if start is None else start, prompt, output, first * 1e-3, latency))
    if not rows:
        return None
    start, prompt, output, first, latency = np.array(rows, dtype=float).T
    begun = from_first(start)
    return Requests(begun, prompt, output, first, latency)
