"""NCCL's settings for one fabric, as /etc/nccl.conf.

Names, values and defaults: NCCL user guide, "Environment Variables" (docs.nvidia.com, read 2026-11).
Only what differs from NCCL's default, or is a fact of this fabric, is set.
"""

from __future__ import annotations

from railwright.export.hierarchy import host_adapters
from railwright.export.sheet import Sheet
from railwright.fabric.graph import Kind
from railwright.spec.nccl import Nccl
from railwright.spec.study import Cluster

RAILS = ("rail-optimised", "rail-only", "rack-rails", "dual-plane")
"""Families in which a leaf belongs to one rail."""

LIBFABRIC = ("aws", "hpe")
"""Vendors whose adapters (EFA, Slingshot) NCCL reaches by the plugin aws-ofi-nccl and not by verbs."""

ALGORITHMS = {
    "ring": "Ring",
    "tree": "Tree",
    "nvls": "NVLS",
    "nvlstree": "NVLSTree",
    "collnet": "CollNetDirect",
}
PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}


def render(sheet: Sheet, cluster: Cluster, nccl: Nccl, interface: str | None) -> dict[str, str]:
    """One file: every line's reason above it.

    interface  name NCCL opens its sockets on; None: any but loopback and Docker's
    """
    lines = [f"# /etc/nccl.conf for {sheet.title}: a variable a job sets itself goes before these lines."]
    for why, name, value in settings(sheet, cluster, nccl, interface):
        lines += [f"# {why}", f"{name}={value}"]
    return {"nccl/nccl.conf": "\n".join(lines) + "\n"}


def settings(sheet: Sheet, cluster: Cluster, nccl: Nccl, interface: str | None) -> list[tuple[str, str, str]]:
    """(reason, variable, value) of every setting."""
    verbs = sheet.nic is None or sheet.nic.vendor not in LIBFABRIC
    rows = [
        _adapters(sheet) if verbs else _libfabric(sheet),
        (
            "Bootstrap and socket traffic",
            "NCCL_SOCKET_IFNAME",
            f"={interface}" if interface else "^lo,docker",
        ),
    ]
    compute = cluster.compute
    if not nccl.pxn:
        rows.append(("The study turns PXN off", "NCCL_PXN_DISABLE", "1"))
    elif compute.family == "rail-only":
        rows.append(
            (
                "Rails do not meet: data for another rail must change rails over NVLink",
                "NCCL_PXN_DISABLE",
                "0",
            )
        )
    rows += _cross_nic(compute.family, compute.oversubscription, nccl)
    leaf = sheet.switch(Kind.LEAF)
    if verbs and leaf is not None and leaf.technology == "ethernet":
        rows.append(
            (
                "RoCE v2 over IPv4 has GID index 3 with most drivers: check with show_gids",
                "NCCL_IB_GID_INDEX",
                "3",
            )
        )
        if compute.routing == "adaptive":
            rows.append(
                (
                    "The fabric sprays packets; on RoCE NCCL does not assume so",
                    "NCCL_IB_ADAPTIVE_ROUTING",
                    "1",
                )
            )
    if verbs and nccl.qps_per_connection:
        rows.append(
            ("More flows for ECMP to spread", "NCCL_IB_QPS_PER_CONNECTION", str(nccl.qps_per_connection))
        )
        rows.append(("and each message over all of them", "NCCL_IB_SPLIT_DATA_ON_QPS", "1"))
    if nccl.sharp:
        rows.append(("In-network reduction (needs the nccl-rdma-sharp plugin)", "NCCL_COLLNET_ENABLE", "1"))
    if nccl.algorithm != "auto":
        rows.append(("The study asks for it", "NCCL_ALGO", ALGORITHMS[nccl.algorithm]))
    if nccl.protocol != "auto":
        rows.append(("The study asks for it", "NCCL_PROTO", PROTOCOLS[nccl.protocol]))
    for name, value in (
        ("NCCL_MIN_NCHANNELS", nccl.min_channels),
        ("NCCL_MAX_NCHANNELS", nccl.max_channels),
        ("NCCL_P2P_NET_CHUNKSIZE", nccl.p2p_net_chunk),
    ):
        if value is not None:
            rows.append(("The study asks for it", name, str(value)))
    return rows


def _adapters(sheet: Sheet) -> tuple[str, str, str]:
    adapters = host_adapters(sheet)
    why = f"The {len(adapters)} compute adapters and no other, by their usual names: check with ibdev2netdev"
    return why, "NCCL_IB_HCA", "=" + ",".join(adapters)


def _libfabric(sheet: Sheet) -> tuple[str, str, str]:
    """NCCL_IB_* say nothing of these adapters.  Source: aws-ofi-nccl (its network's name is "AWS Libfabric",
    on Slingshot too); NCCL user guide, NCCL_NET: NCCL ends where that is not there."""
    name = sheet.nic.name if sheet.nic else ""
    why = f"'{name}' is reached through libfabric: without the plugin aws-ofi-nccl NCCL would take sockets"
    return why, "NCCL_NET", "AWS Libfabric"


def _cross_nic(family: str, oversubscription: float, nccl: Nccl) -> list[tuple[str, str, str]]:
    """NCCL_CROSS_NIC: 0 keeps a ring on its rail, 1 lets it change NICs, 2 (default) prefers its rail."""
    if nccl.cross_nic is not None:
        return [("The study asks for it", "NCCL_CROSS_NIC", str(int(nccl.cross_nic)))]
    if family == "rail-only":
        return [("Rails do not meet: rings must stay on theirs", "NCCL_CROSS_NIC", "0")]
    if family in RAILS and oversubscription > 1:
        return [("Leaving a rail crosses narrow spines: rings stay on theirs", "NCCL_CROSS_NIC", "0")]
    return []
