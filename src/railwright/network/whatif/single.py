"""What a failure costs: every element by itself, and how routing, PXN and remapping carry it.

A failure is priced by the slowdown of a named pattern against the fabric as it is.  Elements alike by
symmetry are solved once (see `classes`).  GPUs that a failure takes away are counted: the rest runs as
a job restarted without their servers, and sends faster than before.  So the worst failure is the one that
leaves the least work (`Effect.work`), whether it slows all GPUs or takes some of them away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from railwright.errors import PlanError
from railwright.fabric.graph import Role
from railwright.network.routing.solution import Network
from railwright.network.whatif.classes import classes
from railwright.network.whatif.elements import SLOW, Element, elements, name, what
from railwright.network.whatif.pattern import Pattern, ranks
from railwright.network.whatif.price import Priced, healthy, price, reason
from railwright.traffic import can_relay

DRAWS = 4
"""Members of a class, and seeds of the hash, that are solved where routing follows no symmetry."""

NAMED = 3
"""Further members of a class that are named."""


@dataclass(frozen=True)
class Effect:
    """What the failure of one element (or set of elements) costs; every member of the class costs the same.

    elements    names of the first member: one, or k
    what        kind in words: 'NIC', 'leaf-spine cable', 'slow leaf-spine cable', joined by ' + '
    count       members of the class
    also        names of further members, a few
    slowdown    time over healthy time, mean of what was solved; None where nothing is left to run
    work        what the GPUs that are left do of what all did: their share, over the slowdown where it is
                above 1 (a smaller group sends faster and computes no faster)
    least, most the same of the luckiest and the unluckiest of what was solved
    solved      members (or members and seeds) that were solved
    time        mean of what was solved [s]
    lost_gpus, lost_pairs, moved_gpus  of the first member, see `Priced`
    bottleneck  busiest link of the first member's solution
    why         the reason, in words
    """

    elements: tuple[str, ...]
    what: str
    count: int
    also: tuple[str, ...]
    slowdown: float | None
    work: float
    least: float | None
    most: float | None
    solved: int
    time: float | None
    lost_gpus: int
    lost_pairs: int
    moved_gpus: int
    bottleneck: str
    why: str


@dataclass(frozen=True)
class WhatIf:
    """All single failures of a fabric, the worst first.

    time     of the pattern on the fabric as it is [s]
    engine   that solved it
    why      its bottleneck, in words
    gpus     ranks of the pattern
    slow     share of its rate that a slow cable keeps
    exact    whether each class is known to act alike under this routing: adaptive only
    effects  by the work that is left, then by slowdown, then as in the fabric
    """

    fabric: str
    pattern: str
    pxn: bool
    routing: str
    gpus: int
    time: float
    engine: str
    why: str
    slow: float
    exact: bool
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Comparison:
    """The same failures under several set-ups.

    setups  name of each
    times   of the pattern on the healthy fabric under each [s]
    rows    per class of failures: its effect under each set-up, slowdowns against that set-up's own time
    """

    setups: tuple[str, ...]
    times: tuple[float, ...]
    rows: tuple[tuple[Effect, ...], ...]


def single_failures(
    network: Network,
    pattern: Pattern,
    kinds: Sequence[str] = (),
    slow: float = SLOW,
    draws: int = DRAWS,
    check: bool = False,
) -> WhatIf:
    """Every element failed by itself: one solution per class of alike elements, the worst first.

    kinds  of `elements.KINDS`; without any, all
    slow   share of its rate that a slow cable keeps
    draws  members (and seeds) of each class that are solved under 'ecmp' and 'static', which know no symmetry
    check  solve the last member of each class too; `least` and `most` differ where the classes are wrong
    Raises PlanError where the pattern cannot run on the fabric as it is.
    """
    found = elements(network.fabric, kinds, slow)
    parts = classes(network.fabric, [pattern], found)
    return _ranked(network, pattern, found, parts, slow, draws, check)


def compare(
    setups: Mapping[str, tuple[Network, Pattern]],
    kinds: Sequence[str] = (),
    slow: float = SLOW,
    draws: int = DRAWS,
) -> Comparison:
    """The same single failures under several set-ups of one fabric, in order of the first one's ranking.

    Classes are those that hold under all of them.
    """
    (first, _), *others = setups.values()
    if any(network.fabric is not first.fabric for network, _ in others):
        raise PlanError("set-ups are compared on one and the same fabric")
    found = elements(first.fabric, kinds, slow)
    parts = classes(first.fabric, [pattern for _, pattern in setups.values()], found)
    results = [
        _ranked(network, pattern, found, parts, slow, draws, False, False)
        for network, pattern in setups.values()
    ]
    by_name = [{effect.elements + (effect.what,): effect for effect in result.effects} for result in results]
    rows = tuple(tuple(table[key] for table in by_name) for key in by_name[0])
    return Comparison(tuple(setups), tuple(result.time for result in results), rows)


def relays(network: Network, pattern: Pattern) -> Mapping[str, tuple[Network, Pattern]]:
    """Set-ups for `compare`: GPUs of a dead NIC on another, with PXN or not, or their server left out.

    Where PXN sends nothing another way (a tree's edges, GPUs without NVLink) there is nothing to tell apart.
    """
    if pattern.name == "tree" or not can_relay(network.fabric):
        return {
            "moved": (network, replace(pattern, pxn=False, remap=True)),
            "left out": (network, replace(pattern, pxn=False, remap=False)),
        }
    return {
        "moved, PXN": (network, replace(pattern, pxn=True, remap=True)),
        "moved, direct": (network, replace(pattern, pxn=False, remap=True)),
        "left out, PXN": (network, replace(pattern, pxn=True, remap=False)),
    }


def routings(network: Network, pattern: Pattern) -> Mapping[str, tuple[Network, Pattern]]:
    """Set-ups for `compare`: the three routings, the hash with the network's own seed and the next ones.

    Raises PlanError where no pair has a choice of ways.
    """
    fabric = network.fabric
    ends = fabric.a[fabric.role == Role.NODE_LEAF]
    if not np.any(fabric.role == Role.LEAF_SPINE) and len(np.unique(ends)) == len(ends):
        raise PlanError("this fabric has one way from NIC to NIC, so there are no routings to compare")
    return {
        routing: (replace(network, routing=routing), pattern) for routing in ("adaptive", "static", "ecmp")
    }


class Bases:
    """The pattern on the healthy fabric, once per seed of the hash."""

    def __init__(self, network: Network, pattern: Pattern) -> None:
        self.network, self.pattern = network, pattern
        self.known: dict[int, Priced] = {}

    def at(self, seed: int) -> Priced:
        if self.network.routing != "ecmp":
            seed = self.network.seed
        if seed not in self.known:
            self.known[seed] = healthy(replace(self.network, seed=seed), self.pattern)
        return self.known[seed]

    def time(self, seed: int) -> float:
        time = self.at(seed).time
        assert time is not None
        return time

    def effect(
        self,
        first: Sequence[Element],
        members: Sequence[Sequence[Element]],
        count: int,
        draws: Sequence[tuple[Sequence[Element], int]],
    ) -> Effect:
        """Some members of a class under some seeds, told as one; the first draw is the one described."""
        fabric = self.network.fabric
        priced = [price(replace(self.network, seed=seed), self.pattern, failed) for failed, seed in draws]
        described = priced[0]
        times = [p.time for p in priced if p.time is not None]
        slowed = [
            p.time / self.time(seed) for p, (_, seed) in zip(priced, draws, strict=True) if p.time is not None
        ]
        bottleneck = described.solution.bottleneck if described.solution else None
        slowdown = sum(slowed) / len(slowed) if slowed else None
        left = 1 - described.lost_gpus / ranks(fabric, self.pattern)
        return Effect(
            tuple(name(fabric, e) for e in first),
            " + ".join(what(fabric, e) for e in first),
            count,
            tuple(" + ".join(name(fabric, e) for e in one) for one in members[1 : 1 + NAMED]),
            slowdown,
            0.0 if slowdown is None else left / max(1.0, slowdown),
            min(slowed, default=None),
            max(slowed, default=None),
            len(priced),
            sum(times) / len(times) if times else None,
            described.lost_gpus,
            described.lost_pairs,
            described.moved_gpus,
            bottleneck.name if bottleneck else "",
            reason(self.at(draws[0][1]), described),
        )


def _ranked(
    network: Network,
    pattern: Pattern,
    found: Sequence[Element],
    parts: Sequence[Sequence[int]],
    slow: float,
    draws: int,
    check: bool,
    merge: bool = True,
) -> WhatIf:
    base = Bases(network, pattern)
    start = base.at(network.seed)
    effects = []
    for part in parts:
        members = [[found[i]] for i in part]
        if network.routing == "adaptive":
            chosen = [members[0], members[-1]] if check and len(members) > 1 else members[:1]
            drawn = [(one, network.seed) for one in chosen]
        else:
            number = draws if network.routing == "ecmp" else min(draws, len(members))
            drawn = [(members[n * len(members) // number], network.seed + n) for n in range(number)]
        effects.append(base.effect(members[0], members, len(members), drawn))
    if merge:
        effects = _merged(effects)
    assert start.solution is not None
    bottleneck = start.solution.bottleneck
    return WhatIf(
        network.fabric.name,
        pattern.name,
        pattern.pxn,
        network.routing,
        ranks(network.fabric, pattern),
        base.time(network.seed),
        start.solution.engine,
        bottleneck.why if bottleneck else "",
        slow,
        network.routing == "adaptive",
        tuple(sorted(effects, key=rank)),
    )


def _merged(effects: Sequence[Effect]) -> list[Effect]:
    """Classes of one kind that cost the same, in one row."""
    rows: dict[tuple[object, ...], Effect] = {}
    for effect in effects:
        cost = (
            rank(effect),
            effect.lost_gpus,
            effect.least == effect.most,
            effect.moved_gpus,
            effect.lost_pairs,
        )
        key = effect.what, *cost
        known = rows.get(key)
        if known is None:
            rows[key] = effect
            continue
        also = (*known.also, *effect.elements, *effect.also)[:NAMED]
        rows[key] = replace(
            known, count=known.count + effect.count, also=also, solved=known.solved + effect.solved
        )
    return list(rows.values())


def rank(effect: Effect) -> tuple[float, float]:
    """Worst first, by the work that is left; what differs by rounding only is equal."""
    slowdown = np.inf if effect.slowdown is None else float(f"{effect.slowdown:.9g}")
    return float(f"{effect.work:.9g}"), -slowdown
