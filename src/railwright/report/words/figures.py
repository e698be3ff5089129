"""What the page and the terminal both say about a result: its variants' letters, key points and ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from railwright.collectives.prediction import CollectivePrediction
from railwright.fabric.graph import Fabric
from railwright.model import load_model
from railwright.serving.engine.bands import error_bands
from railwright.study.result import Curve, JobResult, Result, SensitivityRow, VariantResult
from railwright.training.lanes.critical import CriticalPath, critical_path
from railwright.units import show_change, show_rate, show_time

MANY = 10.0
"""Times the throughput from which a change is told as a factor."""

SMALL = float(2**20)
"""Size that stands for small messages where the sweep has it. [byte]"""

KINDS = ("compute", "tp", "cp", "ep", "emb", "pp", "dp", "bubble", "host", "copy", "adam", "data")
"""Order of the kinds of time in every breakdown."""

KIND_NAMES = {
    "compute": "compute",
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "emb": "embeddings",
    "pp": "pipeline",
    "dp": "data parallel",
    "bubble": "bubble",
    "host": "host",
    "copy": "host copies",
    "adam": "CPU Adam",
    "data": "waiting for data",
}


@dataclass(frozen=True)
class Sweeps:
    """One collective on every variant that ran it: (index of the variant, its curve)."""

    op: str
    title: str
    curves: tuple[tuple[int, Curve], ...]


def letter(index: int) -> str:
    """'A' for the study as written, then 'B', 'C', …, 'Z', 'AA', …"""
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def sweeps(result: Result) -> tuple[Sweeps, ...]:
    """The curves of all variants, gathered by collective (the n-th sweep of an op with the n-th)."""
    found: dict[tuple[str, int], list[tuple[int, Curve]]] = {}
    for index, variant in enumerate(result.variants):
        seen: dict[str, int] = {}
        for curve in variant.curves:
            nth = seen.get(curve.op, 0)
            seen[curve.op] = nth + 1
            if curve.points:
                found.setdefault((curve.op, nth), []).append((index, curve))
    return tuple(Sweeps(op, op_title(op), tuple(curves)) for (op, _), curves in found.items())


def op_title(op: str) -> str:
    """'all_to_all' as people write it: 'all-to-all'."""
    return op.replace("_", "-")


def small_point(points: tuple[CollectivePrediction, ...]) -> CollectivePrediction:
    """The point nearest to 1 MiB, on a log scale."""
    return min(points, key=lambda p: (abs(math.log(max(p.size, 1.0) / SMALL)), p.size))


def large_point(points: tuple[CollectivePrediction, ...]) -> CollectivePrediction:
    """The largest size of the sweep."""
    return max(points, key=lambda p: p.size)


def job_of(variant: VariantResult, name: str) -> JobResult | None:
    """The job of that name on a variant."""
    return next((job for job in variant.jobs if job.name == name), None)


def told_first(result: Result) -> tuple[int, ...]:
    """The variants by their places, the recommended one first: what a report tells of one alone is of the
    first of them on which the job runs."""
    chosen = result.recommended
    places = range(len(result.variants))
    return (*(i for i in places if i == chosen), *(i for i in places if i != chosen))


def job_names(result: Result) -> tuple[str, ...]:
    """All jobs of the study, in its order."""
    return tuple(dict.fromkeys(job.name for variant in result.variants for job in variant.jobs))


def show_band(value: float, low: float, high: float, show: Callable[[float], str]) -> str:
    """'1.59 s to 2.17 s': where 80 % of measurements of a predicted value are expected.

    low, high   the band of measured over predicted of that value
    """
    return f"{show(value * low)} to {show(value * high)}"


def busbw_band(point: CollectivePrediction) -> str:
    """'42.9 GB/s to 52.1 GB/s': the band of a bus bandwidth, which is the lower the longer a call takes."""
    return show_band(point.busbw, 1 / point.error_high, 1 / point.error_low, show_rate)


def pxn_pairs(result: Result) -> tuple[tuple[int, int], ...]:
    """(with, without): indices of variants that differ in nothing but PXN."""
    changes = [{}, *(dict(variant.set) for variant in result.study.variants)]
    table: dict[str, dict[bool, int]] = {}
    for index, change in enumerate(changes[: len(result.variants)]):
        pxn = bool(change.pop("nccl.pxn", result.study.nccl.pxn))
        rest = repr(sorted(change.items(), key=lambda item: item[0]))
        table.setdefault(rest, {}).setdefault(pxn, index)
    return tuple((pair[True], pair[False]) for pair in table.values() if len(pair) == 2)


def show_tokens(value: float) -> str:
    """Tokens a second to the last one, so that variants a thousandth apart read differently."""
    return f"{value:,.0f}"


def same_fabric(one: Fabric, other: Fabric) -> bool:
    """Whether two fabrics are wired alike and have the same faults."""
    if one is other:
        return True
    names = ("kind", "rail", "a", "b", "port_a", "port_b", "rate", "capacity")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def largest_first(rows: Iterable[SensitivityRow]) -> list[SensitivityRow]:
    """Sensitivity rows by size of effect; those that cannot run come last."""
    return sorted(rows, key=lambda row: (row.effect is None, -abs(row.effect or 0.0)))


@dataclass(frozen=True)
class Critical:
    """The critical path of a job's step on the recommended variant, or the first where it runs, and the
    sentences about it."""

    job: str
    variant: int
    path: CriticalPath
    told: tuple[str, ...]


def critical_sentences(result: Result) -> tuple[Critical, ...]:
    """One for each job whose timeline holds the whole step."""
    found = []
    for name in job_names(result):
        for index in told_first(result):
            job = job_of(result.variants[index], name)
            if job is None or job.step is None:
                continue
            path = job.critical or critical_path(job.step.timeline)
            if path is not None and path.events:
                found.append(Critical(name, index, path, path.sentences(dict(job.worth))))
            break
    return tuple(found)


def show_effect(effect: float) -> str:
    """A change of throughput; '×38' from ten times on, where a percentage says nothing more."""
    return show_change(effect) if effect < MANY - 1 else f"×{1 + effect:,.0f}"


def main_change(row: SensitivityRow) -> str:
    """The share that a change moves most, 'expert parallel -121 ms'; '–' where none moves."""
    if not row.changes:
        return "–"
    kind, seconds = max(row.changes, key=lambda change: abs(change[1]))
    return f"{KIND_NAMES.get(kind, kind)} {'+' if seconds > 0 else '-'}{show_time(abs(seconds))}"


LATENCIES = {"TTFT": "time to first token", "TPOT": "time per token"}
"""Latencies of served users whose error is known, by the name that its band has."""


def served_bands(result: Result) -> list[tuple[str, str, float, float]]:
    """(what, its serving job, low, high) of published means over predicted ones."""
    models = {job.name: job.model for job in result.study.serving}
    return [
        (LATENCIES[short], one.name, low, high)
        for one in result.rooms.serving
        if one.name in models
        for short, (low, high) in error_bands(one.engine, load_model(models[one.name]).is_moe).items()
    ]
