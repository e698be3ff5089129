"""Bounds of classes whose groups the network may not connect: rail-only without PXN, links that are down."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.search.bounds.blocks import Refusal
from railwright.search.bounds.laws import Floats
from railwright.search.space.axes import Block

Deeper = Callable[[Block, NDArray[np.bool_]], Floats]
"""Bounds (X, z, d, p) of the classes of a block that are wanted, or with lengths of 1. [s]"""

EXCHANGE = ("zero", "overlap_dp")
"""Choices beside those of a class that decide what data-parallel ranks send, and so which layouts of a class
the network carries: an all-reduce up a tree may stay on a rail where a ring of reductions leaves it."""


def where_reached(
    deeper: Deeper, block: Block, wanted: NDArray[np.bool_], exchanged: bool
) -> tuple[Floats, list[Refusal]]:
    """What `deeper` says, infinite where it raises PlanError; and what it refused, with what it said.

    exchanged  whether `deeper` prices what data-parallel ranks send
    Classes are asked one by one only where some of them cannot be priced, and of a class every exchange.
    """
    try:
        return deeper(block, wanted), []
    except PlanError as no:
        if wanted.sum() == 1 and not exchanged:
            return np.full((wanted.size, 1, 1, 1), np.inf), [Refusal(block.size // wanted.size, str(no))]
    if wanted.sum() == 1:
        return _by_exchange(deeper, block, wanted)
    found: Floats = np.full((wanted.size, 1, 1, 1), np.inf)
    refused: list[Refusal] = []
    for one in np.flatnonzero(wanted).tolist():
        bounds, no_way = where_reached(deeper, block, np.arange(wanted.size) == one, exchanged)
        found = np.where((np.arange(wanted.size) == one)[:, None, None, None], bounds, found)
        refused += no_way
    return found, refused


def _by_exchange(deeper: Deeper, block: Block, wanted: NDArray[np.bool_]) -> tuple[Floats, list[Refusal]]:
    """The same of one class, exchange by exchange."""
    of_zero, of_dp = (block.of(axis) for axis in EXCHANGE)
    shape = (wanted.size, len(of_zero), len(of_dp), len(block.of("overlap_pp")))
    found: Floats = np.full(shape, np.inf)
    refused: list[Refusal] = []
    for z, zero in enumerate(of_zero):
        for d, hidden in enumerate(of_dp):
            only = dict(zip(EXCHANGE, ((zero,), (hidden,)), strict=True))
            choices = tuple((axis, only.get(axis, values)) for axis, values in block.choices)
            alone = Block(block.structure, choices, block.data)
            try:
                bounds = deeper(alone, wanted)
            except PlanError as no:
                refused.append(Refusal(alone.size // wanted.size, str(no)))
                continue
            found[:, z, d] = bounds[:, 0, 0]
    return found, refused


def together(apart: Sequence[Refusal]) -> tuple[Refusal, ...]:
    """One refusal of all classes that are not connected, none where all are."""
    return (Refusal(sum(one.layouts for one in apart), apart[0].example),) if apart else ()
