"""What the passes of a layout's stages take as the training room runs them, each asked for once.

Legend: p stages, v chunks of a stage, k kinds of pass as KINDS numbers them; *_pv means shape (p, v).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from railwright.search.bounds.laws import Floats
from railwright.search.bounds.pairs import Counts, Passed
from railwright.search.bounds.pricing import Placed
from railwright.training.layers.stages import StageShape
from railwright.training.layout.route import Chunk, Kind, Route
from railwright.training.layout.schedule import SPLIT, schedule
from railwright.training.step.quick import KINDS

Timed = Callable[[tuple[Chunk, ...], Kind], Placed]
"""A pass of a layout by its chunks and its kind (`Pricer.passes_of`)."""


def chunk_kinds(shapes: Sequence[StageShape]) -> tuple[list[Chunk], Counts]:
    """Every different chunk, and which of them each stage has at each place."""
    known: dict[Chunk, int] = {}
    places = [[known.setdefault(chunk, len(known)) for chunk in shape.chunks] for shape in shapes]
    return list(known), np.array(places, np.int64)


def commonest(kind_pv: Counts) -> list[int]:
    """Kinds of chunks of one stage: that with most chunks of the commonest kind, and fewest other kinds."""
    most = int(np.bincount(kind_pv.ravel()).argmax())
    stages: list[list[int]] = kind_pv.tolist()
    stage = min(stages, key=lambda kinds: (-kinds.count(most), len(set(kinds))))
    return sorted(set(stage))


def paired_seconds(
    timed: Timed, kinds: Sequence[Chunk], kind_pv: Counts, ran: Passed, disturbed: bool
) -> Floats:
    """(p,) seconds of all passes of stages whose forwards and backwards run together.

    ran        how often each stage runs each pass
    disturbed  data-parallel communication may run beside them
    """
    pair_pvv = kind_pv[:, :, None] * len(kinds) + kind_pv[:, None, :]

    def seconds(chunks: tuple[Chunk, ...], kind: Kind) -> float:
        one = timed(chunks, kind)
        return one.short if disturbed else one.long

    def together(k: int) -> float:
        ahead, back = divmod(k, len(kinds))
        return seconds((kinds[ahead], kinds[back]), "FB")

    forward = _all_of(kind_pv, ran.forward_pv, lambda k: seconds((kinds[k],), "F"))
    backward = _all_of(kind_pv, ran.backward_pv, lambda k: seconds((kinds[k],), "B"))
    return forward + backward + _all_of(pair_pvv, ran.both_pvv, together)


def _all_of(of: Counts, counts: Counts, seconds: Callable[[int], float]) -> Floats:
    """(p,) seconds of all passes of each stage.

    of  (p, ...) which of the passes there are each one is; it is asked for its time once, if it runs at all
    """
    each = np.zeros(of.shape)
    for k in np.unique(of[counts > 0]).tolist():
        each[of == k] = seconds(k)
    found: Floats = (each * counts).reshape(len(of), -1).sum(1)
    return found


def seconds_one_by_one(
    timed: Timed, kinds: Sequence[Chunk], kind_pv: Counts, units_pvk: Counts, of: Sequence[int] | None = None
) -> Floats:
    """(2, p, v, k) seconds of passes, undisturbed and with data-parallel communication beside them
    (`OneByOne`).

    units_pvk  how many of each a stage runs
    of         through which kinds of chunks, default all; others take 0
    """
    wanted = range(len(kinds)) if of is None else of
    found = np.zeros((2, *units_pvk.shape))
    for kind, k in KINDS.items():
        # where two run side by side they are of the stage's two chunks
        places = np.stack([kind_pv, kind_pv[:, ::-1]], -1)[..., : 2 if kind == "FB" else 1]
        asked = (units_pvk[..., k] > 0) & np.isin(places, wanted).all(-1)
        for chunks in np.unique(places[asked], axis=0).tolist():
            one = timed(tuple(kinds[g] for g in chunks), kind)
            found[:, (places == chunks).all(-1), k] = [[one.long], [one.short]]
    return found


def unit_counts(schedule: str, route: Route, count: int) -> Counts:
    """(p, v, k) passes of every stage by the chunk they run through, forward if both.

    Where all are split every chunk has each of the three once per microbatch.  From 2 p microbatches on each
    more adds one forward with a backward to every chunk and nothing else, two where they enter at both ends.
    """
    if schedule in SPLIT:
        found = np.zeros((route.stages, route.chunks, len(KINDS)), np.int64)
        found[..., [KINDS["F"], KINDS["I"], KINDS["W"]]] = count
        return found
    more = count - 2 * route.stages
    found = _fewest_units(schedule, route.stages).copy()
    found[:, :, KINDS["FB"]] += more // 2 if route.shape == "mirror" else more
    return found


@lru_cache(maxsize=64)
def _fewest_units(name: str, stages: int) -> NDArray[np.int64]:
    """The same of as few microbatches as passes that run side by side can have."""
    found = np.zeros((stages, 2, len(KINDS)), np.int64)
    for s, order in enumerate(schedule(stages, 2, 2 * stages, name)):
        for (kind, chunk), n in Counter((u.kind, u.chunk) for u in order).items():
            found[s, chunk, KINDS[kind]] = n
    return found
