"""Node-name maps of infiniband-diags and OpenSM: one GUID and its name in quotes per line.

Format: opensm, doc/opensm-nodenamemap (5), "NODE NAME MAP FILE FORMAT".
"""

from __future__ import annotations

import re
from pathlib import Path

from railwright.asbuilt.read.dump import Dump, load, shorten

_ENTRY = re.compile(r'\s*(?:0x)?(?P<guid>[0-9a-fA-F]{1,16})\s+"(?P<name>[^"]*)"\s*(?:#.*)?$')


def recognise(dump: Dump) -> bool:
    """Nothing but entries and comments."""
    lines = [line for line in dump.lines if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and sum(bool(_ENTRY.match(line)) for line in lines) > len(lines) // 2


def read_names(path: Path | str) -> dict[str, str]:
    """GUID ('0x%016x') -> name of a node-name map. SpecError when a line is neither entry nor comment."""
    return parse(load(path))


def parse(dump: Dump) -> dict[str, str]:
    names: dict[str, str] = {}
    for number, line in enumerate(dump.lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _ENTRY.match(line)
        if match is None:
            dump.fail(
                number,
                f"'{shorten(line)}' is no entry of a node-name map; expected: 0x0002c902400a1b20 \"leaf-07\"",
            )
        guid = f"0x{int(match['guid'], 16):016x}"
        if names.setdefault(guid, match["name"].strip()) != match["name"].strip():
            dump.fail(
                number, f"{guid} is named twice: '{names[guid]}' before and '{match['name']}' here; keep one"
            )
    if not names:
        dump.fail(0, 'no entry found; a node-name map has lines such as: 0x0002c902400a1b20 "leaf-07"')
    return names
