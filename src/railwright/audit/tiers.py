"""Switch by switch: oversubscription, ports in use and stranded, bundles that are not alike."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from railwright.audit.result import Bundles, Ports, Tier
from railwright.audit.survey import Survey
from railwright.fabric.graph import Kind, Role

Ints = NDArray[np.int64]

TIERS = ((Kind.LEAF, Role.NODE_LEAF, Role.LEAF_SPINE), (Kind.SPINE, Role.LEAF_SPINE, Role.SPINE_CORE))
"""Switches of a tier with their cables down and up."""


def oversubscription(survey: Survey) -> tuple[Tier, ...]:
    """Live bandwidth down over live bandwidth up of every leaf, and of every spine below cores.

    A tier is listed when the fabric has cables above it, whether they carry or not.
    """
    return tuple(
        _tier(survey, kind, down, up) for kind, down, up in TIERS if (survey.fabric.role == up).any()
    )


def ports(survey: Survey, radix: Mapping[str, int]) -> tuple[Ports, ...]:
    """Ports of every tier; `radix` gives the ports of a 'leaf', 'spine', 'core' where they are known.

    A port that a breakout cable splits is one port, in use when one of its parts is.
    """
    fabric = survey.fabric
    cabled = fabric.role >= Role.NODE_LEAF
    live = _ports_in_use(survey, cabled & (survey.rate > 0))
    dead = np.maximum(_ports_in_use(survey, cabled) - live, 0)
    found = []
    for kind in (Kind.LEAF, Kind.SPINE, Kind.CORE):
        devices = fabric.devices(kind)
        if not len(devices):
            continue
        here = devices - survey.first_switch
        word = kind.name.lower()
        of_all = radix.get(word) or max(_highest_port(survey, kind), int((live + dead)[here].max()))
        unused = np.maximum(of_all - live[here] - dead[here], 0)
        reserved = -(-fabric.reserved_ports // fabric.breakout) if kind is Kind.LEAF else 0
        reserved = min(reserved, int(unused.sum()))
        emptiest = int(np.argmax(unused))
        found.append(
            Ports(
                tier=word,
                switches=len(devices),
                radix=of_all,
                radix_known=word in radix,
                used=int(live[here].sum()),
                dead=int(dead[here].sum()),
                reserved=reserved,
                unused=int(unused.sum()) - reserved,
                emptiest=fabric.device_name(int(devices[emptiest])) if unused[emptiest] else "",
                emptiest_unused=int(unused[emptiest]),
            )
        )
    return tuple(found)


def bundles(survey: Survey) -> tuple[Bundles, ...]:
    """Live cables between each two switches that any cable joins; even where all bundles are alike."""
    fabric = survey.fabric
    found = []
    for role, name in ((Role.LEAF_SPINE, "leaf-spine"), (Role.SPINE_CORE, "spine-core")):
        of_tier = np.flatnonzero(fabric.role == role)
        if not len(of_tier):
            continue
        size = survey.num_switches
        pair = (survey.low[of_tier] - survey.first_switch) * size + survey.high[of_tier] - survey.first_switch
        both, where = np.unique(pair, return_inverse=True)
        live = np.bincount(where, survey.rate[of_tier] > 0).astype(np.int64)
        usual = int(np.argmax(np.bincount(live)))
        odd = np.flatnonzero(live != usual)
        first = ""
        if len(odd):
            smallest = int(both[odd[np.argmin(live[odd])]])
            first = f"{survey.switch_name(smallest // size)} - {survey.switch_name(smallest % size)}"
        found.append(Bundles(name, len(both), usual, int(live.min()), int(live.max()), len(odd), first))
    return tuple(found)


def bare_nic_ports(survey: Survey, nic_ports: int) -> tuple[int, str]:
    """NIC ports without a live cable, and the first NIC with one; a NIC has `nic_ports`, 0: as most do."""
    fabric = survey.fabric
    of_tier = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    cables = np.bincount(survey.low[of_tier] - survey.first_nic, minlength=survey.num_nics)
    live = np.bincount(survey.nic, minlength=survey.num_nics)
    usual = nic_ports or int(np.argmax(np.bincount(cables)))
    bare = np.maximum(np.maximum(usual, cables) - live, 0)
    first = fabric.device_name(survey.first_nic + int(np.argmax(bare > 0))) if bare.any() else ""
    return int(bare.sum()), first


def _tier(survey: Survey, kind: Kind, down: Role, up: Role) -> Tier:
    fabric = survey.fabric
    here = fabric.devices(kind) - survey.first_switch
    below = _bandwidth(survey, down, survey.high)[here]
    above = _bandwidth(survey, up, survey.low)[here]
    both = np.flatnonzero((below > 0) & (above > 0))
    cut = np.flatnonzero((below > 0) & (above <= 0))
    ratio = below[both] / above[both]
    worst = int(np.argmax(ratio)) if len(both) else -1
    return Tier(
        tier=kind.name.lower(),
        switches=len(both),
        least=float(ratio.min(initial=np.inf)) if len(both) else 0.0,
        mean=float(ratio.mean()) if len(both) else 0.0,
        most=float(ratio[worst]) if len(both) else 0.0,
        worst=survey.switch_name(here[both[worst]]) if len(both) else "",
        cut=tuple(survey.switch_name(here[i]) for i in cut),
    )


def _bandwidth(survey: Survey, role: Role, end: Ints) -> NDArray[np.float64]:
    """(S,) live bandwidth of one role's cables at each switch, at the given end of them [byte/s]."""
    of_tier = np.flatnonzero(survey.fabric.role == role)
    return np.bincount(
        end[of_tier] - survey.first_switch, survey.rate[of_tier], minlength=survey.num_switches
    ).astype(np.float64)


def _ports_in_use(survey: Survey, cables: NDArray[np.bool_]) -> Ints:
    """(S,) ports of each switch that hold an end of a marked cable; an end without a number has its own."""
    fabric = survey.fabric
    of_tier = np.flatnonzero(cables)
    end = np.concatenate([fabric.a[of_tier], fabric.b[of_tier]]).astype(np.int64) - survey.first_switch
    number = np.concatenate([fabric.port_a[of_tier], fabric.port_b[of_tier]]).astype(np.int64)
    parts = np.where(fabric.kind[end + survey.first_switch] == Kind.LEAF, fabric.breakout, 1)
    beyond = int(number.max(initial=0)) + 1
    port = np.where(number > 0, (number - 1) // parts, beyond + np.arange(len(number)))
    width = beyond + len(number)
    used = np.unique(end[end >= 0] * width + port[end >= 0]) // width
    return np.bincount(used, minlength=survey.num_switches).astype(np.int64)


def _highest_port(survey: Survey, kind: Kind) -> int:
    """The highest port in use on any switch of a kind, broken-out ports counted whole."""
    fabric = survey.fabric
    at_a, at_b = fabric.kind[fabric.a] == kind, fabric.kind[fabric.b] == kind
    highest = max(int(fabric.port_a[at_a].max(initial=0)), int(fabric.port_b[at_b].max(initial=0)))
    return -(-highest // fabric.breakout) if kind is Kind.LEAF else highest
