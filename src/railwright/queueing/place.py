"""Where a job goes: policies from 'any free GPU' to 'one switch or wait'.

A cluster is hosts of equal GPUs under units (what hangs on one switch, or one set of rail leaves) under pods.
Free GPUs of a host are the bits of a number.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from railwright.errors import PlanError
from railwright.export.hierarchy import gpus_per_host, hierarchy, hosts_of
from railwright.export.sheet import Sheet
from railwright.fabric.faults import check_joins

Policy = Literal["any", "pack", "tree", "block", "rails"]
POLICIES: dict[Policy, str] = {
    "any": "any free GPUs, host after host; a job may be torn over many",
    "pack": "whole hosts for large jobs, the fullest host for small ones; the fabric is not looked at",
    "tree": "as pack, under as few switches as can be (Slurm's topology/tree)",
    "block": "as tree, but a job that fits under one switch waits for one (Slurm's topology/block, Kueue's "
    "required topology)",
    "rails": "as tree, and every host of a job gives the same rails, equally many",
}

Allocation = tuple[tuple[int, int], ...]
"""(host, bits of its GPUs) of every host of a job."""


@dataclass(frozen=True)
class Site:
    """hosts' names; GPUs of each; the unit of every host and the pod of every unit (numbers from 0)."""

    hosts: tuple[str, ...]
    gpus: int
    unit: tuple[int, ...]
    pod: tuple[int, ...]

    @property
    def capacity(self) -> int:
        return len(self.hosts) * self.gpus

    @property
    def whole(self) -> int:
        """All GPUs of a host, as bits."""
        return (1 << self.gpus) - 1

    @cached_property
    def largest_unit(self) -> int:
        """Hosts of the largest unit."""
        return max(map(len, self.members()))

    @cached_property
    def largest_pod(self) -> int:
        """Hosts of the largest pod."""
        return max(Counter(self.pods).values())

    @cached_property
    def pods(self) -> tuple[int, ...]:
        """The pod of every host."""
        return tuple(self.pod[unit] for unit in self.unit)

    def members(self) -> list[list[int]]:
        """Hosts of every unit."""
        found: list[list[int]] = [[] for _ in self.pod]
        for host, unit in enumerate(self.unit):
            found[unit].append(host)
        return found


def site_of(sheet: Sheet) -> Site:
    """The cluster as schedulers see it (`export.hierarchy`); racks of one scale-up domain are units.

    Raises PlanError where a server cannot join: jobs are put on all of them.
    """
    gpus = np.arange(sheet.fabric.num_gpus, dtype=np.int32)
    check_joins(sheet.fabric, gpus, "the queue", "mend it, or ask of a cluster without it")
    tree, hosts = hierarchy(sheet), hosts_of(sheet)
    names = [name for own in hosts for name in own]
    if len(hosts[0]) > 1:  # a rack-scale domain: what its trays share is NVLink, narrower than any switch
        units: list[tuple[int, ...]] = [(server,) for server in range(len(hosts))]
        above = {s: i for i, u in enumerate(tree.units) for s in u.servers}
        pod = tuple(above[s] for (s,) in units)
    else:
        units = [u.servers for u in tree.units]
        inside = {u: p for p, (_, members) in enumerate(tree.pods) for u in members}
        pod = tuple(inside.get(u, len(tree.pods) + u if tree.pods else 0) for u in range(len(units)))
    home = {s: u for u, servers in enumerate(units) for s in servers}
    unit = tuple(home[s] for s, own in enumerate(hosts) for _ in own)
    return Site(tuple(names), gpus_per_host(sheet), unit, pod)


def check_size(site: Site, gpus: int, policy: Policy) -> str:
    """Why a job can never run here; '' where it can."""
    if gpus > site.capacity:
        return f"{gpus} GPUs of {site.capacity}"
    if policy == "rails" and gpus > site.gpus:
        hosts = -(-gpus // site.gpus)
        while hosts <= len(site.hosts) and gpus % hosts:
            hosts += 1
        if hosts > len(site.hosts):
            return f"{gpus} GPUs do not spread evenly over {len(site.hosts)} hosts or fewer"
    elif policy != "any" and -(-gpus // site.gpus) > len(site.hosts):
        return f"{gpus} GPUs of {site.capacity}"
    return ""


def place(site: Site, free: list[int], gpus: int, policy: Policy) -> Allocation | None:
    """GPUs for a job; None where it must wait.

    free  bits of the free GPUs of every host; a host that is down has none
    """
    if policy == "any":
        return _any(site, free, gpus)
    hosts = -(-gpus // site.gpus)
    if hosts == 1:
        return _one(free, gpus)
    if policy == "rails":
        while gpus % hosts:
            hosts += 1
        each = gpus // hosts
        if each < site.gpus:
            return _same_rails(site, free, hosts, each)
    every = site.whole
    if free.count(every) < hosts:
        return None
    whole = [host for host, bits in enumerate(free) if bits == every]
    chosen = whole[:hosts] if policy == "pack" else _near(site, whole, hosts, wait=policy == "block")
    if chosen is None:
        return None
    rest = gpus - (hosts - 1) * site.gpus
    return (*((host, every) for host in chosen[:-1]), (chosen[-1], (1 << rest) - 1))


def fits(site: Site, free: list[int], gpus: int, policy: Policy) -> bool:
    """Whether `place` finds GPUs, told without looking for the best ones where a count says it.

    free  as of `place`, with no fewer free GPUs in all than the job asks for
    """
    if policy == "any":
        return True
    if gpus <= site.gpus:
        return any(bits.bit_count() >= gpus for bits in free)
    if policy == "rails" and gpus % site.gpus:
        return place(site, free, gpus, policy) is not None
    every, hosts = site.whole, -(-gpus // site.gpus)
    if free.count(every) < hosts:
        return False
    if policy != "block":
        return True
    return not _waits(site, [host for host, bits in enumerate(free) if bits == every], hosts)


def _any(site: Site, free: list[int], gpus: int) -> Allocation | None:
    taken: list[tuple[int, int]] = []
    for host, bits in enumerate(free):
        if bits:
            own = _lowest(bits, gpus)
            taken.append((host, own))
            gpus -= own.bit_count()
            if gpus == 0:
                return tuple(taken)
    return None


def _one(free: list[int], gpus: int) -> Allocation | None:
    """The host with the fewest free GPUs that are enough."""
    best, least = -1, 1 << 30
    for host, bits in enumerate(free):
        count = bits.bit_count()
        if gpus <= count < least:
            best, least = host, count
            if count == gpus:
                break
    return ((best, _lowest(free[best], gpus)),) if best >= 0 else None


def _lowest(bits: int, count: int) -> int:
    """The lowest `count` set bits, or all where there are fewer."""
    taken = 0
    for _ in range(count):
        low = bits & -bits
        taken |= low
        bits ^= low
        if not bits:
            break
    return taken


def _waits(site: Site, free: list[int], hosts: int) -> bool:
    """Whether one unit could hold them all and none has them free, or one pod and none."""
    if hosts <= site.largest_unit:
        return max(_counts(site.unit, free).values()) < hosts
    return hosts <= site.largest_pod and max(_counts(site.pods, free).values()) < hosts


def _counts(of: tuple[int, ...], free: list[int]) -> Counter[int]:
    """Free hosts of every unit, or pod, in the order met.  of: that of every host"""
    return Counter(map(of.__getitem__, free))


def _near(site: Site, free: list[int], hosts: int, wait: bool) -> list[int] | None:
    """Of the free hosts as many as asked: in the fullest unit that has them, else pod, else anywhere.

    wait  None rather than two units where one could hold them all, or two pods where one could
    """
    in_unit = hosts <= site.largest_unit
    if in_unit:
        unit = _fullest(_counts(site.unit, free), hosts)
        if unit is not None:
            return [host for host in free if site.unit[host] == unit][:hosts]
        if wait:
            return None
    pod = _fullest(_counts(site.pods, free), hosts)
    if wait and pod is None and not in_unit and hosts <= site.largest_pod:
        return None
    groups: dict[int, list[int]] = {}
    for host in free:
        if pod is None or site.pods[host] == pod:
            groups.setdefault(site.unit[host], []).append(host)
    chosen: list[int] = []
    for own in sorted(groups.values(), key=len, reverse=True):
        chosen += own[: hosts - len(chosen)]
    return chosen


def _fullest(counts: Counter[int], hosts: int) -> int | None:
    """Of those with enough free hosts the one with the fewest; None where none has."""
    enough = [which for which, number in counts.items() if number >= hosts]
    return min(enough, key=counts.__getitem__, default=None)


def _same_rails(site: Site, free: list[int], hosts: int, each: int) -> Allocation | None:
    """Hosts near each other of which every one has the same `each` rails free."""
    best: list[int] | None = None
    rails = 0
    spread = (1 << 30, 1 << 30)
    for shift in range(site.gpus - each + 1):
        mask = ((1 << each) - 1) << shift
        able = [host for host, bits in enumerate(free) if bits & mask == mask]
        if len(able) < hosts:
            continue
        chosen = _near(site, able, hosts, wait=False)
        assert chosen is not None
        units = {site.unit[h] for h in chosen}
        key = (len(units), sum(free[h].bit_count() for h in chosen))
        if key < spread:
            best, rails, spread = chosen, mask, key
    return tuple((host, rails) for host in best) if best is not None else None


def policy_named(name: str) -> Policy:
    """The policy. Raises PlanError for one that does not exist."""
    from railwright.errors import among

    for known in POLICIES:
        if known == name:
            return known
    raise PlanError(f"no placement '{name}'{among(name, POLICIES)}")
