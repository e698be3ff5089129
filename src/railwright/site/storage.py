"""Shared storage sized by what the jobs move: checkpoints out and back, datasets in; then what could be it.

An option's servers are counted from drives, NICs and the share of them its software delivers, never from a
brochure's total.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from railwright.errors import PlanError, nearest
from railwright.fabric import Fabric, Role
from railwright.site.parts import SiteParts, StorageKind
from railwright.spec.site import StorageNeed
from railwright.units import show_rate, show_size


@dataclass(frozen=True)
class Requirement:
    """What shared storage has to give.  Rates [byte/s], capacity [byte].

    per_node   largest rate one server asks for, reading a restart or writing its share
    network    what the servers' ports on the storage network carry together; 0 where there is none
    hosts      what the ports of its storage hosts carry together; 0 where the study names none
    """

    checkpoint: float
    write: float
    mean_write: float
    restart_read: float
    dataset_read: float
    capacity: float
    per_node: float
    network: float
    hosts: float
    nodes: int

    @property
    def read(self) -> float:
        """Dataset and restart do not happen at once: the larger."""
        return max(self.restart_read, self.dataset_read)


@dataclass(frozen=True)
class Option:
    """One way to build it: servers needed by each demand, or why it cannot be.

    binding  which demand decides; bytes usable [byte]; read, write what it gives [byte/s]
    """

    kind: StorageKind
    servers: int
    binding: str
    read: float
    write: float
    usable: float
    refusal: str


@dataclass(frozen=True)
class StoragePlan:
    """The requirement, the options by number of servers (refused ones last), and remarks."""

    need: Requirement
    options: tuple[Option, ...]
    notes: tuple[str, ...]


def requirement(
    need: StorageNeed, nodes: int, gpus: int, checkpoint: float, storage: Fabric | None
) -> Requirement:
    """What storage has to give to `nodes` servers with `gpus` GPUs, for checkpoints of this size [byte].

    Writing: the checkpoint within `checkpoint_time`.  Restart: every server reads its share back within
    `restart_time`.  Capacity: datasets, kept checkpoints and the one being written.
    Raises PlanError where checkpoints would overlap.
    """
    if need.checkpoint_time > need.checkpoint_interval:
        raise PlanError(
            "site.storage.checkpoint_time: longer than checkpoint_interval, so that checkpoints would pile up"
        )
    write = checkpoint / need.checkpoint_time if need.checkpoint_time else math.inf
    restart = checkpoint / need.restart_time if need.restart_time else math.inf
    if math.inf in (write, restart):
        raise PlanError("site.storage: checkpoint_time and restart_time must be above zero")
    dataset = gpus * need.read_per_gpu
    network = hosts = 0.0
    if storage is not None:
        cables = storage.role == Role.NODE_LEAF
        server = np.maximum(storage.server[storage.a], storage.server[storage.b])
        network = float(storage.rate[cables & (server < nodes)].sum())
        hosts = float(storage.rate[cables & (server >= nodes)].sum())
    return Requirement(
        checkpoint,
        write,
        checkpoint / need.checkpoint_interval,
        restart,
        dataset,
        capacity(need, checkpoint),
        max(write, restart, dataset) / nodes,
        network,
        hosts,
        nodes,
    )


def capacity(need: StorageNeed, checkpoint: float) -> float:
    """Datasets, kept checkpoints of this size [byte] and the one being written. [byte]"""
    return need.dataset + (need.kept + 1) * checkpoint


def plan_storage(
    need: StorageNeed, nodes: int, gpus: int, checkpoint: float, storage: Fabric | None, parts: SiteParts
) -> StoragePlan:
    """Requirement and options. Raises PlanError for an option nobody knows."""
    asked = requirement(need, nodes, gpus, checkpoint, storage)
    names = need.options if need.options is not None else tuple(parts.storage)
    for name in names:
        if name not in parts.storage:
            hint = nearest(name, parts.storage) or f"; known are {', '.join(parts.storage)}"
            raise PlanError(f"site.storage.options: no storage system '{name}'{hint}")
    options = [size_option(parts.storage[name], asked) for name in names]
    options.sort(key=lambda option: (bool(option.refusal), option.servers))
    return StoragePlan(asked, tuple(options), tuple(_notes(asked, storage)))


def server_rates(kind: StorageKind) -> tuple[float, float]:
    """What one server of an option gives to readers and takes from writers. [byte/s]

    Reading: the slower of drives and NICs, times the share the software delivers.  Writing a byte costs
    (data + parity) / data bytes on drives, and where parity travels between servers, as many on NICs.
    """
    nics, more = kind.nics * kind.nic, (kind.data + kind.parity) / kind.data
    read = kind.software * min(nics, kind.drives * kind.drive_read)
    # What a server takes in it passes on: 1 byte in, `more` - 1 out to its peers, who take as many in.
    on_wire = nics / more if kind.over_network else nics
    write = kind.software * min(on_wire, kind.drives * kind.drive_write / more)
    return read, write


def size_option(kind: StorageKind, need: Requirement) -> Option:
    """Fewest servers of one option that meet every demand."""
    read, write = server_rates(kind)
    usable = kind.drives * kind.drive * kind.data / (kind.data + kind.parity)
    demands = {
        "checkpoint writes": need.write / write,
        "restart reads": need.restart_read / read,
        "dataset reads": need.dataset_read / read,
        "capacity": need.capacity / usable,
        "its smallest size": float(kind.least_servers),
    }
    binding = max(demands, key=lambda name: demands[name])
    servers = math.ceil(demands[binding] - 1e-9)
    refusal = ""
    if need.per_node > kind.client:
        refusal = f"one client gets {show_rate(kind.client)} of the {show_rate(need.per_node)} it needs"
    elif servers > kind.most_servers:
        refusal = f"{binding} take {servers} servers, and it works with {kind.most_servers} at most"
    return Option(kind, servers, binding, servers * read, servers * write, servers * usable, refusal)


def _notes(need: Requirement, storage: Fabric | None) -> list[str]:
    notes = []
    most = max(need.write, need.read)
    if storage is None:
        notes.append(
            f"no storage network: {show_rate(need.per_node)} a server compete with compute or in-band traffic"
        )
    elif need.network < most:
        notes.append(
            f"the servers' ports on the storage network carry {show_rate(need.network)} of the "
            f"{show_rate(most)} needed: more ports_per_server or a faster rate"
        )
    if 0 < need.hosts < most:
        notes.append(
            f"the ports of the study's storage hosts carry {show_rate(need.hosts)} of the {show_rate(most)} "
            "needed: more `hosts` on the storage network"
        )
    if need.mean_write and need.write > 10 * need.mean_write:
        notes.append(
            f"checkpoints come in bursts ({show_rate(need.write)}, {show_rate(need.mean_write)} on average): "
            "asynchronous checkpoints through host memory need the average alone"
        )
    notes.append(f"capacity: {show_size(need.capacity)} before growth")
    return notes
