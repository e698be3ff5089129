"""How many switches, cables and optics a fabric takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """Parts of a fabric's scale-out network.

    node_leaf, leaf_spine, spine_core  cables (logical links: one port to one port)
    optics    transceivers: two per cable longer than the reach of copper; a port that is split has one
    switch_power  sum of the switches' maximum power where the catalogue has one [W]
    unrated   switches without one, which `switch_power` leaves out
    hops_max  switches on the longest shortest path between two GPUs
    bisection  nominal bandwidth between the two halves of the servers, one direction [byte/s]
    cages     switch cages with a cable in them, those of reserved ports left out; a twin-port cage has two
              ports, and a broken-out port as many cables as it has parts
    """

    servers: int
    gpus: int
    leaves: int
    spines: int
    cores: int
    node_leaf: int
    leaf_spine: int
    spine_core: int
    optics: int
    switch_power: float
    hops_max: int
    bisection: float
    cages: int = 0
    unrated: int = 0

    @property
    def switches(self) -> int:
        return self.leaves + self.spines + self.cores

    @property
    def cables(self) -> int:
        return self.node_leaf + self.leaf_spine + self.spine_core
