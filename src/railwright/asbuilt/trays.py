"""The design as a dump shows it: a tray of a rack, or a port of a NIC, may be one of its own there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from railwright.asbuilt.compare_plan import mode
from railwright.asbuilt.wiring import Node, Wiring
from railwright.fabric.graph import Fabric, Kind
from railwright.fabric.trays import host_names, host_of_nic


def as_in_dump(design: Wiring, fabric: Fabric, dump: Wiring) -> Wiring:
    """The wiring of a fabric (`to_wiring`) with the hosts and adapters that the dump has.

    A rack's adapters are under its trays where most hosts of the dump have no more adapters than a tray: each
    tray runs an operating system.  A NIC of two ports is two adapters where hosts have twice as many: Linux
    shows each port of a ConnectX as a device (`mlx5_0`, `mlx5_1`), and the Cable Validation Tool counts so.
    """
    gpus, nics = fabric.gpus_per_server, len(fabric.devices(Kind.NIC)) // fabric.num_servers
    trays = len(host_names("", gpus))
    ports = max((node.ports for node in design.nodes if node.kind == "host"), default=1)
    usual = mode(
        list(Counter(node.host for node in dump.nodes if node.kind == "host" and node.host).values())
    )
    if trays > 1 and usual <= max(nics // trays, 1) * ports:
        design = replace(design, nodes=tuple(_in_tray(node, gpus, nics) for node in design.nodes))
        nics //= trays
    return _port_by_port(design, ports) if ports > 1 and usual == nics * ports else design


def _in_tray(node: Node, gpus: int, nics: int) -> Node:
    if node.kind != "host":
        return node
    host, number = host_of_nic(node.host, _number(node), gpus, nics)
    return replace(node, name=f"{host}/nic-{number}", host=host, adapter=f"nic-{number}")


def _port_by_port(design: Wiring, ports: int) -> Wiring:
    """Every port of a NIC as an adapter: port 2 of nic-3 is port 1 of nic-7, of two ports."""
    nodes: list[Node] = []
    at: dict[int, int] = {}
    for index, node in enumerate(design.nodes):
        at[index] = len(nodes)
        if node.kind != "host":
            nodes.append(node)
            continue
        for port in range(ports):
            adapter = f"nic-{_number(node) * ports + port}"
            name = f"{node.host}/{adapter}"
            nodes.append(replace(node, key=name, name=name, adapter=adapter, ports=1))

    def end(index: int, port: int) -> tuple[int, int]:
        return (at[index] + port - 1, 1) if design.nodes[index].kind == "host" else (at[index], port)

    links = []
    for link in design.links:
        (a, a_port), (b, b_port) = end(link.a, link.a_port), end(link.b, link.b_port)
        links.append(replace(link, a=a, a_port=a_port, b=b, b_port=b_port))
    return replace(design, nodes=tuple(nodes), links=tuple(links))


def _number(node: Node) -> int:
    return int(node.adapter.removeprefix("nic-"))
