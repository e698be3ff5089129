"""Errors of predicted training steps for people: by family, the worst with the reason, and what is left out.

Tables are a head and rows of text; the validation page and its HTML twin print them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from statistics import mean

from railwright.measure.table import WORST, Row, Skipped
from railwright.measure.training.bars import STEPS

Records = Mapping[str, Mapping[str, str]]
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Heads, and rows of as many cells."""


def steps_of(rows: Sequence[Row], records: Records) -> list[Row]:
    """The rows that are published training steps (not memory, nor other tables)."""
    return [r for r in rows if r.record in records and r.family.startswith(STEPS)]


def generation_of(row: Row) -> tuple[str, str]:
    """('dense' or 'moe', the GPU) of a training step's row."""
    _, kind, gpu, _ = row.family.split(" ", 3)
    return kind, gpu


def by_family(steps: Sequence[Row], records: Records, fitted: Container[str]) -> Table:
    """Every family with its number of steps, and its errors fitted and left out of the fit.

    fitted  families that a fit has seen; others have no error of that name
    """
    heads = ("family", "steps", "fitted", "left out", "bias", "worst")
    families: dict[str, list[Row]] = {}
    for row in steps:
        families.setdefault(records[row.record]["family"], []).append(row)
    return heads, [_family(name, families[name], name in fitted) for name in sorted(families)]


def worst(steps: Sequence[Row]) -> Table:
    """The twenty steps that are furthest off, each with the reason."""
    heads = ("error", "predicted", "measured", "step", "why")
    far = sorted(steps, key=lambda r: -abs(r.error))[:WORST]
    return heads, [
        (f"{r.error:+.0%}", f"{r.predicted:.3g} s", f"{r.measured:.3g} s", r.record, r.reason) for r in far
    ]


def left_out(skipped: Sequence[Skipped]) -> Table:
    """Why records are not predicted, and how many for each reason."""
    reasons = Counter(s.reason for s in skipped if s.family.startswith(STEPS))
    return ("records", "why"), [(str(n), why) for why, n in reasons.most_common()]


def in_short(steps: Sequence[Row]) -> str:
    """The whole set in a sentence."""
    off = [abs(r.error) for r in steps]
    unseen = [abs(e) for r in steps if (e := r.error_left_out) is not None]
    return (
        f"{len(steps)} published training steps are predicted {mean(off):.1%} off in the mean, "
        f"{mean(unseen):.1%} with each family left out of the fit."
    )


def _family(name: str, rows: Sequence[Row], fitted: bool) -> tuple[str, ...]:
    errors = [r.error for r in rows]
    unseen = [abs(e) for r in rows if (e := r.error_left_out) is not None]
    return (
        name,
        str(len(rows)),
        f"{mean(map(abs, errors)):.1%}" if fitted else "never",
        f"{mean(unseen):.1%}",
        f"{mean(errors):+.1%}",
        f"{max(errors, key=abs):+.1%}",
    )
