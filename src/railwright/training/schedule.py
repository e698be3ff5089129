"""Pipeline schedules: in which order each stage runs the forward and backward passes of its chunks.

Legend: p stages, v model chunks per stage, m microbatches; chunk c of stage s holds the
(c p + s)-th of the p v equal pieces of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple


class Unit(NamedTuple):
    """One pass of one microbatch through one chunk of a stage.

    kind        'F' forward, 'B' backward (input and weight gradients together)
    """

    kind: str
    chunk: int
    microbatch: int


Orders = tuple[tuple[Unit, ...], ...]


def one_f_one_b(stages: int, chunks: int, microbatches: int) -> Orders:
    """1F1B: stage s runs p - s - 1 forwards, then alternates, then drains; bubble (p-1)(F+B).

    Source: Narayanan et al., SC'21 (arXiv 2104.04473), section 2.2.1 (PipeDream-Flush).
    """
    assert chunks == 1, "1F1B has one chunk per stage"
    forward = [Unit("F", 0, i) for i in range(microbatches)]
    backward = [Unit("B", 0, i) for i in range(microbatches)]
    return tuple(_alternate(forward, backward, stages - s - 1) for s in range(stages))


def interleaved(stages: int, chunks: int, microbatches: int) -> Orders:
    """Interleaved 1F1B: v chunks per stage, bubble (p-1)(F+B)/v; m must be a multiple of p.

    Microbatches advance in groups of p: all chunks of one group before the next group.
    Source: Narayanan et al., SC'21, section 2.2.2; Megatron-LM, core/pipeline_parallel/schedules.py
    (warm-up of 2 (p - s - 1) + (v - 1) p passes).
    """
    assert microbatches % stages == 0, "interleaving needs a multiple of the stages"
    steps = [
        (chunk, group + i)
        for group in range(0, microbatches, stages)
        for chunk in range(chunks)
        for i in range(stages)
    ]
    forward = [Unit("F", chunk, i) for chunk, i in steps]
    backward = [Unit("B", chunks - 1 - chunk, i) for chunk, i in steps]
    return tuple(
        _alternate(forward, backward, 2 * (stages - s - 1) + (chunks - 1) * stages) for s in range(stages)
    )


SCHEDULES: dict[str, Callable[[int, int, int], Orders]] = {
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
}


@lru_cache(maxsize=8)
def schedule(stages: int, chunks: int, microbatches: int) -> Orders:
    """Units of every stage in the order it runs them: interleaved when a stage has several chunks."""
    return SCHEDULES["interleaved" if chunks > 1 else "1f1b"](stages, chunks, microbatches)


def in_flight(order: tuple[Unit, ...]) -> int:
    """Most forward passes whose backward pass is still to come: sets of activations a stage holds."""
    held = most = 0
    for unit in order:
        held += 1 if unit.kind == "F" else -1
        most = max(most, held)
    return most


def _alternate(forward: list[Unit], backward: list[Unit], warm_up: int) -> tuple[Unit, ...]:
    """Warm-up forwards, then one forward and one backward in turn, then the remaining backwards."""
    count = len(forward)
    warm_up = min(warm_up, count)
    order = forward[:warm_up]
    for i in range(count - warm_up):
        order += (forward[warm_up + i], backward[i])
    return tuple(order + backward[count - warm_up :])
