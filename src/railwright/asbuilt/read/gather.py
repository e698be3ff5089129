"""What a parser has read so far, device by device and cable end by cable end, joined into one Wiring.

Every format ends here, so the same fabric gives the same nodes and links in the same order whichever format
told it: nodes by kind and key, links by their ends, each cable once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from railwright.asbuilt.read.descriptions import chassis, host_and_adapter, is_aggregation
from railwright.asbuilt.read.dump import Dump, listed, shorten
from railwright.asbuilt.read.speeds import rate_of
from railwright.asbuilt.wiring import Link, Node, NodeKind, Wiring

_ORDER: dict[NodeKind, int] = {"switch": 0, "router": 1, "host": 2, "aggregation": 3}
_PARTS = re.compile(r"(\d+)")


@dataclass(slots=True)
class Device:
    """A device as far as it is known.  line: where it is described; 0 when only links name it."""

    key: str
    kind: NodeKind
    name: str = ""
    ports: int = 0
    lid: int = 0
    lid_port: int = 0
    model: str = ""
    system: str = ""
    host: str = ""
    adapter: str = ""
    line: int = 0
    named: int = 0

    def tell_lid(self, port: int, lid: int) -> None:
        """Each port of an adapter has a LID; the device goes by that of its lowest port that has one."""
        if lid and (not self.lid or port < self.lid_port):
            self.lid, self.lid_port = lid, port


@dataclass(frozen=True, slots=True)
class End:
    """One port's account of its cable: the port, what it says is at the other end, and how the link runs."""

    key: str
    port: int
    far: str
    far_port: int
    width: int = 0
    speed: str = ""
    rate: float = 0.0
    up: bool = True
    length: float = 0.0
    line: int = 0

    def faces(self, other: End) -> bool:
        return (self.key, self.port, self.far, self.far_port) == (
            other.far,
            other.far_port,
            other.key,
            other.port,
        )

    def bytes_per_second(self) -> float:
        return self.rate or rate_of(self.width, self.speed)


class Gathering:
    """Collects devices and cable ends of one dump; `wiring` closes it.

    told_twice  the format shows each cable at both of its ends, so one that is shown once is worth a note
    """

    def __init__(self, dump: Dump, format_name: str, *, told_twice: bool) -> None:
        self.dump = dump
        self.format_name = format_name
        self.told_twice = told_twice
        self.devices: dict[str, Device] = {}
        self.notes: list[str] = list(dump.notes)
        self.aliases: dict[str, str] = {}
        self._ends: list[End] = []
        self._strange: list[tuple[int, str]] = []
        self._down: dict[str, list[int]] = {}

    def device(self, key: str, kind: NodeKind, name: str = "", line: int = 0, named: int = 0) -> Device:
        """The device with this key, made or completed; line > 0 when this line describes it."""
        found = self.devices.get(key)
        if found is None:
            found = self.devices[key] = Device(key, kind, name, line=line, named=named or line)
            return found
        if line and not found.line:
            found.line, found.kind = line, kind
            if name and found.name and name != found.name:
                self.note(line, f"{key} is called '{name}' here and '{found.name}' in line {found.named}")
            found.name = name or found.name
        elif name and not found.name:
            found.name = name
        return found

    def end(self, end: End) -> None:
        """Take one port's account of its cable."""
        self._ends.append(end)
        for key, port in ((end.key, end.port), (end.far, end.far_port)):
            device = self.devices[key]
            if port > device.ports and not device.line:
                device.ports = port

    def down(self, key: str, port: int) -> None:
        """A port that is down and names no other end."""
        self._down.setdefault(key, []).append(port)

    def note(self, line: int, text: str) -> None:
        self.notes.append(f"line {line}: {text}" if line else text)

    def strange(self, line: int, text: str) -> None:
        """A line that the format does not have."""
        self._strange.append((line, text))

    def wiring(self, names: Mapping[str, str] | None = None) -> Wiring:
        """Nodes and links in their one order, with every gap and contradiction noted.

        names  node-name map, GUID -> name: wins over the names in the dump
        SpecError when the dump describes no device at all.
        """
        if not self.devices:
            line = self._strange[0][0] if self._strange else 0
            self.dump.fail(
                line, f"no device found; {self.format_name} output with at least one device was expected"
            )
        self._tell_strange()
        self._rename(names or {})
        self._tell_undescribed()
        order = sorted(self.devices.values(), key=lambda d: (_ORDER[_kind(d)], _natural(d.key)))
        index = {device.key: i for i, device in enumerate(order)}
        links = self._links(index)
        self._tell_down()
        return Wiring(
            source=self.dump.source(self.format_name),
            nodes=tuple(_node(device) for device in order),
            links=tuple(sorted(links, key=lambda k: (k.a, k.a_port, k.b, k.b_port, k.line))),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _links(self, index: Mapping[str, int]) -> list[Link]:
        """Each cable once: first those both ends agree on, then those one end tells, while ports are free."""
        told: dict[tuple[str, int], End] = {}
        loose: list[End] = []  # ports unknown: nothing can be matched
        for end in self._ends:
            if not end.port or not end.far_port:
                loose.append(end)
                continue
            first = told.setdefault((end.key, end.port), end)
            if first is not end and (first.far, first.far_port) != (end.far, end.far_port):
                self._contradiction(first, end)
        links: list[Link] = []
        taken: dict[tuple[str, int], End] = {}
        single: list[End] = []
        for place, end in told.items():
            other = told.get((end.far, end.far_port))
            if other is None or not end.faces(other):
                single.append(end)
            elif place not in taken:
                taken[place] = taken[end.far, end.far_port] = end
                links.append(_link(index, *self._agree(end, other)))
        for end in single:
            places = ((end.key, end.port), (end.far, end.far_port))
            rival = taken.get(places[0]) or taken.get(places[1]) or told.get(places[1])
            if places[0] in taken or places[1] in taken:
                if rival is not None and not (rival.faces(end) or rival == end):
                    self._contradiction(rival, end)
                continue
            if rival is not None:
                self._contradiction(end, rival)
            elif self.told_twice and self.devices[end.far].line and self.devices[end.key].line:
                self.note(
                    end.line,
                    f"{self._end(end)}, but {self._name(end.far)} (line "
                    f"{self.devices[end.far].line}) does not "
                    f"show its port {end.far_port}: one end of this cable is missing from the dump",
                )
            taken[places[0]] = taken[places[1]] = end
            links.append(_link(index, end, end.line))
        return links + [_link(index, end, end.line) for end in loose]

    def _agree(self, end: End, other: End) -> tuple[End, int]:
        """The slower account of two that agree on where the cable goes, and the line to quote (0: both)."""
        one, two = end.bytes_per_second(), other.bytes_per_second()
        if one and two and one != two:
            self.note(
                end.line,
                f"{self._end(end)} at {_speed(end)}, but line {other.line} says {_speed(other)} "
                "for the same cable; "
                f"the slower is kept",
            )
        slower = other if two and (two < one or not one) else end
        up = end.up and other.up
        return replace(slower, up=up), 0 if other.line != end.line else end.line

    def _contradiction(self, kept: End, other: End) -> None:
        says = f"line {other.line} says that" if other.line else "another entry says that"
        self.note(
            kept.line,
            f"{self._end(kept)}, but {says} {self._end(other)}; a port takes one cable, "
            f"so the dump contradicts itself: check both places",
        )

    def _tell_strange(self) -> None:
        for line, text in self._strange[:8]:
            self.note(
                line, f"not understood and left out: '{shorten(text)}' (is the dump cut off or damaged here?)"
            )
        if len(self._strange) > 8:
            last = self._strange[-1][0]
            self.note(
                0, f"{len(self._strange) - 8} more lines up to line {last} were not understood and left out"
            )

    def _tell_undescribed(self) -> None:
        for kind in _ORDER:
            absent = [d for d in self.devices.values() if not d.line and _kind(d) == kind]
            if absent:
                shown = listed([f"{d.name or d.key} (line {d.named})" for d in absent], 20)
                many = "devices are" if len(absent) > 1 else "device is"
                self.note(
                    0,
                    f"{len(absent)} {many} named by links but described nowhere ({kind}): {shown}; "
                    f"the dump does not cover the whole fabric or is cut off",
                )

    def _tell_down(self) -> None:
        if self._down:
            shown = [f"{self._name(key)} {_ranges(ports)}" for key, ports in self._down.items()]
            many = sum(len(ports) for ports in self._down.values())
            ports = "ports are" if many > 1 else "port is"
            self.note(0, f"{many} {ports} down and name no other end: {listed(shown, 20)}")

    def _rename(self, names: Mapping[str, str]) -> None:
        used = 0
        for guid, name in names.items():
            device = self.devices.get(self.aliases.get(guid, guid))
            if device is not None:
                device.name = name
                used += 1
        if names and used < len(names):
            self.note(
                0,
                f"{len(names) - used} of {len(names)} entries of the node-name map name no "
                "device of the dump",
            )

    def _name(self, key: str) -> str:
        return self.devices[key].name or key

    def _end(self, end: End) -> str:
        return f"{self._name(end.key)} port {end.port} goes to {self._name(end.far)} port {end.far_port}"


def _kind(device: Device) -> NodeKind:
    return "aggregation" if device.kind == "host" and is_aggregation(device.name) else device.kind


def _node(device: Device) -> Node:
    kind = _kind(device)
    host, adapter = device.host, device.adapter
    system, model = device.system, device.model
    if kind == "host" and not (host or adapter):
        host, adapter = host_and_adapter(device.name)
    elif kind == "switch":
        named, called = chassis(device.name)
        system, model = named or system, called or model
    return Node(
        key=device.key, kind=kind, name=device.name, ports=device.ports, host=host, adapter=adapter,
        system=system, lid=device.lid, model=model,
    )  # fmt: skip


def _link(index: Mapping[str, int], end: End, line: int) -> Link:
    ends = sorted(((index[end.key], end.port), (index[end.far], end.far_port)))
    (a, a_port), (b, b_port) = ends
    return Link(
        a=a, a_port=a_port, b=b, b_port=b_port, width=end.width, speed=end.speed,
        rate=end.bytes_per_second(), up=end.up, length=end.length, line=line,
    )  # fmt: skip


def _speed(end: End) -> str:
    if end.width and end.speed:
        return f"{end.width}x {end.speed}"
    return f"{end.bytes_per_second() * 8 / 1e9:g} Gb/s"


def _natural(key: str) -> tuple[object, ...]:
    """'leaf-2' before 'leaf-10'; GUIDs by value."""
    if key.startswith("0x"):
        return (0, key)
    return (
        1,
        *(
            (0, int(p), "") if p.isdecimal() and p.isascii() and len(p) < 19 else (1, 0, p)
            for p in _PARTS.split(key)
        ),
    )


def _ranges(ports: list[int]) -> str:
    """'ports 1, 3-5'."""
    runs: list[list[int]] = []
    for port in sorted(set(ports)):
        if runs and port == runs[-1][1] + 1:
            runs[-1][1] = port
        else:
            runs.append([port, port])
    text = ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)
    return f"port{'s' if len(runs) > 1 or runs[0][0] != runs[0][1] else ''} {text}"
