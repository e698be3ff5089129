"""Routing as it was found: which port every switch sends every LID to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

NO_PORT = -1
"""In a table: this LID is not routed here. Port 0 is the switch itself."""


@dataclass(frozen=True, eq=False)
class ForwardingTables:
    """Linear forwarding tables of a fabric.

    source  file and format
    ports   switch key (its GUID, '0x%016x', as in Wiring) -> (LID,) out port; NO_PORT where none
    names   switch key -> name
    keys    LID -> GUID of the port that owns it, where the dump says so (an adapter's first port is its key
            in a Wiring)
    notes   what the dump does not say or says twice
    """

    source: str
    ports: Mapping[str, NDArray[np.int16]]
    names: Mapping[str, str]
    keys: Mapping[int, str]
    notes: tuple[str, ...] = field(default=())

    def port(self, switch: str, lid: int) -> int:
        """Port by which `switch` sends to `lid`; NO_PORT when it has no route or the switch no table."""
        table = self.ports.get(switch)
        if table is None or not 0 <= lid < len(table):
            return NO_PORT
        return int(table[lid])
