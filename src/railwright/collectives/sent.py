"""What NCCL's channels and variables make of an algorithm's traffic: other rails, more hashed flows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from railwright.collectives.prediction import NcclSettings
from railwright.fabric.graph import Fabric, Kind
from railwright.network.routing.solution import Network
from railwright.traffic.demand import Traffic

RINGS_PER_NIC = 2
"""Rings that NCCL runs over each NIC: its search opens one and doubles them all.
Source: NCCL 2.30 src/graph/connect.cc, ncclTopoPostset; nccl issue 518 (16 rings for 8 NICs)."""


def as_sent(
    fabric: Fabric, traffic: Traffic, algorithm: str, settings: NcclSettings, routing: str = "ecmp"
) -> Traffic:
    """The demands as NCCL's channels and the user's CROSS_NIC put them on the wire.

    Every ring is a connection of its own between two NICs, with queue pairs of its own, which a hash of the
    UDP source port (made from both queue pairs' numbers) may send different ways.
    routing  how the fabric routes: where nothing is hashed, parts of a demand take the same way, and it is
             left whole
    Source: NCCL user guide, environment variable NCCL_CROSS_NIC; Linux, include/rdma/ib_verbs.h,
    rdma_calc_flow_label.
    """
    if settings.cross_nic and algorithm == "ring":
        traffic = _cross_rails(fabric, traffic)
    if algorithm != "ring" or routing != "ecmp":
        return traffic
    return _split(traffic, _rings_per_nic(fabric, settings))


def hashed_as(network: Network, settings: NcclSettings) -> Network:
    """The network with the queue pairs that IB_QPS_PER_CONNECTION gives every connection."""
    if settings.qps_per_connection is None or network.routing != "ecmp":
        return network
    return replace(network, qps=settings.qps_per_connection)


def _rings_per_nic(fabric: Fabric, settings: NcclSettings) -> int:
    """Two, unless MAX_NCHANNELS leaves fewer rings than twice the NICs of a server."""
    nics = max(len(fabric.devices(Kind.NIC)) // fabric.num_servers, 1)
    return RINGS_PER_NIC if (settings.max_channels or RINGS_PER_NIC * nics) >= RINGS_PER_NIC * nics else 1


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
