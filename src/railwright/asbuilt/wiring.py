"""The machine as it was found: nodes, ports and links of a dump, whatever its format, before any inference.

A Wiring says what was read and nothing else: names may be missing or wrong, switches may be absent, links may
run at reduced speed.  `asbuilt.infer` finds the design behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

NodeKind = Literal["switch", "host", "router", "aggregation"]
"""'host' is one adapter (an HCA with its ports); 'aggregation' is a SHARP node inside a switch."""


@dataclass(frozen=True, slots=True)
class Node:
    """One device of a dump.

    key     unique within the dump: GUID, or the name where the format has no GUID
    name    as the dump (or its node-name map) says; '' when unnamed
    host    server the adapter sits in, as far as its name tells; '' for switches
    adapter adapter of that server, as far as its name tells ('mlx5_3', 'HCA-3'); ''
    ports   number of ports the device has (0: unknown)
    system  key of the chassis a director's module belongs to; '' for a device of its own
    """

    key: str
    kind: NodeKind
    name: str
    ports: int = 0
    host: str = ""
    adapter: str = ""
    system: str = ""
    lid: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """One cable, both ends.

    a, b      indices into Wiring.nodes
    a_port, b_port  1-based port numbers (0: unknown)
    width     lanes (0: unknown)
    speed     per-lane speed as the dump names it: 'NDR', 'HDR', 'EDR', …; '' unknown
    rate      one direction [byte/s]; 0 unknown
    up        False for a cable that is plugged but down
    length    [m], 0 unknown
    line      line of the dump that told it (0: several)
    """

    a: int
    a_port: int
    b: int
    b_port: int
    width: int = 0
    speed: str = ""
    rate: float = 0.0
    up: bool = True
    length: float = 0.0
    line: int = 0


@dataclass(frozen=True)
class Wiring:
    """Everything one dump (or several, joined) says.

    source   file the dump came from, and its format: 'fabric.out (ibnetdiscover)'
    notes    what the dump does not say or says twice: told to the user, never guessed silently
    """

    source: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    notes: tuple[str, ...] = field(default=())

    def index(self) -> dict[str, int]:
        """Node key -> index."""
        return {node.key: i for i, node in enumerate(self.nodes)}
