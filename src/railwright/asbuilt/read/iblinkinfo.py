"""`iblinkinfo`: every port with the state of its link, by device or one line each (`-l`), all or switches.

The far end of a link is told by LID, port and name; its GUID only with `-l`.  A port that could run wider or
faster says so, and that is passed on as a note.
Format: infiniband-diags, doc/rst/iblinkinfo.8.in.rst.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from railwright.asbuilt.read.descriptions import host_and_adapter
from railwright.asbuilt.read.dump import Dump, listed
from railwright.asbuilt.read.gather import End, Gathering
from railwright.asbuilt.read.speeds import WIDTHS, speed_name
from railwright.asbuilt.wiring import NodeKind, Wiring

_KINDS: Mapping[str, NodeKind] = {"CA": "host", "Switch": "switch", "RT": "router", "Router": "router"}
_HEADING = re.compile(
    r"\s*(?P<word>CA|Switch|RT|Router)\s*:\s*(?:0x(?P<guid>[0-9a-fA-F]{1,16})\s+)?(?P<name>.*?)\s*:\s*$"
)
_LINE = re.compile(
    r'\s*(?:0x(?P<guid>[0-9a-fA-F]{1,16})\s+)?(?:"(?P<name>[^"]*)"\s+)?(?P<lid>\d{1,5})\s+(?P<port>\d{1,3})\[[^\]]*\]\s*'
    r"==\((?P<state>[^()]*(?:\([^()]*\)[^()]*)*)\)==>\s*(?:0x(?P<far_guid>[0-9a-fA-F]{1,16})\s+)?"
    r'(?:(?P<far_lid>\d{1,5})\s+(?P<far_port>\d{1,3}))?\s*\[[^\]]*\]\s*"(?P<far_name>.*)"\s*\((?P<could>.*)\)\s*$'
)
_STATE = re.compile(
    r"\s*(?:(?P<width>\d{1,2})X\s+)?(?P<speed>[\d.]+\s*Gb(?:ps|/s)(?:\s*\(\w+\))?|[A-Z]+\d*)?\s*"
    r"(?P<logical>Active|Down|Init\w*|Armed|\w+)\s*/\s*(?P<physical>\w+)"
)
_START = re.compile(r"\d{1,5} {1,9}\d{1,3}\[[^\]\n]{0,9}\] {0,9}==\(")
_LONGEST = 1000
"""Characters of a line; a longer one is no line of this tool, and would only cost time."""
_ROUND_FDR10 = re.compile(r"\((FDR10)\)")


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    key: str
    port: int
    match: re.Match[str]
    state: re.Match[str]


def recognise(dump: Dump) -> bool:
    """A port line with its '==(' arrow."""
    return "==(" in dump.head and bool(_START.search(dump.head))


def parse(dump: Dump, names: Mapping[str, str]) -> Wiring:
    """The fabric of a link report. SpecError when no line of it is whole."""
    gathering = Gathering(dump, "iblinkinfo", told_twice=True)
    rows, lids = _rows(gathering)
    by_name: dict[str, list[str]] = {}
    for device in gathering.devices.values():
        by_name.setdefault(device.name, []).append(device.key)
    could: dict[str, list[str]] = {}
    used: dict[str, set[int]] = {}
    for row in rows:
        match = row.match
        if match["far_lid"] is None:
            gathering.down(row.key, row.port)
            continue
        far_port = int(match["far_port"])
        far = _far(gathering, row, lids, by_name, used)
        used.setdefault(far, set()).add(far_port)
        hint = match["could"].strip()
        if hint:
            could.setdefault(hint, []).append(f"{gathering.devices[row.key].name or row.key} port {row.port}")
        width = int(row.state["width"] or 0)
        gathering.end(
            End(
                row.key, row.port, far, far_port,
                width if width in WIDTHS else 0, _speed(row.state["speed"] or ""),
                up=row.state["logical"] == "Active", line=row.line,
            )
        )  # fmt: skip
        if row.state["logical"] != "Active":
            state = f"{row.state['logical']}/{row.state['physical']}"
            gathering.note(
                row.line, f"port {row.port} of {row.key} is {state}, not Active/LinkUp: no traffic passes"
            )
    for hint, places in could.items():
        many = f"{len(places)} ports run" if len(places) > 1 else "1 port runs"
        gathering.note(0, f"{many} below what both ends could do ({hint}): {listed(places, 20)}")
    return gathering.wiring(names)


def _rows(gathering: Gathering) -> tuple[list[_Row], dict[int, str]]:
    """All port lines with the key of their device, and the device of each LID."""
    rows: list[_Row] = []
    lids: dict[int, str] = {}
    kind: NodeKind | None = None
    heading = guid = ""
    switches = _switch_guids(gathering.dump)
    for number, line in enumerate(gathering.dump.lines, start=1):
        if (match := _match(line)) and (state := _STATE.match(match["state"])):
            port = int(match["port"])
            own = match["guid"] or guid
            if not own:
                gathering.note(
                    number, f"port {port} stands before any device; its heading line is missing, left out"
                )
                continue
            told = kind or "host"
            if match["name"] is not None:
                told = "switch" if own.lower() in switches else "host"
            key = _port_key(own, port, told)
            name = (heading if match["name"] is None else match["name"]).strip()
            device = gathering.device(key, told, name, line=number)
            device.ports = max(device.ports, port)
            lid = int(match["lid"])
            device.tell_lid(port if told != "switch" else 0, lid)
            lids.setdefault(lid, key)
            rows.append(_Row(number, key, port, match, state))
        elif match := _HEADING.match(line[:_LONGEST]):
            kind, heading, guid = _KINDS[match["word"]], match["name"], match["guid"] or ""
        elif line.strip() and not line.lstrip().startswith(("#", "ibwarn:")):
            gathering.strange(number, line)
    lids.pop(0, None)
    return rows, lids


def _far(
    gathering: Gathering,
    row: _Row,
    lids: Mapping[int, str],
    by_name: dict[str, list[str]],
    used: dict[str, set[int]],
) -> str:
    """Key of the device at the other end: by GUID, else by LID, else by a name that only one device has."""
    match = row.match
    name = match["far_name"].strip()
    lid = int(match["far_lid"])
    if match["far_guid"]:
        told: NodeKind = "switch" if f"0x{int(match['far_guid'], 16):016x}" in gathering.devices else "host"
        key = _port_key(match["far_guid"], int(match["far_port"]), told)
    elif lid in lids:
        key = lids[lid]
    elif not lid and len(by_name.get(name, [])) == 1:
        key = by_name[name][0]
    else:
        key = _undescribed(gathering, name, lid, int(match["far_port"]), by_name, used)
    known = gathering.devices.get(key)
    if known is None:
        looks_host = not re.search(r"leaf|spine|core|switch|MF0;|Mellanox Technologies$", name, re.IGNORECASE)
        known = gathering.device(key, "host" if looks_host else "switch", name, named=row.line)
        known.tell_lid(int(match["far_port"]), lid)
        by_name.setdefault(name, []).append(key)
    elif name and known.name and known.name != name:
        gathering.note(
            row.line,
            f"the device with LID {lid} is called '{name}' here and '{known.name}' in line {known.line}",
        )
    return key


def _undescribed(
    gathering: Gathering,
    name: str,
    lid: int,
    port: int,
    by_name: Mapping[str, list[str]],
    used: dict[str, set[int]],
) -> str:
    """Key of a device that only links name: each port of a named adapter has its own LID, so its name joins
    them."""
    key = f"lid {lid}" if lid else f"unknown '{name}'"
    if key not in gathering.devices and all(host_and_adapter(name)):
        for known in by_name.get(name, []):
            device = gathering.devices[known]
            if not device.line and port not in used.setdefault(known, set()):
                return known
    return key


def _switch_guids(dump: Dump) -> set[str]:
    """`-l` says no kind: a switch shows all its ports under one GUID, each port of an adapter has its own."""
    seen: set[str] = set()
    more: set[str] = set()
    for line in dump.lines:
        if (match := _match(line)) and match["name"] is not None and match["guid"]:
            (more if match["guid"].lower() in seen else seen).add(match["guid"].lower())
    return more


def _match(line: str) -> re.Match[str] | None:
    return _LINE.match(line) if len(line) <= _LONGEST else None


def _port_key(guid: str, port: int, kind: NodeKind) -> str:
    """Key of the device that a port belongs to: an adapter's port GUIDs count up from its first port's."""
    return f"0x{max(int(guid, 16) - (port - 1 if kind != 'switch' and port else 0), 0):016x}"


def _speed(text: str) -> str:
    if match := _ROUND_FDR10.search(text):
        return match[1]
    return speed_name(text)
