"""How far leaves are apart and by how many ways: distances, shortest ways, ways without a common cable.

Legend: S switches, D leaves (the first D switches), A leaf classes: leaves with the same live cables to the
same switches above.  Two leaves of one class are at the same distance from everything else, so one of each
class is searched from.
Source of the flow figure: K. Menger, "Zur allgemeinen Kurventheorie" (Fund. Math. 10, 1927), in its form for
edges: ways without a common cable are as many as cables in the smallest cut, which is a maximum flow of one
per cable (Ford and Fulkerson 1956).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_flow

from railwright.audit.result import PathDiversity
from railwright.audit.survey import Survey

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Steps = NDArray[np.int16]

APART = np.int16(-1)
"""Steps between switches that no way joins."""

FLOWS = 64
"""Most maximum flows of one audit: beyond it, pairs alike in distance and shortest ways share one."""


@dataclass(frozen=True, eq=False)
class LeafWays:
    """Ways between leaves, by class.

    class_of   (D,) class of each leaf
    first      (A,) a leaf of each class
    steps      (A, A) cables on the shortest way between leaves of two classes; APART; on the diagonal
               between two different leaves of the class
    shortest   (A, A) how many shortest ways, each cable of a bundle counted for itself
    """

    class_of: Ints
    first: Ints
    steps: Steps
    shortest: Floats

    def between_leaves(self) -> Steps:
        """(D, D) cables on the shortest way between each two leaves; 0 from a leaf to itself."""
        full: Steps = self.steps[np.ix_(self.class_of, self.class_of)]
        np.fill_diagonal(full, 0)
        return full


def leaf_ways(survey: Survey) -> LeafWays:
    """Breadth-first search from one leaf of each class, over live cables."""
    leaves = survey.num_leaves
    class_of, first, second = _leaf_classes(survey.meshed, leaves)
    graph = survey.meshed
    seen = np.zeros((graph.shape[0], len(first)), bool)
    seen[first, np.arange(len(first))] = True
    front = seen.astype(np.float64)
    steps = np.full((leaves, len(first)), APART, np.int16)
    shortest = np.zeros((leaves, len(first)))
    depth = 0
    while front.any():
        depth += 1
        front = np.where(seen, 0.0, graph @ front)
        new = front > 0
        seen |= new
        steps[new[:leaves]] = depth
        shortest[new[:leaves]] = front[:leaves][new[:leaves]]
    # The diagonal stands for two different leaves of one class; a class of one leaf has no such pair.
    other = np.where(np.eye(len(first), dtype=bool), second[:, None], first[:, None])
    column = np.broadcast_to(np.arange(len(first)), other.shape)
    return LeafWays(class_of, first, steps[other, column], shortest[other, column])


def path_diversity(survey: Survey, ways: LeafWays) -> PathDiversity:
    """Least and median number of ways over all pairs of leaves that have servers."""
    served = np.unique(survey.leaf)
    size = np.bincount(ways.class_of[served], minlength=len(ways.first)).astype(np.float64)
    pairs = np.triu(np.outer(size, size), 1)
    np.fill_diagonal(pairs, size * (size - 1) / 2)
    a, b = np.nonzero((pairs > 0) & (ways.steps > 0))
    total = len(served) * (len(served) - 1) // 2
    if not len(a):
        return PathDiversity(total, 0, 0.0, 0.0, 0, 0, True)
    weight, count = pairs[a, b], ways.shortest[a, b]
    disjoint, exact = _disjoint(survey, ways, a, b, weight)
    return PathDiversity(
        leaf_pairs=total,
        joined=int(weight.sum()),
        shortest_least=float(count.min()),
        shortest_median=_median(count, weight),
        disjoint_least=int(disjoint.min()),
        disjoint_median=int(_median(disjoint.astype(np.float64), weight)),
        disjoint_exact=exact,
    )


def flow_between(capacity: csr_array, source: int, sink: int) -> float:
    """Maximum flow between two switches, in units of the symmetric capacities given (whole numbers)."""
    graph = csr_array((capacity.data.astype(np.int32), capacity.indices, capacity.indptr), capacity.shape)
    return float(maximum_flow(graph, source, sink).flow_value)


def _leaf_classes(graph: csr_array, leaves: int) -> tuple[Ints, Ints, Ints]:
    """Class of each leaf, the first leaf of each class and its second one (the first again if alone)."""
    graph.sort_indices()
    known: dict[tuple[bytes, bytes], int] = {}
    class_of = np.empty(leaves, np.int64)
    ptr, idx, cables = graph.indptr, graph.indices, graph.data
    for leaf in range(leaves):
        row = slice(ptr[leaf], ptr[leaf + 1])
        key = (idx[row].tobytes(), cables[row].tobytes())
        # A leaf on its own has no way to another one like it either, and both rows are empty: one class.
        class_of[leaf] = known.setdefault(key, len(known))
    _, first = np.unique(class_of, return_index=True)
    order = np.argsort(class_of, kind="stable")
    at = np.searchsorted(class_of[order], np.arange(len(first)))
    after = np.minimum(at + 1, leaves - 1)
    second = np.where(class_of[order[after]] == np.arange(len(first)), order[after], first)
    return class_of, first.astype(np.int64), second.astype(np.int64)


def _disjoint(survey: Survey, ways: LeafWays, a: Ints, b: Ints, weight: Floats) -> tuple[Ints, bool]:
    """Ways without a common cable for each pair of classes, and whether each pair was solved itself."""
    graph, members = _merge_switches(survey.meshed, ways)
    up = np.asarray(survey.meshed[: survey.num_leaves].sum(axis=1)).reshape(-1)[ways.first]
    most = np.minimum(up[a], up[b])
    key = np.stack([ways.steps[a, b], ways.shortest[a, b], most, (a == b).astype(np.float64)], axis=1)
    exact = len(a) <= FLOWS
    if exact:
        solve, kind = np.arange(len(a)), np.arange(len(a))
    else:
        _, solve, kind = np.unique(key, axis=0, return_index=True, return_inverse=True)
        kind = kind.reshape(-1)
    value = np.empty(len(solve))
    # The pairs with the fewest ways first; those beyond the limit keep the bound of their own uplinks.
    for rank, i in enumerate(np.lexsort((solve, most[solve], ways.shortest[a, b][solve]))):
        pair = solve[i]
        one, other = members[a[pair]], members[b[pair]]
        sink = other[0] if a[pair] != b[pair] else other[1]
        value[i] = flow_between(graph, one[0], sink) if rank < FLOWS else most[pair]
    return np.minimum(value[kind], most).astype(np.int64), exact


def _merge_switches(graph: csr_array, ways: LeafWays) -> tuple[csr_array, list[tuple[int, int]]]:
    """The graph with the leaves of a class beyond the second drawn as one, and likewise other equal switches.

    Two of each class stay apart, to be source and sink.  Merging switches with equal cables leaves every
    maximum flow between others as it is: some maximum flow treats them alike.
    """
    size, leaves = graph.shape[0], len(ways.class_of)
    graph.sort_indices()
    known: dict[tuple[int | bytes, ...], int] = {}
    new = np.empty(size, np.int64)
    met = np.zeros(len(ways.first), np.int64)
    members = [[-1, -1] for _ in ways.first]
    for node in range(size):
        row = slice(graph.indptr[node], graph.indptr[node + 1])
        key: tuple[int | bytes, ...] = (graph.indices[row].tobytes(), graph.data[row].tobytes())
        if node < leaves:
            of = int(ways.class_of[node])
            place = min(int(met[of]), 2)
            met[of] += 1
            key = (of, place)
            if place < 2:
                members[of][place] = len(known)
        new[node] = known.setdefault(key, len(known))
    whole = coo_array(graph)
    merged = csr_array(coo_array((whole.data, (new[whole.row], new[whole.col])), shape=(len(known),) * 2))
    merged.sum_duplicates()
    return merged, [(one, other) for one, other in members]


def _median(values: Floats, weight: Floats) -> float:
    """The value that half of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
