"""aiperf and genai-perf: summaries as JSON or CSV, and aiperf's records of single requests.

Source: ai-dynamo/aiperf@db4f639, aiperf/exporters and docs/tutorials/working-with-profile-exports.md;
genai-perf's files profile_export_genai_perf.json and .csv (wbing520/ai-performance-engineering@0e25b2e,
artifacts/).  Their inter-token latency is one request's mean: (latency - first token) / (tokens - 1).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from railwright.errors import RailwrightError
from railwright.measure.loadgen.fields import PERCENTILES, number, section, summary, whole
from railwright.measure.loadgen.result import BenchResult, Requests, Summary, from_first, summary_of, tpot_of

UNITS = {"ms": 1e-3, "milliseconds": 1e-3, "sec": 1.0, "s": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9}


def read_aiperf(value: Mapping[str, Any], file: str) -> BenchResult:
    """A summary (profile_export_aiperf.json, profile_export_genai_perf.json). Raises RailwrightError."""
    config = section(value, "input_config", file)
    concurrency, rate = _load(config, file)
    return BenchResult(
        file=file,
        tool="aiperf" if "loadgen" in config or "benchmark_duration" in value else "genai-perf",
        label="",
        model=_model(config),
        requests=whole(section(value, "request_count", file), "avg", file),
        failed=whole(section(value, "error_request_count", file), "avg", file) or 0,
        duration=number(section(value, "benchmark_duration", file), "avg", file),
        concurrency=concurrency,
        rate=rate,
        prompt=number(section(value, "input_sequence_length", file), "avg", file),
        output=number(section(value, "output_sequence_length", file), "avg", file),
        ttft=_summary(value, "time_to_first_token", file),
        tpot=_summary(value, "inter_token_latency", file),
        end_to_end=_summary(value, "request_latency", file),
        tokens_rate=number(section(value, "output_token_throughput", file), "avg", file),
    )


def _summary(value: Mapping[str, Any], name: str, file: str) -> Summary:
    part = section(value, name, file)
    unit = str(part.get("unit", "ms"))
    if part and unit not in UNITS:
        raise RailwrightError(f"{file}: {name}.unit: '{unit}' is no unit of time; known: {', '.join(UNITS)}")
    return summary(part, file, UNITS.get(unit, 1e-3), "avg", PERCENTILES)


def _load(config: Mapping[str, Any], file: str) -> tuple[int | None, float | None]:
    """Concurrency and rate of a run: aiperf keeps them under `loadgen`, genai-perf beside the rest."""
    inner = section(config, "loadgen", file) or section(
        section(section(config, "perf_analyzer", file), "stimulus", file), "", file
    )
    for part in (inner, config):
        concurrency, rate = whole(part, "concurrency", file), number(part, "request_rate", file)
        if concurrency or rate:
            return concurrency, rate
    return None, None


def _model(config: Mapping[str, Any]) -> str:
    for part in (config, config.get("endpoint") or {}):
        for key in ("model", "model_names", "formatted_model_name"):
            found = part.get(key) if isinstance(part, Mapping) else None
            if isinstance(found, list) and found:
                return str(found[0])
            if isinstance(found, str):
                return found
    return ""


ROWS = {
    "time to first token": "ttft",
    "inter token latency": "tpot",
    "request latency": "end_to_end",
    "input sequence length": "prompt",
    "output sequence length": "output",
    "output token throughput": "rate",
}
"""Row of a CSV, without its unit -> what it is."""


def read_aiperf_csv(text: str, file: str) -> BenchResult:
    """A summary as CSV: a table of statistics, an empty line, a table of single values."""
    columns: list[str] = []
    found: dict[str, tuple[dict[str, float], str]] = {}
    for line, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row or not row[0]:
            continue
        if row[0] == "Metric":
            columns = row[1:]
            continue
        name, _, unit = row[0].partition(" (")
        what = ROWS.get(name.strip().lower())
        if what is None:
            continue
        try:
            values = {
                key: float(cell.replace(",", "")) for key, cell in zip(columns, row[1:], strict=False) if cell
            }
        except ValueError:
            raise RailwrightError(f"{file}:{line}: '{','.join(row[1:])}' is no row of numbers") from None
        found[what] = (values, unit.rstrip(")"))
    if "ttft" not in found and "end_to_end" not in found:
        raise RailwrightError(f"{file}: has no row of a latency; a summary of aiperf or genai-perf has")

    def stated(what: str) -> Summary:
        values, unit = found.get(what, ({}, "ms"))
        return summary(values, file, UNITS.get(unit, 1e-3), "avg", PERCENTILES)

    def mean(what: str, key: str = "avg") -> float | None:
        return found.get(what, ({}, ""))[0].get(key)

    return BenchResult(
        file=file,
        tool="genai-perf or aiperf",
        label="",
        model="",
        requests=None,
        failed=0,
        duration=None,
        concurrency=None,
        rate=None,
        prompt=mean("prompt"),
        output=mean("output"),
        ttft=stated("ttft"),
        tpot=stated("tpot"),
        end_to_end=stated("end_to_end"),
        tokens_rate=mean("rate", "Value") or mean("rate"),
    )


NS = 1e-9


def read_aiperf_records(records: Sequence[Mapping[str, Any]], file: str) -> BenchResult:
    """Records of single requests (profile_export.jsonl); failed and warm-up ones are left out."""
    rows = []
    failed = 0
    for record in records:
        about, metrics = section(record, "metadata", file), section(record, "metrics", file)
        if record.get("error") or about.get("was_cancelled"):
            failed += 1
            continue
        if str(about.get("benchmark_phase", "profiling")) != "profiling":
            continue
        latency, first = (
            _value(metrics, "request_latency", file),
            _value(metrics, "time_to_first_token", file),
        )
        prompt = _value(metrics, "input_sequence_length", file, 1.0)
        output = _value(metrics, "output_sequence_length", file, 1.0)
        if latency is None or first is None or prompt is None or output is None:
            failed += 1
            continue
        start = number(about, "request_start_ns", file)
        rows.append((start * NS if start else float("nan"), prompt, output, first, latency))
    if not rows:
        raise RailwrightError(f"{file}: holds no request that was answered")
    start, prompt, output, first, latency = np.array(rows, dtype=float).T
    begun = from_first(start)
    each = Requests(begun, prompt, output, first, latency)
    span = float(np.nanmax(begun + latency)) if np.isfinite(begun).any() else None
    return BenchResult(
        file=file,
        tool="aiperf",
        label="",
        model="",
        requests=len(rows),
        failed=failed,
        duration=span,
        concurrency=None,
        rate=None,
        prompt=float(prompt.mean()),
        output=float(output.mean()),
        ttft=summary_of(first),
        tpot=summary_of(tpot_of(each)),
        end_to_end=summary_of(latency),
        tokens_rate=float(output.sum()) / span if span else None,
        each=each,
    )


def _value(metrics: Mapping[str, Any], name: str, file: str, unit: float | None = None) -> float | None:
    part = section(metrics, name, file)
    value = number(part, "value", file)
    scale = unit if unit is not None else UNITS.get(str(part.get("unit", "ms")), 1e-3)
    return None if value is None else value * scale
