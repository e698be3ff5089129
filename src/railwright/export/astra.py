"""ASTRA-sim's analytical network: a dimension inside servers and one between them.

Format: astra-network-analytical, input/*.yml (topology, npus_count, bandwidth, latency per dimension).
Its "GB/s" are 2**30 byte/s (common/NetworkFunction: bw_GBps_to_Bpns), so rates are converted.
"""

from __future__ import annotations

from railwright.export.hierarchy import hierarchy
from railwright.export.sheet import METRE, Sheet
from railwright.fabric.graph import Kind, Role
from railwright.units import GIB


def render(sheet: Sheet) -> dict[str, str]:
    """One value per dimension: what a GPU sends, and the delay from it to the middle of the longest way.

    Oversubscription, faults and the sharing of links between dimensions are beyond this model.
    A delay counts two links per way, so a link is half of the way: NIC, cables and switches up to the top
    tier, whose crossing is shared by both halves.
    """
    sheet.need_gpus("ASTRA-sim")
    f = sheet.fabric
    dims: list[tuple[int, float, float]] = []
    if sheet.gpus > 1:
        dims.append((sheet.gpus, float(f.rate[f.role == Role.SCALE_UP][0]), 0.0))
    if f.num_servers > 1:
        per_gpu = sheet.nics * sheet.nic_ports / sheet.gpus
        rate = float(f.rate[f.role == Role.NODE_LEAF].min())
        dims.append((f.num_servers, rate * per_gpu, _half_way(sheet)))
    dims = dims or [(1, float(f.rate[f.role == Role.NODE_LEAF].min()), 0.0)]
    columns = list(zip(*dims, strict=True))
    lines = [
        f"# {sheet.title}",
        f"# dimensions: {'GPUs of a server, ' if sheet.gpus > 1 else ''}servers; GB/s of 2**30 byte; ns",
        f"topology: [ {', '.join(['Switch'] * len(dims))} ]",
        f"npus_count: [ {', '.join(str(n) for n in columns[0])} ]",
        f"bandwidth: [ {', '.join(f'{rate / GIB:.6f}' for rate in columns[1])} ]  # GB/s",
        f"latency: [ {', '.join(f'{delay * 1e9:.1f}' for delay in columns[2])} ]  # ns",
    ]
    return {"network.yml": "\n".join(lines) + "\n"}


def _half_way(sheet: Sheet) -> float:
    """From a NIC to the middle of the highest switch that two servers need to meet [s]."""
    f, tree = sheet.fabric, hierarchy(sheet)
    tops = 3 if tree.pods else 2 if tree.islands else 1
    way = float(f.latency[f.devices(Kind.NIC)].max())
    tiers = ((Kind.LEAF, Role.NODE_LEAF), (Kind.SPINE, Role.LEAF_SPINE), (Kind.CORE, Role.SPINE_CORE))[:tops]
    for kind, role in tiers:
        last = kind is tiers[-1][0]
        crossing = float(f.latency[f.devices(kind)].max())
        way += float(f.length[f.role == role].max()) * METRE + crossing / (2 if last else 1)
    return way
