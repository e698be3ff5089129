"""How servers are cabled to leaves: adapters, rails, scalable units, and which port each one should have.

An *endpoint* is one adapter port of a server: (server, (adapter, port)).  The adapter and its port together
are its *lane*.  A leaf of a rail carries one lane of every server of its unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from railwright.asbuilt.compare_plan import last_number, mode, natural, stem, unnamed
from railwright.asbuilt.wiring import Wiring

Lane = tuple[str, int]

MAJORITY = 0.5
"""More than this share of a kind of server must have an adapter before another one is said to lack it."""

REGULAR = 0.75
"""A rule is the design's when at least this share of the cables keeps it: up to one in ten may be broken, and
a broken cable can spoil the vote of its partner too."""

SHARED = 0.4
"""Two leaves are of one unit when more than this share of the smaller one's servers is on both."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One host cable: node of the adapter, its server and lane, and the leaf and port it is on."""

    node: int
    server: str
    lane: Lane
    leaf: int
    port: int


@dataclass(frozen=True)
class Hosts:
    """What the host cables say.

    kinds    server -> what servers of its kind are called ('server-#')
    lanes    kind -> lanes that most servers of the kind have, in name order
    at       (server, lane) -> its endpoints; more than one when two adapters share a name
    nameless endpoints of adapters without a server's name
    by_rail  whether each leaf serves one lane
    unit     leaf -> scalable unit, from 0; every leaf its own unit where there are no rails
    rail_of  leaf -> lane it serves, with rails
    leaf_of  (unit, lane) -> leaf, with rails
    home     server -> unit, with rails
    """

    kinds: Mapping[str, str]
    lanes: Mapping[str, tuple[Lane, ...]]
    at: Mapping[tuple[str, Lane], tuple[Endpoint, ...]]
    nameless: tuple[Endpoint, ...]
    by_rail: bool
    unit: Mapping[int, int]
    rail_of: Mapping[int, Lane] = field(default_factory=dict)
    leaf_of: Mapping[tuple[int, Lane], int] = field(default_factory=dict)
    home: Mapping[str, int] = field(default_factory=dict)

    def rails(self) -> tuple[Lane, ...]:
        """Lanes in rail order; empty without rails."""
        if not self.by_rail:
            return ()
        return tuple(sorted(set(self.rail_of.values()), key=lane_order))


def read_hosts(wiring: Wiring, tier: Sequence[int]) -> Hosts:
    """Servers, lanes, rails and units of a dump, by majority."""
    endpoints, nameless = _endpoints(wiring, tier)
    at: dict[tuple[str, Lane], tuple[Endpoint, ...]] = {}
    for end in endpoints:
        at[end.server, end.lane] = (*at.get((end.server, end.lane), ()), end)
    names = sorted({n.host for n in wiring.nodes if n.kind == "host" and not unnamed(n)}, key=natural)
    kinds = {name: stem(name) for name in names}
    lanes = _lanes(kinds, at)
    by_rail = _is_by_rail(endpoints)
    leaves = [i for i, t in enumerate(tier) if t == 1]
    if not by_rail:
        return Hosts(kinds, lanes, at, nameless, False, {leaf: i for i, leaf in enumerate(leaves)})
    unit = _units(leaves, endpoints)
    rail_of, leaf_of = _rails(leaves, endpoints, unit)
    home = _homes(endpoints, unit)
    return Hosts(kinds, lanes, at, nameless, True, unit, rail_of, leaf_of, home)


def lane_order(lane: Lane) -> tuple[tuple[tuple[int, int, str], ...], int]:
    """Sort key: adapters in the order of their names, then their ports."""
    return natural(lane[0]), lane[1]


def _endpoints(wiring: Wiring, tier: Sequence[int]) -> tuple[list[Endpoint], tuple[Endpoint, ...]]:
    """Cables between an adapter and a switch, whichever tier it is in; adapters without a name apart."""
    named: list[Endpoint] = []
    nameless: list[Endpoint] = []
    for link in wiring.links:
        ends = [(link.a, link.a_port, link.b, link.b_port), (link.b, link.b_port, link.a, link.a_port)]
        for host, host_port, switch, port in ends:
            node = wiring.nodes[host]
            if node.kind == "host" and tier[switch] >= 1:
                end = Endpoint(host, node.host, (node.adapter, host_port), switch, port)
                (nameless if unnamed(node) else named).append(end)
    return named, tuple(nameless)


def _lanes(
    kinds: Mapping[str, str], at: Mapping[tuple[str, Lane], tuple[Endpoint, ...]]
) -> dict[str, tuple[Lane, ...]]:
    """Lanes of most servers of each kind; none for kinds of fewer than three servers, which prove nothing."""
    size = Counter(kinds.values())
    have = Counter((kinds[server], lane) for server, lane in at)
    return {
        kind: tuple(
            sorted(
                (lane for (k, lane), n in have.items() if k == kind and n > MAJORITY * total), key=lane_order
            )
        )
        for kind, total in size.items()
        if total >= 3
    }


def _is_by_rail(endpoints: Sequence[Endpoint]) -> bool:
    """Whether most leaves' host cables are all of one lane, and servers have more than one lane."""
    on_leaf: dict[int, Counter[Lane]] = {}
    for end in endpoints:
        on_leaf.setdefault(end.leaf, Counter())[end.lane] += 1
    if not endpoints or len({end.lane for end in endpoints}) < 2 or len(on_leaf) < 2:
        return False
    alike = sum(max(row.values()) for row in on_leaf.values())
    several = any(sum(row.values()) > 1 for row in on_leaf.values())
    return several and alike >= REGULAR * len(endpoints)


def _units(leaves: Sequence[int], endpoints: Sequence[Endpoint]) -> dict[int, int]:
    """Leaves joined by the servers they share, numbered in the dump's order of leaves."""
    servers: dict[int, set[str]] = {leaf: set() for leaf in leaves}
    leaves_of: dict[str, list[int]] = {}
    for end in endpoints:
        if end.leaf in servers and end.server not in servers[end.leaf]:
            servers[end.leaf].add(end.server)
            leaves_of.setdefault(end.server, []).append(end.leaf)
    shared: Counter[tuple[int, int]] = Counter()
    for around in leaves_of.values():
        shared.update((a, b) for a in around for b in around if a < b)
    return joined(
        leaves, [p for p, n in shared.items() if n > SHARED * min(len(servers[p[0]]), len(servers[p[1]]))]
    )


def joined(items: Sequence[int], pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Connected sets of items, numbered in the order of their first item."""
    parent = {item: item for item in items}

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for a, b in pairs:
        parent[root(a)] = root(b)
    number: dict[int, int] = {}
    return {item: number.setdefault(root(item), len(number)) for item in items}


def _rails(
    leaves: Sequence[int], endpoints: Sequence[Endpoint], unit: Mapping[int, int]
) -> tuple[dict[int, Lane], dict[tuple[int, Lane], int]]:
    """Lane of each leaf by the majority of its cables; and the leaf of each lane of a unit."""
    votes: dict[int, Counter[Lane]] = {leaf: Counter() for leaf in leaves}
    for end in endpoints:
        if end.leaf in votes:
            votes[end.leaf][end.lane] += 1
    rail_of = {
        leaf: min(row, key=lambda lane: (-row[lane], lane_order(lane))) for leaf, row in votes.items() if row
    }
    leaf_of: dict[tuple[int, Lane], int] = {}
    for leaf, lane in rail_of.items():
        rival = leaf_of.get((unit[leaf], lane))
        if rival is None or votes[leaf][lane] > votes[rival][lane]:
            leaf_of[unit[leaf], lane] = leaf
    return rail_of, leaf_of


def _homes(endpoints: Sequence[Endpoint], unit: Mapping[int, int]) -> dict[str, int]:
    """Unit of each server: where most of its cables go; of two equal ones, that of its neighbours in name."""
    votes: dict[str, Counter[int]] = {}
    for end in endpoints:
        if end.leaf in unit:
            votes.setdefault(end.server, Counter())[unit[end.leaf]] += 1
    clear: dict[str, int] = {}
    open_: dict[str, list[int]] = {}
    for server, row in votes.items():
        best = max(row.values())
        first = sorted(u for u, n in row.items() if n == best)
        if len(first) == 1:
            clear[server] = first[0]
        else:
            open_[server] = first
    numbers = [(last_number(server), u, stem(server)) for server, u in clear.items()]
    for server, choices in open_.items():
        number, kind = last_number(server), stem(server)
        near = sorted(
            (abs(n - number), u)
            for n, u, k in numbers
            if n is not None and number is not None and k == kind and u in choices
        )
        clear[server] = mode([u for _, u in near[:3]]) if near else choices[0]
    return clear
