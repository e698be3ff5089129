"""Published effects of fabrics, each predicted by building its setting twice: with and without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from railwright.catalog import load_catalog
from railwright.collectives import Machine, predict
from railwright.collectives.prediction import CollectivePrediction, NcclSettings, Op
from railwright.measure.table import Row, Skipped
from railwright.shipped import read_data
from railwright.spec.study import Cluster, ComputeNetwork, Fault
from railwright.traffic.demand import Communicator
from railwright.units import GIB

PLATEAU = 4 * GIB
SEEDS = range(16)
"""Seeds of the ECMP hash that an effect of hashing is averaged over."""
RING = NcclSettings(algorithm="ring", protocol="simple")


def effect_rows() -> Iterator[Row | Skipped]:
    """Every published effect beside ours, or why it cannot be predicted; of an 'x', 1.28 is 28 % better."""
    for record in records():
        if "not_predictable" in record:
            reason = f"{record['id']}, {record['measured']}: not predictable: {record['not_predictable']}"
            yield Skipped("fabric effects", record["id"], reason)
            continue
        yield Row(
            "fabric effects",
            record["id"],
            f"{record['effect']}: {record['mechanism']}",
            EFFECTS[record["id"]](),
            float(record["measured"]),
            record["unit"],
            record["source"],
            record.get("miss", ""),
            no_effect=1.0 if record["unit"] == "x" else 0.0,
        )


def records() -> list[dict[str, Any]]:
    """The published effects, as data/fabric_effects.yaml has them."""
    found: list[dict[str, Any]] = read_data("measure", "fabric_effects.yaml")["records"]
    return found


def pxn_posts() -> float:
    """Pairs of (posting GPU, remote GPU) of an all-to-all without PXN over those with it."""
    from railwright.traffic.patterns import all_to_all

    fabric = _machine(4).network.fabric
    world = Communicator(np.arange(fabric.num_gpus, dtype=np.int32))
    posts = []
    for pxn in (False, True):
        traffic = all_to_all(fabric, world, 1.0, pxn)
        away = fabric.server[traffic.src] != fabric.server[traffic.dst]
        poster = np.where(traffic.relay >= 0, traffic.relay, traffic.src)  # the relay posts for all it serves
        posts.append(len(np.unique(poster[away].astype(np.int64) * fabric.num_gpus + traffic.dst[away])))
    return posts[0] / posts[1]


def pxn_small() -> float:
    """Time of all-to-alls of 16 and 256 KiB without PXN over that with it."""
    off, on = (_machine(30, nccl=NcclSettings(pxn=pxn)) for pxn in (False, True))
    return _mean(_all(off, "all_to_all", s).time / _all(on, "all_to_all", s).time for s in (2.0**14, 2.0**18))


def locality(nodes: int) -> float:
    """All-to-all's busbw per GPU over what its NIC carries for NCCL."""
    on = _machine(nodes)
    return _all(on, "all_to_all", PLATEAU).busbw / (0.96 * on.nic.rate)


def one_nic() -> float:
    """All-to-all's busbw of 48 GPUs at 1 GiB. [GB/s]"""
    return _all(_machine(6), "all_to_all", GIB).busbw / 1e9


def one_gpu_per_node() -> float:
    """All-reduce's busbw of two GPUs in two servers. [GB/s]"""
    on = _machine(2)
    pair = (Communicator(np.array([0, on.server.gpus], np.int32)),)
    return predict(on, "all_reduce", PLATEAU, pair).busbw / 1e9


def two_nodes(server: str) -> float:
    """All-reduce's busbw of two nodes over that of eight."""
    two, eight = (_all(_machine(n, server=server), "all_reduce", PLATEAU).busbw for n in (2, 8))
    return two / eight


def sharp() -> float:
    """All-reduce's busbw of 16 nodes with in-network reduction over that without."""
    on, off = (
        _all(_machine(16, nccl=NcclSettings(sharp=s)), "all_reduce", PLATEAU).busbw for s in (True, False)
    )
    return on / off


def queue_pairs(qps: int) -> float:
    """Rings over racks whose leaves have spare up-links: time with one hashed flow over that with several."""
    racks = {
        "servers": 16,
        "family": "fat-tree",
        "routing": "ecmp",
        "servers_per_group": 2,
        "spare_spines": 16,
    }
    several = NcclSettings(algorithm="ring", protocol="simple", qps_per_connection=qps)
    return _mean(_wire(_machine(nccl=RING, seed=s, **racks)) for s in SEEDS) / _mean(
        _wire(_machine(nccl=several, seed=s, **racks)) for s in SEEDS
    )


def spare_spines() -> float:
    """Share of a cross-rail all-to-all's bandwidth kept with two of 18 spines lost."""
    lost = (Fault(element="spine-01"), Fault(element="spine-02"))
    off = NcclSettings(pxn=False)
    whole, broken = (
        _machine(64, nccl=off, servers_per_group=16, spines=16, spare_spines=2, faults=faults)
        for faults in ((), lost)
    )
    return _wire(whole, "all_to_all") / _wire(broken, "all_to_all")


def rail_only() -> float:
    """1 GiB all-to-all in two steps on rails without spines, inside servers and then along each rail, over
    one straight to the destination on rails with spines: time."""
    bare = _machine(30, family="rail-only")
    gpus = np.arange(bare.network.fabric.num_gpus, dtype=np.int32).reshape(-1, bare.server.gpus)
    steps = ([Communicator(row) for row in gpus], [Communicator(rail) for rail in gpus.T])
    straight = _machine(30, nccl=NcclSettings(pxn=False))
    return (
        sum(predict(bare, "all_to_all", GIB, groups).time for groups in steps)
        / _all(straight, "all_to_all", GIB).time
    )


EFFECTS: dict[str, Callable[[], float]] = {
    "pxn-aggregation": pxn_posts,
    "pxn-small": pxn_small,
    "a2a-locality-2": partial(locality, 2),
    "a2a-locality-4": partial(locality, 4),
    "a2a-single-nic": one_nic,
    "one-gpu-per-node": one_gpu_per_node,
    "two-node-h100": partial(two_nodes, "dgx-h100"),
    "two-node-b200": partial(two_nodes, "dgx-b200"),
    "sharp-h100": sharp,
    "meta-qp-scaling": partial(queue_pairs, 4),
    "spare-spines": spare_spines,
    "rail-only": rail_only,
}
"""How each record of data/fabric_effects.yaml is predicted that can be."""


@cache
def _machine(
    servers: int,
    server: str = "dgx-h100",
    family: Any = "rail-optimised",
    nccl: NcclSettings = NcclSettings(),
    faults: tuple[Fault, ...] = (),
    **network: Any,
) -> Machine:
    """Servers on NDR switches."""
    compute = ComputeNetwork(family=family, switch="qm9700", **network)
    return Machine.of(
        Cluster(servers=servers, server=server, compute=compute, faults=faults), load_catalog(), nccl
    )


def _all(on: Machine, op: Op, size: float) -> CollectivePrediction:
    """A collective of all GPUs."""
    return predict(on, op, size, (Communicator(np.arange(on.network.fabric.num_gpus, dtype=np.int32)),))


def _wire(on: Machine, op: Op = "all_reduce") -> float:
    """The bandwidth term of 1 GiB over all GPUs. [s]"""
    return next(t.seconds for t in _all(on, op, GIB).terms if t.name == "bandwidth")


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
