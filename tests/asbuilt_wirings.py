"""Wirings read from dumps, for tests of what is in them."""

from __future__ import annotations

from railwright.asbuilt import Wiring


def cables(wiring: Wiring) -> list[tuple[str, int, str, int]]:
    """Each cable by the names of its ends."""
    name = [node.name for node in wiring.nodes]
    return sorted((name[k.a], k.a_port, name[k.b], k.b_port) for k in wiring.links)
