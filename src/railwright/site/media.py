"""From a cable's length to what it is made of, and from that to the modules at its ends.

A cage with several ports takes one module or cable head for all of them, so cables that share a cage are of
one kind: the one that the longest of them needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Floats
from railwright.site.parts import CableKind
from railwright.units import show_bit_rate, show_length

FIBRE = (1.0, 2, 3, 5, 7, 10, 15, 20, 25, 30, 35, 40, 50, 60, 70, 80, 100, 125, 150, 200, 250, 300, 400, 500)
"""Stock lengths of fibre [m]: NVIDIA LinkX ordering tables (3 to 150 m), beyond in round steps; longer
ones are ordered to the metre."""

Whole = NDArray[np.int64]


def ladder(
    media: Mapping[str, CableKind], technology: str, rate: float, split: int = 1
) -> tuple[CableKind, ...]:
    """The kinds for ports of this rate [byte/s], from the shortest reach: those of the slowest generation
    that carries it.  split: legs of a cable that breaks a port out, which some kinds cannot.

    Raises PlanError where none does.
    """
    able = _able(media, technology, rate, ("either", "whole") if split == 1 else ("either", "port"))
    if not able:
        legs = f" in {split} legs" if split > 1 else ""
        raise PlanError(
            f"no {technology} cable for {show_bit_rate(rate)}{legs} is known; add one to `site.parts`",
            "site.parts",
        )
    slowest = min(m.rate for m in able)
    return tuple(sorted((m for m in able if m.rate == slowest), key=lambda m: m.reach))


def leg_end(media: Mapping[str, CableKind], port: CableKind, rate: float, length: float) -> CableKind:
    """The kind at the machine's end of a breakout cable: of the port's medium, the slowest that carries a
    leg [byte/s] so far [m]; that of the port where none is slower.
    """
    able = [m for m in _able(media, port.technology, rate, ("either", "leg")) if m.kind == port.kind]
    reaching = [m for m in able if m.reach >= length - 1e-9 and m.rate <= port.rate]
    return min(reaching, key=lambda m: (m.rate, m.reach), default=port)


def _able(
    media: Mapping[str, CableKind], technology: str, rate: float, split: tuple[str, ...]
) -> list[CableKind]:
    return [
        m
        for m in media.values()
        if m.technology == technology and m.rate >= rate * (1 - 1e-9) and m.split in split
    ]


def longest(kind: CableKind) -> float:
    """Longest cable of a kind that can be bought. [m]"""
    return max((length for length in kind.lengths if length <= kind.reach), default=kind.reach)


def stock_length(kind: CableKind, length: Floats) -> Floats:
    """What is bought for these lengths: the next one in stock, or the next metre. [m]"""
    stock = np.array([s for s in (kind.lengths or FIBRE) if s <= kind.reach] or [kind.reach])
    at = np.searchsorted(stock, length - 1e-9)
    bought = np.where(at < len(stock), stock[np.minimum(at, len(stock) - 1)], np.ceil(length - 1e-9))
    return np.asarray(np.minimum(bought, kind.reach), dtype=np.float64)


def rungs(kinds: tuple[CableKind, ...], length: Floats) -> Whole:
    """For every length the first kind of the ladder that can be bought so long.

    Raises PlanError for a length beyond them all.
    """
    limits = np.array([longest(kind) for kind in kinds])
    far = float(length.max(initial=0.0))
    if far > limits.max():
        raise PlanError(
            f"a cable of {show_length(far)} is beyond every {kinds[0].technology} medium for "
            f"{show_bit_rate(kinds[0].rate)} ports, which reach {show_length(float(limits.max()))}; "
            "shorten rows, move switches to the middle, or add cross trays",
            "site",
        )
    # limits need not ascend with reach (stock lengths), so each rung is asked in turn
    first: Whole = np.full(len(length), len(kinds), np.int64)
    for rung in range(len(kinds) - 1, -1, -1):
        first[length <= limits[rung]] = rung
    return first


def alike_in_cages(first: Whole, cages_a: Whole, cages_b: Whole) -> Whole:
    """Rungs raised until all cables that share a cage have the same.

    cages_a, cages_b  cage of each end; a cage of one port is its cable's alone
    """
    _, known = np.unique(np.concatenate([cages_a, cages_b]), return_inverse=True)
    at_a, at_b = known[: len(first)], known[len(first) :]
    rung = first.copy()
    while True:
        most: Whole = np.zeros(int(known.max(initial=-1)) + 1, np.int64)
        np.maximum.at(most, at_a, rung)
        np.maximum.at(most, at_b, rung)
        raised: Any = np.maximum(most[at_a], most[at_b])
        if np.array_equal(raised, rung):
            return rung
        rung = raised
