"""Pairs of GPUs and of NICs: how many switches lie between them, and whether they keep to their rail.

Legend: K NICs, G GPUs, Q NIC classes (NICs on the same leaves), D leaves, S switches, R rails.
Nothing here loops over pairs of GPUs: classes are paired, and counted as often as they occur.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from railwright.audit.result import RailAlignment
from railwright.audit.survey import Survey
from railwright.audit.ways import APART, LeafWays

Ints = NDArray[np.int64]
Steps = NDArray[np.int16]
Bools = NDArray[np.bool_]

ROWS = 512
"""Rows of a class-by-class table that are counted at once: bounds the memory, changes no figure."""


def hop_histogram(survey: Survey, ways: LeafWays) -> tuple[tuple[tuple[int, int], ...], int]:
    """(switches crossed, pairs of GPUs) with 0 for a scale-up domain, and the pairs that no way joins.

    A pair of different domains goes from the NIC of one to the NIC of the other, by the shortest way;
    a NIC on several leaves takes the nearest.
    """
    class_of_nic, on_leaf = survey.leaves_of_nics()
    between = _between_classes(on_leaf, ways.between_leaves())
    gpu = class_of_nic[survey.fabric.nic_of_gpu - survey.first_nic]
    hops = _count_steps(between, np.bincount(gpu, minlength=len(between)))
    own = between[gpu, gpu]
    for step in np.unique(own).tolist():
        hops[step] -= int(np.count_nonzero(own == step))
    hops = {step: pairs // 2 for step, pairs in hops.items()}

    inside = 0
    for one, other in _pairs_inside(survey.domain_of_gpu()):
        inside += len(one)
        for step, pairs in zip(*np.unique(between[gpu[one], gpu[other]], return_counts=True), strict=True):
            hops[int(step)] -= int(pairs)
    unjoined = hops.pop(int(APART), 0)
    rows = [(0, inside)] + [(step + 1, pairs) for step, pairs in sorted(hops.items())]
    return tuple((switches, pairs) for switches, pairs in rows if pairs), unjoined


def rail_alignment(survey: Survey, ways: LeafWays) -> RailAlignment:
    """Of the pairs of NICs on one rail of different servers: how many meet in a leaf, or within their rail.

    A switch keeps to a rail when every NIC below it is on that rail, whatever it is called.
    """
    fabric = survey.fabric
    rail = fabric.rail[survey.first_nic : survey.first_nic + survey.num_nics].astype(np.int64)
    class_of_nic, on_leaf = survey.leaves_of_nics()
    in_leaf = (on_leaf @ on_leaf.T).toarray() > 0
    parts, part = connected_components(_within_rails(survey, rail), directed=False)
    pure = _pure(survey, rail)[: survey.num_leaves]
    part = part[: survey.num_leaves]
    joins = csr_array(coo_array((pure.astype(float), (np.arange(len(part)), part)), shape=(len(part), parts)))
    reached = on_leaf @ joins
    in_rail = in_leaf | ((reached @ reached.T).toarray() > 0)

    total = one_leaf = within = 0
    server = survey.nic_server()
    for of in np.unique(rail[rail >= 0]).tolist():
        members = np.flatnonzero(rail == of)
        here = np.bincount(class_of_nic[members], minlength=len(in_leaf)).astype(np.int64)
        some = np.flatnonzero(here)
        square = np.ix_(some, some)
        weight = np.outer(here[some], here[some])
        all_pairs, leaf_pairs, rail_pairs = weight.sum(), weight[in_leaf[square]].sum(), 0
        rail_pairs = weight[in_rail[square]].sum()
        # Take off the pairs within one server, each NIC with itself among them.
        at = members[np.argsort(server[members], kind="stable")]
        for one, other in [(at, at), *((at[i], at[j]) for i, j in _pairs_inside(server[at]))]:
            twice = 1 if one is other else 2
            c, d = class_of_nic[one], class_of_nic[other]
            all_pairs -= twice * len(one)
            leaf_pairs -= twice * int(in_leaf[c, d].sum())
            rail_pairs -= twice * int(in_rail[c, d].sum())
        total, one_leaf, within = total + all_pairs, one_leaf + leaf_pairs, within + rail_pairs
    whole = max(int(total), 1)
    return RailAlignment(int(total) // 2, float(one_leaf) / whole, float(within) / whole)


def _between_classes(on_leaf: csr_array, between: Steps) -> Steps:
    """(Q, Q) fewest cables between leaves of two NIC classes; APART where no way joins them."""
    ptr, leaf = on_leaf.indptr, on_leaf.indices
    width = np.diff(ptr)
    far = np.where(between == APART, np.iinfo(np.int16).max, between).astype(np.int16)
    best = np.full((len(width), len(width)), np.iinfo(np.int16).max, np.int16)
    for i in range(int(width.max(initial=0))):
        for j in range(int(width.max(initial=0))):
            one, other = np.flatnonzero(width > i), np.flatnonzero(width > j)
            square = np.ix_(one, other)
            best[square] = np.minimum(best[square], far[np.ix_(leaf[ptr[one] + i], leaf[ptr[other] + j])])
    best[best == np.iinfo(np.int16).max] = APART
    return best


def _count_steps(between: Steps, size: Ints) -> dict[int, int]:
    """Ordered pairs by steps, where class q has size[q] members; a member is paired with itself too."""
    total: dict[int, int] = {}
    for row in range(0, len(size), ROWS):
        rows = slice(row, row + ROWS)
        steps = between[rows].astype(np.int64) - int(APART)
        weight = np.outer(size[rows], size).astype(np.float64)
        for step, pairs in enumerate(np.bincount(steps.reshape(-1), weight.reshape(-1))):
            if pairs:
                total[step + int(APART)] = total.get(step + int(APART), 0) + round(pairs)
    return total


def _pairs_inside(label: Ints) -> list[tuple[Ints, Ints]]:
    """All pairs of elements with the same label, as index columns, distance by distance."""
    order = np.argsort(label, kind="stable")
    ordered = label[order]
    found: list[tuple[Ints, Ints]] = []
    for distance in range(1, len(label)):
        same = np.flatnonzero(ordered[distance:] == ordered[:-distance])
        if not len(same):
            break
        found.append((order[same], order[same + distance]))
    return found


def _rails_below(survey: Survey, rail: Ints) -> Bools:
    """(S, R) whether a NIC of the rail hangs somewhere below the switch, over live cables."""
    rails = int(rail.max(initial=0)) + 1
    below = np.zeros((survey.num_switches, rails), bool)
    known = rail[survey.nic] >= 0
    below[survey.leaf[known], rail[survey.nic[known]]] = True
    kind = survey.fabric.kind[survey.first_switch :]
    whole = coo_array(survey.meshed)
    for level in np.unique(kind)[1:]:
        rising = (kind[whole.row] == level) & (kind[whole.col] < level)
        up = csr_array(
            coo_array((np.ones(int(rising.sum())), (whole.row[rising], whole.col[rising])), whole.shape)
        )
        below |= (up @ below.astype(float)) > 0
    return below


def _pure(survey: Survey, rail: Ints) -> Bools:
    """(S,) whether exactly one rail hangs below the switch."""
    pure: Bools = _rails_below(survey, rail).sum(axis=1) == 1
    return pure


def _within_rails(survey: Survey, rail: Ints) -> csr_array:
    """The cables between switches that keep to one rail."""
    pure = _pure(survey, rail)
    whole = coo_array(survey.meshed)
    kept = pure[whole.row] & pure[whole.col]
    return csr_array(coo_array((whole.data[kept], (whole.row[kept], whole.col[kept])), shape=whole.shape))
