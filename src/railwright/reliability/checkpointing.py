"""What a checkpoint costs: its size from the model, its bandwidth from the storage network."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_flow

from railwright.catalog.parts import Catalog
from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.fabric import build_networks
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.model import count_parameters
from railwright.model.counts.matrices import whole_matrices
from railwright.model.shape.architecture import Transformer
from railwright.reliability.constants import constant
from railwright.reliability.formulas import best_interval, daly, young
from railwright.reliability.parts import Stock
from railwright.reliability.result import CheckpointTimes, Component
from railwright.spec.reliability import Checkpoint
from railwright.spec.study import Cluster
from railwright.spec.training import TrainingJob
from railwright.training.memory.states import MASTER_BYTES, MOMENT_BYTES
from railwright.training.memory.units import ENDS_BYTES
from railwright.training.passes.offload import host_link
from railwright.training.software.formats import master_of, moments_of
from railwright.units import DAY, show_stored, show_time

PUBLISHED = "as published jobs write; the study has no storage network"
"""What limits a bandwidth that is no storage network's."""

STEP = 1e6
"""Capacities in the maximum flow are whole numbers of this. [byte/s]"""

IN_MEMORY = ("memory", "two-level")
"""Kinds whose newest checkpoint lies in another server's memory."""

CORRUPTS = "sdc"
"""Component that spoils work before anybody notices: silent data corruption."""

STORED_EVERY = DAY
"""Training between two checkpoints that reach storage, of the kind 'memory'. [s]"""


def checkpoint_size(job: TrainingJob, arch: Transformer) -> float:
    """Weights, master weights and moments of every parameter, once. [byte]

    14 bytes a parameter with bf16 weights and fp32 states; BLOOM-176B's 2.3 TB (TiB) are that.  Muon's
    matrices have one moment.
    Raises PlanError for adapters, whose checkpoint the study has to size.
    """
    if job.lora is not None:
        raise PlanError(
            f"{job.name}: it trains adapters, and how much of the frozen model is saved with them is a "
            "choice; say it as reliability.checkpoint.size, like '2 GB'"
        )
    each = ENDS_BYTES + MASTER_BYTES[master_of(job)] + 2 * MOMENT_BYTES[moments_of(job)]
    second = MOMENT_BYTES[moments_of(job)] * whole_matrices(arch) if job.optimizer == "muon" else 0.0
    return each * count_parameters(arch).total - second


def written_at(asked: Checkpoint, cluster: Cluster, catalog: Catalog, held: Stock) -> tuple[float, str]:
    """Bandwidth to storage of all servers of a job together, and what limits it. [byte/s]

    The study's own figure, else its storage network's, else that of published jobs of this size.
    Raises PlanError where there is none of them: no published job is as small.
    """
    if asked.bandwidth is not None:
        return asked.bandwidth, "as the study says"
    if cluster.storage is not None:
        return storage_bandwidth(cluster, catalog, held.servers)
    least = constant("written_by").value
    if held.gpus >= least:
        return constant("written_bandwidth").value, PUBLISHED
    raise PlanError(
        "the study has no storage network, so nobody knows how fast a checkpoint is written (no published "
        f"job of fewer than {least:,.0f} GPUs says); describe it under cluster.storage with its hosts, or "
        "write what it takes as reliability.checkpoint.bandwidth, like '10 GB/s'",
        "reliability.checkpoint",
    )


def storage_bandwidth(cluster: Cluster, catalog: Catalog, servers: int) -> tuple[float, str]:
    """What the first so many servers can send to the storage hosts together, and what limits it. [byte/s]

    The maximum flow on the storage network's graph: ideal routing, disks as fast as their hosts' ports.
    """
    assert cluster.storage is not None, "a study without a storage network"
    fabric = build_networks(cluster, catalog)["storage"]
    port = _host_rate(fabric, np.arange(servers))
    if not cluster.storage.hosts:
        return port, "the servers' storage ports (the storage network has no hosts)"
    hosts = _host_rate(fabric, np.arange(cluster.servers, fabric.num_servers))
    flow = _flow(fabric, servers, cluster.servers)
    if flow < 0.999 * min(port, hosts):
        return flow, "the switches of the storage network"
    return flow, "the servers' storage ports" if port <= hosts else "the storage hosts' ports"


SHORTEST = 1.0
"""Training between two checkpoints, at least: below, a step is longer. [s]"""


def checkpoint_times(
    asked: Checkpoint, size: float, bandwidth: tuple[float, str], machine: Machine, gpus: int, mtti: float
) -> CheckpointTimes:
    """When a job of so many GPUs is kept from training by its checkpoints, and for how long.

    mtti  of the job [s]; the best interval follows from it

    blocking: until storage has all.  async: until host memory has all, over each GPU's own link; storage
    follows.  memory, two-level: the same, and another server's memory follows over the compute network.
    Raises PlanError for an interval shorter than a checkpoint takes to become whole or than a second, and for
    a `storage_interval` where every checkpoint goes to storage anyway.
    """
    rate, limit = bandwidth
    write = size / rate if rate else 0.0
    each = size / gpus
    lanes = machine.server.gpus / machine.server.nics
    copy = each / host_link(machine)
    wait = copy + constant("async_block").value
    peer = each * lanes / (machine.nic.rate * machine.nic.ports)
    block, lag, load = {
        "blocking": (write, 0.0, write),
        "async": (wait, write, write),
        "memory": (wait, peer, peer + copy),
        "two-level": (wait, peer, peer + copy),
    }[asked.kind]
    if asked.block is not None:
        block = asked.block
    best = best_interval(mtti, block, lag)
    interval = best if asked.interval is None else asked.interval
    if asked.storage_interval is not None and asked.kind not in IN_MEMORY:
        raise PlanError(
            f"reliability.checkpoint.storage_interval: every checkpoint of kind {asked.kind} goes to "
            "storage; leave it out, or take kind memory or two-level"
        )
    if interval < lag * (1 - 1e-9):
        raise PlanError(
            f"reliability.checkpoint.interval: {show_time(interval)} is shorter than the {show_time(lag)} a "
            f"checkpoint of {show_stored(size)} takes to become whole; write '{math.ceil(lag)} s' or more, "
            "or give storage more bandwidth"
        )
    if asked.interval is not None and interval < SHORTEST:
        raise PlanError(
            f"reliability.checkpoint.interval: {show_time(interval)} between two checkpoints; write "
            f"{show_time(SHORTEST)} or more, or leave it out for the best"
        )
    interval = max(interval, SHORTEST)
    every = 1
    if asked.kind in IN_MEMORY:
        usual = STORED_EVERY if asked.kind == "memory" else write
        wanted = usual if asked.storage_interval is None else asked.storage_interval
        every = max(math.ceil(max(wanted, write) / interval - 1e-9), 1)
    return CheckpointTimes(
        kind=asked.kind, size=size, bandwidth=rate, limit=limit, block=block, lag=lag, load=load,
        storage_load=write, interval=interval, best=best, young=young(mtti, block), daly=daly(mtti, block),
        storage_every=every,
    )  # fmt: skip


def beyond_memory(part: Component, saved: CheckpointTimes) -> bool:
    """Whether a failure leaves only the checkpoint in storage: it takes several servers, or it spoiled work
    before the newest checkpoint, which is all that memory holds."""
    return saved.kind in IN_MEMORY and (part.servers > 1 or part.name == CORRUPTS)


def spoiled(part: Component, saved: CheckpointTimes, after: float | None = None) -> float:
    """Work that a failure spoils beyond what was not saved when it struck. [s]

    after  training until silent corruption is found; default: the published one [s]

    A checkpoint that became whole since the corruption was begun so much before it, and is sound.
    """
    if part.name != CORRUPTS:
        return 0.0
    known = constant("sdc_found_after").value if after is None else after
    return max(known - (saved.storage_load if saved.kind in IN_MEMORY else saved.lag), 0.0)


def _host_rate(fabric: Fabric, servers: NDArray[np.int_]) -> float:
    nics = fabric.devices(Kind.NIC)
    nics = nics[np.isin(fabric.server[nics], servers)]
    cables = np.flatnonzero((fabric.role == Role.NODE_LEAF) & np.isin(fabric.a, nics))
    return float(fabric.capacity[2 * cables].sum())


def _flow(fabric: Fabric, senders: int, first_host: int) -> float:
    """Maximum flow from the first `senders` servers to the hosts from `first_host` on. [byte/s]"""
    nics = fabric.devices(Kind.NIC)
    server = fabric.server[nics]
    source, sink = fabric.num_devices, fabric.num_devices + 1
    from_nics, to_nics = nics[server < senders], nics[server >= first_host]
    cables = np.flatnonzero(fabric.role >= Role.NODE_LEAF)
    tail = np.concatenate([fabric.a[cables], fabric.b[cables], np.full(len(from_nics), source), to_nics])
    head = np.concatenate([fabric.b[cables], fabric.a[cables], from_nics, np.full(len(to_nics), sink)])
    rate = np.concatenate([fabric.capacity[2 * cables], fabric.capacity[2 * cables + 1]]) / STEP
    ends = np.full(len(from_nics) + len(to_nics), np.iinfo(np.int32).max // 4)
    weight = np.concatenate([rate, ends]).astype(np.int64)
    graph = csr_array(coo_array((weight, (tail, head)), shape=(sink + 1, sink + 1)))
    graph = csr_array((graph.data.astype(np.int32), graph.indices, graph.indptr), shape=graph.shape)
    return float(maximum_flow(graph, source, sink).flow_value) * STEP
