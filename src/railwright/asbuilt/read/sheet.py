"""Cable sheets, CSV or .xlsx: ours, UFM Cable Validation Tool's, and others with two ends in a row.

Formats: railwright's cables.csv; NVIDIA UFM Cable Validation Tool 1.6, "P2P File" (columns, and HCA 1 is
mlx5_0 port 1); HPE SHCD sheets (a heading anywhere in the first rows, several sheets).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from railwright.asbuilt.read.columns import Columns, Field, columns
from railwright.asbuilt.read.descriptions import host_and_adapter
from railwright.asbuilt.read.dump import Dump, listed
from railwright.asbuilt.read.gather import End, Gathering
from railwright.asbuilt.read.interfaces import is_switch_port, port_numbers
from railwright.asbuilt.read.speeds import LANES, name_of, rate_of
from railwright.asbuilt.read.workbook import Row, sheets
from railwright.asbuilt.wiring import NodeKind, Wiring

_HEADING_ROWS = 60
_SWITCH = re.compile(
    r"(?:^|[^a-z])(?:sw|switch|leaf|spine|core|tor|agg|asw|psw|dsw|fabric|superspine)(?=[^a-z]|$)|switch",
    re.IGNORECASE,
)
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,4})?)\s*G(?:b(?:ps|/s)?|bit/s|E|bE)?", re.IGNORECASE)
_LANES = re.compile(r"(\d{1,2})\s*x\s*(\w+)", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(m|cm|ft)?", re.IGNORECASE)
_METRES = {"": 1.0, "m": 1.0, "cm": 0.01, "ft": 0.3048}
_DOWN = {"failed", "down", "broken", "disconnected"}


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a row.  hca: the port number counts a host's adapters."""

    device: str
    port: str
    kind: NodeKind | None
    slot: str
    hca: bool


@dataclass(frozen=True, slots=True)
class _Cable:
    line: int
    a: _End
    b: _End
    width: int
    speed: str
    rate: float
    length: float
    up: bool


def recognise(dump: Dump) -> bool:
    """A workbook, or a CSV with a heading row that names two devices and a port of each."""
    if dump.workbook:
        return True
    return any(
        columns(cells) for _, cells in list(_csv(dump, "\n".join(dump.lines[:_HEADING_ROWS])))[:_HEADING_ROWS]
    )


def parse(dump: Dump, names: Mapping[str, str]) -> Wiring:
    """Devices and cables of a sheet. SpecError when no sheet has a heading, or no row is a cable."""
    tables = sheets(dump) if dump.workbook else [("", list(_csv(dump, dump.text)))]
    gathering = Gathering(dump, "cable sheet", told_twice=False)
    cables: list[_Cable] = []
    for title, rows in tables:
        found = next(
            ((i, c) for i, (_, cells) in enumerate(rows[:_HEADING_ROWS]) if (c := columns(cells))), None
        )
        if found is None:
            if title and rows:
                gathering.note(
                    0, f"sheet '{title}' has no heading that names two devices and their ports; left out"
                )
            continue
        before = len(cables)
        cables.extend(_cables(gathering, rows[found[0] :], found[1], title))
        if len(cables) == before:
            gathering.note(0, f"no cable below the heading{f' of sheet {title!r}' if title else ''}")
    if not cables:
        dump.fail(
            0,
            "no cable found; a sheet needs a heading such as: Source, Port, Destination, Port "
            "(or A-Node Name, …)",
        )
    _join(gathering, cables)
    return gathering.wiring(names)


def _cables(gathering: Gathering, rows: Sequence[Row], at: Columns, title: str) -> Iterator[_Cable]:
    where = f"sheet '{title}', " if title else ""
    heading = rows[0][1]
    half: list[str] = []
    for line, cells in rows[1:]:

        def cell(side: str, field: Field, cells: list[str] = cells) -> str:
            column = at.get((side, field), -1)
            text = cells[column].strip() if 0 <= column < len(cells) else ""
            return "" if text == "-" else text

        a, b = (_end(at, cell, side) for side in "ab")
        if not a.device or not b.device:
            if a.device or b.device:
                half.append(str(line))
            continue
        if cells == heading:  # sheets that were joined repeat it
            continue
        width, speed, rate = _rate(cell("", "rate_bytes"), cell("", "rate_gbps"), cell("", "speed"))
        state = cell("", "state").lower()
        if state == "slow":
            gathering.note(
                line,
                f"{where}the cable from {a.device} to {b.device} is marked slow; its rate here is nominal",
            )
        yield _Cable(line, a, b, width, speed, rate, _length(cell("", "length")), state not in _DOWN)
    if half:
        gathering.note(0, f"{where}rows with one end only, left out: {listed(half, 12)}")


def _end(at: Columns, cell: Callable[[str, Field], str], side: str) -> _End:
    hca = (side, "hca") in at and (side, "port") not in at
    told = cell(side, "type").lower()
    kind: NodeKind | None = None
    if "switch" in told or told in ("leaf", "spine", "core", "tor"):
        kind = "switch"
    elif told in ("host", "server", "node", "compute", "hca", "gpu node"):
        kind = "host"
    port = cell(side, "hca" if hca else "port")
    return _End(
        cell(side, "device"), port, kind, cell(side, "slot"), hca or (kind == "host" and port.isdecimal())
    )


def _join(gathering: Gathering, cables: Sequence[_Cable]) -> None:
    ports: dict[str, list[str]] = {}
    told: dict[str, NodeKind] = {}
    for cable in cables:
        for end in (cable.a, cable.b):
            ports.setdefault(end.device, []).append(end.port)
            if end.kind or end.hca:
                told.setdefault(end.device, end.kind or "host")
    seen = {device: told.get(device) or _kind(device, names) for device, names in ports.items()}
    kinds: dict[str, NodeKind] = {device: kind or "host" for device, kind in seen.items()}
    numbers = {device: port_numbers(names) for device, names in ports.items()}
    guessed = [device for device, kind in seen.items() if kind is None]
    if guessed:
        gathering.note(
            0,
            f"neither the sheet nor the name says whether these are switches; they are taken as hosts: "
            f"{listed(guessed, 12)}",
        )

    def place(end: _End, line: int) -> tuple[str, int]:
        number = numbers[end.device][end.port.strip()]
        if kinds[end.device] != "host":
            device = gathering.device(end.device, "switch", end.device, line=line)
            device.ports = max(device.ports, number)
            return end.device, number
        host, adapter = host_and_adapter(end.device)
        if adapter:
            key = end.device
        elif end.hca and end.port.isdecimal():
            host, adapter, number = end.device, f"mlx5_{number - 1}" if number else "", 1
            key = f"{end.device} {adapter}".strip()
        elif end.slot:
            host, adapter, key = end.device, end.slot, f"{end.device} {end.slot}"
        elif end.port in ("", "0"):
            host, adapter, key, number = end.device, "", end.device, 0
        else:
            # No adapter is told: each port stands for one.
            host, adapter, key, number = end.device, end.port, f"{end.device} {end.port}", 1
        device = gathering.device(key, "host", key, line=line)
        device.host, device.adapter, device.ports = host, adapter, max(device.ports, number)
        return key, number

    for cable in cables:
        (key, port), (far, far_port) = place(cable.a, cable.line), place(cable.b, cable.line)
        gathering.end(
            End(
                key,
                port,
                far,
                far_port,
                cable.width,
                cable.speed,
                cable.rate,
                cable.up,
                cable.length,
                cable.line,
            )
        )


def _kind(device: str, ports: Sequence[str]) -> NodeKind | None:
    """What the names tell; None when they do not."""
    if host_and_adapter(device)[1]:
        return "host"
    if _SWITCH.search(device) or any(is_switch_port(port) for port in ports):
        return "switch"
    return "host" if any(port and not port.isdecimal() for port in ports) else None


def _rate(in_bytes: str, in_gigabits: str, speed: str) -> tuple[int, str, float]:
    """(width, lane speed, rate [byte/s]) from whichever column tells it."""
    if match := _NUMBER.fullmatch(in_bytes):
        rate = float(match[1])
        return (*name_of(rate), rate) if rate else (0, "", 0.0)
    if (match := _LANES.fullmatch(speed)) and match[2].upper() in LANES:
        width, name = int(match[1]), match[2].upper()
        return width, name, rate_of(width, name)
    if speed.upper() in LANES:
        return 4, speed.upper(), rate_of(4, speed.upper())
    if match := _NUMBER.fullmatch(in_gigabits) or _RATE.fullmatch(speed):
        rate = float(match[1]) * 1e9 / 8
        return (*name_of(rate), rate) if rate else (0, "", 0.0)
    return 0, "", 0.0


def _length(text: str) -> float:
    match = _NUMBER.fullmatch(text)
    return float(match[1]) * _METRES[(match[2] or "").lower()] if match else 0.0


def _csv(dump: Dump, text: str) -> Iterator[Row]:
    heads = [line for line in dump.lines[:_HEADING_ROWS] if line.strip()]
    delimiter = max(",;\t|", key=lambda d: max((line.count(d) for line in heads), default=0))
    reader = csv.reader(io.StringIO(text.replace("\0", "")), delimiter=delimiter)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            dump.fail(reader.line_num, f"not valid CSV: {error}")
        yield reader.line_num, row
