"""Shortest paths searched by the kernel are those of the NumPy definition, and are searched once."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import network_grid as grid
import railwright.network.routing.shortest as shortest
from railwright.network.routing.shortest import ShortestPaths, SwitchGraph, shortest_paths, switch_graph


def asked(graph: SwitchGraph, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Some pairs of different nodes, by target."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, graph.num_nodes**2, int(rng.integers(1, 40))))
    source, target = pairs % graph.num_nodes, pairs // graph.num_nodes
    return source[source != target], target[source != target]


def equal(one: ShortestPaths, other: ShortestPaths) -> bool:
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))


@pytest.mark.parametrize("number", range(0, 240, 2))
def test_the_kernel_finds_the_paths_of_the_definition(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over damaged fabrics of every family, multi-homed NICs and pairs without a path included."""
    case = grid.case(number, 500)
    if case is None or (graph := switch_graph(case.network.fabric)).num_nodes < 2:
        pytest.skip("no such case")
    source, target = asked(graph, number)
    plain = shortest._found(graph, source, target)
    monkeypatch.setattr(shortest, "COMPILED_FROM", 0)
    assert equal(shortest._found(graph, source, target), plain)


def test_answers_are_kept_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(
        c for n in range(100) if (c := grid.case(n, 500)) and switch_graph(c.network.fabric).num_nodes > 4
    )
    graph = switch_graph(case.network.fabric)
    first, second = asked(graph, 1), asked(graph, 2)
    paths = shortest_paths(graph, *first)
    assert shortest_paths(graph, *first) is paths
    monkeypatch.setattr(shortest, "MOST_KEPT", 0)
    shortest_paths(graph, *second)
    again = shortest_paths(graph, *first)
    assert again is not paths
    assert equal(again, paths)
