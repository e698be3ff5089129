"""What a layout puts on the network: bytes that one GPU sends per step in groups that span servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import Task
from railwright.training.layers.communication import Priced, Prices
from railwright.training.layers.cost_model import CostModel
from railwright.training.layers.costs import KernelTime
from railwright.training.layout.pipeline import leaving
from railwright.training.layout.route import Unit
from railwright.training.layout.schedule import route_of
from railwright.training.software.eras import Pace
from railwright.training.step.endings import Ending, endings_of
from railwright.training.step.simulating import stages_of
from railwright.training.step.stage import PassBook, Stage

Key = tuple[str, str, float]
"""Purpose, operation and size of a collective, as `Prices.known` has it."""


def most_sent(
    job: TrainingJob, arch: Transformer, prices: Prices, kernel: KernelTime, pace: Pace, book: PassBook
) -> float:
    """`sent_by_stages` of the stage that sends most. [byte]"""
    return max(sent_by_stages(job, arch, prices, kernel, pace, book))


def sent_by_stages(
    job: TrainingJob, arch: Transformer, prices: Prices, kernel: KernelTime, pace: Pace, book: PassBook
) -> list[float]:
    """Bytes one GPU of every stage sends in a step in groups that span servers, whatever the step takes.

    prices, kernel, pace, book  as `training.step.quick.step_seconds` has them
    Per collective of size S over n ranks: all-gather and reduce-scatter S (n-1)/n, all-reduce twice that,
    all-to-all S (n-1)/n, a send S (nccl-tests, doc/PERFORMANCE.md).  All of a group's bytes count, also those
    that stay inside a server.
    """
    stages, _ = stages_of(job, arch, prices, lambda _: book)
    endings = endings_of(job, arch, CostModel(prices, kernel, pace), stages, [0.0] * len(stages))
    route = route_of(job.layout)
    alike = [_alike(one) for one in stages]
    counts = [
        _collectives(one, units, ending) for one, units, ending in zip(stages, alike, endings, strict=True)
    ]
    sends = [sum(leaving(s, one[0], route) * len(one) for one in units) for s, units in enumerate(alike)]
    # after the passes were counted: they are priced when they are first asked for
    known: dict[Key, tuple[Priced, Prices]] = {}
    for some in (prices, book.work.prices):
        known |= {key: (priced, some) for key, priced in some.known.items()}
    across = {key: priced for key, (priced, some) in known.items() if some.crosses_servers(priced.groups)}
    return [_bytes(count, sent, across) for count, sent in zip(counts, sends, strict=True)]


def _alike(stage: Stage) -> list[list[Unit]]:
    """Passes of a stage that send the same."""
    found: dict[tuple[Any, ...], list[Unit]] = {}
    for unit in stage.order:
        found.setdefault((unit.kind, unit.chunk, unit.back, stage.begins(unit)), []).append(unit)
    return list(found.values())


def _collectives(stage: Stage, alike: Iterable[Sequence[Unit]], ending: Ending) -> Counter[Key]:
    """How often a stage, of which only what follows its passes has been placed, runs every collective."""
    counts = _keys(span.task for span in stage.dp_spans)
    for units in alike:
        first = units[0]
        for key, each in _keys(stage.with_dp(first, stage.chunks_of(first), stage.begins(first))).items():
            counts[key] += each * len(units)
    for sent in ending.exchanged:
        counts[sent.purpose, sent.op, sent.size] += sent.times
    return counts


def _keys(tasks: Iterable[Task]) -> Counter[Key]:
    return Counter((task.name, task.kind, task.size) for task in tasks if task.size)


def _bytes(counts: Counter[Key], sends: int, across: Mapping[Key, Priced]) -> float:
    """across  collectives of groups that span servers"""
    total = 0.0
    for key, priced in across.items():
        count = sends if priced.lane == "pp" else counts[key]
        total += count * _sent(priced.prediction.op, priced.prediction.size, priced.prediction.ranks)
    return total


def _sent(op: str, size: float, ranks: int) -> float:
    if op == "sendrecv":
        return size
    return size * (ranks - 1) / ranks * (2.0 if op == "all_reduce" else 1.0)
