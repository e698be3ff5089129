"""Published serving measurements replayed through `serving.predict.serve`: ours beside theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from railwright.errors import RailwrightError
from railwright.measure.machines import Unsupported
from railwright.measure.serving.cases import (
    Case,
    architecture_of,
    cases,
    figure,
    gpu_of,
    machine_for,
    measured_requests,
    model_of,
    slice_of,
)
from railwright.measure.serving.jobs import Posed, pose, prefill_alone
from railwright.measure.serving.reasons import reason_of
from railwright.measure.table import Row, Skipped
from railwright.serving.predict import serve
from railwright.serving.result import ServingResult

MS = 1e-3


@dataclass(frozen=True)
class Scored:
    """One case: what it asked, our rows, or why there are none.

    group  (model, GPU) of the case, for errors with each left out
    """

    case: Case
    rows: tuple[Row, ...]
    refused: str = ""

    @property
    def group(self) -> tuple[str, str]:
        return model_of(self.case).split("/")[-1].lower(), gpu_of(self.case)


def serving_rows() -> Iterator[Row | Skipped]:
    """Every case's rows, or why it has none."""
    for scored in score():
        if scored.refused:
            yield Skipped(f"serving {slice_of(scored.case)}", scored.case["id"], scored.refused)
        yield from scored.rows


def score(chosen: str = "") -> Iterator[Scored]:
    """Every case, or those whose name holds `chosen`, predicted."""
    for case in cases():
        if chosen not in case["id"]:
            continue
        try:
            posed = pose(case)
            result = answer(case, posed)
        except (Unsupported, RailwrightError) as no:
            yield Scored(case, (), _grouped(str(no), case["id"]))
            continue
        yield Scored(case, tuple(rows_of(case, posed, result)))


def answer(case: Case, posed: Posed) -> ServingResult:
    """What `serve` says of a case. Raises Unsupported or RailwrightError."""
    machine = machine_for(case, posed.gpus)
    return serve(posed.job, architecture_of(case), machine, work=posed.load.work)


def rows_of(case: Case, posed: Posed, result: ServingResult) -> Iterator[Row]:
    """Each figure that the case states, beside ours."""
    if case["set"] == "llmservingsim":
        yield from _run_rows(case, result)
        return
    ours = figures(case, posed, result)
    for column, (what, unit) in COLUMNS.items():
        measured = figure(case, column)
        if measured is not None and column in ours:
            yield _row(case, what, ours[column], measured * (MS if unit == "s" else 1.0), unit)


COLUMNS = {
    "ttft_ms": ("TTFT", "s"),
    "tpot_ms": ("TPOT", "s"),
    "ttft_p99_ms": ("TTFT p99", "s"),
    "tpot_p99_ms": ("TPOT p99", "s"),
    "tokens_s_gpu": ("throughput", "tokens/s/GPU"),
    "prefill_tokens_s_gpu": ("prefill", "tokens/s/GPU"),
}
"""Column of a case -> what it is, and the unit of its row."""


def figures(case: Case, posed: Posed, result: ServingResult) -> dict[str, float]:
    """Our figures under the columns' names; the statistic is the one that the benchmark reports.

    The throughput of an open-loop run is what was offered, and of a closed one follows from its latencies:
    only runs at full load (offline, one phase) have a throughput of their own.
    """
    middle = posed.load.statistic == "median"
    found = {
        "ttft_ms": result.ttft.p50 if middle else result.ttft.mean,
        "tpot_ms": result.tpot.p50 if middle else result.tpot.mean,
        "ttft_p99_ms": result.ttft.p99,
        "tpot_p99_ms": result.tpot.p99,
    }
    if case["set"] == "trtllm" or case["mode"] == "mlperf_offline":
        found["tokens_s_gpu"] = result.tokens_per_second_per_gpu
    if case["set"] == "infersim":
        in_flight = posed.job.client.concurrency or 1
        found["tokens_s_gpu"] = in_flight / result.tpot.mean / result.gpus
        alone = prefill_alone(case)
        prefilled = serve(alone, architecture_of(case), machine_for(case, 1))
        found["prefill_tokens_s_gpu"] = prefilled.throughput.prompt_tokens
    return found


def _row(case: Case, what: str, predicted: float, measured: float, unit: str) -> Row:
    family = f"serving {slice_of(case)}: {what}"
    described = f"{model_of(case).split('/')[-1]} on {gpu_of(case)}, {case['engine']}, {_load_text(case)}"
    return Row(
        family,
        case["id"],
        described,
        predicted,
        measured,
        unit,
        case["source"],
        reason_of(case, what, predicted > measured),
    )


def _load_text(case: Case) -> str:
    lengths = f"{case['isl']}/{case['osl']}" if case["isl"] else case["mode"]
    load = case["concurrency"] or case["batch"]
    return lengths + (f" x {load}" if load else "")


def _run_rows(case: Case, result: ServingResult) -> Iterator[Row]:
    """A replayed run: means, p99 and throughput over its requests."""
    rows = measured_requests()[case["id"].removeprefix("llmservingsim_")]
    queued, first, last, output = (
        np.array([float(r[column]) for r in rows]) for column in ("queued_s", "first_s", "last_s", "output")
    )
    waited, each = first - queued, (last - first) / (output - 1.0)
    for what, ours, theirs in (("TTFT", result.ttft, waited), ("TPOT", result.tpot, each)):
        yield _row(case, what, ours.mean, float(theirs.mean()), "s")
        yield _row(case, f"{what} p99", ours.p99, float(np.percentile(theirs, 99)), "s")
    rate = float(output.sum() / last.max())
    yield _row(case, "throughput", result.tokens_per_second, rate, "tokens/s")


def _grouped(reason: str, record: str) -> str:
    """The reason without the case's name and figures, so that equal reasons are counted together."""
    text = reason.replace(record, "").lstrip(": ").split("\n")[0]
    return re.sub(r"\d+(\.\d+)?", "#", text)
