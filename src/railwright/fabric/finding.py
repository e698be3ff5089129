"""A finding: something wrong or notable in a fabric, with its evidence and what would settle it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["fault", "warning", "note"]
"""fault: the machine is not as designed or cannot work; warning: likely to hurt; note: worth knowing."""

SERIOUS_FIRST: dict[Severity, int] = {"fault": 0, "warning": 1, "note": 2}
"""A severity's place in a list of findings."""


@dataclass(frozen=True)
class Finding:
    """One line of a punch list or an audit.

    kind        what it is: 'missing link', 'extra link', 'missing device', 'degraded link', 'rail mismatch',
                'port misplaced', 'uneven bundle', 'unnamed host', 'stranded port', …
    element     the suspect, readable: 'leaf-03 port 37 - server-07/nic-2 port 1'
    ends        (device, port) of both ends of a link, or of the one device
    expected, found   what the design says and what is there
    evidence    one sentence: why we think so
    confidence  0..1
    next_test   what would settle or repair it
    """

    kind: str
    severity: Severity
    element: str
    ends: tuple[tuple[str, int], ...]
    expected: str
    found: str
    evidence: str
    confidence: float
    next_test: str = ""
