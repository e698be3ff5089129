"""Times of ranks, step by step: who computes slower than its peers.

CSV with columns `rank`, `seconds`, and where there are any `step`, `op` (forward, backward, …), `stage` (of
the pipeline) and `host`.  Seconds are those of the rank's own work: in a synchronous job the whole step takes
equally long on all ranks, whoever is slow.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from railwright.diagnose.constants import noise
from railwright.diagnose.elements import Elements
from railwright.diagnose.evidence import ANY, Evidence, Rates
from railwright.diagnose.read.text_file import fail, text_of

UNEVEN = 1.2
"""Stages whose medians differ by more are unevenly loaded: a matter of the layout, not of a part."""


@dataclass(frozen=True)
class StepTime:
    """Seconds that a rank worked on an operation in a step."""

    rank: int
    seconds: float
    step: str = ""
    op: str = ""
    stage: str = ""
    host: str = ""


def read_steps(path: Path) -> list[StepTime]:
    """The rows of a CSV of step times; SpecError with the line of the first that is none."""
    lines = text_of(path).splitlines()
    body = [(n, line) for n, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    if not body:
        fail(path, 0, "the file is empty; expected a CSV with the columns rank and seconds")
    head = [cell.strip().lower() for cell in next(csv.reader([body[0][1]]))]
    if "rank" not in head or "seconds" not in head:
        fail(path, body[0][0], f"columns rank and seconds are needed, and here are: {', '.join(head)}")
    found = []
    for number, line in body[1:]:
        cells = dict(zip(head, next(csv.reader([line])), strict=False))
        try:
            rank, seconds = int(cells["rank"]), float(cells["seconds"])
        except (KeyError, ValueError, TypeError):
            fail(path, number, f"rank must be a whole number and seconds a number: '{line[:60]}'")
        if rank < 0 or not (math.isfinite(seconds) and seconds > 0):
            fail(path, number, f"a rank is 0 or more and seconds above 0: '{line[:60]}'")
        found.append(StepTime(rank, seconds, *(cells.get(k) or "" for k in ("step", "op", "stage", "host"))))
    if len({row.rank for row in found}) < 3:
        fail(path, 0, "fewer than three ranks: nobody can tell which of two is the slow one")
    return found


def step_evidence(elements: Elements, rows: Sequence[StepTime]) -> Evidence:
    """One rate per rank and operation: its peers' median over its own median.

    Peers are the ranks of the same stage when they are three or more, else all ranks.
    """
    peers = _medians(rows)
    y, rank, labels, notes = [], [], [], _stages(rows)
    for (op, stage), own in sorted(peers.items()):
        usual = median(own.values())
        for who, seconds in sorted(own.items()):
            y.append(math.log(usual / seconds))
            rank.append(who)
            work = f"{op or 'work'}{f', stage {stage}' if stage else ''}"
            labels.append(f"rank {who}, {work}: {seconds:.4g} s, its peers {usual:.4g} s")
    values = np.array(y)
    scatter = 1.4826 * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0
    sigma = np.full(len(values), max(noise().healthy, scatter))
    obs: list[int] = []
    element: list[int] = []
    for i, who in enumerate(rank):
        place = elements.place_of_rank(who)
        causes = [elements.rank(who)] if place is None else [elements.rank(who), place[0], place[2]]
        obs += [i] * len(causes)
        element += causes
    count = len(obs)
    rates = Rates(
        values, sigma, np.array(obs, np.int64), np.array(element, np.int64), np.full(count, ANY),
        np.ones(count), np.zeros(count, np.bool_), labels, "step times",
    )  # fmt: skip
    return Evidence((rates,), (), (), tuple(notes))


def _medians(rows: Sequence[StepTime]) -> Mapping[tuple[str, str], dict[int, float]]:
    """(operation, stage) -> rank -> median seconds; the stage is '' where a stage has too few ranks."""
    by_stage: dict[str, set[int]] = {}
    for row in rows:
        by_stage.setdefault(row.stage, set()).add(row.rank)
    own = all(len(ranks) >= 3 for ranks in by_stage.values())
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        key = row.op, row.stage if own else ""
        values.setdefault(key, {}).setdefault(row.rank, []).append(row.seconds)
    return {key: {r: median(v) for r, v in ranks.items()} for key, ranks in values.items()}


def _stages(rows: Sequence[StepTime]) -> list[str]:
    """A sentence per operation whose stages take unequally long."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        values.setdefault(row.op, {}).setdefault(row.stage, []).append(row.seconds)
    notes = []
    for op, stages in sorted(values.items()):
        middle = {stage: median(v) for stage, v in stages.items()}
        usual = median(middle.values())
        for stage, seconds in sorted(middle.items()):
            if len(middle) > 1 and seconds > UNEVEN * usual:
                notes.append(
                    f"stage {stage}, {op or 'work'}: all its ranks take {seconds / usual:.2f} x as long as "
                    "other stages: divide the layers otherwise; no rank is at fault"
                )
    return notes
