"""Breakout cables: the links of one split port of a leaf are the legs of one cable with one head there.

A link of the graph joins port to port and is a row of the cable schedule; what is bought, plugged in and
priced is a cable, which is one link, or all legs of a port that `breakout` splits.
Legend: C links, P cables; *_C means shape (C,).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric, Floats, Ints, Role

Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pieces:
    """The cables that some links are bought as, in the order of their first links.

    of     (C,) cable of every link
    first  (P,) place of the first link of every cable
    split  (P,) legs that a cable is made with; 1: it is not split
    """

    of: Whole
    first: Whole
    split: Whole

    def __len__(self) -> int:
        return len(self.first)

    def longest(self, lengths: Floats) -> Floats:
        """(P,) length of every cable: its legs are made alike, as long as the longest. [m]"""
        most = np.zeros(len(self))
        np.maximum.at(most, self.of, lengths)
        return most


def pieces(fabric: Fabric, links: Ints | Whole) -> Pieces:
    """The cables that these links (indices into the graph) are bought as."""
    legs = is_leg(fabric, links)
    port = fabric.b[links].astype(np.int64) * (int(fabric.port_b.max(initial=0)) + 1)
    port += (fabric.port_b[links] - 1) // fabric.breakout
    # A whole cable is a port of its own, below all that are split.
    key = np.where(legs, port, -1 - np.arange(len(links)))
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number: Whole = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    first = first[order].astype(np.int64)
    return Pieces(number[of.reshape(-1)], first, np.where(legs[first], fabric.breakout, 1))


def is_leg(fabric: Fabric, links: Ints | Whole) -> NDArray[np.bool_]:
    """(C,) which links leave a leaf through a part of a port."""
    return np.asarray((fabric.role[links] == Role.NODE_LEAF) & (fabric.breakout > 1))


def reserved_pieces(fabric: Fabric) -> int:
    """Cables of the reserved ports, which are counted in parts of ports where ports are split."""
    return -(-fabric.reserved_ports // fabric.breakout)
