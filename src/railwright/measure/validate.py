"""Replay the published record through the public API; one table of predicted, measured and error."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from importlib import resources
from multiprocessing import get_context

from railwright.errors import RailwrightError, among
from railwright.measure.published.collectives import collective_rows
from railwright.measure.published.counts import design_rows, parameter_rows
from railwright.measure.published.custom import custom_rows
from railwright.measure.published.effects import effect_rows
from railwright.measure.published.moe import moe_rows
from railwright.measure.serving import bars as serving_bars
from railwright.measure.serving.replay import serving_rows
from railwright.measure.table import Bar, Row, Skipped, ValidationTable
from railwright.measure.training import bars as training_bars
from railwright.measure.training.korthikanti import korthikanti_rows
from railwright.measure.training.replay import memory_rows, record_rows, records
from railwright.measure.training.unseen_runs import unseen_rows
from railwright.measure.training.vtrain import single_rows

RECORD_PARTS = 8
"""Parts of the training records, so that processes end at about one time."""

Rows = Callable[[], Iterator[Row | Skipped]]

FAMILIES: dict[str, tuple[Rows, ...]] = {
    "designs": (design_rows,),
    "models": (parameter_rows,),
    "collectives": (collective_rows, moe_rows, custom_rows),
    "effects": (effect_rows,),
    "training": (
        memory_rows,
        *(partial(record_rows, part, RECORD_PARTS) for part in range(RECORD_PARTS)),
        unseen_rows,
        single_rows,
        korthikanti_rows,
    ),
    "serving": (serving_rows,),
}
"""What `railwright validate FAMILY` can be asked for, in parts that need nothing of each other."""


def validate(family: str | None = None, processes: int = 1) -> ValidationTable:
    """Predict every published record of one family, or of all.

    processes  that share the work; the rows are the same, and in the same order, for any number
    Raises RailwrightError for an unknown family.
    """
    if family is not None and family not in FAMILIES:
        raise RailwrightError(
            f"no validation family '{family}'{among(family, FAMILIES)}; the lines of their tables, such as "
            "'memory resident' of training, cannot be asked for alone"
        )
    parts = [part for name, rows in FAMILIES.items() if family in (None, name) for part in rows]
    found = [row for rows in _replayed(parts, processes) for row in rows]
    text = resources.files("railwright.measure").joinpath("data/bars.json").read_text(encoding="utf-8")
    bars = {name: Bar(**bar) for name, bar in json.loads(text).items()}
    rows = tuple(row for row in found if isinstance(row, Row))
    skipped = tuple(row for row in found if isinstance(row, Skipped))
    asked: list[str] = []
    if family in (None, "training"):
        asked = training_bars.lines(training_bars.reached(rows, skipped, {r["id"]: r for r in records()}))
    if family in (None, "serving"):
        asked += ([""] if asked else []) + serving_bars.lines(serving_bars.reached(rows, skipped))
    return ValidationTable(rows, skipped, bars, tuple(asked))


def _replayed(parts: list[Rows], processes: int) -> Iterable[list[Row | Skipped]]:
    """The rows of each part, in order."""
    if min(processes, len(parts)) <= 1:
        return map(_listed, parts)
    try:
        return _shared(parts, processes)
    except BrokenProcessPool:
        # one was killed, of memory most likely, of which one process alone needs less
        return map(_listed, parts)


def _shared(parts: list[Rows], processes: int) -> list[list[Row | Skipped]]:
    # spawned, for a fork of a process with threads, which compiled kernels have, may hang
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_quiet) as pool:
        # the last family, serving, is the longest part
        return list(pool.map(_listed, parts[::-1]))[::-1]


def _quiet() -> None:
    """End at an interruption at once and without a word: the process that asked has one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _listed(rows: Rows) -> list[Row | Skipped]:
    return list(rows())
