"""Where every host cable should be plugged, as far as the machine's own regularity proves it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railwright.asbuilt.compare_plan import last_number, mode
from railwright.asbuilt.infer_hosts import REGULAR, Endpoint, Hosts, Lane

WITNESSES = 3
"""Cables that must agree before another one can be called wrong: of two, either may be the wrong one."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a lane of a server should be: leaf (-1: not in the dump), port (0: unknown), why."""

    leaf: int
    port: int
    why: str
    confidence: float


RUN = 0.25
"""Endpoints of a leaf that make a run of their own: at least this share of them."""

Places = dict[tuple[str, Lane], Place]


def places(hosts: Hosts) -> Places:
    """Place of every endpoint that most servers of its kind have; what nothing proves is left out."""
    return _by_rail(hosts) if hosts.by_rail else _in_sequence(hosts)


def wanted(hosts: Hosts) -> list[tuple[str, Lane]]:
    """Endpoints that should exist, server by server."""
    return [(server, lane) for server, kind in hosts.kinds.items() for lane in hosts.lanes.get(kind, ())]


def _by_rail(hosts: Hosts) -> Places:
    """The unit's leaf of the lane, at the port the server has on its other leaves."""
    in_unit = Counter(hosts.home.values())
    found: Places = {}
    ports = _rail_ports(hosts)
    for server, lane in wanted(hosts):
        unit = hosts.home.get(server)
        if unit is None or in_unit[unit] < WITNESSES:
            continue
        leaf = hosts.leaf_of.get((unit, lane), -1)
        port = ports.get(server, 0)
        name = f"{lane[0]} port {lane[1]}" if lane[1] > 1 else lane[0]
        why = f"{in_unit[unit]} servers of this scalable unit have their {name} on one leaf"
        if port:
            why += f", and {server} is on port {port} of most of its leaves"
        found[server, lane] = Place(leaf, port, why, 0.95 if port else 0.9)
    return found


def _rail_ports(hosts: Hosts) -> dict[str, int]:
    """Port of a server on all of its leaves, where servers keep one port number across rails."""
    seen: dict[str, list[int]] = {}
    for (server, lane), ends in hosts.at.items():
        leaf = hosts.leaf_of.get((hosts.home.get(server, -1), lane))
        seen.setdefault(server, []).extend(end.port for end in ends if end.leaf == leaf)
    offsets: dict[tuple[int, str], list[int]] = {}
    for server, ports in seen.items():
        number = last_number(server)
        if number is not None and server in hosts.home:
            key = hosts.home[server], hosts.kinds[server]
            offsets.setdefault(key, []).extend(p - number for p in ports)
    chosen: dict[str, int] = {}
    for server, ports in seen.items():
        chosen[server] = _own_port(ports, _by_number(server, hosts, offsets))
    kept = sum(ports.count(chosen[server]) for server, ports in seen.items())
    if kept < REGULAR * sum(len(ports) for ports in seen.values()):
        return {}
    # Two servers of a unit cannot have one port: neither is proven then.
    claims = Counter((hosts.home.get(s, -1), p) for s, p in chosen.items())
    return {s: p for s, p in chosen.items() if p and claims[hosts.home.get(s, -1), p] == 1}


def _by_number(server: str, hosts: Hosts, offsets: Mapping[tuple[int, str], Sequence[int]]) -> int:
    """Port that a server's number promises: server-07 on port 7; 0 where numbers and ports disagree."""
    number = last_number(server)
    if number is None or server not in hosts.home:
        return 0
    near = offsets[hosts.home[server], hosts.kinds[server]]
    offset = mode(near)
    return number + offset if near.count(offset) >= REGULAR * len(near) and len(near) >= WITNESSES else 0


def _own_port(ports: Sequence[int], promised: int) -> int:
    """The port most of a server's cables use; its number decides between two used as often."""
    counts = Counter(ports)
    best = max(counts.values(), default=0)
    first = sorted(p for p, n in counts.items() if n == best)
    if promised in first or (promised and best < 2):
        return promised
    return first[0] if len(first) == 1 else 0


def _in_sequence(hosts: Hosts) -> Places:
    """Leaves filled server by server: port number and place in the sequence of endpoints go together."""
    found: Places = {}
    for kind, lanes in hosts.lanes.items():
        if not lanes:
            continue
        rank = {lane: j for j, lane in enumerate(lanes)}
        order: dict[tuple[str, Lane], int] = {}
        for server in (s for s, k in hosts.kinds.items() if k == kind):
            number = last_number(server)
            if number is not None:
                order |= {(server, lane): number * len(lanes) + j for lane, j in rank.items()}
        ends = {key: end for key in order for end in hosts.at.get(key, ())[:1]}
        runs = [
            run for leaf in sorted({end.leaf for end in ends.values()}) for run in _runs(leaf, order, ends)
        ]
        keep = {key: end for key, end in ends.items() if any(run.holds(end, order[key]) for run in runs)}
        if len(keep) >= REGULAR * len(ends) and len(keep) >= WITNESSES:
            found |= _sequence_places(order, keep, ends, runs)
        else:
            found |= _whole_servers(hosts, kind)
    return found


@dataclass(frozen=True, slots=True)
class Run:
    """Endpoints of one leaf that lie one after another: those of places low..high, at port place + shift."""

    leaf: int
    shift: int
    low: int
    high: int

    def holds(self, end: Endpoint, place: int) -> bool:
        return end.leaf == self.leaf and end.port - place == self.shift and self.low <= place <= self.high

    def follows(self, other: Run) -> bool:
        """Whether this run comes after the other one, both in the sequence and on the ports."""
        return self.low > other.high and self.low + self.shift > other.high + other.shift


def _runs(
    leaf: int, order: Mapping[tuple[str, Lane], int], ends: Mapping[tuple[str, Lane], Endpoint]
) -> list[Run]:
    """The runs of a leaf: one, or several with other ports (its uplinks) between them."""
    places: dict[int, list[int]] = {}
    on_leaf = [(key, end) for key, end in ends.items() if end.leaf == leaf]
    for key, end in on_leaf:
        places.setdefault(end.port - order[key], []).append(order[key])
    drafts = [
        Run(leaf, shift, min(row), max(row))
        for shift, row in sorted(places.items(), key=lambda item: (-len(item[1]), item[0]))
        if len(row) >= max(WITNESSES, RUN * len(on_leaf))
    ]
    # Servers exchanged whole make runs too, but across the order; of two at odds neither is one.
    first, others = drafts[:1], drafts[1:]
    sound = [r for r in others if all(r is o or r.follows(o) or o.follows(r) for o in drafts)]
    return first + sound


def _sequence_places(
    order: Mapping[tuple[str, Lane], int],
    keep: Mapping[tuple[str, Lane], Endpoint],
    ends: Mapping[tuple[str, Lane], Endpoint],
    runs: Sequence[Run],
) -> Places:
    top_port = max(end.port for end in ends.values())
    taken = {(end.leaf, end.port) for end in keep.values()}
    of_server: dict[str, Counter[int]] = {}
    for (server, _), end in ends.items():
        of_server.setdefault(server, Counter())[end.leaf] += 1
    with_runs = {run.leaf for run in runs}
    found: Places = {}
    for key, q in order.items():
        if key in keep:
            found[key] = Place(keep[key].leaf, keep[key].port, "it keeps the sequence of its leaf", 0.95)
            continue
        inside = [run for run in runs if run.low <= q <= run.high]
        if not inside and key in ends and ends[key].leaf not in with_runs:
            continue  # a leaf of fewer endpoints than witnesses: nothing speaks against it
        near = [run for run in runs if 1 <= q + run.shift <= top_port]
        if not near:  # the last of a leaf may be the one that is missing
            near = [run for run in runs if run.high < q <= run.high + WITNESSES]
        here = of_server.get(key[0], Counter())
        ranked = sorted(inside or near, key=lambda r: (-here[r.leaf], max(r.low - q, q - r.high)))
        free = [run for run in ranked if (run.leaf, q + run.shift) not in taken]
        if not free:
            continue
        port = q + free[0].shift
        why = f"servers are on this leaf in the order of their numbers, and port {port} is next"
        found[key] = Place(free[0].leaf, port, why, 0.9 if inside else 0.7)
    return found


def _whole_servers(hosts: Hosts, kind: str) -> Places:
    """Ports in no order: then only that all cables of a server go to one leaf, where that is the rule."""
    rows: dict[str, Counter[int]] = {}
    for (server, _), ends in hosts.at.items():
        if hosts.kinds[server] == kind:
            rows.setdefault(server, Counter()).update(end.leaf for end in ends)
    together = sum(max(row.values()) for row in rows.values())
    if len(hosts.lanes[kind]) < WITNESSES or together < 0.85 * sum(
        sum(row.values()) for row in rows.values()
    ):
        return {}
    found: Places = {}
    for server, lane in wanted(hosts):
        row = rows.get(server)
        if row is None or 2 * max(row.values()) <= sum(row.values()):
            continue
        leaf = min(row, key=lambda x: (-row[x], x))
        port = next((end.port for end in hosts.at.get((server, lane), ()) if end.leaf == leaf), 0)
        found[server, lane] = Place(leaf, port, f"all other cables of {server} go to this leaf", 0.8)
    return found
