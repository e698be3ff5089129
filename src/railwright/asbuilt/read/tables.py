"""Forwarding tables: `dump_fts`, `ibroute` (of one switch) and OpenSM's `opensm-lfts.dump`.

Formats: infiniband-diags, doc/rst/dump_fts.8.in.rst and ibroute.8.in.rst; opensm, osm_dump.c
("opensm-lfts.dump").
"""

from __future__ import annotations

import re

import numpy as np

from railwright.asbuilt.forwarding import NO_PORT, ForwardingTables
from railwright.asbuilt.read.dump import Dump, listed, shorten

_HEADING = re.compile(
    r"\s*Unicast lids \[[^\]]*\] of switch .*?guid 0x(?P<guid>[0-9a-fA-F]{1,16})\s*"
    r"\('?(?P<name>.*?)'?\)\s*:\s*$"
)
_LID = re.compile(r"\blid (\d{1,5})\b", re.IGNORECASE)
_ROW = re.compile(
    r"\s*0x(?P<lid>[0-9a-fA-F]{1,4})\s+(?P<port>\d{1,3}|UNREACHABLE|\?\?\?)\s*(?:[:#]\s*(?P<info>.*))?$"
)
_INFO = re.compile(
    r"(?P<kind>Switch|Channel Adapter|Router) portguid 0x(?P<guid>[0-9a-fA-F]{1,16}): '(?P<name>.*?)'?\)?\s*$"
)
_COUNT = re.compile(r"\s*(\d{1,6}) (valid )?lids dumped")
# OpenSM ("lids dumped") counts LIDs without a route too, dump_fts ("valid lids dumped") does not.
_SILENT = re.compile(r"\s*($|#|Lid\s+Out|Port\s+Info|ibwarn:|Multicast|MLid)")


def recognise(dump: Dump) -> bool:
    """The heading of a switch's table."""
    return "Unicast lids [" in dump.text


def parse(dump: Dump) -> ForwardingTables:
    """Switch -> out port of every LID. SpecError when no table is found."""
    tables: dict[str, dict[int, int]] = {}
    names: dict[str, str] = {}
    lid_keys: dict[int, str] = {}
    notes = list(dump.notes)
    strange: list[str] = []
    current: dict[int, int] | None = None
    key = ""
    closed = True
    for number, line in enumerate(dump.lines, start=1):
        if match := _ROW.match(line):
            if current is None:
                strange.append(f"line {number}")
                continue
            lid, port = int(match["lid"], 16), match["port"]
            told = int(port) if port.isdecimal() else NO_PORT
            if told > 255:
                strange.append(f"line {number}")
                continue
            if current.setdefault(lid, told) != told:
                notes.append(
                    f"line {number}: LID {lid} leaves {names[key]} by port {current[lid]} before "
                    f"and {told} here"
                )
            if match["info"] and (info := _INFO.search(match["info"])):
                guid = f"0x{int(info['guid'], 16):016x}"
                if lid_keys.setdefault(lid, guid) != guid:
                    notes.append(f"line {number}: LID {lid} is {guid} here and {lid_keys[lid]} elsewhere")
        elif match := _HEADING.match(line):
            if not closed:
                notes.append(
                    f"line {number}: the table of {names[key]} ends without its count of LIDs: cut off"
                )
            key = f"0x{int(match['guid'], 16):016x}"
            if key in tables:
                notes.append(
                    f"line {number}: the table of {match['name']} ({key}) is there twice; they are merged"
                )
            current, closed = tables.setdefault(key, {}), False
            names[key] = match["name"].strip()
        elif match := _COUNT.match(line):
            if current is not None and match[2] and int(match[1]) != len(current):
                notes.append(
                    f"line {number}: {names[key]} announces {match[1]} LIDs and shows {len(current)}"
                )
            closed = True
        elif not _SILENT.match(line):
            strange.append(f"line {number} '{shorten(line, 30)}'")
    if not tables:
        dump.fail(
            0, "no forwarding table found; expected the output of `dump_fts`, `ibroute` or opensm-lfts.dump"
        )
    if not closed:
        notes.append(f"the table of {names[key]} ends without its count of LIDs: the dump is cut off")
    if strange:
        notes.append(f"not understood and left out: {listed(strange)}")
    size = max((max(t) for t in tables.values() if t), default=0) + 1
    ports: dict[str, np.ndarray[tuple[int], np.dtype[np.int16]]] = {}
    for switch, table in tables.items():
        row = np.full(size, NO_PORT, dtype=np.int16)
        if table:
            row[list(table)] = list(table.values())
        row.flags.writeable = False
        ports[switch] = row
    return ForwardingTables(
        dump.source("forwarding tables"), ports, names, lid_keys, tuple(dict.fromkeys(notes))
    )
