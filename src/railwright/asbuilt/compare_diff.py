"""A dump against a blueprint over its nodes: each cable missing, too many, misplaced, swapped or slow.

Planned and found cables that share a port form alternating chains.  A closed chain is an exchange (two cables
swapped, or more in turn); an open one is a moved, a missing or an extra cable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from railwright.asbuilt.compare_plan import Blueprint, Planned, label, relative_speed
from railwright.asbuilt.compare_words import Words
from railwright.asbuilt.wiring import Link, Wiring
from railwright.fabric.finding import Finding

Port = tuple[int, int]

SLOWER = 0.99
"""Below this share of the expected rate a cable is slow; rates are often printed rounded to three digits."""


@dataclass
class Board:
    """What is still unexplained of a comparison."""

    wiring: Wiring
    plan: Blueprint
    found: list[Link]
    planned: list[Planned]


def diff(wiring: Wiring, plan: Blueprint, ignored: Iterable[int] = ()) -> list[Finding]:
    """What differs between the dump and its blueprint, unsorted.

    ignored  nodes of the dump whose cables are none of the plan's business
    """
    left_out = set(ignored)
    found = [k for k in wiring.links if k.a not in left_out and k.b not in left_out]
    board = Board(wiring, plan, found, list(plan.links))
    words = Words(plan)
    matched = _match(board)
    findings = [f for link, planned in matched for f in _speed(words, link, planned)]
    findings += _absent_devices(board, words)
    _fill_unknown_ports(board)
    for links, cables, closed in _chains(board):
        findings += _explain(words, links, cables, closed)
    return findings


def _match(board: Board) -> list[tuple[Link, Planned]]:
    """Take out cables that are in their place: by both ports, then with ports unknown on either side."""
    matched: list[tuple[Link, Planned]] = []
    where = {frozenset(((p.a, p.a_port), (p.b, p.b_port))): p for p in reversed(board.planned)}
    found: list[Link] = []
    for k in board.found:
        p = where.pop(frozenset(((k.a, k.a_port), (k.b, k.b_port))), None)
        if p is None:
            found.append(k)
        else:
            matched.append((k, p))
    # Which plan of two equal ones was popped does not matter; which are left has to keep its order.
    gone = {id(p) for _, p in matched}
    board.planned = [p for p in board.planned if id(p) not in gone]
    by_pair: dict[frozenset[int], list[Planned]] = {}
    for p in board.planned:
        by_pair.setdefault(frozenset((p.a, p.b)), []).append(p)
    board.found = []
    used: set[int] = set()
    for k in found:
        fits = [p for p in by_pair.get(frozenset((k.a, k.b)), []) if id(p) not in used and _may_be(k, p)]
        if fits:
            used.add(id(fits[0]))
            matched.append((k, fits[0]))
        else:
            board.found.append(k)
    board.planned = [p for p in board.planned if id(p) not in used]
    return matched


def _may_be(link: Link, planned: Planned) -> bool:
    """Whether ports agree wherever both are known, and one is not."""
    ports = {link.a: link.a_port, link.b: link.b_port}
    pairs = [(ports[planned.a], planned.a_port), (ports[planned.b], planned.b_port)]
    return all(x == y or not x or not y for x, y in pairs)


def _speed(words: Words, link: Link, planned: Planned) -> list[Finding]:
    """A cable in its place that is down, or slower than its kind."""
    if not link.up:
        return [words.down(link, planned)]
    have, want = relative_speed(link), relative_speed(planned)
    fewer = bool(link.width and planned.width and link.width < planned.width)
    if (have and want and have < SLOWER * want) or (fewer and not have):
        return [words.degraded(link, planned)]
    if have and want and have * SLOWER > want:
        return [words.faster(link, planned)]
    return []


def _absent_devices(board: Board, words: Words) -> list[Finding]:
    """Devices not in the dump, or without any cable; what hangs on them alone is not told again."""
    known = len(board.wiring.nodes)
    alive = {n for k in board.wiring.links for n in (k.a, k.b)}
    gone: dict[int, list[Planned]] = {}
    for p in board.plan.links:
        for n in (p.a, p.b):
            if n >= known or (n not in alive and board.plan.tier[n] != 0):
                gone.setdefault(n, []).append(p)
    for n in [n for n in gone if n < known]:  # cut off by missing neighbours alone: they are told instead
        if all(p.a >= known or p.b >= known for p in gone[n]):
            del gone[n]
    switches = {n for n in gone if board.plan.nodes[n].kind != "host"}
    explained = _only_behind(board, switches, alive)
    findings: list[Finding] = []
    servers: dict[str, list[int]] = {}
    for n, cables in gone.items():
        if n in switches:
            behind = [label(board.plan.nodes[e]) for e in explained if any(e in (p.a, p.b) for p in cables)]
            findings.append(words.missing_switch(n, cables, n < known, behind))
        elif n not in explained:
            servers.setdefault(board.plan.nodes[n].host or label(board.plan.nodes[n]), []).append(n)
    for server, adapters in servers.items():
        whole = not any(node.host == server for node in board.wiring.nodes)
        if whole and len(adapters) > 1:
            findings.append(words.missing_server(server, adapters, [p for n in adapters for p in gone[n]]))
        else:
            findings += [words.missing_adapter(n, gone[n]) for n in adapters]
    board.planned = [p for p in board.planned if p.a not in gone and p.b not in gone]
    return findings


def _only_behind(board: Board, switches: set[int], alive: set[int]) -> list[int]:
    """Adapters without any cable, all of whose planned cables go to missing switches."""
    cables: dict[int, list[Planned]] = {}
    for p in board.plan.links:
        for n in (p.a, p.b):
            if board.plan.tier[n] == 0 and n not in alive:
                cables.setdefault(n, []).append(p)
    return [n for n, ps in cables.items() if all(p.a in switches or p.b in switches for p in ps)]


def _fill_unknown_ports(board: Board) -> None:
    """Where a planned cable's port is unknown, suppose the port that a cable out of place has taken."""
    claimed = {(n, q) for p in board.planned for n, q in ((p.a, p.a_port), (p.b, p.b_port)) if q}
    free: dict[int, list[int]] = {}
    for k in board.found:
        for n, q in ((k.a, k.a_port), (k.b, k.b_port)):
            if q and (n, q) not in claimed:
                free.setdefault(n, []).append(q)
    done: list[Planned] = []
    for p in board.planned:
        a_port = p.a_port or (free[p.a].pop(0) if free.get(p.a) else 0)
        b_port = p.b_port or (free[p.b].pop(0) if free.get(p.b) else 0)
        done.append(
            p
            if (a_port, b_port) == (p.a_port, p.b_port)
            else Planned(p.a, a_port, p.b, b_port, p.width, p.speed, p.rate, p.why, p.confidence)
        )
    board.planned = done


def _chains(board: Board) -> list[tuple[list[Link], list[Planned], bool]]:
    """Found and planned cables that share ports, chain by chain; True for a closed chain."""
    ends: dict[Port, list[tuple[int, int]]] = {}
    pieces: tuple[list[Link | Planned], ...] = ([*board.found], [*board.planned])
    for side in (0, 1):
        for i, k in enumerate(pieces[side]):
            for end in _ends(k):
                if end[1]:
                    ends.setdefault(end, []).append((side, i))
    chains: list[tuple[list[Link], list[Planned], bool]] = []
    seen: set[tuple[int, int]] = set()
    for start in [(0, i) for i in range(len(board.found))] + [(1, i) for i in range(len(board.planned))]:
        if start in seen:
            continue
        members, queue = [], [start]
        seen.add(start)
        while queue:
            side, i = queue.pop()
            members.append((side, i))
            for end in _ends(pieces[side][i]):
                for other in ends.get(end, []):
                    if other not in seen:
                        seen.add(other)
                        queue.append(other)
        links = [board.found[i] for side, i in sorted(members) if side == 0]
        cables = [board.planned[i] for side, i in sorted(members) if side == 1]
        pieces_here: list[Link | Planned] = [*links, *cables]
        ports = {end for k in pieces_here for end in _ends(k)}
        closed = len(links) == len(cables) and len(ports) == 2 * len(links)
        chains.append((links, cables, closed))
    return chains


def _ends(link: Link | Planned) -> tuple[Port, Port]:
    return (link.a, link.a_port), (link.b, link.b_port)


def _explain(words: Words, links: list[Link], cables: list[Planned], closed: bool) -> list[Finding]:
    """Findings for one chain: an exchange is one; of an open chain every cable out of place is one."""
    if closed and len(links) > 1:
        slow = [f for k, p in _pairs(words, links, cables)[0] if p for f in _speed(words, k, p)]
        return [words.exchanged(links, cables), *slow]
    pairs, missing = _pairs(words, links, cables)
    findings: list[Finding] = []
    for link, planned in pairs:
        if planned is None:
            findings.append(words.extra(link))
        else:
            findings += [words.moved(link, planned), *_speed(words, link, planned)]
    return findings + [words.missing(p) for p in missing]


def _pairs(
    words: Words, links: list[Link], cables: list[Planned]
) -> tuple[list[tuple[Link, Planned | None]], list[Planned]]:
    """Which planned cable each found one is: they share a port, the lower end's before the upper's."""
    left = list(cables)
    chosen: dict[int, Planned] = {}
    for which in (0, 1):
        for i, link in enumerate(links):
            end = words.by_tier(link)[which]
            fits = [p for p in left if end in _ends(p)]
            if i not in chosen and fits:
                chosen[i] = fits[0]
                left.remove(fits[0])
    return [(link, chosen.get(i)) for i, link in enumerate(links)], left
