"""Processes that share a validation change nothing of it."""

from __future__ import annotations

from railwright.measure import validate


def test_rows_are_the_same_in_the_same_order() -> None:
    alone, shared = validate("collectives"), validate("collectives", processes=2)
    assert shared == alone
    assert shared.lines(detail=True) == alone.lines(detail=True)
