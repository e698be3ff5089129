"""Colour refinement of a graph whose edges carry words: the coarsest equitable partition, and finer ones.

Legend: N nodes, E edges (each listed once per direction), X classes; CSR by sender: ptr, to, word.
Only classes that split send messages, so that singling out one node touches its neighbourhood alone.
Source: Paige and Tarjan, "Three partition refinement algorithms", SIAM J. Comput. 16 (1987): once a partition
is stable, all parts but one of a class that splits need to be looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.network.routing.shortest import ragged
from railwright.network.routing.switching import splitmix

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes and labelled edges.

    start  (N,) class of each node before refinement: what is known of it alone
    ptr    (N+1,) edges out of each node
    to     (E,) the node that each edge leads to
    word   (E,) what that node sees of the edge
    """

    start: Longs
    ptr: Longs
    to: Ints
    word: Words

    @property
    def num_nodes(self) -> int:
        return len(self.start)


@dataclass(eq=False)
class Partition:
    """Classes of the nodes of a graph; refined in place.

    label  (N,) class of each node, 0..X-1
    size   (X or more,) members of each class
    count  X
    """

    label: Longs
    size: Longs
    count: int

    @staticmethod
    def coarsest(graph: Graph) -> Partition:
        """The coarsest equitable partition that keeps `graph.start` apart.

        Any two nodes of a class have, for every class and edge word, as many edges from it.
        """
        _, label = np.unique(graph.start, return_inverse=True)
        label = label.reshape(-1).astype(np.int64)
        size = np.bincount(label, minlength=graph.num_nodes)
        partition = Partition(label, size, int(label.max(initial=-1)) + 1)
        partition.settle(graph, np.arange(graph.num_nodes))
        return partition

    def singled_out(self, graph: Graph, node: int) -> Partition:
        """The coarsest refinement of this stable partition in which a node has a class of its own.

        Classes are numbered by what was seen, so nodes that a symmetry of the graph maps to each other lead
        to the same numbers.
        """
        fine = Partition(self.label.copy(), self.size.copy(), self.count)
        old = fine.label[node]
        if fine.size[old] > 1:
            fine.size[old] -= 1
            fine.label[node] = fine.count
            fine.size[fine.count] = 1
            fine.count += 1
            fine.settle(graph, np.array([node]))
        return fine

    def settle(self, graph: Graph, changed: Longs) -> None:
        """Refine until stable, when only `changed` nodes have a class that others have not yet seen."""
        seen = np.zeros(graph.num_nodes, np.uint64)
        while len(changed):
            heard = _receive(graph, self.label, changed, seen)
            receiver = heard[self.size[self.label[heard]] > 1]
            changed = self._split(receiver, seen[receiver])
            seen[heard] = 0

    def _split(self, receiver: Longs, word: Words) -> Longs:
        """Split classes by what their members have seen; nodes whose class is new."""
        label = self.label[receiver]
        order = np.lexsort((word, label))
        receiver, label, word = receiver[order], label[order], word[order]
        if not len(receiver):
            return receiver
        new_class = np.flatnonzero(np.diff(label, prepend=-1) != 0)
        fresh = np.ones(len(label), bool)
        fresh[1:] = (label[1:] != label[:-1]) | (word[1:] != word[:-1])
        part = np.flatnonzero(fresh)
        members = np.diff(part, append=len(label))
        owner = np.searchsorted(new_class, part, side="right") - 1
        # Members that saw nothing keep the old class; where all saw something, the largest part does.
        heard = np.diff(new_class, append=len(label))
        everyone = heard == self.size[label[new_class]]
        largest = np.lexsort((-members, owner))
        first_part = np.searchsorted(owner, np.arange(len(new_class)))
        keeps = np.zeros(len(part), bool)
        keeps[largest[first_part[everyone]]] = True
        leaving = np.flatnonzero(~keeps)
        number = np.full(len(part), -1, np.int64)
        number[leaving] = self.count + np.arange(len(leaving))
        np.subtract.at(self.size, label[part[leaving]], members[leaving])
        self.size[self.count : self.count + len(leaving)] = members[leaving]
        self.count += len(leaving)
        each = np.repeat(number, members)
        moved = each >= 0
        self.label[receiver[moved]] = each[moved]
        return receiver[moved]


def _receive(graph: Graph, label: Longs, sender: Longs, seen: Words) -> Longs:
    """Add up in `seen` what senders tell their neighbours; the neighbours that heard something."""
    degree = graph.ptr[sender + 1] - graph.ptr[sender]
    if len(sender) == graph.num_nodes:
        to, word = graph.to, graph.word
    else:
        edge = ragged(graph.ptr[sender], degree)
        to, word = graph.to[edge], graph.word[edge]
    told = splitmix(label[sender].astype(np.uint64) + np.uint64(1))
    np.add.at(seen, to, splitmix(word ^ np.repeat(told, degree)))
    return np.unique(to).astype(np.int64) if 8 * len(to) < len(seen) else np.flatnonzero(seen)


def unstable(graph: Graph, label: Longs) -> int:
    """First node that breaks the promise of an equitable partition, or -1. Straight from the definition.

    Every node lists its edges as (word, class at the other end), sorted; nodes of a class must list alike.
    """
    sender = np.repeat(np.arange(graph.num_nodes), np.diff(graph.ptr))
    order = np.lexsort((label[sender], graph.word, graph.to))
    to, word, seen = graph.to[order], graph.word[order], label[sender][order]
    ends = np.searchsorted(to, np.arange(graph.num_nodes + 1))
    example: dict[int, int] = {}
    for node in range(graph.num_nodes):
        like = example.setdefault(int(label[node]), node)
        mine, other = (slice(ends[n], ends[n + 1]) for n in (node, like))
        if not (np.array_equal(word[mine], word[other]) and np.array_equal(seen[mine], seen[other])):
            return node
        if graph.start[node] != graph.start[like]:
            return node
    return -1
