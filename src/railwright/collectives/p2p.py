"""Point to point: all-to-all and send/recv, direct or through PXN; messages, chunks, posts and rounds.

n ranks in N nodes; every rank sends m = S / n to each other rank (send/recv: m = S to one).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from railwright.collectives.algorithm import Path
from railwright.collectives.constants import base_latency, nccl, step_latency
from railwright.collectives.group import Group
from railwright.collectives.prediction import Op
from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic, join


def message_size(op: Op, size: float, group: Group) -> float:
    """m: what one rank sends to one other. [byte]"""
    return size / group.ranks if op == "all_to_all" else size


def protocol_of(message: float, group: Group) -> str:
    """LL for small messages over NVLink; always Simple over the network.

    Source: NCCL 2.30 src/enqueue.cc addP2pToPlan (P2P_LL_THRESHOLD 16 KiB, only where both ends have LL
    buffers) and src/init.cc (ALLOC_P2P_NET_LL_BUFFERS = 0: network connections have none).
    """
    small = message <= float(nccl()["point_to_point"]["ll_threshold"])
    return "ll" if small and group.nodes == 1 and group.scale_up > 0 else "simple"


def uses_relays(group: Group, pxn: bool) -> bool:
    """Whether PXN changes anything: several nodes, several rails, NVLink between them.

    Source: NCCL 2.30 src/graph/paths.cc (the remote NIC is on another rail and a local peer owns it).
    """
    return pxn and group.nodes > 1 and group.nics > 1 and group.scale_up > 0


def chunk_size(message: float, full: int | None = None) -> int:
    """What one step of a network message carries. [byte]

    full  P2P_NET_CHUNKSIZE, 128 KiB unless given [byte]

    All of it, half of it below 8 such chunks, a quarter below one.
    Source: NCCL 2.30 src/init.cc P2P_NET_CHUNKSIZE; src/enqueue.cc addP2pToPlan ("Tune chunk size").
    """
    full = int(nccl()["point_to_point"]["chunk_net"]) if full is None else full
    if message < full:
        return full // 4
    return full // 2 if message < 8 * full else full


def posting_seconds(
    op: Op, size: float, group: Group, pxn: bool, share: float | None = None, chunk: int | None = None
) -> float:
    """How long the busiest GPU's proxy threads are busy posting network messages. [s]

    Every chunk to every remote rank costs NCCL's post overhead (1 us Intel, 2 us AMD; tuning.cc
    getNetOverhead), send and receive side together. Under PXN the up to 8 local ranks that send to one
    remote GPU do so through one proxy in one multi-send: they share the verbs calls and keep their own
    visits of the state machine (`share`; None: nccl.yaml's `sub_message_share`). The overhead is a latency
    in NCCL's tuner; using it as the cost of one post in a row of many is an assumption of ours.
    Source: NCCL 2.30 src/transport/net.cc sendProxyProgress, src/transport/net_ib/p2p.cc ncclIbMultiSend.
    """
    message = message_size(op, size, group)
    local = ceil(group.ranks_per_node)
    remote = (group.ranks - local) if op == "all_to_all" else (1 if group.nodes > 1 else 0)
    chunks = max(1, ceil(message / chunk_size(message, chunk)))
    each = float(nccl()["post_overhead"][group.cpu])
    if not uses_relays(group, pxn) or op != "all_to_all":
        return remote * chunks * each
    together = min(local, int(nccl()["point_to_point"]["max_receives"]))
    if share is None:
        share = float(nccl()["point_to_point"]["sub_message_share"])
    return ceil(remote / together) * chunks * each * (1 - share + share * together)


def rounds(op: Op, group: Group) -> int:
    """How many times a rank's channels go round to serve all peers.

    A channel serves 8 peers at once. One peer gets as many channels as fill its NIC at 14 GB/s each, halved
    until all peers fit or one is left. Source: NCCL 2.30 src/graph/paths.cc ncclTopoComputeP2pChannels.
    """
    if op != "all_to_all" or group.nodes == 1:
        return 1
    facts = nccl()["point_to_point"]
    channels, batches = group.channels(int(facts["channels"])), ceil(group.ranks / int(facts["batch"]))
    per_peer = 1
    while per_peer < group.nic_rate / 14e9:
        per_peer *= 2
    while per_peer * batches > channels and per_peer > 1:
        per_peer //= 2
    return ceil(per_peer * batches / channels)


def steps(op: Op, size: float, group: Group, pxn: bool, path: Path) -> float:
    """Latency from launch to the last byte's arrival, all rounds. [s]

    Each round pays one network step (14 us Simple: post, wire, flush, hand-over) and, with PXN, one NVLink
    step more: the source GPU hands over to the proxy GPU's buffer.
    Source: NCCL 2.30 src/graph/tuning.cc hwLatencies, ring; rounds as above.
    """
    protocol = protocol_of(message_size(op, size, group), group)
    if group.nodes == 1:
        return base_latency("ring", protocol) + step_latency(group.medium, "ring", protocol)
    once = step_latency("net", "ring", "simple") + path.worst
    if uses_relays(group, pxn):
        once += step_latency("nvlink", "ring", "simple")
    return base_latency("ring", "simple") + rounds(op, group) * once


def wire(protocol: str) -> float:
    """Bytes on the wire per byte of message."""
    return 2.0 if protocol == "ll" else 1.0


def nominal_seconds_per_byte(op: Op, group: Group, pxn: bool) -> float:
    """Time per byte of S on a healthy, uncontended fabric. [s/byte]

    Every byte for another node leaves through a NIC; bytes for local ranks, and under PXN those that change
    rail, ride NVLink.
    """
    n, local = group.ranks, group.ranks_per_node
    if op == "sendrecv":
        return 1 / (group.usable_nic if group.nodes > 1 else group.usable_pair)
    network = (n - local) / n * local / group.nics / group.usable_nic if group.nodes > 1 else 0.0
    lanes = (local - 1) / n
    if uses_relays(group, pxn):
        lanes += (n - local) / n * (1 - 1 / group.nics)
    return max(network, lanes / group.usable_lane if lanes else 0.0)


def traffic(fabric: Fabric, groups: Sequence[Communicator], op: Op, pxn: bool) -> Traffic:
    """Demands of S = 1 byte; send/recv is a shift by one rank, as nccl-tests does it."""
    from railwright.traffic.patterns import all_to_all, send_recv

    if op == "all_to_all":
        return join([all_to_all(fabric, comm, 1.0 / len(comm), pxn) for comm in groups])
    return join([send_recv(fabric, comm.gpus, np.roll(comm.gpus, -1), 1.0, pxn) for comm in groups])
