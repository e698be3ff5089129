"""How two neighbouring tiers of switches should be joined: who with whom, by how many cables, on which ports.

Lowers and uppers are the switches of the lower and the upper tier.  A *block* is a set of lowers that mesh
with the same uppers: all leaves of a two-tier fabric, the leaves of a pod (of a rail), or the spines of a
core set.  Within a block a port's partner is put to the vote: lowers vote which upper their port p leads to,
uppers vote which lower their port q leads to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railwright.asbuilt.compare_plan import Planned, mode
from railwright.asbuilt.infer_hosts import REGULAR, joined
from railwright.asbuilt.wiring import Wiring

SAME_UPPERS = 0.5
"""Two lowers are of one block when more than this share of the cables of the one with fewer go to the same
uppers as the other's."""

MESHED = 0.7
"""A tier is a regular mesh when at least this share of its pairs have the commonest number of cables."""


ASTRAY = 0.2
"""It is one too when over half of its pairs have that number, and at most this share of its cables is missing
or too many: one in ten wrong, and an exchange counts twice."""


@dataclass(frozen=True, slots=True)
class Joint:
    """One cable between tiers, seen from below."""

    low: int
    low_port: int
    up: int
    up_port: int


@dataclass(frozen=True)
class Block:
    """Switches that mesh.  missing_uppers: uppers that other blocks have and this one has not."""

    lowers: tuple[int, ...]
    uppers: tuple[int, ...]
    missing_uppers: int = 0


@dataclass(frozen=True)
class Mesh:
    """One pair of tiers: blocks, cables per pair, and whether it is regular enough to prove anything."""

    level: int
    blocks: tuple[Block, ...]
    bundle: int
    regular: bool
    joints: tuple[Joint, ...]


def read_mesh(wiring: Wiring, tier: Sequence[int], level: int) -> Mesh:
    """Blocks and bundle size between tier `level` and the next one."""
    joints = tuple(_joints(wiring, tier, level))
    rows: dict[int, Counter[int]] = {i: Counter() for i, t in enumerate(tier) if t == level}
    for joint in joints:
        rows[joint.low][joint.up] += 1
    bundle = mode([n for row in rows.values() for n in row.values()])
    blocks = _blocks(rows, bundle)
    pairs = [rows[low][up] for block in blocks for low in block.lowers for up in block.uppers]
    alike = pairs.count(bundle) / len(pairs) if pairs else 0.0
    astray = sum(abs(n - bundle) for n in pairs) / (bundle * len(pairs)) if pairs else 1.0
    regular = alike >= MESHED or (alike > 0.5 and astray <= ASTRAY)
    return Mesh(level, blocks, bundle, regular, joints)


def planned_mesh(mesh: Mesh) -> list[Planned]:
    """Every cable that should be between the tiers of a regular mesh."""
    planned: list[Planned] = []
    for block in mesh.blocks:
        inside = [j for j in mesh.joints if j.low in block.lowers and j.up in block.uppers]
        planned += _planned_block(block, mesh.bundle, inside)
    return planned


def _joints(wiring: Wiring, tier: Sequence[int], level: int) -> list[Joint]:
    found: list[Joint] = []
    for link in wiring.links:
        if (tier[link.a], tier[link.b]) == (level, level + 1):
            found.append(Joint(link.a, link.a_port, link.b, link.b_port))
        elif (tier[link.b], tier[link.a]) == (level, level + 1):
            found.append(Joint(link.b, link.b_port, link.a, link.a_port))
    return found


def _blocks(rows: Mapping[int, Counter[int]], bundle: int) -> tuple[Block, ...]:
    lowers = list(rows)
    under: dict[int, list[int]] = {}
    for low, row in rows.items():
        for up in row:
            under.setdefault(up, []).append(low)
    shared: Counter[tuple[int, int]] = Counter()
    for up, around in under.items():
        for i, a in enumerate(around):
            for b in around[i + 1 :]:
                shared[a, b] += min(rows[a][up], rows[b][up])
    number = joined(
        lowers,
        [p for p, n in shared.items() if n > SAME_UPPERS * min(rows[p[0]].total(), rows[p[1]].total())],
    )
    members: dict[int, list[int]] = {}
    for low in lowers:
        members.setdefault(number[low], []).append(low)
    uppers = {
        k: tuple(
            sorted(
                u for u in under if 2 * sum(min(rows[low][u], bundle) for low in lows) >= bundle * len(lows)
            )
        )
        for k, lows in members.items()
        if any(rows[low] for low in lows)
    }
    usual = mode([len(row) for row in uppers.values()])
    proven = len(uppers) >= 3
    return tuple(
        Block(tuple(members[k]), row, usual - len(row) if proven and 0 < len(row) < usual else 0)
        for k, row in uppers.items()
    )


def _planned_block(block: Block, bundle: int, joints: Sequence[Joint]) -> list[Planned]:
    low_vote = _votes([(j.low_port, j.up) for j in joints], bundle)
    up_vote = _votes([(j.up_port, j.low) for j in joints], bundle)
    low_ports = _ports_of(low_vote, block.uppers, bundle) if len(block.lowers) > 1 else {}
    up_ports = _ports_of(up_vote, block.lowers, bundle) if len(block.uppers) > 1 else {}
    pairs: dict[tuple[int, int], list[Joint]] = {}
    for joint in joints:
        pairs.setdefault((joint.low, joint.up), []).append(joint)
    in_order = _in_order(pairs, low_ports, up_ports)
    planned: list[Planned] = []
    for low in block.lowers:
        for up in block.uppers:
            found = sorted(pairs.get((low, up), []), key=lambda j: (j.low_port, j.up_port))
            below, above = low_ports.get(up), up_ports.get(low)
            why = f"most pairs of these tiers have {bundle} cable{'s' if bundle > 1 else ''}"
            if below and above and in_order:
                ends = list(zip(below, above, strict=True))
                why = (
                    f"the other switches of the tier use this port for the same switch "
                    f"({len(block.lowers)} below, {len(block.uppers)} above)"
                )
            elif below:
                there = {j.low_port: j.up_port for j in found}
                ends = _filled([(p, there.get(p, 0)) for p in below], above, 1)
            elif above:
                here = {j.up_port: j.low_port for j in found}
                ends = _filled([(here.get(q, 0), q) for q in above], below, 0)
            else:
                ends = _by_itself(found, bundle)
            planned += [Planned(low, p, up, q, why=why, confidence=0.95) for p, q in ends]
    return planned


def _votes(ballots: Sequence[tuple[int, int]], bundle: int) -> dict[int, int]:
    """Port -> the switch most say it leads to; of two named as often, that of the ports beside it.

    Ports that stay undecided are left out.  Empty when too few agree for the ports to follow any rule.
    """
    rows: dict[int, Counter[int]] = {}
    for port, switch in ballots:
        rows.setdefault(port, Counter())[switch] += 1
    if not ballots or sum(max(row.values()) for row in rows.values()) < REGULAR * len(ballots):
        return {}
    clear: dict[int, int] = {}
    tied: dict[int, list[int]] = {}
    for port, row in rows.items():
        best = [switch for switch, n in sorted(row.items()) if n == max(row.values())]
        if port and len(best) == 1:
            clear[port] = best[0]
        elif port:
            tied[port] = best
    beside = {port: [clear.get(port - 1), clear.get(port + 1)] for port in tied}
    full = {switch for switch, n in Counter(clear.values()).items() if n >= bundle}
    for port, best in tied.items():
        near = [switch for switch in best if switch in beside[port] and switch not in full]
        if len(near) == 1:
            clear[port] = near[0]
    return clear


def _ports_of(vote: Mapping[int, int], switches: Sequence[int], bundle: int) -> dict[int, list[int]]:
    """Ports that lead to each switch, ascending, where there are exactly as many as a bundle has cables."""
    ports: dict[int, list[int]] = {}
    for port, switch in sorted(vote.items()):
        ports.setdefault(switch, []).append(port)
    return {s: ports[s] for s in switches if len(ports.get(s, [])) == bundle}


def _in_order(
    pairs: Mapping[tuple[int, int], Sequence[Joint]],
    low_ports: Mapping[int, Sequence[int]],
    up_ports: Mapping[int, Sequence[int]],
) -> bool:
    """Whether the cables of most bundles join the first port below to the first above, and so on."""
    kept = total = 0
    for (low, up), joints in pairs.items():
        if up in low_ports and low in up_ports:
            ends = set(zip(low_ports[up], up_ports[low], strict=True))
            kept += sum((j.low_port, j.up_port) in ends for j in joints)
            total += len(joints)
    return total > 0 and kept >= REGULAR * total


def _filled(ends: list[tuple[int, int]], other: Sequence[int] | None, side: int) -> list[tuple[int, int]]:
    """Ends with the unknown port of one cable filled in, where just one port of the other end is left."""
    free = [p for p in other or () if p not in {e[side] for e in ends}]
    gaps = [i for i, e in enumerate(ends) if not e[side]]
    for i, port in zip(gaps, free, strict=False):
        ends[i] = (port, ends[i][1]) if side == 0 else (ends[i][0], port)
    return ends


def _by_itself(found: Sequence[Joint], bundle: int) -> list[tuple[int, int]]:
    """A bundle whose ports no other switch can vote on: as found, and the missing cables on the gaps."""
    ends = [(j.low_port, j.up_port) for j in found]
    while len(ends) > bundle:
        middle = sorted(p for p, _ in ends)[len(ends) // 2]
        ends.remove(max(ends, key=lambda e: (abs(e[0] - middle), e)))
    gaps = [_gaps([e[side] for e in ends], bundle) for side in (0, 1)]
    missing = bundle - len(ends)
    return ends + [
        (gaps[0][i] if i < len(gaps[0]) else 0, gaps[1][i] if i < len(gaps[1]) else 0) for i in range(missing)
    ]


def _gaps(ports: Sequence[int], bundle: int) -> list[int]:
    """Unused ports between a bundle's first and last, when they are just those missing."""
    known = [p for p in ports if p]
    if not known or max(known) - min(known) + 1 != bundle:
        return []
    return [p for p in range(min(known), max(known)) if p not in known]
