"""The page's table of published dispatch and combine; `python tests/moe_records.py` updates the docs.

Logical GB/s and microseconds are both turned into times, so that +10 % always means predicted too slow.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from railwright.measure.published.moe import OWN, PORT, moe_rows
from railwright.measure.table import Row

PAGE = Path(__file__).parents[1] / "docs" / "moe-communication.md"
BEGIN, END = "<!-- errors: begin -->", "<!-- errors: end -->"


@cache
def rows() -> tuple[Row, ...]:
    """All rows of dispatch and combine, in the order of the records."""
    return tuple(row for row in moe_rows() if isinstance(row, Row))


def unseen(row: Row) -> float:
    """The error with the row's record left out."""
    assert row.error_left_out is not None
    return row.error_left_out


def table() -> str:
    """The error table of the page, and what it comes to."""
    lines = [
        "| record | what | published | ours | error | record left out |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows():
        shown = f"{_percent(row.error)}" if abs(row.error) <= 0.25 else f"**{_percent(row.error)}**"
        lines.append(
            f"| {row.record} | {row.what} | {row.measured * 1e6:.0f} us | {row.predicted * 1e6:.0f} us "
            f"| {shown} | {_percent(unseen(row))} |"
        )
    lines += [
        "",
        "| family | values | median | record left out | beyond 25 % (bold) |",
        "|---|---|---|---|---|",
    ]
    for family in (OWN, PORT):
        mine = [row for row in rows() if row.family == family]
        errors = np.array([[abs(row.error), abs(unseen(row))] for row in mine])
        inside, outside = np.median(errors, axis=0)
        lines.append(
            f"| {family} | {len(mine)} | {inside:.0%} | {outside:.0%} | {int((errors[:, 0] > 0.25).sum())} |"
        )
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its table renewed."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def _percent(error: float) -> str:
    return f"{error:+.0%}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
