"""nccl-tests logs of groups of hosts: how fast each group's collective was, against its peers.

Which hosts took part is in the log's own list of devices, or in a host file beside it (same name, ending in
.hosts or .hostfile).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from railwright.catalog.parts import Gpu
from railwright.diagnose.constants import noise
from railwright.diagnose.elements import Elements, Ints
from railwright.diagnose.evidence import Evidence
from railwright.diagnose.inference.likelihood import DEAD
from railwright.diagnose.paths import Crossed, Routing, crossed, need_fabric, rates_of
from railwright.diagnose.read.text_file import fail, text_of
from railwright.measure.compare.place import other_gpus
from railwright.measure.logs import read_log
from railwright.measure.logs.curve import MeasuredCurve

MANY = 2
"""Logs of one operation, rank count and host count that are needed to know what is usual."""


Member = tuple[str, int]
"""Host, and which of its GPUs, from 0."""


@dataclass(frozen=True)
class GroupRate:
    """One collective on some hosts.

    ranks    of one communicator, 0 where nothing tells
    rates    size [byte] -> bus bandwidth [byte/s]
    members  the GPUs of each communicator in order of rank, where the log lists them; else ()
    """

    file: str
    op: str
    ranks: int
    hosts: tuple[str, ...]
    rates: Mapping[float, float]
    members: tuple[tuple[Member, ...], ...] = ()


def read_group(path: Path, hosts_file: Path | None = None, gpu: Gpu | None = None) -> GroupRate:
    """One log; of several curves the one that reaches furthest.

    gpu  of the machine that the log is evidence of, where it is known
    Raises SpecError where it has no curve, nothing tells its hosts, or it is of other GPUs.
    """
    curve = max(read_log(path), key=lambda c: c.points[-1].size)
    if gpu is not None and (others := other_gpus(curve, gpu)):
        fail(path, curve.line, f"{others}: it says nothing of this machine; give logs of its own GPUs, or "
             "name the server that ran in the study (cluster.server)")  # fmt: skip
    hosts = curve.header.hosts
    beside = [hosts_file] if hosts_file else [path.with_suffix(s) for s in (".hosts", ".hostfile")]
    for file in beside:
        if file is not None and file.exists():
            hosts = tuple(
                dict.fromkeys(
                    line.split()[0].split(":")[0]
                    for line in text_of(file).splitlines()
                    if line.strip() and not line.lstrip().startswith("#")
                )
            )
    if not hosts or hosts == ("localhost",):
        fail(path, 0, "nothing tells on which hosts it ran; put a host file beside it, named "
             f"{path.stem}.hosts")  # fmt: skip
    listed = _members(curve) if set(hosts) == set(curve.header.hosts) else ()
    rates = {point.size: point.busbw for point in curve.points}
    return GroupRate(str(path), curve.op, curve.ranks or 0, hosts, rates, listed)


def group_evidence(
    elements: Elements, routing: Routing, groups: Sequence[GroupRate], expected: float | None = None
) -> Evidence:
    """Each log as one rate over the rings of its hosts; what is usual is the median of like logs.

    expected  bus bandwidth to hold all of them against instead [byte/s]
    A ring is as fast as its slowest link, so any element of it may be the one.  Like logs are held against
    each other at the largest size that all of them have.
    """
    need_fabric(elements)
    notes: list[str] = []
    kinds: dict[tuple[str, int, int], list[GroupRate]] = {}
    for group in groups:
        kinds.setdefault((group.op, group.ranks, len(group.hosts)), []).append(group)
    parts: list[Crossed] = []
    y: list[float] = []
    labels: list[str] = []
    for (op, ranks, hosts), like in sorted(kinds.items()):
        if expected is None and len(like) < MANY + 1:
            notes.append(
                f"{like[0].file}: {len(like)} log(s) of {op} on {hosts} host(s), {ranks} ranks: too few to "
                "know what is usual; give more logs of other hosts, or hold it against the prediction with "
                "`railwright compare`"
            )
            continue
        shared = set.intersection(*(set(group.rates) for group in like))
        if not shared:
            notes.append(
                f"{like[0].file}: {len(like)} logs of {op} on {hosts} host(s), {ranks} ranks, have no size "
                "in common and are left out; run them all with the same -b, -e and -f"
            )
            continue
        size = max(shared)
        usual = expected if expected is not None else float(np.median([g.rates[size] for g in like]))
        for group in like:
            src, dst = _rings(elements, group)
            crossing = crossed(elements, routing, src, dst)
            parts.append(_as_one(crossing, len(y)))
            y.append(max(math.log(max(group.rates[size], 1e-9) / usual), DEAD))
            labels.append(
                f"{Path(group.file).name}: {op} on {', '.join(group.hosts[:4])}"
                f"{' …' if len(group.hosts) > 4 else ''}: {group.rates[size] / 1e9:.1f} GB/s of "
                f"{usual / 1e9:.1f}"
            )
    if not y:
        return Evidence(notes=tuple(notes))
    values = np.array(y)
    scatter = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    whole = Crossed(
        *(np.concatenate([getattr(p, f) for p in parts]) for f in ("obs", "element", "way", "weight"))
    )
    sigma = np.full(len(y), max(noise().healthy, scatter))
    return Evidence(
        (rates_of(whole, routing, values, sigma, labels, "nccl-tests logs"),), (), (), tuple(notes)
    )


def _members(curve: MeasuredCurve) -> tuple[tuple[Member, ...], ...]:
    """The GPUs of each communicator, as listed; launchers that show a process one GPU number them all 0."""
    devices = curve.header.devices
    on_host = {host: [d for d in devices if d.host == host] for host in curve.header.hosts}
    if len({d.rank for d in devices}) != len(devices):
        return ()
    number: dict[int, int] = {}
    for here in on_host.values():
        distinct = len({d.device for d in here}) == len(here)
        number |= {d.rank: d.device if distinct else order for order, d in enumerate(here)}
    groups = sorted({d.group for d in devices})
    return tuple(tuple((d.host, number[d.rank]) for d in devices if d.group == g) for g in groups)


def _rings(elements: Elements, group: GroupRate) -> tuple[Ints, Ints]:
    """What each communicator sends: every GPU to its peer of the next host, on one host to the next GPU."""
    src: list[int] = []
    dst: list[int] = []
    for members in group.members or (_first_ranks(elements, group),):
        hosts: dict[str, list[int]] = {}
        for host, number in members:
            gpus = _gpus(elements, host, group.file)
            if number >= len(gpus):
                fail(Path(group.file), 0, f"'{host}' has no GPU {number}: servers of this machine have "
                     f"{len(gpus)}; name the server that ran in the study (cluster.server)")  # fmt: skip
            hosts.setdefault(host, []).append(gpus[number])
        each = list(hosts.values())
        if len(each) == 1:
            src += each[0]
            dst += each[0][1:] + each[0][:1]
            continue
        for here, there in zip(each, each[1:] + each[:1], strict=True):
            many = range(max(len(here), len(there)))
            src += [here[i % len(here)] for i in many]
            dst += [there[i % len(there)] for i in many]
    return np.array(src), np.array(dst)


def _first_ranks(elements: Elements, group: GroupRate) -> tuple[Member, ...]:
    """The GPUs of a log that names none: the first of every host, as many as its ranks take, else all."""
    each, rest = divmod(group.ranks, len(group.hosts))
    return tuple(
        (host, number)
        for host in group.hosts
        for number in range(each if each and not rest else len(_gpus(elements, host, group.file)))
    )


def _as_one(crossing: Crossed, number: int) -> Crossed:
    """All transfers as a single observation: each (element, way) once, certain where any transfer is."""
    key, where = np.unique(crossing.element * 3 + crossing.way, return_inverse=True)
    weight = np.zeros(len(key))
    np.maximum.at(weight, where.reshape(-1), crossing.weight)
    return Crossed(np.full(len(key), number), key // 3, key % 3, weight)


def _gpus(elements: Elements, host: str, file: str) -> range:
    found = elements.gpus_of(host)
    if found is None:
        fail(Path(file), 0, f"host '{host}' is no server of this machine; servers are like "
             f"'{elements.name[int(elements.of_server[0])]}'")  # fmt: skip
    return found
