"""A communicator as NCCL sees it: how many ranks, in how many NVLink domains, behind how many NICs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from railwright.catalog.parts import Gpu, Nic
from railwright.collectives.constants import nccl
from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.traffic.demand import Communicator

GENERATIONS = ("volta", "ampere", "hopper", "blackwell", "cdna")
LIKE = {"turing": "volta", "ada": "ampere", "rubin": "blackwell"}
"""Generations without tables of their own, by the one whose tables NCCL uses (by compute capability)."""


@dataclass(frozen=True)
class Group:
    """What NCCL's model needs to know of a communicator.

    ranks      n
    nodes      scale-up domains it touches (NCCL's nNodes: an NVL72 rack is one)
    nics       NICs that every domain can offer to it
    nic_rate   of one NIC, one direction [byte/s]
    scale_up   what one GPU sends into its domain [byte/s]; 0 without NVLink
    links      to as many peers that `scale_up` is shared over; 0 where switches join the domain
    generation 'volta', 'ampere', 'hopper', 'blackwell' or 'cdna'
    cpu        'intel', 'amd' or 'arm'
    transport  'ib' (verbs: InfiniBand and RoCE) or 'efa'
    pcie       what one GPU sends to its neighbours where there is no NVLink [byte/s]
    min_channels, max_channels  limits set by the user; None: NCCL's own
    nic_slot   PCIe between a GPU and its NIC, one direction [byte/s]; None: one that never limits it
    """

    ranks: int
    nodes: int
    nics: int
    nic_rate: float
    scale_up: float
    generation: str
    cpu: str
    transport: str = "ib"
    pcie: float = 0.0
    min_channels: int | None = None
    max_channels: int | None = None
    nic_slot: float | None = None
    links: int = 0

    def channels(self, own: int) -> int:
        """How many channels run where NCCL on its own would open `own`."""
        return min(max(own, self.min_channels or 1), self.max_channels or max(own, self.min_channels or 1))

    @property
    def ranks_per_node(self) -> float:
        return self.ranks / self.nodes

    @property
    def scope(self) -> str:
        """'one-node', or the transport between nodes."""
        return "one-node" if self.nodes == 1 else self.transport

    @property
    def lane(self) -> float:
        """What joins a GPU to the others of its node: NVLink, or PCIe without it. [byte/s]"""
        return self.scale_up or self.pcie

    @property
    def usable_lane(self) -> float:
        """What collectives of this group can use of it. [byte/s]"""
        return self._usable * self.reach

    @property
    def usable_pair(self) -> float:
        """What one rank can send to a single other one of its node. [byte/s]"""
        return self._usable / max(self.links, 1)

    @property
    def reach(self) -> float:
        """Share of a GPU's links that its group uses in a node: of a mesh those to the others of the group.

        RCCL has rings over all of them for 2, 4 and 8 GPUs, and a single ring for other numbers: 8 GB on
        MI355X, whose links of 76.5 GB/s are seven, has a busbw of 60, 168 and 390 GB/s on 2, 4 and 8 GPUs
        whether gathered, scattered or reduced, and 44 to 48 on 5, 6 and 7 (81 to 93 on 3).
        Source: mit-orcd/amd-benchmarks at f58939d, amd-cloud/results/rccl.csv (rccl-tests, ROCm 7.14).
        """
        here = ceil(self.ranks_per_node)
        if not self.links or here < 2:
            return 1.0
        used = here - 1 if here & (here - 1) == 0 else 1
        return min(1.0, used / self.links)

    @property
    def _usable(self) -> float:
        """What NCCL's topology search can use of a lane whose GPU reaches all others. [byte/s]"""
        usable = nccl()["usable"]
        return self.lane * float(usable["scale_up"][self.generation] if self.scale_up else usable["pcie"])

    @property
    def usable_nic(self) -> float:
        """What NCCL's topology search can use of one NIC. [byte/s]"""
        return self.nic_rate * float(nccl()["usable"]["net"])

    @property
    def searched_nic(self) -> float:
        """What NCCL's tuner takes one NIC for: the least of the links of a GPU's path to it. [byte/s]

        Source: NCCL 2.30 src/graph/paths.cc, ncclTopoSetPaths (least of path and link); src/graph/search.cc,
        getMaxBw over these paths, from which the bandwidths of all channels follow.
        """
        if self.nic_slot is None:
            return self.usable_nic
        return min(self.usable_nic, pcie_link(self.nic_slot))

    @property
    def rings_alone(self) -> str:
        """Why nothing but rings is modelled among its GPUs; '' where more is."""
        return "only rings are modelled on AMD GPUs" if self.generation == "cdna" else ""

    @property
    def medium(self) -> str:
        """What joins the ranks of one node: 'nvlink' or 'pci'."""
        return "nvlink" if self.scale_up else "pci"


def pcie_link(bandwidth: float) -> float:
    """What NCCL takes a PCIe link for. [byte/s]

    bandwidth  of the link, one direction [byte/s]; PCIe doubles from width to width and from generation to
               generation, so the nearest such rate is meant, with or without its line code
    Source: NCCL 2.30 src/graph/topo.cc, ncclTopoAddPci and kvDictPciGen: 12 GB/s for x16 of 8 GT/s.
    """
    facts = nccl()["pcie_link"]
    doublings = round(log2(bandwidth / float(facts["nominal"])))
    return float(facts["counted"]) * 2.0**doublings


def group_of(machine: Machine, comm: Communicator) -> Group:
    """Describe a communicator on a machine; raises PlanError when it holds a GPU twice or none at all."""
    return shapes_of(machine, [comm])[0]


def shapes_of(machine: Machine, comms: Sequence[Communicator]) -> tuple[Group, ...]:
    """The different descriptions of communicators, in order; raises PlanError as `group_of` does."""
    found = np.zeros((len(comms), 3), np.int64)
    for size in {len(comm) for comm in comms}:
        which = [i for i, comm in enumerate(comms) if len(comm) == size]
        gpus = np.stack([comms[i].gpus for i in which])
        ranked = np.sort(gpus, axis=1)
        wrong = np.any(ranked[:, 1:] == ranked[:, :-1], axis=1) | (size == 0)
        if wrong.any():
            raise _twice(comms[which[int(wrong.argmax())]])
        found[which] = _counts(machine, gpus)
    return tuple(_group(machine, *counts) for counts in dict.fromkeys(map(tuple, found.tolist())))


def _twice(comm: Communicator) -> PlanError:
    different = len(np.unique(comm.gpus))
    return PlanError(
        f"The communicator '{comm.name}' holds {len(comm)} ranks on {different} different GPUs; "
        "NCCL needs at least one rank and a GPU of its own for each: list each GPU once."
    )


def _counts(machine: Machine, gpus: NDArray[np.int32]) -> NDArray[np.int64]:
    """(G, 3) ranks, nodes, and NICs that every node can offer, of communicators (G, n)."""
    from railwright.traffic.placement import domain_of_gpu

    fabric = machine.network.fabric
    nic = fabric.nic_of_gpu[gpus].astype(np.int64) + 1  # a GPU without one has 0
    width = int(nic.max()) + 1
    owned = np.sort(domain_of_gpu(fabric)[gpus].astype(np.int64) * width + nic, axis=1)
    node = owned // width
    first = np.ones(gpus.shape, bool)
    first[:, 1:] = node[:, 1:] != node[:, :-1]
    apart = np.ones(gpus.shape, bool)
    apart[:, 1:] = owned[:, 1:] != owned[:, :-1]
    # Of each GPU the place of its node among those of all communicators.
    place = np.cumsum(first) - 1
    nics = np.bincount(place, weights=apart.reshape(-1)).astype(np.int64)
    least = np.minimum.reduceat(nics, place.reshape(gpus.shape)[:, 0])
    return np.stack([np.full(len(gpus), gpus.shape[1]), first.sum(1), least], axis=1)


def _group(machine: Machine, ranks: int, nodes: int, nics: int) -> Group:
    return Group(
        ranks=ranks,
        nodes=nodes,
        nics=nics,
        nic_rate=machine.nic.rate * machine.nic.ports,
        scale_up=machine.gpu.scale_up_bandwidth,
        generation=generation_of(machine.gpu),
        cpu=machine.server.cpu,
        transport=transport_of(machine.nic),
        pcie=machine.gpu.slot,
        min_channels=machine.nccl.min_channels,
        max_channels=machine.nccl.max_channels,
        nic_slot=machine.gpu.lane_to(machine.nic),
        links=machine.gpu.scale_up_links,
    )


def generation_of(gpu: Gpu) -> str:
    """The row of NCCL's tables for a GPU; raises PlanError for a generation without one."""
    name = gpu.generation.lower()
    for known in GENERATIONS:
        if LIKE.get(name, name).startswith(known):
            return known
    raise PlanError(
        f"No collective model for the GPU '{gpu.name}' of generation '{gpu.generation}': "
        f"NCCL's constants are known for {', '.join(GENERATIONS)}; "
        "give the part one of these as its generation.",
        "cluster.server",
    )


def transport_of(nic: Nic) -> str:
    """'efa' for Amazon's adapter, whose library sits between NCCL and the wire; else 'ib'."""
    return "efa" if "efa" in nic.name.lower() else "ib"
