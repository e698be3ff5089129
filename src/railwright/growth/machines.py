"""The machines of a step as a `Machine` whose network a job sees."""

from __future__ import annotations

from dataclasses import replace

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Server
from railwright.collectives import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.growth.parts import Speed
from railwright.spec.study import Cluster, ComputeNetwork


def networked(server: Server, machines: int, speed: Speed, catalog: Catalog) -> Machine:
    """So many servers on one network, no wider than it must be: rails where a server has several adapters.

    The server keeps its GPUs and gets the network's adapters.
    """
    box = replace(server, nic=speed.nic, nics=speed.nics)
    ports = find(catalog.switches, speed.switch).ports
    if speed.nics > 1:
        network = ComputeNetwork(family="rail-optimised", switch=speed.switch)
    elif machines <= ports:
        network = ComputeNetwork(family="single-switch", switch=speed.switch)
    else:
        network = ComputeNetwork(family="fat-tree", switch=speed.switch)
    cluster = Cluster(servers=machines, server=box.name, compute=network)
    known = replace(catalog, servers={**catalog.servers, box.name: box})
    return Machine.of(cluster, known, NcclSettings())
