"""The machine a collective runs on: the network with the parts behind it and NCCL's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from railwright.catalog.parts import Catalog, Gpu, Nic, Server
from railwright.collectives.prediction import NcclSettings
from railwright.errors import PlanError
from railwright.network.solution import Network
from railwright.spec.study import Cluster

if TYPE_CHECKING:
    from railwright.collectives.profile import Profile


@dataclass(frozen=True, eq=False)
class Machine:
    """Network, NCCL settings and the parts whose constants a prediction needs.

    profile  constants measured on the operator's own cluster, by family (`railwright calibrate`)
    """

    network: Network
    nccl: NcclSettings
    gpu: Gpu
    nic: Nic
    server: Server
    profile: Profile | None = None

    @classmethod
    def of(
        cls, cluster: Cluster, catalog: Catalog, nccl: NcclSettings, profile: Profile | None = None
    ) -> Machine:
        """Build the fabric of a cluster and put its parts beside it.

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
            Network(build(cluster, catalog), cluster.compute.routing, cluster.compute.seed),
            nccl,
            find(catalog.gpus, server.gpu),
            find(catalog.nics, server.nic),
            server,
            profile,
        )
