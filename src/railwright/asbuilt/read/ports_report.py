"""`ibnetdiscover -p`: the ports report, one line per port, connected or not.

Format: infiniband-diags, doc/rst/ibnetdiscover.8.in.rst, option `--ports`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from railwright.asbuilt.read.dump import Dump
from railwright.asbuilt.read.gather import Device, End, Gathering
from railwright.asbuilt.read.speeds import WIDTHS, speed_name
from railwright.asbuilt.wiring import NodeKind, Wiring

_KINDS: Mapping[str, NodeKind] = {"CA": "host", "SW": "switch", "RT": "router"}
_SIDE = r"(?:CA|SW|RT|\?\?\?)\s+\d{1,5}\s+\d{1,3}\s+0x[0-9a-fA-F]{1,16}"
_LINE = re.compile(
    r"\s*(?P<kind>CA|SW|RT)\s+(?P<lid>\d{1,5})\s+(?P<port>\d{1,3})\s+0x(?P<guid>[0-9a-fA-F]{1,16})\s+"
    r"(?P<width>\d{1,2}|\?+)x\s+(?P<speed>\S+)\s*(?P<rest>.*)$"
)
_FAR = re.compile(
    r"-\s+(?P<kind>CA|SW|RT)\s+(?P<lid>\d{1,5})\s+(?P<port>\d{1,3})\s+0x(?P<guid>[0-9a-fA-F]{1,16})\s+"
    r"\(\s*'(?P<name>.*)'\s+-\s+'(?P<far_name>.*)'\s*\)\s*$"
)
_START = re.compile(rf"^[ \t]*{_SIDE}\s+(?:\d+|\?+)x\s", re.MULTILINE)


def recognise(dump: Dump) -> bool:
    """A line of the ports report."""
    return bool(_START.search(dump.head))


def parse(dump: Dump, names: Mapping[str, str]) -> Wiring:
    """The fabric of a ports report. SpecError when no line of it is whole."""
    gathering = Gathering(dump, "ibnetdiscover -p", told_twice=True)
    for number, line in enumerate(dump.lines, start=1):
        if match := _LINE.match(line):
            _port(gathering, number, line, match)
        elif line.strip() and not line.lstrip().startswith(("#", "ibwarn:")):
            gathering.strange(number, line)
    return gathering.wiring(names)


def _port(gathering: Gathering, number: int, line: str, match: re.Match[str]) -> None:
    far = _FAR.match(match["rest"])
    if far is None and match["rest"].startswith("-"):
        gathering.strange(number, line)
        return
    name = (far["name"] if far else match["rest"].strip().strip("'")).strip()
    port = int(match["port"])
    device = _device(gathering, match["kind"], match["guid"], port, name, int(match["lid"]), number)
    device.ports = max(device.ports, port)
    if far is None:
        gathering.down(device.key, port)
        return
    far_port = int(far["port"])
    other = _device(
        gathering, far["kind"], far["guid"], far_port, far["far_name"].strip(), int(far["lid"]), 0, number
    )
    speed = speed_name(match["speed"])
    width = int(match["width"]) if match["width"].isdecimal() else 0
    if not speed or width not in WIDTHS:
        gathering.note(number, f"unknown width or speed '{match['width']}x {match['speed']}'")
        width = width if width in WIDTHS else 0
    gathering.end(End(device.key, port, other.key, far_port, width, speed, line=number))


def _device(
    gathering: Gathering, word: str, guid: str, port: int, name: str, lid: int, line: int, named: int = 0
) -> Device:
    """The device of a port; of an adapter the report gives the port's GUID, which counts up by port."""
    kind = _KINDS[word]
    value = int(guid, 16) - (port - 1 if kind != "switch" and port else 0)
    device = gathering.device(f"0x{max(value, 0):016x}", kind, name, line=line, named=named)
    device.tell_lid(port if kind != "switch" else 0, lid)
    return device
