"""What can be at fault: GPUs, NICs, cables, switches, servers and ranks, with their names and prior weights.

Legend: E elements; N devices and C cables of a fabric.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from railwright.diagnose.constants import rate, slows
from railwright.errors import RailwrightError, nearest
from railwright.fabric.graph import Fabric, Kind, Role, server_name
from railwright.fabric.names import device_names
from railwright.fabric.trays import TRAY_GPUS, host_names

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

KIND_WORDS = {Kind.GPU: "gpu", Kind.NIC: "nic", Kind.LEAF: "leaf", Kind.SPINE: "spine", Kind.CORE: "core"}
SHOWN = ("gpu", "nic", "cable", "leaf", "spine", "core", "node", "rank")


@dataclass(eq=False)
class Elements:
    """The elements of one machine; those that only evidence names (ranks, hosts) are added as they come.

    kind, name  per element; `name` is unique, and the machine's own where a dump told it
    fabric      the fabric they stand in, or None where no topology was given
    of_device   (N,) element of each device of the fabric, -1 for scale-up switches
    of_cable    (C,) element of each cable that can be pulled, -1 for lanes inside servers
    of_server   (servers,) the node element
    aliases     other spellings -> element: names of the drawing, 'host', 'host/adapter', trays, GUIDs
    trays       host that is a tray of a rack -> which of it, from 0
    """

    fabric: Fabric | None = None
    kind: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    of_device: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    of_cable: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    of_server: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    aliases: dict[str, int] = field(default_factory=dict)
    trays: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.kind)

    def add(self, kind: str, name: str) -> int:
        """The element of this name, made when it is new."""
        found = self.aliases.get(name.casefold())
        if found is not None:
            return found
        self.kind.append(kind)
        self.name.append(name)
        self.aliases[name.casefold()] = len(self.kind) - 1
        return len(self.kind) - 1

    def find(self, name: str, kind: str = "") -> int | None:
        """The element that a file calls so, or None."""
        found = self.aliases.get(name.strip().casefold())
        return found if found is not None and kind in ("", self.kind[found]) else None

    def weights(self) -> Floats:
        """(E,) faults a year, before they are scaled to what is expected in the machine."""
        return self._by_kind(rate)

    def slows(self) -> Floats:
        """(E,) part of the faults that slow what goes through the element."""
        return self._by_kind(slows)

    def _by_kind(self, value: Callable[[str], float]) -> Floats:
        if not self.kind:
            return np.zeros(0)
        kinds, which = np.unique(np.array(self.kind), return_inverse=True)
        return np.array([value(str(kind)) for kind in kinds])[which.reshape(-1)]

    def rank(self, number: int) -> int:
        """The element of a rank's software."""
        return self.add("rank", f"rank-{number}")

    def server_of(self, host: str) -> int | None:
        """Number of the server (from 0) that is called so, or None."""
        if self.fabric is None:
            return None
        found = self.find(host, "node")
        if found is None:
            return None
        return int(np.flatnonzero(self.of_server == found)[0]) if found in self.of_server else None

    def gpus_of(self, host: str) -> range | None:
        """GPUs of the host that is called so, of a tray its own; or None."""
        server = self.server_of(host)
        if self.fabric is None or server is None:
            return None
        per, tray = self.fabric.gpus_per_server, self.trays.get(host.strip().casefold())
        first = server * per + (tray or 0) * TRAY_GPUS
        return range(first, first + (per if tray is None else TRAY_GPUS))

    def place_of_rank(self, number: int) -> tuple[int, int, int] | None:
        """(gpu, nic, node) elements of a rank placed server by server; None without a fabric or beyond it."""
        fabric = self.fabric
        if fabric is None or not 0 <= number < fabric.num_gpus:
            return None
        nic = int(fabric.nic_of_gpu[number])
        return (
            int(self.of_device[number]),
            int(self.of_device[nic]),
            int(self.of_server[fabric.server[number]]),
        )


def elements_of(fabric: Fabric | None, names: Mapping[str, str] | None = None) -> Elements:
    """The elements of a fabric: GPUs, NICs, switches, servers, and the cables outside servers.

    names  names of the drawing -> names of the real machine (`asbuilt.fabric_names`); both are understood
    """
    elements = Elements(fabric)
    if fabric is None:
        return elements
    own = dict(names or {})
    called = device_names(fabric)
    elements.of_device = np.full(fabric.num_devices, -1, np.int64)
    for device, name in enumerate(called):
        word = KIND_WORDS.get(Kind(int(fabric.kind[device])))
        if word is None:
            continue
        host, slash, inner = name.partition("/")
        fallback = f"{own[host]}{slash}{inner}" if slash and host in own else name
        made = elements.add(word, own.get(name, fallback))
        elements.of_device[device] = made
        elements.aliases.setdefault(name.casefold(), made)
        if slash and name in own:
            elements.aliases.setdefault(own[name].replace("/", " ").casefold(), made)
    servers = [server_name(s) for s in range(fabric.num_servers)]
    elements.of_server = np.array([elements.add("node", own.get(s, s)) for s in servers], np.int64)
    for server, made in zip(servers, elements.of_server.tolist(), strict=True):
        elements.aliases.setdefault(server.casefold(), made)
        hosts = host_names(server, fabric.gpus_per_server)
        for tray, host in enumerate(hosts if len(hosts) > 1 else ()):
            for called_so in (host.casefold(), own.get(host, host).casefold()):
                elements.aliases.setdefault(called_so, made)
                elements.trays[called_so] = tray
    _add_cables(elements, fabric)
    return elements


def cable_at(elements: Elements, device: int, port: int) -> int | None:
    """The cable element on a port of a device of the fabric; port 0 of a one-cable device is its cable."""
    fabric = elements.fabric
    if fabric is None:
        return None
    return _ports(elements).get((device, port))


def device_called(elements: Elements, name: str) -> int | None:
    """The fabric's device of this name, or None."""
    found = elements.find(name)
    if found is None:
        return None
    at = np.flatnonzero(elements.of_device == found)
    return int(at[0]) if len(at) else None


def need(elements: Elements, name: str, where: str) -> int:
    """The element of this name; RailwrightError with the nearest names where there is none."""
    found = elements.find(name)
    if found is None:
        hint = nearest(name, elements.name[:20000])
        raise RailwrightError(f"{where}: '{name}' is no element of this machine{hint}")
    return found


def _add_cables(elements: Elements, fabric: Fabric) -> None:
    device = [elements.name[e] if e >= 0 else "" for e in elements.of_device.tolist()]
    elements.of_cable = np.full(fabric.num_cables, -1, np.int64)
    outside = np.flatnonzero((fabric.role >= Role.NODE_LEAF) & ~fabric.backplane)
    for cable in outside.tolist():
        a, b = device[int(fabric.a[cable])], device[int(fabric.b[cable])]
        name = f"{a} port {int(fabric.port_a[cable])} - {b} port {int(fabric.port_b[cable])}"
        elements.of_cable[cable] = elements.add("cable", name)


def _ports(elements: Elements) -> dict[tuple[int, int], int]:
    """(device, port) -> cable element, made once."""
    known: dict[tuple[int, int], int] | None = elements.__dict__.get("_port_table")
    if known is not None:
        return known
    fabric = elements.fabric
    table: dict[tuple[int, int], int] = {}
    if fabric is not None:
        for cable in np.flatnonzero(elements.of_cable >= 0).tolist():
            made = int(elements.of_cable[cable])
            table[int(fabric.a[cable]), int(fabric.port_a[cable])] = made
            table[int(fabric.b[cable]), int(fabric.port_b[cable])] = made
    elements.__dict__["_port_table"] = table
    return table
