"""Shortest paths and their shares against SciPy's breadth-first search and a walk over every path."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

import network_fabrics as hand
from railwright.catalog import load_catalog
from railwright.fabric import apply_faults, build
from railwright.fabric.graph import Fabric, Role
from railwright.network.routing import shortest, switching
from railwright.network.routing.shortest import SwitchGraph, shortest_paths, switch_graph
from railwright.network.routing.switching import Crossing, adaptive
from railwright.spec.study import Cluster, ComputeNetwork, Fault


def damaged(seed: int) -> Fabric:
    """A three-tier tree with some dozen random failed and slow links, one direction each."""
    plan = ComputeNetwork(family="fat-tree", switch="qm9700", tiers=3, servers_per_group=2, groups_per_pod=2)
    fabric = build(Cluster(servers=8, server="dgx-h100", compute=plan), load_catalog())
    fabric = apply_faults(fabric, [Fault(element="spine-02", state="failed")])
    rng = np.random.default_rng(seed)
    links = rng.choice(np.flatnonzero(np.repeat(fabric.role, 2) >= Role.LEAF_SPINE), 60, replace=False)
    return hand.with_capacity(fabric, {int(x): float(rng.choice([0.0, 0.25, 0.5])) for x in links})


def all_pairs(graph: SwitchGraph) -> tuple[np.ndarray, np.ndarray]:
    target, source = np.divmod(np.arange(graph.num_nodes**2), graph.num_nodes)
    different = source != target
    return source[different], target[different]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cells", [10**7, 100], ids=["one block", "many blocks"])
def test_distances_are_scipys(seed: int, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortest, "CELLS", cells)
    graph = switch_graph(damaged(seed))
    source, target = all_pairs(graph)
    paths = shortest_paths(graph, source, target)
    arcs = csr_array((np.ones(len(graph.tail)), (graph.tail, graph.head)), shape=(graph.num_nodes,) * 2)
    truth = shortest_path(arcs, unweighted=True)[source, target]
    found = np.where(paths.start < 0, np.inf, paths.level[paths.start])
    assert np.array_equal(found, truth)
    assert not np.all(np.isfinite(truth)) or truth.max() >= 4


@pytest.mark.parametrize("cells", [10**7, 100], ids=["one block", "many blocks"])
def test_a_few_pairs_get_what_all_pairs_get(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that stop early must not change an answer: shares are those of the exhaustive definition."""
    graph = switch_graph(damaged(7))
    source, target = all_pairs(graph)
    some = np.sort(np.random.default_rng(1).choice(len(source), 25, replace=False))
    monkeypatch.setattr(shortest, "CELLS", cells)
    monkeypatch.setattr(switching, "CELLS", cells)
    paths = shortest_paths(graph, source[some], target[some])
    reach = np.flatnonzero(paths.start >= 0)
    paths = shortest_paths(graph, source[some][reach], target[some][reach])
    nothing = np.zeros((0, 1), np.int64)
    spread = adaptive(
        graph, paths, Crossing(np.arange(len(reach)), lambda: np.zeros(0, np.uint64), lambda: nothing), 0
    )
    for row, k in enumerate(reach):
        span = slice(spread.spread_ptr[row], spread.spread_ptr[row + 1])
        got = dict(zip(spread.spread_link[span].tolist(), spread.spread_weight[span].tolist(), strict=True))
        assert got == pytest.approx(by_hand(graph, int(source[some][k]), int(target[some][k])), rel=1e-12)


def by_hand(graph: SwitchGraph, source: int, target: int) -> dict[int, float]:
    """Link shares of one pair, node by node, straight from the sentence in `adaptive`."""
    arcs = csr_array((np.ones(len(graph.tail)), (graph.tail, graph.head)), shape=(graph.num_nodes,) * 2)
    distance = shortest_path(arcs, unweighted=True)[:, target]
    links = [
        (int(graph.tail[a]), int(graph.head[a]), int(graph.link[e]), float(graph.capacity[e]))
        for a in range(len(graph.tail))
        for e in range(graph.first[a], graph.first[a + 1])
        if distance[graph.tail[a]] == distance[graph.head[a]] + 1
    ]
    together: dict[tuple[int, int], float] = {}
    for tail, head, _, capacity in links:
        together[tail, head] = together.get((tail, head), 0.0) + capacity
    width = {target: np.inf}
    for node in np.argsort(distance, kind="stable").tolist():
        if 0 < distance[node] < np.inf:
            width[node] = sum(min(c, width[head]) for (tail, head), c in together.items() if tail == node)
    amount, shares = {source: 1.0}, {}
    for node in np.argsort(-distance, kind="stable").tolist():
        for tail, head, link, capacity in links:
            if tail == node and amount.get(node, 0.0) > 0:
                ahead = min(together[tail, head], width[head]) / width[node]
                shares[link] = amount[node] * ahead * capacity / together[tail, head]
                amount[head] = amount.get(head, 0.0) + shares[link]
    return shares
