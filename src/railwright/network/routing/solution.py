"""What the network engine answers, and what it is asked: a fabric, a routing and its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric

if TYPE_CHECKING:
    from railwright.network.routing.tables import Tables

Floats = NDArray[np.float64]
RoutingName = Literal["adaptive", "ecmp", "static", "tables"]
SaltName = Literal["switch", "none"]
EntropyName = Literal["qp", "address"]
Engine = Literal["auto", "last", "numpy", "numba", "lifted", "bound", "fifo"]
"""Who solves the traffic; see `network.solve`. Solution.engine says who did."""


@dataclass(frozen=True, eq=False)
class Network:
    """A fabric and how its switches choose among equal paths.

    routing  'adaptive' (even spread over all shortest paths: the ideal of adaptive routing and spraying),
             'ecmp' (every flow hashed onto one shortest path),
             'static' (destination-based tables of a fat-tree subnet manager),
             'tables' (the forwarding tables given, imported or of one's own)
    seed     of the hash, for 'ecmp'
    tables   for 'tables'; the others do not look at them
    qps      for 'ecmp': queue pairs of each connection, over which its bytes divide evenly
    salt     for 'ecmp': 'switch' (each switch mixes its own id into the hash), 'none' (every switch takes the
             same hash of a flow, so that the choice of one tier decides that of the next: polarisation)
    entropy  for 'ecmp': what tells flows apart, 'qp' (each queue pair: its own UDP source port, or the
             queue-pair field hashed too), 'address' (only the two NICs: all they exchange takes one path)
    """

    fabric: Fabric
    routing: RoutingName = "adaptive"
    seed: int = 0
    tables: Tables | None = None
    qps: int = 1
    salt: SaltName = "switch"
    entropy: EntropyName = "qp"


@dataclass(frozen=True)
class Bottleneck:
    """The busiest link of a solution.

    link         directed link id
    name         both ends, readable
    utilisation  bytes carried / (capacity * makespan), 0..1
    share        number of demands crossing it
    why          one sentence: what it is and why it is busiest
    """

    link: int
    name: str
    utilisation: float
    share: int
    why: str


@dataclass(frozen=True, eq=False)
class Solution:
    """Traffic solved on a network.

    time        when the last demand has finished, bandwidth only [s]
    finish      (F,) [s]
    load        (L,) bytes carried by each directed link
    latency     (F,) fixed latency of each demand's path: devices, cable metres, NICs [s]
    hops        (F,) switches crossed (leaves, spines, cores)
    engine      which engine answered, e.g. 'explicit max-min (numba)'
    exact       False where the engine gives a bound; then `engine` says which
    members     (F,) demands that each entry of finish, latency and hops stands for; None: one each
    """

    time: float
    finish: Floats
    load: Floats
    latency: Floats
    hops: NDArray[np.int32]
    bottleneck: Bottleneck | None
    engine: str
    exact: bool
    members: Floats | None = None
