"""Fabrics of servers on one compute network, built from the shipped catalogue."""

from __future__ import annotations

from typing import Any

from railwright.catalog import load_catalog
from railwright.catalog.parts import Catalog
from railwright.fabric import build
from railwright.fabric.graph import Fabric
from railwright.spec.study import Cluster, ComputeNetwork, Fault

CATALOG = load_catalog()


def built(
    servers: int, server: str = "dgx-h100", catalog: Catalog = CATALOG, *, faults: tuple[Fault, ...] = (),
    switch: str = "qm9700", **network: Any,
) -> Fabric:  # fmt: skip
    """network  fields of `ComputeNetwork`"""
    compute = ComputeNetwork(switch=switch, **network)
    return build(Cluster(servers=servers, server=server, compute=compute, faults=faults), catalog)
