"""Racks in a dump: the subnet shows every tray as a host of its own, and a drawing the rack as one server."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from railwright.asbuilt.compare_plan import mode
from railwright.asbuilt.wiring import Node, Wiring
from railwright.fabric.graph import Fabric, Kind
from railwright.fabric.trays import host_names, host_of_nic


def as_in_dump(design: Wiring, fabric: Fabric, dump: Wiring) -> Wiring:
    """The wiring of a fabric (`to_wiring`), its racks' adapters under their trays where the dump has them so.

    That is where most hosts of the dump have no more adapters than a tray.
    """
    gpus, nics = fabric.gpus_per_server, len(fabric.devices(Kind.NIC)) // fabric.num_servers
    trays = len(host_names("", gpus))
    adapters = Counter(node.host for node in dump.nodes if node.kind == "host" and node.host)
    if trays == 1 or mode(list(adapters.values())) > max(nics // trays, 1):
        return design
    return replace(design, nodes=tuple(_in_tray(node, gpus, nics) for node in design.nodes))


def _in_tray(node: Node, gpus: int, nics: int) -> Node:
    if node.kind != "host":
        return node
    host, number = host_of_nic(node.host, int(node.adapter.removeprefix("nic-")), gpus, nics)
    return replace(node, name=f"{host}/nic-{number}", host=host, adapter=f"nic-{number}")
