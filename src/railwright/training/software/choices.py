"""How far to trust that one layout of a job is faster than another by so much (data/choices.yaml)."""

from __future__ import annotations

from functools import cache
from math import inf
from typing import NamedTuple

from railwright.shipped import read_data


class Choice(NamedTuple):
    """Published pairs of layouts of one job whose steps are predicted about as far apart.

    low, high  gains between which they lie: more steps in the same time
    pairs      how many there are
    right      share that was measured in the predicted order
    half, most  how far the measured gain is off the predicted one for half of them, and for 80 %
    """

    low: float
    high: float
    pairs: int
    right: float
    half: float
    most: float


def choice(gain: float) -> Choice:
    """The pairs to judge a predicted gain by."""
    return next(one for one in choices() if one.low <= gain < one.high)


@cache
def choices() -> tuple[Choice, ...]:
    """All of them, smallest gains first."""
    rows = read_data("training", "choices.yaml")["gains"]
    ends = [*(float(row["from"]) for row in rows[1:]), inf]
    return tuple(
        Choice(float(row["from"]), end, row["pairs"], *(float(row[k]) for k in ("right", "half", "most")))
        for row, end in zip(rows, ends, strict=True)
    )
