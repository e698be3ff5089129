"""One set of failures priced: what still runs, what cannot be delivered, how long it takes, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from railwright.errors import PlanError
from railwright.fabric import apply_faults, lost_servers
from railwright.fabric.faults import live_nics
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network.routing.bottleneck import TIER
from railwright.network.routing.solution import Network, Solution
from railwright.network.solve import solve
from railwright.network.whatif.elements import Element, fault
from railwright.network.whatif.pattern import (
    Pattern,
    demands,
    hangs_on_order,
    pairs_with,
    ranks,
    undeliverable,
)
from railwright.spec.study import Fault
from railwright.traffic import Groups, Traffic

SAME = 1e-9
"""Slowdowns this close to 1 are none: rounding."""


@dataclass(frozen=True, eq=False)
class Priced:
    """A pattern on what failures leave of a fabric.

    time        until the last demand has finished; None where nothing is left to run [s]
    lost_gpus   ranks that cannot take part: their server is dead or cut off from most others
    lost_pairs  ordered pairs of the pattern that cannot be delivered, those with a lost rank among them
    moved_gpus  GPUs that send through another NIC than before
    solution    None where nothing is left to run
    """

    time: float | None
    lost_gpus: int
    lost_pairs: int
    moved_gpus: int
    solution: Solution | None
    fabric: Fabric


def healthy(network: Network, pattern: Pattern) -> Priced:
    """The pattern on the fabric as it is; the study's own faults are part of it.

    Raises PlanError where the pattern sends nothing, or where a pair has no live path even now.
    """
    if network.routing == "tables":
        raise PlanError(
            "forwarding tables that are given know nothing of a failure; ask under the routing 'static', "
            "which deals destinations anew, 'ecmp' or 'adaptive'"
        )
    sent = demands(network.fabric, pattern)
    if not len(sent):
        raise PlanError(
            f"the pattern '{pattern.name}' sends nothing: none of its groups has two ranks; "
            "name a larger group"
        )
    solution = solve(network, sent, "last")
    if not solution.time > 0:
        raise PlanError(f"the pattern '{pattern.name}' takes no time on this fabric, so nothing can slow it")
    return Priced(solution.time, 0, 0, 0, solution, network.fabric)


def price(network: Network, pattern: Pattern, failed: Sequence[Element]) -> Priced:
    """The pattern once some elements have failed together, restarted without the servers that are lost."""
    fabric = network.fabric
    broken, gone, pairs = after(fabric, pattern, failed)
    lost = ranks(fabric, pattern) - ranks(fabric, pattern, gone)
    stays = ~np.isin(fabric.server[: fabric.num_gpus], gone)
    moved = int(np.count_nonzero((broken.nic_of_gpu != fabric.nic_of_gpu) & stays))
    # Who sends to whom through whom hangs on the ranks and their NICs, not on what links still carry.
    untouched = not gone and broken.nic_of_gpu is fabric.nic_of_gpu
    sent = _sent(fabric, pattern) if untouched else demands(broken, pattern, gone)
    if not len(sent):
        return Priced(None, lost, pairs, 0, None, broken)
    solution = solve(replace(network, fabric=broken), sent, "last")
    return Priced(solution.time, lost, pairs, moved, solution, broken)


def _sent(fabric: Fabric, pattern: Pattern) -> Traffic | Groups:
    """The demands of all ranks, kept for the fabric: many failures leave them as they were."""
    kept = _SENT.setdefault(fabric, {})
    if pattern not in kept:
        kept[pattern] = demands(fabric, pattern)
    return kept[pattern]


_SENT: WeakKeyDictionary[Fabric, dict[Pattern, Traffic | Groups]] = WeakKeyDictionary()


def after(fabric: Fabric, pattern: Pattern, failed: Sequence[Element]) -> tuple[Fabric, list[int], int]:
    """What failures leave: the fabric, the servers (from 0) that are lost, and the pairs not delivered."""
    broken, gone = _broken(fabric, pattern, failed)
    pairs = pairs_with(fabric, pattern, gone)
    more_pairs, cut_off = undeliverable(broken, pattern, gone)
    return broken, sorted({*gone, *cut_off}), pairs + more_pairs


def arbitrary(fabric: Fabric, pattern: Pattern, failed: Sequence[Element]) -> bool:
    """Whether others could as well have been left out: what it costs then hangs on the servers' order."""
    broken, gone = _broken(fabric, pattern, failed)
    return hangs_on_order(broken, pattern, gone)


def reason(before: Priced, after: Priced) -> str:
    """Why it takes that long, in words: who moved, who is lost, and the link that holds the rest."""
    if after.solution is None or after.time is None or before.time is None:
        return "no group has two ranks left that reach each other"
    words: list[str] = []
    if after.lost_gpus:
        words.append(f"{_gpus(after.lost_gpus)} lost; the others go on without them")
    if after.moved_gpus:
        words.append(f"{_gpus(after.moved_gpus)} moved to another NIC of the server")
    bottleneck = after.solution.bottleneck
    if bottleneck is not None:
        slower = after.time > before.time * (1 + SAME)
        words.append(bottleneck.why.rstrip(".") if slower else _still(before, after))
    return "; ".join(words)


def _broken(fabric: Fabric, pattern: Pattern, failed: Sequence[Element]) -> tuple[Fabric, list[int]]:
    """What failures leave of a fabric, and the servers that are dead or have no NIC to send through."""
    faults = [fault(fabric, element) for element in failed]
    gone = lost_servers(fabric, faults)
    if not pattern.remap:
        gone = sorted({*gone, *_without_nic(fabric, faults, gone)})
    return apply_faults(fabric, faults, gone), gone


def _still(before: Priced, after: Priced) -> str:
    """That the others have room: which tier holds the traffic now, and whether it did before."""
    tier = _tier(after)
    return f"the {tier} hold it" + (", as before" if tier == _tier(before) else "")


def _tier(priced: Priced) -> str:
    assert priced.solution is not None
    assert priced.solution.bottleneck is not None
    return TIER[Role(int(priced.fabric.role[priced.solution.bottleneck.link // 2]))]


def _gpus(number: int) -> str:
    return f"{number:,} GPU{'' if number == 1 else 's'}"


def _without_nic(fabric: Fabric, faults: Sequence[Fault], gone: Sequence[int]) -> list[int]:
    """Servers with a GPU whose NIC died, those that are gone anyway left out."""
    broken = apply_faults(fabric, faults, range(fabric.num_servers))
    dead = ~live_nics(broken)[fabric.nic_of_gpu - fabric.devices(Kind.NIC)[0]]
    servers = np.unique(fabric.server[: fabric.num_gpus][dead])
    return [int(s) for s in servers if s not in gone]
