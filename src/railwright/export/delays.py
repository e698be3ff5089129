"""Delays for simulators that only know delays of links."""

from __future__ import annotations

from railwright.export.sheet import METRE, Cable, Sheet


class Delays:
    """A link's delay: light in the cable, and half of the time to cross each of the devices at its ends.

    Along a path this counts every switch whole, since it is entered by one link and left by another.
    """

    def __init__(self, sheet: Sheet) -> None:
        self._crossing: list[float] = sheet.fabric.latency.tolist()

    def half(self, device: int) -> float:
        """Half of the time to cross a device [s]."""
        return self._crossing[device] / 2

    def cable(self, cable: Cable) -> float:
        """[s]"""
        return cable.length * METRE + self.half(cable.a) + self.half(cable.b)
