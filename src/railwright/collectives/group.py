"""A communicator as NCCL sees it: how many ranks, in how many NVLink domains, behind how many NICs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright.catalog.parts import PCIE, Gpu, Nic
from railwright.collectives.constants import nccl
from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.traffic.demand import Communicator

GENERATIONS = ("volta", "ampere", "hopper", "blackwell", "cdna")
LIKE = {"turing": "volta", "ada": "ampere"}
"""Generations without tables of their own, by the one whose tables NCCL uses (by compute capability)."""


@dataclass(frozen=True)
class Group:
    """What NCCL's model needs to know of a communicator.

    ranks      n
    nodes      scale-up domains it touches (NCCL's nNodes: an NVL72 rack is one)
    nics       NICs that every domain can offer to it
    nic_rate   of one NIC, one direction [byte/s]
    scale_up   what one GPU sends into its domain [byte/s]; 0 without NVLink
    generation 'volta', 'ampere', 'hopper', 'blackwell' or 'cdna'
    cpu        'intel', 'amd' or 'arm'
    transport  'ib' (verbs: InfiniBand and RoCE) or 'efa'
    pcie       what one GPU sends to its neighbours where there is no NVLink [byte/s]
    min_channels, max_channels  limits set by the user; None: NCCL's own
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
        """What NCCL's topology search can use of it. [byte/s]"""
        usable = nccl()["usable"]
        return self.lane * float(usable["scale_up"][self.generation] if self.scale_up else usable["pcie"])

    @property
    def usable_nic(self) -> float:
        """What NCCL's topology search can use of one NIC. [byte/s]"""
        return self.nic_rate * float(nccl()["usable"]["net"])

    @property
    def medium(self) -> str:
        """What joins the ranks of one node: 'nvlink' or 'pci'."""
        return "nvlink" if self.scale_up else "pci"


def group_of(machine: Machine, comm: Communicator) -> Group:
    """Describe a communicator on a machine; raises PlanError when it holds a GPU twice or none at all."""
    from railwright.traffic.placement import domain_of_gpu

    fabric = machine.network.fabric
    if len(comm) == 0 or len(np.unique(comm.gpus)) != len(comm):
        raise PlanError(
            f"The communicator '{comm.name}' holds {len(comm)} ranks on {len(np.unique(comm.gpus))} "
            "different GPUs; "
            "NCCL needs at least one rank and a GPU of its own for each: list each GPU once."
        )
    names, place = np.unique(domain_of_gpu(fabric)[comm.gpus], return_inverse=True)
    nic = fabric.nic_of_gpu[comm.gpus].astype(np.int64)
    distinct = np.unique(place * (nic.max() + 2) + nic)  # pairs of node and NIC; a GPU without one has -1
    nics = int(np.bincount((distinct + 1) // (nic.max() + 2), minlength=len(names)).min())
    return Group(
        ranks=len(comm),
        nodes=len(names),
        nics=nics,
        nic_rate=machine.nic.rate * machine.nic.ports,
        scale_up=machine.gpu.scale_up_bandwidth,
        generation=generation_of(machine.gpu),
        cpu=machine.server.cpu,
        transport=transport_of(machine.nic),
        pcie=min(machine.nic.pcie_bandwidth, PCIE.get(machine.gpu.generation, machine.nic.pcie_bandwidth)),
        min_channels=machine.nccl.min_channels,
        max_channels=machine.nccl.max_channels,
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
        "give the part one of these as its generation."
    )


def transport_of(nic: Nic) -> str:
    """'efa' for Amazon's adapter, whose library sits between NCCL and the wire; else 'ib'."""
    return "efa" if "efa" in nic.name.lower() else "ib"
