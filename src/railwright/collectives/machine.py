"""The machine a collective runs on: the network with the parts behind it and NCCL's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from railwright.catalog.parts import Catalog, Gpu, Nic, Server
from railwright.collectives.prediction import NcclSettings
from railwright.errors import PlanError
from railwright.fabric.graph import Role
from railwright.network.routing.solution import Network
from railwright.spec.study import Cluster

if TYPE_CHECKING:
    from railwright.collectives.profile import Profile


@dataclass(frozen=True, eq=False)
class Machine:
    """Network, NCCL settings and the parts whose constants a prediction needs.

    profile  constants measured on the operator's own cluster, by family (`railwright calibrate`)
    alike    a network and a factor: this one is that, its links other than scale-up ones `factor` times as
             fast, so that what was solved there need not be solved again (see `is_multiple`)
    """

    network: Network
    nccl: NcclSettings
    gpu: Gpu
    nic: Nic
    server: Server
    profile: Profile | None = None
    alike: tuple[Network, float] | None = None

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        catalog: Catalog,
        nccl: NcclSettings,
        profile: Profile | None = None,
        network: Network | None = None,
    ) -> Machine:
        """Build the fabric of a cluster and put its parts beside it.

        network  the cluster's, where it has been built already
        Raises PlanError when in-network reduction is asked of a switch that cannot reduce.
        """
        from railwright.catalog import find
        from railwright.fabric import build

        server = find(catalog.servers, cluster.server)
        switch = find(catalog.switches, cluster.compute.switch)
        if nccl.sharp and not switch.sharp:
            able = ", ".join(sorted(name for name, part in catalog.switches.items() if part.sharp))
            raise PlanError(
                f"nccl.sharp asks for in-network reduction, but the switch '{switch.name}' has none; "
                f"set nccl.sharp to false or choose one of {able}.",
                "nccl.sharp",
            )
        return cls(
            network or Network(build(cluster, catalog), cluster.compute.routing, cluster.compute.seed),
            nccl,
            find(catalog.gpus, server.gpu),
            find(catalog.nics, server.nic),
            server,
            profile,
        )


def may_refuse(machine: Machine) -> bool:
    """Whether a collective may have no way: two GPUs that do not reach each other, or an algorithm or
    protocol asked of NCCL that cannot run it.  Only pricing a job's own messages tells."""
    fabric, asked = machine.network.fabric, machine.nccl
    cut = fabric.family == "rail-only" or bool((fabric.capacity == 0).any())
    return cut or (asked.algorithm, asked.protocol) != ("auto", "auto")


def is_multiple(network: Network, other: Network, factor: float) -> bool:
    """Whether a network is another one with all links but the scale-up ones `factor` times as fast.

    Only networks whose fabrics share their cables (made of each other by `replace`) are.
    """
    here, there = network.fabric, other.fabric
    same_cables = here.a is there.a and here.b is there.b and here.nic_of_gpu is there.nic_of_gpu
    if not (same_cables and here.latency is there.latency and here.length is there.length):
        return False
    if _choices(network) != _choices(other):
        return False
    faster = np.repeat(np.where(here.role == Role.SCALE_UP, 1.0, factor), 2)
    return bool(np.array_equal(here.capacity, there.capacity * faster))


def _choices(network: Network) -> tuple[object, ...]:
    """How a network chooses among equal paths."""
    return (
        network.routing, network.seed, id(network.tables), network.qps, network.salt, network.entropy,
    )  # fmt: skip
