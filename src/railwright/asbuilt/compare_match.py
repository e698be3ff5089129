"""Which device of a dump is which device of a design: by name, by the order of names, by the cables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from railwright.asbuilt.compare_plan import alike, label, last_number, natural, unnamed
from railwright.asbuilt.infer_machine import Inferred
from railwright.asbuilt.wiring import Node, Wiring

FEW = 0.1
"""With at most this share of the design's hosts found by name, the machine has a naming of its own."""

Twins = dict[int, int]
Cabled = list[list[tuple[int, int, int]]]


def match_devices(found: Inferred, drawn: Inferred) -> Twins:
    """Dump node -> design node."""
    wiring, design = found.wiring, drawn.wiring
    twin = _by_name(wiring, design)
    hosts = sum(n.kind == "host" for n in design.nodes)
    if sum(design.nodes[d].kind == "host" for d in twin.values()) <= FEW * hosts:
        twin |= _by_order(found, drawn, twin)
    return _by_cables(wiring, design, twin)


def _by_name(wiring: Wiring, design: Wiring) -> Twins:
    """Same name, case aside, on exactly one device of each side."""
    drawn = _names(design)
    twin: Twins = {}
    for name, nodes in _names(wiring).items():
        same = drawn.get(name, [])
        if len(nodes) == 1 and len(same) == 1:
            twin[nodes[0]] = same[0]
    return twin


def _names(wiring: Wiring) -> dict[tuple[str, str], list[int]]:
    names: dict[tuple[str, str], list[int]] = {}
    for i, node in enumerate(wiring.nodes):
        if node.kind in ("switch", "host") and not unnamed(node):
            names.setdefault((node.kind, label(node).casefold()), []).append(i)
    return names


def _by_order(found: Inferred, drawn: Inferred, known: Twins) -> Twins:
    """Server by server and adapter by adapter in the order of their names.

    Servers keep the gaps of their numbers, from either end: the end is taken under which more pairs of
    servers are together under one leaf in both.
    """
    theirs, ours = _servers(found.wiring), _servers(drawn.wiring)
    if not theirs or not ours:
        return {}
    names = alike(theirs)
    plans = sorted(ours, key=natural)
    numbers = [last_number(n) for n in names]
    choices = [dict(zip(names, plans, strict=False))]
    if all(n is not None for n in numbers) and len(set(numbers)) == len(numbers):
        known_numbers = [n for n in numbers if n is not None]
        low, high = known_numbers[0], known_numbers[-1]
        for start in (low, high - len(plans) + 1):
            pairs = {
                name: plans[n - start]
                for name, n in zip(names, known_numbers, strict=True)
                if 0 <= n - start < len(plans)
            }
            choices.append(pairs)
    by_name = {name.casefold(): name for name in plans}
    same = {name: by_name[name.casefold()] for name in names if name.casefold() in by_name}
    if 2 * len(same) > len(names):  # only the adapters are called otherwise
        choices = [same]
    best = max(choices, key=lambda c: _togetherness(c, found, drawn))
    lanes = _adapters(theirs, names), _adapters(ours, plans)
    renamed = dict(zip(lanes[0], lanes[1], strict=False))
    twin: Twins = {}
    taken = set(known.values())
    for name, plan in best.items():
        for adapter, node in theirs[name].items():
            other = ours[plan].get(renamed.get(adapter, ""))
            if other is not None and node not in known and other not in taken:
                twin[node] = other
    return twin


def _servers(wiring: Wiring) -> dict[str, dict[str, int]]:
    """Server -> adapter -> node."""
    servers: dict[str, dict[str, int]] = {}
    for i, node in enumerate(wiring.nodes):
        if node.kind == "host" and not unnamed(node):
            servers.setdefault(node.host, {}).setdefault(node.adapter, i)
    return servers


def _adapters(servers: dict[str, dict[str, int]], names: Sequence[str]) -> list[str]:
    """Adapters that most servers have, in the order of their names."""
    counts = Counter(adapter for name in names for adapter in servers[name])
    return sorted((a for a, n in counts.items() if 2 * n > len(names)), key=natural)


def _togetherness(pairs: dict[str, str], found: Inferred, drawn: Inferred) -> int:
    """Servers next to each other in the list that share a leaf in both worlds, or in neither."""
    homes = _first_leaves(found), _first_leaves(drawn)
    items = list(pairs.items())
    score = 0
    for (a, x), (b, y) in pairwise(items):
        there = homes[0].get(a) == homes[0].get(b)
        score += there == (homes[1].get(x) == homes[1].get(y))
    return score


def _first_leaves(machine: Inferred) -> dict[str, int]:
    """Unit or leaf that most cables of each server go to."""
    seen: dict[str, Counter[int]] = {}
    nodes = machine.wiring.nodes
    for k in machine.wiring.links:
        for a, b in ((k.a, k.b), (k.b, k.a)):
            if nodes[a].kind == "host" and machine.tier[b] == 1:
                home = machine.unit[b] if machine.unit[b] >= 0 else b
                seen.setdefault(nodes[a].host, Counter())[home] += 1
    return {server: min(row, key=lambda h: (-row[h], h)) for server, row in seen.items()}


def _by_cables(wiring: Wiring, design: Wiring, twin: Twins) -> Twins:
    """Match what is left through neighbours already matched, the surest first, until nothing more follows."""
    theirs, ours = _cabled(wiring), _cabled(design)
    twin = dict(twin)
    taken = set(twin.values())
    for fits in (_same_port, _same_neighbour):
        progress = True
        while progress:
            progress = False
            votes: list[tuple[int, int, int]] = []
            for f, node in enumerate(wiring.nodes):
                if f not in twin and node.kind in ("switch", "host"):
                    row = _vote(f, theirs, ours, twin, taken, design.nodes, node, fits)
                    votes += [(-n, f, d) for d, n in row.items()]
            for votes_against, f, d in sorted(votes):
                if f in twin or d in taken:
                    continue
                if fits is _same_neighbour and -votes_against * 2 < len(ours[d]):
                    continue
                twin[f] = d
                taken.add(d)
                progress = True
    return twin


def _vote(
    f: int,
    theirs: Cabled,
    ours: Cabled,
    twin: Twins,
    taken: set[int],
    drawn: Sequence[Node],
    node: Node,
    fits: Callable[[int, int], bool],
) -> Counter[int]:
    """Design devices that have, where this one has a cable to a known device, a cable to the same device."""
    row: Counter[int] = Counter()
    for _, other, other_port in theirs[f]:
        if other not in twin:
            continue
        for far, port in {(d, p) for p, d, _ in ours[twin[other]]}:
            if far not in taken and drawn[far].kind == node.kind and fits(port, other_port):
                row[far] += 1
    return row


def _same_port(drawn: int, found: int) -> bool:
    return drawn == found and drawn > 0


def _same_neighbour(drawn: int, found: int) -> bool:
    return True


def _cabled(wiring: Wiring) -> Cabled:
    """Per node: (own port, other node, other's port) of each cable."""
    rows: Cabled = [[] for _ in wiring.nodes]
    for k in wiring.links:
        rows[k.a].append((k.a_port, k.b, k.b_port))
        rows[k.b].append((k.b_port, k.a, k.a_port))
    return rows
