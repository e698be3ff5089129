"""Which of the layouts tried are told: the fastest, and those that no other beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from railwright.search.result import Candidate


@dataclass(frozen=True)
class Tried:
    """A layout, its place in the space, what was known of it before [s], its exact time [s] and memory
    [byte]."""

    block: int
    at: int
    bound: float
    time: float
    memory: float


def limit(best: Mapping[tuple[Any, ...], Tried], top: int) -> float:
    """The time that another layout must beat."""
    times = sorted(one.time for one in best.values())
    return times[top - 1] if len(times) >= top else np.inf


def ranked(best: Mapping[tuple[Any, ...], Tried], top: int) -> list[Tried]:
    return sorted(best.values(), key=lambda c: c.time)[:top]


def lean(found: Sequence[Tried]) -> list[Tried]:
    """Those of which none is faster and leaner, fastest first."""
    kept: list[Tried] = []
    for one in sorted(found, key=lambda t: (t.time, t.memory)):
        if not kept or one.memory < kept[-1].memory:
            kept.append(one)
    return kept


def front_of(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Those that no other beats in time, memory and network at once, fastest first."""
    kept: list[Candidate] = []
    for one in sorted(found, key=lambda c: (c.time, c.memory, c.network)):
        if not any(k.memory <= one.memory and k.network <= one.network for k in kept):
            kept.append(one)
    return tuple(kept)
