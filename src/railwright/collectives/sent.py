"""What NCCL's variables make of an algorithm's traffic: other rails, more hashed flows."""

from __future__ import annotations

import numpy as np

from railwright.collectives.prediction import NcclSettings
from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Traffic


def as_sent(fabric: Fabric, traffic: Traffic, algorithm: str, settings: NcclSettings) -> Traffic:
    """The demands as the user's CROSS_NIC and IB_QPS_PER_CONNECTION put them on the wire.

    Source: NCCL user guide, environment variables NCCL_CROSS_NIC and NCCL_IB_QPS_PER_CONNECTION.
    """
    if settings.cross_nic and algorithm == "ring":
        traffic = _cross_rails(fabric, traffic)
    if settings.qps_per_connection is not None and settings.qps_per_connection > 1:
        traffic = _split(traffic, settings.qps_per_connection)
    return traffic


def _cross_rails(fabric: Fabric, traffic: Traffic) -> Traffic:
    """Every edge into a node arrives on the NIC of the next ring: same bytes per NIC, through the spines."""
    from railwright.traffic.placement import domain_of_gpu

    domain = domain_of_gpu(fabric)
    to = domain[traffic.dst]
    dst = traffic.dst.copy()
    across = np.flatnonzero(domain[traffic.src] != to)
    for node in np.unique(to[across]):
        here = across[to[across] == node]
        dst[here] = np.roll(traffic.dst[here], -1)
    return Traffic(traffic.src, dst, traffic.relay, traffic.size)


def _split(traffic: Traffic, parts: int) -> Traffic:
    """Every demand as `parts` equal ones, which a hash may send different ways."""
    return Traffic(
        np.repeat(traffic.src, parts),
        np.repeat(traffic.dst, parts),
        np.repeat(traffic.relay, parts),
        np.repeat(traffic.size / parts, parts),
    )
