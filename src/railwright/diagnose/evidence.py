"""What was observed, in the two forms that the inference understands: rates along paths, and events.

Legend: M measured rates, P entries (measurement, element) of their paths, E elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

OUT, IN, ANY = 0, 1, 2
"""Way of an entry: from a GPU up (a cable's end a to b), the other way, or both at once."""


@dataclass(frozen=True, eq=False)
class Rates:
    """Measured rates against what they should be.

    y        (M,) ln(measured / expected); a test that did not run at all is ln 0.01
    sigma    (M,) its scatter when all is well
    obs, element, way, weight  (P,) which elements a measurement crosses, which way, and with what part of it:
             1 where it certainly and wholly crosses
    spread   (P,) what a weight below 1 means: True, the part of the bytes that crosses (adaptive routing);
             False, the probability that the one path crosses (ECMP)
    labels   (M,) what was measured, in words
    source   where it comes from
    """

    y: Floats
    sigma: Floats
    obs: Ints
    element: Ints
    way: Ints
    weight: Floats
    spread: NDArray[np.bool_]
    labels: Sequence[str]
    source: str = "rates"

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Event:
    """Something seen that points at elements: any of them, faulty, may have caused it; or none.

    causes  (element, probability that its fault shows so)
    leak    probability that it is seen without a fault
    """

    text: str
    causes: tuple[tuple[int, float], ...]
    leak: float
    source: str = "event"


@dataclass(frozen=True)
class Evidence:
    """Everything that is known.

    quiet  (element, probability that a fault would have shown) of every check that showed nothing
    notes  what was seen and is no fault of an element (congestion), or could not be used
    """

    rates: tuple[Rates, ...] = ()
    events: tuple[Event, ...] = ()
    quiet: tuple[tuple[int, float], ...] = ()
    notes: tuple[str, ...] = field(default=())


def together(parts: Sequence[Evidence]) -> Evidence:
    """All evidence of several files."""
    return Evidence(
        tuple(r for p in parts for r in p.rates),
        tuple(e for p in parts for e in p.events),
        tuple(q for p in parts for q in p.quiet),
        tuple(dict.fromkeys(n for p in parts for n in p.notes)),
    )


def joined(rates: Sequence[Rates]) -> Rates | None:
    """Rates of several sources as one table; None without any."""
    whole = [r for r in rates if len(r)]
    if not whole:
        return None
    starts = np.cumsum([0, *(len(r) for r in whole)]).tolist()
    return Rates(
        np.concatenate([r.y for r in whole]),
        np.concatenate([r.sigma for r in whole]),
        np.concatenate([r.obs + s for r, s in zip(whole, starts[:-1], strict=True)]),
        np.concatenate([r.element for r in whole]),
        np.concatenate([r.way for r in whole]),
        np.concatenate([r.weight for r in whole]),
        np.concatenate([r.spread for r in whole]),
        [label for r in whole for label in r.labels],
        ", ".join(dict.fromkeys(r.source for r in whole)),
    )
