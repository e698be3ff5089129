"""Cables of a dump now against one from before (or against the design): lost, down, or slower.

Both dumps are read by `asbuilt.read`: ibnetdiscover, iblinkinfo, LLDP, sheets.
"""

from __future__ import annotations

from railwright.asbuilt.wiring import Link, Node, Wiring
from railwright.diagnose.constants import says, share
from railwright.diagnose.elements import Elements, cable_at, device_called
from railwright.diagnose.evidence import Event, Evidence
from railwright.diagnose.read.names import name_in_elements

End = tuple[str, int]


def link_evidence(elements: Elements, now: Wiring, before: Wiring) -> Evidence:
    """A cable of `before` that is missing, down or slower now, as an event of the cable and its ends."""
    have = {_ends(now, link): link for link in now.links}
    events = []
    quiet: list[tuple[int, float]] = []
    for link in before.links:
        if not link.up:
            continue
        ends = _ends(before, link)
        found = have.get(ends)
        if found is not None and found.up and not _slower(found, link):
            quiet += _sound(elements, before, link)
            continue
        lost = found is None or not found.up
        seen = says("links", "missing" if lost else "slower")
        told = " - ".join(f"{name} port {port}" for name, port in sorted(ends))
        if lost:
            text = f"{told}: the link is {'down' if found is not None else 'gone'}; it was up before"
        else:
            assert found is not None
            text = f"{told}: {found.width}x {found.speed}, before {link.width}x {link.speed}"
        cable = _cable(elements, before, link)
        causes = [(cable, share(seen, "cable"))]
        for side in (link.a, link.b):
            node = before.nodes[side]
            name = name_in_elements(node)
            made = elements.find(name)
            if made is None:
                made = elements.add("nic" if node.kind == "host" else "leaf", name)
            causes.append((made, share(seen, elements.kind[made])))
        events.append(Event(text, tuple(causes), seen.leak, "links now and before"))
    notes = () if events else ("links: every cable of the earlier dump is there, up, and as fast",)
    return Evidence((), tuple(events), tuple(quiet), notes)


def _sound(elements: Elements, wiring: Wiring, link: Link) -> list[tuple[int, float]]:
    """A link that is up speaks for its cable and for both devices: a dead switch takes all links with it."""
    seen = says("links", "missing")
    found = [(_cable(elements, wiring, link), share(seen, "cable"))]
    for side in (link.a, link.b):
        made = elements.find(name_in_elements(wiring.nodes[side]))
        if made is not None:
            found.append((made, share(seen, elements.kind[made])))
    return found


def _cable(elements: Elements, wiring: Wiring, link: Link) -> int:
    for side, port in ((link.a, link.a_port), (link.b, link.b_port)):
        device = device_called(elements, name_in_elements(wiring.nodes[side]))
        if device is not None and (found := cable_at(elements, device, port)) is not None:
            return found
    ends = [(wiring.nodes[link.a], link.a_port), (wiring.nodes[link.b], link.b_port)]
    return elements.add("cable", " - ".join(f"{name_in_elements(n)} port {p}" for n, p in ends))


def _ends(wiring: Wiring, link: Link) -> frozenset[End]:
    def end(node: Node, port: int) -> End:
        return name_in_elements(node), port

    return frozenset((end(wiring.nodes[link.a], link.a_port), end(wiring.nodes[link.b], link.b_port)))


def _slower(now: Link, before: Link) -> bool:
    if now.rate and before.rate:
        return now.rate < 0.99 * before.rate
    return bool(now.width and before.width and now.width < before.width)
