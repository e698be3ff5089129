"""What is done to a wiring in tests of what is found wrong with it."""

from __future__ import annotations

from dataclasses import replace

from railwright.asbuilt import Link, Wiring


def without(wiring: Wiring, *links: Link) -> Wiring:
    return replace(wiring, links=tuple(k for k in wiring.links if k not in links))


def instead(wiring: Wiring, changes: dict[Link, Link]) -> Wiring:
    return replace(wiring, links=tuple(changes.get(k, k) for k in wiring.links))


def cable(wiring: Wiring, device: str, port: int) -> Link:
    at = wiring.index()[device]
    return next(k for k in wiring.links if (k.a, k.a_port) == (at, port) or (k.b, k.b_port) == (at, port))


def wrong(found):
    return [f for f in found if f.severity != "note"]
