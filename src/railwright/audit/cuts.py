"""Which single nodes and edges of a graph keep its parts together, and how much falls off without each.

Legend: M nodes; adjacency in CSR (ptr, idx), every edge in both rows, no edge twice.
Source: J. Hopcroft, R. Tarjan, "Algorithm 447: efficient algorithms for graph manipulation" (CACM 16, 1973):
one depth-first search finds all articulation points and bridges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cuts:
    """What falls off: the weight that is no longer joined to the heaviest of the pieces a part falls into.

    A piece of one node alone has nothing left to be joined to: it falls off however heavy it is.

    node     (M,) what falls off once the node is gone, its own weight not counted
    bridges  (one, other) -> what falls off without the edge, for each edge that holds two pieces together
    """

    node: list[int]
    bridges: dict[tuple[int, int], int]


def cuts(ptr: Sequence[int], idx: Sequence[int], weight: Sequence[int]) -> Cuts:
    """Depth-first search of every part; `weight` (M,) says what each node counts for."""
    size = len(weight)
    seen, low = [0] * size, [0] * size
    below, nodes, at, parent = list(weight), [1] * size, list(ptr[:size]), [-1] * size
    pieces: dict[int, list[tuple[int, int]]] = {}
    off = [0] * size
    bridges: dict[tuple[int, int], int] = {}
    clock = 0
    for root in range(size):
        if seen[root]:
            continue
        clock += 1
        seen[root] = low[root] = clock
        path, met = [root], [root]
        hanging: list[int] = []
        while path:
            node = path[-1]
            if at[node] < ptr[node + 1]:
                other = idx[at[node]]
                at[node] += 1
                if not seen[other]:
                    clock += 1
                    seen[other] = low[other] = clock
                    parent[other] = node
                    path.append(other)
                    met.append(other)
                elif other != parent[node] and seen[other] < low[node]:
                    low[node] = seen[other]
                continue
            path.pop()
            if not path:
                break
            above = path[-1]
            below[above] += below[node]
            nodes[above] += nodes[node]
            if low[node] < low[above]:
                low[above] = low[node]
            if low[node] >= seen[above]:
                pieces.setdefault(above, []).append((below[node], nodes[node]))
                if low[node] > seen[above]:
                    hanging.append(node)
        whole, count = below[root], nodes[root]
        for node in met:
            split = pieces.get(node, [])
            rest = whole - weight[node] - sum(w for w, _ in split), count - 1 - sum(n for _, n in split)
            off[node] = _falls_off([*split, rest]) if split or count == 2 else 0
        for node in hanging:
            piece = below[node], nodes[node]
            bridges[parent[node], node] = _falls_off([piece, (whole - piece[0], count - piece[1])])
    return Cuts(off, bridges)


def _falls_off(pieces: list[tuple[int, int]]) -> int:
    """Weight outside the heaviest piece of (weight, nodes) that has more than one node."""
    return sum(w for w, _ in pieces) - max((w for w, nodes in pieces if nodes > 1), default=0)
