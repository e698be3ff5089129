"""Elements that the evidence cannot tell apart, as one: what is inferred about is classes.

Legend: E elements, K classes, M rates, P entries, V events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.diagnose.evidence import Evidence, Rates, joined

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """The evidence by class.

    class_of   (E,) class of each element, -1 for elements that no evidence touches
    prior      (E,) probability of a fault before the evidence
    slows      (E,) part of an element's faults that slow what goes through it
    log_odds   (K,) ln of the prior odds of a class: that one of its elements is at fault
    log_slow, log_still  (K,) ln of the part of a class's faults that slow, and that do not
    rates      all rates, or None; entries (row, class, way, weight, spread) hold each class once
    quiet      (K,) ln likelihood ratio of the checks that showed nothing
    event_of, event_class, event_seen  entries: event, class, probability that it shows
    leak       (V,) probability of each event without a fault
    """

    class_of: Ints
    prior: Floats
    slows: Floats
    log_odds: Floats
    log_slow: Floats
    log_still: Floats
    rates: Rates | None
    row: Ints
    klass: Ints
    way: Ints
    weight: Floats
    spread: NDArray[np.bool_]
    quiet: Floats
    event_of: Ints
    event_class: Ints
    event_seen: Floats
    leak: Floats

    @property
    def num_classes(self) -> int:
        return len(self.log_odds)

    def members(self, k: int) -> Ints:
        """Elements of a class."""
        return np.flatnonzero(self.class_of == k)


def problem(evidence: Evidence, weights: Floats, slows: Floats, expected: float) -> Problem:
    """Gather elements into classes of equal evidence.

    weights   (E,) faults a year
    slows     (E,) part of them that slow what goes through the element
    expected  faults expected before the evidence
    """
    count = len(weights)
    rates = joined(evidence.rates)
    # Nobody is likelier to be at fault than to fail within a year, however few the elements are.
    prior = np.minimum(expected * weights / weights.sum(), weights) if count else weights
    event_of, cause, seen = _events(evidence)
    quiet = np.zeros(count)
    if evidence.quiet:
        at = np.array([e for e, _ in evidence.quiet], np.int64)
        np.add.at(quiet, at, np.log1p(-np.array([q for _, q in evidence.quiet])))
    mark = _marks(count, rates, event_of, cause, seen, quiet)
    touched = mark != 0
    class_of = np.full(count, -1, np.int64)
    marks, first, inverse = np.unique(mark[touched], return_index=True, return_inverse=True)
    # Classes in order of their first element, so that equal evidence gives the same answer in the same order.
    place = np.argsort(np.argsort(first))
    class_of[touched] = place[inverse.reshape(-1)]
    classes = len(marks)
    mass = np.bincount(class_of[touched], prior[touched], classes)
    slow = np.clip(np.bincount(class_of[touched], (prior * slows)[touched], classes) / mass, 1e-9, 1 - 1e-9)
    head = np.full(classes, -1, np.int64)
    head[class_of[touched][::-1]] = np.flatnonzero(touched)[::-1]
    leads = np.zeros(count, np.bool_)
    leads[head] = True
    none = np.zeros(0, np.int64)
    if rates is None:
        row = klass = way = none
        weight, spread = np.zeros(0), np.zeros(0, np.bool_)
    else:
        kept = leads[rates.element]
        row, klass, way = rates.obs[kept], class_of[rates.element[kept]], rates.way[kept]
        weight, spread = rates.weight[kept], rates.spread[kept]
    own = leads[cause]
    return Problem(
        class_of, prior, slows, np.log(mass / np.maximum(1 - mass, 1e-9)), np.log(slow), np.log1p(-slow),
        rates, row, klass, way, weight, spread,
        quiet[head], event_of[own], class_of[cause[own]], seen[own],
        np.array([e.leak for e in evidence.events]),
    )  # fmt: skip


def _events(evidence: Evidence) -> tuple[Ints, Ints, Floats]:
    entries = [(i, e, q) for i, event in enumerate(evidence.events) for e, q in event.causes if q > 0]
    return (
        np.array([i for i, _, _ in entries], np.int64),
        np.array([e for _, e, _ in entries], np.int64),
        np.array([q for _, _, q in entries], np.float64),
    )


def _marks(
    count: int, rates: Rates | None, event_of: Ints, cause: Ints, seen: Floats, quiet: Floats
) -> NDArray[np.uint64]:
    """(E,) a number that is equal for elements of equal evidence, and 0 for those without any.

    Sums of random 64-bit numbers: two different elements of 100,000 meet with probability about 1e-9.
    """
    rng = np.random.default_rng(20261122)
    mark = np.zeros(count, np.uint64)
    if rates is not None:
        random = rng.integers(1, 2**63, size=(len(rates), 3), dtype=np.uint64)
        scale = np.rint(rates.weight * 4096).astype(np.uint64) * np.uint64(2) + rates.spread.astype(np.uint64)
        np.add.at(mark, rates.element, random[rates.obs, rates.way] * scale)
    if len(event_of):
        random = rng.integers(1, 2**63, size=int(event_of.max()) + 1, dtype=np.uint64)
        scale = np.rint(seen * 4096).astype(np.uint64) * np.uint64(2) + np.uint64(1)
        np.add.at(mark, cause, random[event_of] * scale)
    if quiet.any():
        mark += np.rint(-quiet * 1e6).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mark
