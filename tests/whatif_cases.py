"""Small clusters of all families for the tests of what-if on faults, and the brute force they are held to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import Fabric, Kind
from railwright.network import Network
from railwright.network.whatif.elements import elements
from railwright.network.whatif.pattern import Pattern
from railwright.network.whatif.price import healthy, price
from railwright.spec.study import Cluster, ComputeNetwork, Fault
from railwright.traffic import Communicator

CATALOG = load_catalog()
QM9700, DGX = CATALOG.switches["qm9700"], CATALOG.servers["dgx-h100"]


@st.composite
def fabrics(draw, families=tuple(fabric.FAMILIES), most_gpus=40, faults=True) -> Fabric:
    """A fabric of small switches, with up to two faults of its own, that an all-to-all with PXN crosses."""
    gpus = draw(st.sampled_from([1, 2, 4]))
    nics = draw(st.sampled_from([n for n in (1, 2, 4) if n <= gpus]))
    nic = replace(CATALOG.nics["cx7-400"], ports=draw(st.sampled_from([1, 1, 2])))
    catalog = replace(
        CATALOG,
        nics={"cx7-400": nic},
        servers={"s": replace(DGX, name="s", gpus=gpus, nics=nics)},
        switches={"sw": replace(QM9700, name="sw", ports=draw(st.sampled_from([8, 12, 16])))},
    )
    network = ComputeNetwork(
        family=draw(st.sampled_from(families)),
        switch="sw",
        tiers=draw(st.sampled_from(["auto", "auto", 2, 3])),
        oversubscription=draw(st.sampled_from([1.0, 1.0, 2.0, 3.0])),
        spare_spines=draw(st.sampled_from([0, 0, 1])),
        servers_per_group=draw(st.sampled_from([None, 1, 2, 3])),
    )
    servers = draw(st.integers(2, max(2, min(12, most_gpus // gpus))))
    try:
        built = fabric.build(Cluster(servers=servers, server="s", compute=network), catalog)
        for _ in range(draw(st.sampled_from([0, 0, 1, 2])) if faults else 0):
            built = fabric.apply_faults(built, [_fault(draw, built)])
        healthy(Network(built), all_to_all(built))
    except PlanError:
        assume(False)
    return built


def all_to_all(built: Fabric, pxn: bool = True) -> Pattern:
    return Pattern("all-to-all", (Communicator(np.arange(built.num_gpus, dtype=np.int32)),), pxn)


@st.composite
def patterns(draw, built: Fabric, names=("all-to-all", "ring", "tree", "bisection")) -> Pattern:
    """A pattern of one group of all GPUs, or of two groups that halve the servers' GPUs."""
    everyone = np.arange(built.num_gpus, dtype=np.int32)
    groups = [everyone]
    if built.gpus_per_server > 1 and draw(st.booleans()):
        groups = [everyone[::2], everyone[1::2]]
    return Pattern(draw(st.sampled_from(names)), tuple(Communicator(g) for g in groups), draw(st.booleans()))


def planes_with_a_dead_leaf() -> Fabric:
    """Two planes, servers of a GPU in three groups; a group has lost its leaf of one plane.

    A spine's cable that fails leaves two groups that cannot meet, and either could be left out: which one
    is told by their order alone, and what stays is one plane or two.
    """
    catalog = replace(
        CATALOG,
        servers={"s": replace(DGX, name="s", gpus=1, nics=1)},
        switches={"sw": replace(QM9700, name="sw", ports=8)},
    )
    network = ComputeNetwork(family="dual-plane", switch="sw", servers_per_group=2)
    built = fabric.build(Cluster(servers=6, server="s", compute=network), catalog)
    return fabric.apply_faults(built, [Fault(element="leaf-03")])


def brute_force(network: Network, pattern: Pattern, slow: float = 0.5) -> list[float]:
    """Slowdown of every element's failure, each solved by itself; inf where nothing is left to run."""
    base = healthy(network, pattern).time
    times = [price(network, pattern, [element]).time for element in elements(network.fabric, slow=slow)]
    return [np.inf if time is None else time / base for time in times]


def _fault(draw, built: Fabric) -> Fault:
    kinds = [k for k in (Kind.NIC, Kind.LEAF, Kind.SPINE) if len(built.devices(k))]
    device = draw(st.sampled_from(built.devices(draw(st.sampled_from(kinds))).tolist()))
    if draw(st.booleans()):
        return Fault(element=built.device_name(device))
    return Fault(element=built.device_name(device), state="slow", rate="10 GB/s")
