"""Fabrics for the tests of exports, and what their cables are as the arrays tell it."""

from __future__ import annotations

from dataclasses import replace

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.catalog.parts import Catalog
from railwright.fabric import Fabric, Kind, Role
from railwright.spec.study import Cluster, ComputeNetwork

SHIPPED = load_catalog()


def small_parts(radix: int, nics: int = 4) -> Catalog:
    """The shipped parts, a switch 'tiny' of few ports and a server 'small' of as many GPUs as NICs."""
    tiny = replace(SHIPPED.switches["qm9700"], name="tiny", ports=radix, cages=radix)
    small = replace(SHIPPED.servers["dgx-h100"], name="small", gpus=nics, nics=nics)
    return replace(
        SHIPPED,
        switches={**SHIPPED.switches, "tiny": tiny},
        servers={**SHIPPED.servers, "small": small},
    )


def built(
    servers: int, family: str, server: str = "dgx-h100", switch: str = "qm9700", catalog=SHIPPED, **network
) -> Fabric:
    asked = ComputeNetwork(switch=switch, family=family, **network)
    return fabric.build(Cluster(servers=servers, server=server, compute=asked), catalog)


def cables_by_name(f: Fabric) -> set[tuple[str, int, str, int]]:
    """Every pulled cable as InfiniBand calls its ends: ('server-01 mlx5_0', 1, 'leaf-01', 1)."""
    return {cable_name(f, c) for c in range(f.num_cables) if f.role[c] >= Role.NODE_LEAF}


def cable_name(f: Fabric, cable: int) -> tuple[str, int, str, int]:
    a, b = (ib_name(f, int(end[cable])) for end in (f.a, f.b))
    return a, int(f.port_a[cable]), b, int(f.port_b[cable])


def ib_name(f: Fabric, device: int) -> str:
    """'leaf-01', 'server-01 mlx5_0'; a rack's adapters sit in its trays of four GPUs, each a host."""
    name = f.device_name(device)
    if f.kind[device] != Kind.NIC:
        return name
    server, _, nic = name.partition("/nic-")
    if f.gpus_per_server <= 16:
        return f"{server} mlx5_{nic}"
    of_tray = 4 * int((f.kind == Kind.NIC).sum()) // f.num_gpus
    return f"{server}-tray-{int(nic) // of_tray + 1:02d} mlx5_{int(nic) % of_tray}"
