"""Port names of switches as the numbers the fabric counts by, and what a port's name tells of its device.

'7' is port 7; 'swp7' (Cumulus, SONiC through LLDP), 'Ethernet1/7', 'IB1/7', 'j7' and 'P7' too.  A split port
has a cage and a part ('swp7s1', 'sw7p2', '7/2', 'Ethernet1/7/2'): cages times parts, in order, as InfiniBand
counts.
Sources: NVIDIA Cumulus Linux user guide, "Switch Port Attributes"; NVOS user manual, "Port naming"; UFM Cable
Validation Tool 1.6, "P2P File".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SPLITS = (1, 2, 4, 8)
_FORMS: tuple[tuple[re.Pattern[str], int], ...] = (  # form, number of a cage's first part
    (re.compile(r"swp(\d{1,4})(?:s(\d))?", re.IGNORECASE), 0),
    (re.compile(r"sw(\d{1,4})p(\d)", re.IGNORECASE), 1),
    (re.compile(r"(?:Ethernet|Eth|et|IB|ibp?)\s*\d+/(\d{1,4})(?:/(\d))?", re.IGNORECASE), 1),
    (re.compile(r"(?:Ethernet|port|p|j|Eth|IB)?[\s-]*(\d{1,4})", re.IGNORECASE), 1),
)
_PAIR = re.compile(r"(\d{1,4})/(\d{1,4})")
_SWITCH_PORT = re.compile(
    r"(?:swp\d+(?:s\d)?|sw\d+p\d|Ethernet\d+(?:/\d+)*|Eth\d+/\d+(?:/\d+)*|IB\d+/\d+(?:/\d+)*)$", re.IGNORECASE
)


def is_switch_port(name: str) -> bool:
    """True for a name that only switches give their ports."""
    return bool(_SWITCH_PORT.match(name.strip()))


def port_numbers(names: Iterable[str]) -> dict[str, int]:
    """1-based number of each port name of one device; 0 where the name has no number."""
    told = sorted({name.strip() for name in names})
    slots = _slotted(told)
    parsed: dict[str, tuple[int, int]] = {}
    split = False
    for name in told:
        if match := _PAIR.fullmatch(name):
            parsed[name] = (int(match[2]), 1) if slots else (int(match[1]), int(match[2]))
            split |= not slots
            continue
        for form, first in _FORMS:
            if match := form.fullmatch(name):
                part = match[2] if form.groups > 1 else None
                split |= part is not None
                parsed[name] = (int(match[1]), int(part) - first + 1 if part is not None else 1)
                break
    most = max((part for _, part in parsed.values()), default=1)
    each = next((n for n in _SPLITS if n >= max(most, 2 if split else 1)), most)
    return {
        name: (parsed[name][0] - 1) * each + parsed[name][1]
        if name in parsed and min(parsed[name]) > 0
        else 0
        for name in told
    }


def _slotted(names: Iterable[str]) -> bool:
    """'1/1' … '1/36': slot and port, when every slot is 1 and the ports are more than the parts of a cage."""
    pairs = [match for name in names if (match := _PAIR.fullmatch(name))]
    return bool(pairs) and all(m[1] == "1" for m in pairs) and any(int(m[2]) > 8 for m in pairs)
