"""Bounds of classes whose groups the network may not connect: rail-only without PXN, links that are down."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.search.blocks import Refusal
from railwright.search.laws import Floats
from railwright.search.space import Block

Deeper = Callable[[Block, NDArray[np.bool_]], Floats]
"""Bounds (X, ...) of the classes of a block that are wanted. [s]"""


def where_reached(deeper: Deeper, block: Block, wanted: NDArray[np.bool_]) -> tuple[Floats, list[PlanError]]:
    """What `deeper` says, infinite for classes of which it raises PlanError; and these errors, one a class.

    Classes are asked one by one only where some of them cannot be priced.
    """
    try:
        return deeper(block, wanted), []
    except PlanError as no:
        if wanted.sum() == 1:
            return np.full((wanted.size, 1, 1, 1), np.inf), [no]
    found: Floats = np.full((wanted.size, 1, 1, 1), np.inf)
    refused: list[PlanError] = []
    for one in np.flatnonzero(wanted).tolist():
        bounds, no_way = where_reached(deeper, block, np.arange(wanted.size) == one)
        found = np.where((np.arange(wanted.size) == one)[:, None, None, None], bounds, found)
        refused += no_way
    return found, refused


def together(apart: Sequence[Refusal]) -> tuple[Refusal, ...]:
    """One refusal of all classes that are not connected, none where all are."""
    return (Refusal(sum(one.layouts for one in apart), apart[0].example),) if apart else ()
