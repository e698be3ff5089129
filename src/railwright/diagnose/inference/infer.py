"""Which elements are at fault: a sparse posterior over sets of faults.

A set of faults explains the rates by its slowest member on each path, and the events by any of its members.
Sets are grown fault by fault from the empty one, the best of each size kept; how much a fault slows is
integrated out on a grid.  Probabilities are those of the sets that were looked at.

Legend: K classes, M rates, S grid points of ln(rate left), V events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, csr_array

from railwright.diagnose.inference.classes import Problem
from railwright.diagnose.inference.likelihood import GRID, grid_prior, log_rate, table

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ANOMALY = 2.5
"""Scatters below the expectation at which a rate makes the elements on its path candidates."""
WIDE, NARROW, KEPT, ENOUGH = 24, 4, 64, 10.0
"""Sets kept of each size, those kept even when `ENOUGH` (ln odds) behind the best, children of each."""
VARIANTS = ((0, 1, 2), (0, 2), (1, 2))
"""Ways that a fault takes: both, out alone, in alone; entries of way 2 are hit by all of them."""


@dataclass(frozen=True, eq=False)
class Fault:
    """One class at fault in a set: which way, and ln(rate left) at its most probable."""

    klass: int
    variant: int
    left: float


@dataclass(frozen=True, eq=False)
class Found:
    """What the evidence says of each class.

    probability  (K,) that it is at fault
    left         (K,) rate left at its most probable, 1 where it slows nothing; nan where it was in no set
    variant      (K,) most probable way: 0 both, 1 out, 2 in
    none         probability that nothing is at fault
    expected     number of faults expected
    sets         the most probable sets of classes, with their probabilities
    best         the faults of the most probable set
    """

    probability: Floats
    left: Floats
    variant: Ints
    none: float
    expected: float
    sets: tuple[tuple[tuple[int, ...], float], ...]
    best: tuple[Fault, ...]


@dataclass(frozen=True, eq=False)
class _State:
    """A set of faults: ln posterior (up to a constant), ln(rate) each measurement should have, survival of
    each event (the probability that no member shows in it)."""

    key: frozenset[int]
    log: float
    mean: Floats
    survival: Floats
    faults: tuple[Fault, ...]


@dataclass(frozen=True, eq=False)
class _Scorer:
    """What growing needs: entries of the K' candidates, and what the empty set makes of each.

    parts   per (weight, spread): the matrix (3 K', M) of entries, by column and by row
    scores  (3 K', S) ln likelihood ratio of each (candidate, way) and grid point
    alone   (K',) each candidate's total over ways and grid, and its best way and point
    """

    problem: Problem
    candidates: Ints
    parts: tuple[tuple[float, bool, csc_array, csr_array], ...]
    scores: Floats
    alone: tuple[Floats, Ints]


def infer(problem: Problem, most: int = 6) -> Found:
    """The posterior over the classes; at most `most` faults at once."""
    scorer = _scorer(problem)
    rates = problem.rates
    start = _State(
        frozenset(), 0.0, np.zeros(0 if rates is None else len(rates)), np.ones(len(problem.leak)), ()
    )
    seen: dict[frozenset[int], tuple[float, tuple[Fault, ...]]] = {start.key: (0.0, ())}
    front, best = [start], 0.0
    for _ in range(min(most, len(scorer.candidates))):
        grown: dict[frozenset[int], tuple[float, _State, int, int, int]] = {}
        for state in front:
            for log, at, variant, point in _children(scorer, state):
                key = state.key | {int(scorer.candidates[at])}
                if key not in grown or log > grown[key][0]:
                    grown[key] = (log, state, at, variant, point)
        order = sorted(grown.items(), key=lambda item: (-item[1][0], sorted(item[0])))
        for key, (log, parent, at, variant, point) in order:
            seen[key] = (log, (*parent.faults, Fault(int(scorer.candidates[at]), variant, GRID[point])))
        if not order or order[0][1][0] < best - ENOUGH:
            break
        best = max(best, order[0][1][0])
        near = sum(item[1][0] > best - ENOUGH for item in order[:WIDE])
        front = [_with(scorer, *item[1]) for item in order[: max(near, NARROW)]]
    return _found(problem, seen)


def _found(problem: Problem, seen: dict[frozenset[int], tuple[float, tuple[Fault, ...]]]) -> Found:
    keys = sorted(seen, key=lambda key: (-seen[key][0], sorted(key)))
    logs = np.array([seen[key][0] for key in keys])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    probability = np.zeros(problem.num_classes)
    left, variant = np.full(problem.num_classes, np.nan), np.zeros(problem.num_classes, np.int64)
    for key, weight in zip(keys, weights.tolist(), strict=True):
        for fault in seen[key][1]:
            probability[fault.klass] += weight
            if np.isnan(left[fault.klass]):
                left[fault.klass], variant[fault.klass] = np.exp(fault.left), fault.variant
    sets = tuple((tuple(sorted(k)), float(w)) for k, w in zip(keys[:40], weights[:40], strict=True))
    return Found(
        np.minimum(probability, 1.0), left, variant, float(weights[keys.index(frozenset())]),
        float(weights @ np.array([len(k) for k in keys], np.float64)), sets, seen[keys[0]][1],
    )  # fmt: skip


def _scorer(problem: Problem) -> _Scorer:
    rates = problem.rates
    hit = np.zeros(problem.num_classes, np.bool_)
    hit[problem.event_class] = True
    if rates is not None:
        odd = rates.y < -ANOMALY * rates.sigma
        hit[problem.klass[odd[problem.row]]] = True
    candidates = np.flatnonzero(hit)
    place = np.full(problem.num_classes, -1, np.int64)
    place[candidates] = np.arange(len(candidates))
    base = np.zeros((3 * len(candidates), len(GRID)))
    slow, still = problem.log_slow[candidates], problem.log_still[candidates]
    if rates is None or not len(candidates):
        return _Scorer(problem, candidates, (), base, _totals(base, slow, still))
    mine = np.flatnonzero(place[problem.klass] >= 0)
    kinds = np.rint(problem.weight[mine] * 4096) + 0.5 * problem.spread[mine] * (problem.weight[mine] < 1)
    parts: list[tuple[float, bool, csc_array, csr_array]] = []
    for kind in np.unique(kinds):
        chosen = mine[kinds == kind]
        matrix = coo_array(
            (
                np.ones(len(chosen)),
                (3 * place[problem.klass[chosen]] + problem.way[chosen], problem.row[chosen]),
            ),
            shape=(3 * len(candidates), len(rates)),
        )
        parts.append(
            (
                float(problem.weight[chosen[0]]),
                bool(problem.spread[chosen[0]]),
                csc_array(matrix),
                csr_array(matrix),
            )
        )
    mean = np.zeros(len(rates))
    for weight, spread, matrix, _ in parts:
        base += matrix @ table(rates.y, rates.sigma, mean, weight, spread)
    return _Scorer(problem, candidates, tuple(parts), base, _totals(base, slow, still))


def _children(scorer: _Scorer, state: _State) -> list[tuple[float, int, int, int]]:
    """(ln posterior, candidate, variant, grid point) of the best sets with one fault more."""
    total, flat = scorer.alone
    problem = scorer.problem
    rates = problem.rates
    changed = np.flatnonzero(state.mean < 0)
    if len(changed) and rates is not None:
        total, flat = total.copy(), flat.copy()
        y, sigma, mean = rates.y[changed], rates.sigma[changed], state.mean[changed]
        columns = [(w, s, matrix[:, changed]) for w, s, matrix, _ in scorer.parts]
        # Only candidates on a path that the set explains are judged otherwise than alone.
        touched = np.unique(np.concatenate([part.indices // 3 for _, _, part in columns]))
        rows = (3 * touched[:, None] + np.arange(3)).reshape(-1)
        scores, which = scorer.scores[rows], scorer.candidates[touched]
        for weight, spread, part in columns:
            now = table(y, sigma, mean, weight, spread) - table(y, sigma, 0 * mean, weight, spread)
            scores += csr_array(part)[rows] @ now
        total[touched], flat[touched] = _totals(scores, problem.log_slow[which], problem.log_still[which])
    total = total + (problem.log_odds + problem.quiet + _event_gain(problem, state))[scorer.candidates]
    here = [i for i, k in enumerate(scorer.candidates.tolist()) if k in state.key]
    total[here] = -np.inf
    top = np.argsort(-total, kind="stable")[:KEPT]
    found = []
    for at in top.tolist():
        if total[at] == -np.inf:
            break
        variant, point = divmod(int(flat[at]), len(GRID))
        found.append((state.log + float(total[at]), at, variant, point))
    return found


def _totals(scores: Floats, slow: Floats, still: Floats) -> tuple[Floats, Ints]:
    """(ln sum over ways and grid, best of them) per candidate, of scores (3 K', S).

    slow, still  (K',) ln of the part of its faults that slow, and that do not
    """
    if not len(scores):
        return np.zeros(0), np.zeros(0, np.int64)
    ways = scores.reshape(-1, 3, len(GRID))
    out, into, both = ways[:, 0], ways[:, 1], ways[:, 2]
    logs = np.stack([out + into + both, out + both, into + both], axis=1) + grid_prior()
    logs[:, :, 0] += still[:, None]
    logs[:, :, 1:] += slow[:, None, None]
    flat = logs.reshape(len(logs), -1)
    best = flat.argmax(axis=1)
    top = flat[np.arange(len(flat)), best]
    return top + np.log(np.exp(flat - top[:, None]).sum(axis=1)), best


def _event_gain(problem: Problem, state: _State) -> Floats:
    """(K,) what each class, added, does to the probability of the events."""
    gain = np.zeros(problem.num_classes)
    if not len(problem.leak):
        return gain
    silent = (1 - problem.leak) * state.survival
    before = np.log1p(-silent[problem.event_of])
    after = np.log1p(-silent[problem.event_of] * (1 - problem.event_seen))
    np.add.at(gain, problem.event_class, after - before)
    return gain


def _with(scorer: _Scorer, log: float, parent: _State, at: int, variant: int, point: int) -> _State:
    """A set with one fault more, its expectations moved."""
    problem = scorer.problem
    klass = int(scorer.candidates[at])
    mean, left = parent.mean.copy(), GRID[point]
    rates = problem.rates
    if rates is not None and left < 0:
        for weight, spread, _, by_row in scorer.parts:
            rows = np.concatenate([_columns(by_row, 3 * at + way) for way in VARIANTS[variant]])
            if spread:
                mean[rows] = np.minimum(mean[rows], np.log1p(-weight * -np.expm1(left)))
            else:
                y, sigma = rates.y[rows], rates.sigma[rows]
                slow = log_rate(y, sigma, np.minimum(mean[rows], left)) + np.log(weight)
                sound = log_rate(y, sigma, mean[rows]) + np.log1p(-min(weight, 1 - 1e-12))
                hit = rows[slow > sound]
                mean[hit] = np.minimum(mean[hit], left)
    survival = parent.survival.copy()
    mine = problem.event_class == klass
    survival[problem.event_of[mine]] *= 1 - problem.event_seen[mine]
    return _State(parent.key | {klass}, log, mean, survival, (*parent.faults, Fault(klass, variant, left)))


def _columns(matrix: csr_array, row: int) -> Ints:
    """Columns of one row's entries."""
    found: Ints = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
    return found
