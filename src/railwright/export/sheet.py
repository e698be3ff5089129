"""What the exports share of a fabric: names outside the drawing, live rates, parts and media, as plain lists.

Everything here is read from the graph's arrays, never recomputed from the design, so that a fabric with
faults or edited cables is written as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from csv import writer
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from typing import Any, NamedTuple, TypeVar

import numpy as np

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Gpu, Nic, Server, Switch
from railwright.errors import PlanError, RailwrightError
from railwright.fabric.graph import Fabric, Ints, Kind, Role, server_name
from railwright.fabric.names import device_names
from railwright.fabric.wired.counting import COPPER_REACH, TWISTED_PAIR, TWISTED_PAIR_REACH

MULTIMODE_REACH = 50.0
"""Longest multimode fibre at 100 Gb/s per lane [m]; a longer cable is single-mode.

Source: NVIDIA, "LinkX 100G-PAM4 Product Line Overview" (docs.nvidia.com/networking, page of 2025-11-27):
multimode SR4/SR8 transceivers reach 50 m.
"""

METRE = 5e-9
"""Time of light through one metre of fibre or copper [s]: refractive index 1.468 (ITU-T G.652, typical at
1310 nm), rounded up; the network engine uses the same figure."""

P = TypeVar("P", Gpu, Nic, Switch, Server)

SWITCH_KINDS = (Kind.LEAF, Kind.SPINE, Kind.CORE)

# Linux RDMA device names by the adapter's maker (kernel: drivers/infiniband/hw); numbered from 0.
_DEVICES = {"nvidia": "mlx5_", "broadcom": "bnxt_re", "amd": "ionic_", "aws": "efa_", "hpe": "cxi"}


class Cable(NamedTuple):
    """One pulled cable: both ends, its Role, nominal rate [byte/s] and length [m].

    link  index of the cable in the graph
    live  what it carries now in both directions, 0 when failed [byte/s]
    """

    link: int
    a: int
    port_a: int
    b: int
    port_b: int
    role: int
    rate: float
    live: float
    length: float

    @property
    def medium(self) -> str:
        """'copper', 'twisted-pair', 'multimode' or 'single-mode'; '' where the length is unknown."""
        return medium(self.length, self.rate)


@dataclass(frozen=True, eq=False)
class Sheet:
    """A fabric with what it is called.  study: name to put on top of the files."""

    fabric: Fabric
    catalog: Catalog
    study: str

    @property
    def title(self) -> str:
        return self.study or self.fabric.name

    @cached_property
    def names(self) -> list[str]:
        """Name of every device, as in the drawing."""
        return device_names(self.fabric)

    @cached_property
    def hosts(self) -> list[str]:
        """Name of every server."""
        return [server_name(i) for i in range(self.fabric.num_servers)]

    @cached_property
    def local(self) -> list[int]:
        """Place of every device among those of its kind: in its server for GPUs and NICs, else in all."""
        kind = self.fabric.kind
        first = np.searchsorted(kind, np.arange(len(Kind)))
        place = np.arange(len(kind)) - first[kind]
        for inside, each in ((Kind.GPU, self.gpus), (Kind.NIC, self.nics)):
            place[kind == inside] %= each
        return [int(x) for x in place]

    @property
    def gpus(self) -> int:
        """GPUs of one server; 0 in a storage or management network."""
        return self.fabric.gpus_per_server

    @cached_property
    def nics(self) -> int:
        """NICs of one server."""
        return int(np.count_nonzero(self.fabric.kind == Kind.NIC)) // self.fabric.num_servers

    @cached_property
    def nic_ports(self) -> int:
        """Ports of one NIC."""
        at_leaf = self.fabric.role == Role.NODE_LEAF
        return int(self.fabric.port_a[at_leaf].max()) if at_leaf.any() else 1

    @cached_property
    def adapters(self) -> list[str]:
        """Linux name of each NIC of a server, 'mlx5_0', …"""
        nic = self.nic
        stem = _DEVICES.get(nic.vendor, "nic_") if nic else "mlx5_"
        return [f"{stem}{i}" for i in range(self.nics)]

    @cached_property
    def cables(self) -> list[Cable]:
        """Every link between NICs and switches, in the order of the graph, whether it works or not."""
        f = self.fabric
        pulled = np.flatnonzero(f.role >= Role.NODE_LEAF)
        live = np.minimum(f.capacity[2 * pulled], f.capacity[2 * pulled + 1])
        columns: list[list[Any]] = [
            pulled.tolist(),
            *(np.asarray(c)[pulled].tolist() for c in (f.a, f.port_a, f.b, f.port_b, f.role, f.rate)),
            live.tolist(),
            f.length[pulled].tolist(),
        ]
        return [Cable(*row) for row in zip(*columns, strict=True)]

    @cached_property
    def pulled(self) -> list[Cable]:
        """Those that are cables to pull; links inside a director are none."""
        backplane = self.fabric.backplane.tolist()
        return [c for c in self.cables if not backplane[c.link]]

    @cached_property
    def working(self) -> list[Cable]:
        """Those of them that carry something in both directions."""
        return [c for c in self.cables if c.live > 0]

    def switch(self, kind: Kind) -> Switch | None:
        """Catalogue record of a tier's switch; None where the catalogue does not know it, as for the modules
        of a director: the catalogue knows the chassis."""
        if self.fabric.directors and kind is not Kind.LEAF:
            return None
        return _part(self.catalog.switches, self.fabric.parts.get(kind.name.lower()))

    @property
    def nic(self) -> Nic | None:
        return _part(self.catalog.nics, self.fabric.parts.get("nic"))

    @property
    def gpu(self) -> Gpu | None:
        return _part(self.catalog.gpus, self.fabric.parts.get("gpu"))

    @property
    def server(self) -> Server | None:
        return _part(self.catalog.servers, self.fabric.parts.get("server"))

    def cage_ports(self, kind: Kind) -> int:
        """Ports that one front-panel cage of a tier's switch holds; 1 where the catalogue does not know."""
        switch = self.switch(kind)
        split = self.fabric.breakout if kind is Kind.LEAF else 1
        return max(1, switch.ports * split // switch.cages) if switch else 1

    def need_gpus(self, format: str) -> None:
        """Raise PlanError where there are no GPUs to speak of."""
        if not self.fabric.num_gpus:
            raise PlanError(
                f"{format} is about GPUs, and this network joins none; export the compute network, or take "
                "format cable-schedule, netbox, dot or graphml"
            )

    def part_name(self, part: str) -> str:
        """Catalogue name of a part; 'unknown' where the fabric does not say."""
        module = " module" if self.fabric.directors and part in ("spine", "core") else ""
        return self.fabric.parts.get(part, "unknown") + module

    @cached_property
    def most_port(self) -> list[int]:
        """Highest port of every device that a cable uses; 0 without cables."""
        most: Ints = np.zeros(self.fabric.num_devices, np.int32)
        np.maximum.at(most, self.fabric.a, self.fabric.port_a)
        np.maximum.at(most, self.fabric.b, self.fabric.port_b)
        return [int(x) for x in most]

    @cached_property
    def ports(self) -> list[int]:
        """Ports of every device: the part's, or the highest used where the catalogue does not know it."""
        most = self.most_port
        known = {k: (s.ports if (s := self.switch(k)) else 0) for k in SWITCH_KINDS}
        known[Kind.NIC] = self.nic_ports
        known[Kind.LEAF] *= self.fabric.breakout
        kinds = self.fabric.kind.tolist()
        return [max(known.get(Kind(kind), 0), used) for kind, used in zip(kinds, most, strict=True)]


def medium(length: float, rate: float) -> str:
    """What a cable of this length [m] and rate [byte/s] is made of; '' where the length is unknown (0)."""
    if length <= 0:
        return ""
    if rate <= TWISTED_PAIR and length <= TWISTED_PAIR_REACH:
        return "twisted-pair"
    if length <= COPPER_REACH:
        return "copper"
    return "multimode" if length <= MULTIMODE_REACH else "single-mode"


def gigabits(rate: float) -> str:
    """A rate [byte/s] as a bare number of Gb/s, for formats that take nothing else: '400', '2.5'."""
    return f"{rate * 8 / 1e9:.10g}"


def xml_comment(text: str) -> str:
    """The text as an XML comment, in which two hyphens may not meet (XML 1.0, 2.5)."""
    return f"<!-- {re.sub('-{2,}', '-', text)} -->"


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """RFC 4180 text with plain line ends."""
    out = StringIO()
    table = writer(out, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    return out.getvalue()


def _part(parts: Mapping[str, P], name: str | None) -> P | None:
    try:
        return find(parts, name) if name else None
    except RailwrightError:
        return None
