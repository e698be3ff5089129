"""What every algorithm of NCCL tells: where it runs, its steps, its channels' limit, its traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from railwright.collectives.group import Group
from railwright.collectives.prediction import Op
from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic


@dataclass(frozen=True)
class Path:
    """What the fabric's paths take beyond NCCL's reference, two servers under one InfiniBand switch.

    mean  over the demands of a group that cross the network, for steps in series; of several groups at once
          the largest [s]
    worst of them, for steps that wait for the slowest [s]
    """

    mean: float = 0.0
    worst: float = 0.0


@dataclass(frozen=True)
class Algorithm:
    """One algorithm of NCCL.

    ops, protocols  what it is used for and with
    unavailable  (op, group, sharp) -> why it cannot run there, '' where it can
    steps        (op, protocol, group, path) -> latency of all its steps, base latency included [s]
    inside       (op, protocol, group) -> busbw that NCCL's channels cannot exceed, network aside; what its
                 tuner assumes [byte/s]
    wire         protocol -> bytes on the wire per byte of payload
    per_nic      (op, group) -> bytes that the busiest NIC sends per byte of S on a healthy fabric
    traffic      (fabric, groups, op, pxn) -> demands of S = 1 byte of each group, one after the other
    timed        like `steps`, where a call's latency is known to differ from what the tuner assumes [s]
    carried      like `inside`, where a call's rate is known to differ from what the tuner assumes [byte/s]
    filled       (protocol, group) -> latency of the pipeline that is filled [s]; None: that of all steps
    hides        (op, group, network, inside) -> seconds behind which latency of steps hides, of what NICs and
                 lanes inside nodes take [s]
    """

    name: str
    ops: tuple[Op, ...]
    protocols: tuple[str, ...]
    unavailable: Callable[[Op, Group, bool], str]
    steps: Callable[[Op, str, Group, Path], float]
    inside: Callable[[Op, str, Group], float]
    wire: Callable[[str], float]
    per_nic: Callable[[Op, Group], float]
    traffic: Callable[[Fabric, Sequence[Communicator], Op, bool], Traffic]
    timed: Callable[[Op, str, Group, Path], float] | None = None
    carried: Callable[[Op, str, Group], float] | None = None
    filled: Callable[[str, Group], float | None] | None = None
    hides: Callable[[Op, Group, float, float], float] | None = None

    def latency(self, op: Op, protocol: str, group: Group, path: Path) -> float:
        """Latency of all steps as a call pays it; `steps` is what NCCL's tuner chooses by. [s]"""
        return (self.timed or self.steps)(op, protocol, group, path)

    def filling(self, protocol: str, group: Group, latency: float) -> float:
        """Latency of the pipeline that a message fills and drains; `latency` is that of all steps. [s]"""
        own = self.filled(protocol, group) if self.filled else None
        return latency if own is None else own

    def hiding(self, op: Op, group: Group, network: float, inside: float) -> float:
        """Seconds of the larger of the two behind which latency of steps hides. [s]"""
        return self.hides(op, group, network, inside) if self.hides else 0.0

    def limit(self, op: Op, protocol: str, group: Group) -> float:
        """busbw that a call's channels cannot exceed; `inside` is what NCCL's tuner chooses by. [byte/s]"""
        return (self.carried or self.inside)(op, protocol, group)


def ring_wire(protocol: str) -> float:
    """LL sends 4 bytes of flag with 4 of data, LL128 8 of flag with 120.

    LL128's 0.92 is the tuner's own round value. Source: NCCL src/include/device.h; src/graph/tuning.cc.
    """
    return {"ll": 2.0, "ll128": 1 / 0.92, "simple": 1.0}[protocol]
