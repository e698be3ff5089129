"""What the passes of a stage take where forwards and backwards run together (`schedule.paired`).

Legend: X layouts, p stages, v chunks of a stage, m microbatches, G kinds of chunk; *_xp means shape (X, p).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from railwright.search.bounds.laws import BACKWARD, FORWARD, LONE, SURE, Floats
from railwright.training.layout.route import Unit
from railwright.training.layout.schedule import paired

Counts = NDArray[np.int64]


class Passed(NamedTuple):
    """Passes of every stage by the places of their chunks.

    forward_pv, backward_pv  those that run alone
    both_pvv                 forwards of one chunk together with backwards of another
    """

    forward_pv: Counts
    backward_pv: Counts
    both_pvv: Counts


@lru_cache(maxsize=256)
def passes(stages: int, chunks: int, count: int) -> Passed:
    """How often a stage runs each pass in a step of `count` microbatches."""
    found = Passed(*(np.zeros((stages, *[chunks] * n), np.int64) for n in (1, 1, 2)))
    for s, order in enumerate(paired(stages, chunks, count)):
        for unit in order:
            _count(found, s, unit)
    return found


def _count(found: Passed, stage: int, unit: Unit) -> None:
    if unit.kind == "FB":
        found.both_pvv[stage, unit.chunk, unit.back] += 1
    elif unit.kind == "F":
        found.forward_pv[stage, unit.chunk] += 1
    else:
        found.backward_pv[stage, unit.chunk] += 1


def work(laws_xbgl: Floats, kind_pv: Counts, count_x: Floats) -> Floats:
    """(X, p) seconds that all passes of a stage take at least.

    Of two passes at once only the sum of each law is sure, so it is summed before the largest is taken.
    """
    lone = laws_xbgl[..., (*SURE, LONE)].max(-1)
    sure = laws_xbgl[..., SURE]
    forward, backward = lone[:, FORWARD][:, kind_pv], lone[:, BACKWARD][:, kind_pv]
    ahead, back = sure[:, FORWARD][:, kind_pv], sure[:, BACKWARD][:, kind_pv]
    found = np.zeros((len(laws_xbgl), len(kind_pv)))
    for count in np.unique(count_x).tolist():
        alike = count_x == count
        ran = passes(*kind_pv.shape, int(count))
        alone = (forward[alike] * ran.forward_pv + backward[alike] * ran.backward_pv).sum(-1)
        both = np.einsum("xpvl,pv->xpl", ahead[alike], ran.both_pvv.sum(2))
        both += np.einsum("xpvl,pv->xpl", back[alike], ran.both_pvv.sum(1))
        found[alike] = alone + both.max(-1)
    return found
