"""Findings about cables and devices, in words: what it is, both ends, the evidence and the next test."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.asbuilt.compare_plan import Blueprint, Planned, end_name, label, listed, speed_name
from railwright.asbuilt.wiring import Link
from railwright.fabric.finding import Finding

Port = tuple[int, int]

SWAP_OR_NAMES = (
    "a cable swap and an HCA naming order look the same in a dump: compare the adapters' PCI addresses with "
    "a good server's (ibdev2netdev -v, or lstopo); if the order is the same, the cables are swapped"
)
TRACE_TEST = "trace the cable from the named port; unplug one end and see which port goes down"
MISSING_TEST = (
    "look at both ports: cable, transceiver, administrative state (ibportstate, or the port's LEDs)"
)
SLOW_TEST = "reseat or swap the cable and transceiver, then read the port's errors (mlxlink, ibqueryerrors)"


class Words:
    """Phrases findings over one blueprint."""

    def __init__(self, plan: Blueprint) -> None:
        self.plan = plan

    def by_tier(self, link: Link | Planned) -> tuple[Port, Port]:
        """Both ends, the lower tier's first; of one tier, the first named first."""
        ends = ((link.a, link.a_port), (link.b, link.b_port))
        return ends if self.plan.tier[link.a] <= self.plan.tier[link.b] else (ends[1], ends[0])

    def cable(self, link: Link | Planned) -> str:
        """'server-07/nic-2 port 1 - leaf-03 port 7'."""
        return " - ".join(end_name(self.plan.nodes[n], p) for n, p in self.by_tier(link))

    def ends(self, *links: Link | Planned) -> tuple[tuple[str, int], ...]:
        return tuple((label(self.plan.nodes[n]), p) for k in links for n, p in self.by_tier(k))

    def down(self, link: Link, planned: Planned) -> Finding:
        return Finding(
            "down port", "fault", self.cable(link), self.ends(link), "up", "plugged, but down",
            "The dump lists this cable without a working link", 0.95, MISSING_TEST,
        )  # fmt: skip

    def degraded(self, link: Link, planned: Planned) -> Finding:
        want = speed_name(planned.width, planned.speed, planned.rate)
        have = speed_name(link.width, link.speed, link.rate)
        return Finding(
            "degraded link", "fault", self.cable(link), self.ends(link), want, have,
            f"Cables of this kind run at {want}", 0.95, SLOW_TEST,
        )  # fmt: skip

    def faster(self, link: Link, planned: Planned) -> Finding:
        want = speed_name(planned.width, planned.speed, planned.rate)
        have = speed_name(link.width, link.speed, link.rate)
        return Finding(
            "uneven speed", "note", self.cable(link), self.ends(link), want, have,
            f"Cables of this kind run at {want}, this one faster", 0.8,
            "see whether the other ports are capped on purpose",
        )  # fmt: skip

    def missing(self, planned: Planned) -> Finding:
        return Finding(
            "missing link", "fault", self.cable(planned), self.ends(planned), "a cable", "none",
            _sentence(planned.why), planned.confidence, MISSING_TEST,
        )  # fmt: skip

    def extra(self, link: Link) -> Finding:
        low, high = (self.plan.tier[n] for n, _ in self.by_tier(link))
        if low >= 0 and high - low != 1:
            return self._wrong_tier(link, low, high, "no cable between these tiers")
        return Finding(
            "extra link", "fault", self.cable(link), self.ends(link), "no cable", "a cable",
            "No pattern of the design has a cable here", 0.85, TRACE_TEST,
        )  # fmt: skip

    def moved(self, link: Link, planned: Planned) -> Finding:
        """One cable with one end in the wrong place."""
        low, high = (self.plan.tier[n] for n, _ in self.by_tier(link))
        if high - low != 1 and low >= 0:
            return self._wrong_tier(link, low, high, self.cable(planned), planned)
        kind, severity = "misplaced cable", "fault"
        test = TRACE_TEST
        if {link.a, link.b} == {planned.a, planned.b}:
            kind, severity = "port misplaced", "warning"
        elif self._rails(link) != self._rails(planned):
            kind, test = "rail mismatch", SWAP_OR_NAMES
        return Finding(
            kind, "warning" if severity == "warning" else "fault", self.cable(link), self.ends(link),
            self.cable(planned), self.cable(link), _sentence(planned.why), planned.confidence, test,
        )  # fmt: skip

    def exchanged(self, links: Sequence[Link], cables: Sequence[Planned]) -> Finding:
        """Cables that sit in each other's places: one finding that names all of them."""
        same = sorted(_pair(k) for k in links) == sorted(_pair(p) for p in cables)
        turned = sorted(self._rails(k) for k in links) != sorted(self._rails(p) for p in cables)
        confidence = min(p.confidence for p in cables)
        one_server = self._one_server(links)
        kind, test = "swapped cables", TRACE_TEST
        if same:
            kind = "port misplaced"
        elif turned:
            kind = "rail mismatch"
            test = SWAP_OR_NAMES if one_server else TRACE_TEST
        stray = any(abs(self.plan.tier[k.a] - self.plan.tier[k.b]) != 1 for k in links)
        count = {2: "two", 3: "three"}.get(len(links), str(len(links)))
        evidence = f"the {count} cables are in each other's places: {cables[0].why}"
        if turned and one_server and not same:
            evidence += (
                f"; all of them are of {one_server}, so its adapters may also be named in another order"
            )
        return Finding(
            "wrong tier link" if stray else kind,
            "warning" if same else "fault",
            " and ".join(self.cable(k) for k in links),
            self.ends(*links),
            " and ".join(self.cable(p) for p in cables),
            " and ".join(self.cable(k) for k in links),
            _sentence(evidence),
            confidence,
            test,
        )

    def missing_switch(
        self, node: int, cables: Sequence[Planned], seen: bool, behind: Sequence[str]
    ) -> Finding:
        name = label(self.plan.nodes[node])
        evidence = f"{len(cables)} cables should end there: {cables[0].why}"
        if behind:
            evidence += f"; {len(behind)} adapters behind it cannot be seen either ({listed(behind)})"
        return Finding(
            "missing device", "fault", name, ((name, 0),), "a switch",
            "in the dump, but without any cable" if seen else "not in the dump",
            _sentence(evidence), min(p.confidence for p in cables),
            "see whether it has power and answers on its management port",
        )  # fmt: skip

    def missing_server(self, server: str, adapters: Sequence[int], cables: Sequence[Planned]) -> Finding:
        names = listed(label(self.plan.nodes[n]) for n in adapters)
        return Finding(
            "missing device", "fault", server, self._far_ends(cables), f"{len(adapters)} adapters ({names})",
            "none of them in the dump", "No adapter of this server is in the dump", 0.95,
            "see whether the server is up and its subnet agent answers",
        )  # fmt: skip

    def missing_adapter(self, node: int, cables: Sequence[Planned]) -> Finding:
        where = " and ".join(self.cable(p) for p in cables)
        return Finding(
            "missing device", "fault", label(self.plan.nodes[node]),
            ((label(self.plan.nodes[node]), 0), *self._far_ends(cables)), where, "adapter not in the dump",
            _sentence(f"the adapter or its cable is missing: {cables[0].why}"), cables[0].confidence,
            "see whether the server lists the adapter (lspci); if it does, the cable or its port is at fault",
        )  # fmt: skip

    def _wrong_tier(
        self, link: Link, low: int, high: int, expected: str, planned: Planned | None = None
    ) -> Finding:
        tiers = ("hosts", "leaves", "spines", "cores")
        names = [tiers[t] if t < len(tiers) else f"tier {t}" for t in (low, high)]
        joins = f"it joins two {names[0]}" if low == high else f"it joins {names[0]} to {names[1]}"
        return Finding(
            "wrong tier link", "fault", self.cable(link), self.ends(link), expected, self.cable(link),
            _sentence(f"{joins}, which no other cable of the design does"),
            planned.confidence if planned else 0.9, TRACE_TEST,
        )  # fmt: skip

    def _far_ends(self, cables: Sequence[Planned]) -> tuple[tuple[str, int], ...]:
        return tuple((label(self.plan.nodes[n]), p) for _, (n, p) in (self.by_tier(k) for k in cables))

    def _rails(self, link: Link | Planned) -> tuple[int, int]:
        """Rail of a host cable's adapter and of its leaf; (-1, -1) for others."""
        (low, _), (high, _) = self.by_tier(link)
        if self.plan.tier[low] != 0:
            return -1, -1
        return self.plan.rail[low], self.plan.rail[high]

    def _one_server(self, links: Sequence[Link]) -> str:
        """The server all cables are of; '' when they are of several."""
        servers = {self.plan.nodes[self.by_tier(k)[0][0]].host for k in links}
        return next(iter(servers)) if len(servers) == 1 else ""


def _pair(link: Link | Planned) -> tuple[int, int]:
    return min(link.a, link.b), max(link.a, link.b)


def _sentence(text: str) -> str:
    """With a capital, unless it begins with a name."""
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() else text
