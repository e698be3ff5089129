"""Which column of a cable sheet is what, from headings as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

Field = Literal[
    "device", "port", "type", "slot", "hca", "rate_bytes", "rate_gbps", "speed", "length", "state", "place"
]

_A = {"a", "from", "source", "src", "local", "left", "near", "start", "origin"}
_B = {
    "b",
    "z",
    "to",
    "destination",
    "dest",
    "dst",
    "remote",
    "right",
    "far",
    "end",
    "target",
    "peer",
    "neighbor",
    "neighbour",
}
_FIELDS: Mapping[str, Field] = {
    **dict.fromkeys(
        ("", "name", "node", "node name", "device", "device name", "host", "hostname", "host name", "switch",
         "switch name", "system", "system name", "equipment"),
        "device",
    ),
    **dict.fromkeys(
        ("port", "port name", "port id", "port number", "interface", "if", "ifname", "node port",
         "switch port", "device port"),
        "port",
    ),
    **dict.fromkeys(("type", "node type", "role", "device type"), "type"),
    **dict.fromkeys(("slot", "adapter", "nic", "card"), "slot"),
    **dict.fromkeys(("hca port", "hca"), "hca"),
    **dict.fromkeys(("rack", "u", "ru", "location", "parent", "row"), "place"),
}  # fmt: skip
_WHOLE: Mapping[str, Field] = {
    "rate bytes per s": "rate_bytes",
    **dict.fromkeys(("rate gbps", "speed gbps"), "rate_gbps"),
    **dict.fromkeys(("speed", "link speed", "rate"), "speed"),
    **dict.fromkeys(("length m", "length", "cable length", "length metres", "length meters"), "length"),
    **dict.fromkeys(("state", "status"), "state"),
}

Columns = dict[tuple[str, Field], int]
"""('a' or 'b' or '', field) -> column."""


def columns(heading: Sequence[str]) -> Columns | None:
    """Columns of a heading row; None when the row does not name two devices with a port each.

    A heading says its side itself ('A-Port', 'port_b', 'Destination'), or stands behind the device of its
    side; where no heading has a side, the second half begins with the first heading that comes again.
    """
    found: Columns = {}
    side = ""
    sided = any({"device"} & {f for s, f in [_read(cell)] if s} for cell in heading)
    for at, cell in enumerate(heading):
        words = _words(cell)
        if (whole := _WHOLE.get(words)) is not None:
            found.setdefault(("", whole), at)
            continue
        own, field = _read(cell)
        if field is None or not words:
            continue
        if own:
            side = own if field == "device" or not side else side
            found.setdefault((own, field), at)
        elif sided:
            if side:
                found.setdefault((side, field), at)
        else:
            side = side or "a"
            if side == "a" and (side, field) in found and ("a", "device") in found:
                side = "b"
            found[side, field] = at
    whole_ends = all((s, "device") in found for s in "ab")
    ports = all((s, "port") in found or (s, "hca") in found for s in "ab")
    return found if whole_ends and ports else None


def _read(cell: str) -> tuple[str, Field | None]:
    """(side, field) a heading says: ('b', 'port') of 'to_port'; ('', None) of one that says nothing to us."""
    words = _words(cell).split()
    side = ""
    rest: list[str] = []
    for word in words:
        if not side and word in _A | _B:
            side = "a" if word in _A else "b"
        else:
            rest.append(word)
    return side, _FIELDS.get(" ".join(rest))


def _words(cell: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", cell.lower()))
