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
    """What falls off.

    node   (M,) weight that is no longer joined to the heaviest rest of its part once the node is gone,
           the node's own weight not counted
    bridges  (one, other) -> weight of the lighter side, for each edge without which its part falls in two
    """

    node: list[int]
    bridges: dict[tuple[int, int], int]


def cuts(ptr: Sequence[int], idx: Sequence[int], weight: Sequence[int]) -> Cuts:
    """Depth-first search of every part; `weight` (M,) says what each node counts for."""
    size = len(weight)
    seen, low = [0] * size, [0] * size
    below, at, parent = list(weight), list(ptr[:size]), [-1] * size
    split_sum, split_most, off = [0] * size, [0] * size, [0] * size
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
            if low[node] < low[above]:
                low[above] = low[node]
            if low[node] >= seen[above]:
                split_sum[above] += below[node]
                split_most[above] = max(split_most[above], below[node])
                if low[node] > seen[above]:
                    hanging.append(node)
        whole = below[root]
        for node in met:
            if split_sum[node]:
                rest = whole - weight[node] - split_sum[node]
                off[node] = whole - weight[node] - max(rest, split_most[node])
        for node in hanging:
            bridges[parent[node], node] = min(below[node], whole - below[node])
    return Cuts(off, bridges)
