"""The fabric: a port-exact graph of GPUs, NICs, switches and cables, as a struct of arrays.

Legend: N devices, C cables, L = 2 C directed links; *_N means shape (N,).
Cable c joins port port_a[c] of device a[c] to port port_b[c] of device b[c];
link 2c carries a -> b and link 2c+1 carries b -> a.
Devices are numbered GPUs first (device id == GPU id, server by server), then NICs (server by server),
then scale-up switches (one per scale-up domain), then leaves, spines, cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


class Kind(IntEnum):
    """What a device is."""

    GPU = 0
    NIC = 1
    SCALE_UP = 2
    LEAF = 3
    SPINE = 4
    CORE = 5


class Role(IntEnum):
    """What a cable is for. PCIe and scale-up lanes are cables of the graph, not of the bill of materials."""

    SCALE_UP = 0  # GPU - scale-up switch (NVLink, xGMI), or the host's PCIe complex
    PCIE = 1  # GPU - NIC
    NODE_LEAF = 2  # NIC - leaf
    LEAF_SPINE = 3
    SPINE_CORE = 4


def server_name(number: int) -> str:
    """The server that a study calls by a number, which begins at 0, as the drawing names it, from 01."""
    return f"server-{number + 1:02d}"


@dataclass(frozen=True, eq=False)
class Fabric:
    """A compute fabric with its scale-up domains inside; or a storage or management network, without GPUs.

    family    'single-switch', 'fat-tree', 'clos', 'rail-optimised', 'rail-only', 'rack-rails', 'dual-plane'
    kind      (N,) Kind of each device
    server    (N,) server of a GPU, NIC or scale-up switch; -1 for switches
    rail      (N,) rail of a GPU, NIC, leaf (and of a spine or core that serves one rail); -1 otherwise
    group     (N,) scalable unit or pod of a device; -1 where it has none
    a, b      (C,) device ids of both ends
    port_a, port_b  (C,) 1-based port numbers (0 on PCIe and scale-up lanes)
    rate      (C,) nominal rate, one direction [byte/s]
    length    (C,) [m]
    role      (C,) Role
    capacity  (L,) rate of each direction after faults; 0 when failed [byte/s]
    nic_of_gpu (G,) device id of the NIC that a GPU sends through
    parts     catalogue names: 'server', 'gpu', 'nic', 'leaf', 'spine', 'core'
    generation  of its GPUs in the catalogue ('hopper'); '' without any
    latency   (N,) time to cross each device, port to port [s]; 0 for GPUs and scale-up switches
    reserved_ports  leaf ports cabled to machines outside the graph (subnet managers, storage)
    breakout  parts that ports of leaves are numbered in: leaf port p is numbered (p - 1) x breakout + 1 when
              whole, and that and the next ones when a breakout cable splits it
    directors  chassis whose modules stand in the graph one by one, as its two upper tiers; 0: none do
    scale_up   what joins the GPUs of a server, and so the name of that device: 'nvswitch', 'xgmi', or 'pcie'
               (the host's PCIe complex) where they have no scale-up network
    lost      servers that cannot join after faults: what takes a GPU of them is refused
    """

    name: str
    family: str
    kind: Ints
    server: Ints
    rail: Ints
    group: Ints
    a: Ints
    b: Ints
    port_a: Ints
    port_b: Ints
    rate: Floats
    length: Floats
    role: Ints
    capacity: Floats
    nic_of_gpu: Ints
    latency: Floats
    parts: Mapping[str, str]
    generation: str = ""
    notes: tuple[str, ...] = ()
    reserved_ports: int = 0
    breakout: int = 1
    directors: int = 0
    scale_up: str = "nvswitch"
    lost: tuple[int, ...] = ()

    @property
    def num_devices(self) -> int:
        return len(self.kind)

    @property
    def num_cables(self) -> int:
        return len(self.a)

    @property
    def num_links(self) -> int:
        return 2 * len(self.a)

    @property
    def num_gpus(self) -> int:
        return len(self.nic_of_gpu)

    @cached_property
    def num_servers(self) -> int:
        return int(self.server.max()) + 1

    @property
    def gpus_per_server(self) -> int:
        return self.num_gpus // self.num_servers

    @cached_property
    def _begin(self) -> list[int]:
        """First device of each kind, and the number of devices."""
        return [int(x) for x in np.searchsorted(self.kind, np.arange(len(Kind) + 1, dtype=self.kind.dtype))]

    @property
    def backplane(self) -> NDArray[np.bool_]:
        """(C,) which cables are links inside a director drawn as its modules: nobody pulls those."""
        none: NDArray[np.bool_] = np.zeros(len(self.role), dtype=np.bool_)
        return self.role == self.role.max() if self.directors else none

    def devices(self, kind: Kind) -> Ints:
        """Device ids of one kind, ascending."""
        return np.flatnonzero(self.kind == kind).astype(np.int32)

    def device_name(self, device: int) -> str:
        """As in the drawing: 'server-03/gpu-2', 'server-03/nic-2', 'server-03/nvswitch', 'leaf-07'.

        The scale-up device is named after what it stands for: `scale_up`.
        """
        kind = Kind(int(self.kind[device]))
        if kind is Kind.GPU:
            return f"{server_name(self.server[device])}/gpu-{device % self.gpus_per_server}"
        ordinal = device - self._begin[kind]
        if kind is Kind.NIC:
            per_server = (self._begin[Kind.NIC + 1] - self._begin[Kind.NIC]) // self.num_servers
            return f"{server_name(self.server[device])}/nic-{ordinal % per_server}"
        if kind is Kind.SCALE_UP:
            return f"{server_name(self.server[device])}/{self.scale_up}"
        return f"{kind.name.lower()}-{ordinal + 1:02d}"

    def link_name(self, link: int) -> str:
        """'leaf-03 port 37 -> spine-01 port 12'."""
        cable = link // 2
        ends = [(int(self.a[cable]), int(self.port_a[cable])), (int(self.b[cable]), int(self.port_b[cable]))]
        if link % 2:
            ends.reverse()
        return " -> ".join(self.device_name(d) + (f" port {p}" if p else "") for d, p in ends)
