"""Parts of a room: plugs, outlets, PDUs, racks, busways, what machines take, cables and optics, storage.

Every record carries its `source` and `status`; `sources` names fields (or '*') with a source of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["read", "read_third_party", "computed", "memory", "estimated"]
Medium = Literal["dac", "acc", "aoc", "twisted-pair", "multimode", "single-mode"]
Split = Literal["either", "whole", "port", "leg"]
OPTICAL = ("multimode", "single-mode")
"""Media with a module to plug in at each end; an AOC and copper are one piece."""


@dataclass(frozen=True)
class Plug:
    """A plug of a PDU or power shelf.  volts: line to line [V]; amps: rating, also of its breaker [A]."""

    name: str
    title: str
    receptacle: str
    volts: float
    amps: float
    phases: int
    neutral: bool = False
    source: str = ""
    status: Status = "read"
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Outlet:
    """An outlet of a PDU: the plug it takes, its rating under both practices [A]."""

    name: str
    title: str
    plug: str
    amps_nec: float
    amps_iec: float
    source: str = ""
    status: Status = "read"
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Bank:
    """Outlets behind one breaker [A] of a PDU.  legs: 'AB' is line to line, 'A' line to neutral."""

    legs: str
    breaker: float
    c13: int = 0
    c19: int = 0


@dataclass(frozen=True)
class Pdu:
    """A rack PDU.  plug: name; rated: what its maker says it delivers [W], 0 where nothing was read."""

    name: str
    title: str
    plug: str
    banks: tuple[Bank, ...]
    rated: float = 0.0
    price_usd: float = 0.0
    source: str = ""
    status: Status = "read"
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class RackKind:
    """A rack.  width, depth, height, base (floor to the bottom of unit 1) [m]; pdu_slots: PDUs it holds."""

    name: str
    title: str
    units: int
    width: float
    depth: float
    height: float
    base: float
    pdu_slots: int
    source: str = ""
    status: Status = "read"
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Busway:
    """A busway over a row: volts line to line [V], amps of each line [A]."""

    name: str
    title: str
    volts: float
    amps: float
    source: str = ""
    status: Status = "read"
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Intake:
    """What a server or switch takes from the room.

    supplies, watts  power supplies and what each delivers [W]
    inlet    'c14' or 'c20', or the plug of a power shelf
    needs    fewest supplies that keep it alive; 0: by their watts alone
    peak     short peak over sustained power
    liquid   share of the heat that its coolant takes
    ports_per_cage  network ports behind one cage
    units, power    of machines the catalogue does not know [W]; 0 for those it does
    """

    name: str
    supplies: int
    watts: float
    inlet: str
    needs: int = 0
    peak: float = 1.0
    liquid: float = 0.0
    ports_per_cage: int = 1
    units: int = 0
    power: float = 0.0
    source: str = ""
    status: Status = "read"
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class CableKind:
    """A kind of cable for ports of one generation.

    rate     of a port, up to [byte/s]
    reach    longest [m]
    watts    of the module or the active end in a cage, at both ends [W]; watts_single: where the cage
             has one port (0: as `watts`)
    lengths  those it is sold in [m]; empty: the stock lengths of fibre
    split    'either': for whole ports and both ends of split ones; 'whole': for whole ports alone, because
             colours share a fibre; 'port', 'leg': for that end of a breakout cable alone
    """

    name: str
    kind: Medium
    technology: str
    rate: float
    reach: float
    watts: float = 0.0
    watts_single: float = 0.0
    module: str = ""
    lengths: tuple[float, ...] = ()
    split: Split = "either"
    source: str = ""
    status: Status = "read"
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class StorageKind:
    """A way to build shared storage: what one server has, and what the software makes of it.

    nics x nic, drives x drive_read/drive_write [byte/s], drive [byte]
    data, parity  of a stripe; three copies are 1 and 2
    software      share of the slower of drives and NICs that clients get
    client        most that one client node gets [byte/s]
    over_network  whether parity travels between servers
    """

    name: str
    title: str
    nics: int
    nic: float
    drives: int
    drive_read: float
    drive_write: float
    drive: float
    data: int
    parity: int
    software: float
    client: float
    most_servers: int
    least_servers: int
    over_network: bool = False
    source: str = ""
    status: Status = "read"
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class SiteParts:
    """All known parts of rooms by kind and name."""

    plugs: Mapping[str, Plug]
    outlets: Mapping[str, Outlet]
    pdus: Mapping[str, Pdu]
    racks: Mapping[str, RackKind]
    busways: Mapping[str, Busway]
    machines: Mapping[str, Intake]
    media: Mapping[str, CableKind]
    storage: Mapping[str, StorageKind]
