"""Replay the published record through the public API; one table of predicted, measured and error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import resources
from itertools import chain

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
from railwright.measure.training.replay import memory_rows, records, training_rows

FAMILIES: dict[str, Callable[[], Iterator[Row | Skipped]]] = {
    "designs": design_rows,
    "models": parameter_rows,
    "collectives": lambda: chain(collective_rows(), moe_rows(), custom_rows()),
    "effects": effect_rows,
    "training": lambda: chain(memory_rows(), training_rows()),
    "serving": serving_rows,
}
"""What `railwright validate FAMILY` can be asked for."""


def validate(family: str | None = None) -> ValidationTable:
    """Predict every published record of one family, or of all.

    Raises RailwrightError for an unknown family.
    """
    if family is not None and family not in FAMILIES:
        raise RailwrightError(
            f"no validation family '{family}'{among(family, FAMILIES)}; the lines of their tables, such as "
            "'memory resident' of training, cannot be asked for alone"
        )
    found = [row for name, rows in FAMILIES.items() if family in (None, name) for row in rows()]
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
