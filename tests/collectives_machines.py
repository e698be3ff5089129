"""Machines of the catalogue's parts, for the tests of the collectives room."""

from functools import cache

import numpy as np

from railwright.catalog import load_catalog
from railwright.collectives import Machine, NcclSettings
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic.demand import Communicator


@cache
def machine(
    servers: int,
    server: str = "dgx-h100",
    family: str = "rail-optimised",
    switch: str = "qm9700",
    routing: str = "adaptive",
    nccl: NcclSettings = NcclSettings(),
    oversubscription: float = 1.0,
) -> Machine:
    """`servers` of one kind on one fabric; a single one hangs on a single switch."""
    network = ComputeNetwork(
        family="single-switch" if servers == 1 else family,
        switch=switch,
        routing=routing,
        oversubscription=oversubscription,
    )
    return Machine.of(Cluster(servers=servers, server=server, compute=network), load_catalog(), nccl)


def world(on: Machine) -> list[Communicator]:
    """One communicator of all GPUs."""
    return [Communicator(np.arange(on.network.fabric.num_gpus, dtype=np.int32))]
