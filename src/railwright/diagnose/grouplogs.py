"""nccl-tests logs of groups of hosts: how fast each group's collective was, against its peers.

Which hosts took part is in the log's own list of devices, or in a host file beside it (same name, ending in
.hosts or .hostfile).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from railwright.diagnose.constants import noise
from railwright.diagnose.elements import Elements
from railwright.diagnose.evidence import Evidence
from railwright.diagnose.likelihood import DEAD
from railwright.diagnose.paths import Crossed, Routing, crossed, need_fabric, rates_of
from railwright.diagnose.text_file import fail, text_of
from railwright.measure.logs import read_log

MANY = 2
"""Logs of one operation, rank count and host count that are needed to know what is usual."""


@dataclass(frozen=True)
class GroupRate:
    """The plateau of one collective on some hosts: bus bandwidth at its largest size [byte/s]."""

    file: str
    op: str
    ranks: int
    hosts: tuple[str, ...]
    busbw: float


def read_group(path: Path, hosts_file: Path | None = None) -> GroupRate:
    """One log; SpecError where it has no curve, or nothing tells its hosts."""
    curve = max(read_log(path), key=lambda c: c.points[-1].size)
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
    return GroupRate(str(path), curve.op, curve.ranks or 0, hosts, curve.points[-1].busbw)


def group_evidence(
    elements: Elements, routing: Routing, groups: Sequence[GroupRate], expected: float | None = None
) -> Evidence:
    """Each log as one rate over the ring of its hosts; what is usual is the median of like logs.

    expected  bus bandwidth to hold all of them against instead [byte/s]
    A ring is as fast as its slowest link, so any element of it may be the one.
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
                "know what is usual; give --expect or more logs of other hosts"
            )
            continue
        usual = expected if expected is not None else float(np.median([g.busbw for g in like]))
        for group in like:
            src, dst = _ring([_gpus(elements, host, group.file) for host in group.hosts])
            crossing = crossed(elements, routing, src, dst)
            parts.append(_as_one(crossing, len(y)))
            y.append(max(math.log(max(group.busbw, 1e-9) / usual), DEAD))
            labels.append(
                f"{Path(group.file).name}: {op} on {', '.join(group.hosts[:4])}"
                f"{' …' if len(group.hosts) > 4 else ''}: {group.busbw / 1e9:.1f} GB/s of {usual / 1e9:.1f}"
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


def _ring(hosts: Sequence[range]) -> tuple[np.ndarray, np.ndarray]:
    """GPU to the same GPU of the next host, on all rails; on one host each to the next GPU."""
    src = np.concatenate([np.array(gpus) for gpus in hosts])
    return src, np.roll(src, -1 if len(hosts) == 1 else -len(hosts[0]))


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
