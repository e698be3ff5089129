"""Ring: every op but point-to-point; one ring per NIC, chunks travel n-1 (all-reduce: 2(n-1)) steps."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.collectives.algorithm import Algorithm, Path, ring_wire
from railwright.collectives.constants import PROTOCOLS, base_latency, by_nodes, nccl, step_latency
from railwright.collectives.group import Group
from railwright.collectives.prediction import Op
from railwright.collectives.sent import RINGS_PER_NIC
from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic, join


def steps(op: Op, protocol: str, group: Group, path: Path) -> float:
    """Latency of all steps of a ring, as NCCL's tuner counts them. [s]

    Every chunk makes n-1 steps (all-reduce 2(n-1)), one in each node over the network and the others over
    NVLink; a step inside takes at least what the proxies need to post the messages of the network steps.
    Source: NCCL 2.30 src/graph/tuning.cc ncclTopoTuneModel, ring; the 'plateau' factor (1.4, Volta 1.9)
    of ncclTopoGetAlgoTime. A broadcast is taken as the same pipeline filled once: n-1 steps.
    """
    across, within = _counts(op, group)
    inner = step_latency(group.medium, "ring", protocol)
    if group.nodes > 1:
        posts = 3 if protocol == "simple" else 1
        inner = max(inner, posts * float(nccl()["post_overhead"][group.cpu]))
    total = base_latency("ring", protocol) + within * inner + across * _outer(protocol, group, path)
    if op == "all_reduce" and protocol == "simple" and group.nodes > 1:
        total *= float(nccl()["ring_plateau"].get(group.generation, 1.4))
    return total


def timed_steps(op: Op, protocol: str, group: Group, path: Path) -> float:
    """Latency of all steps of a ring, as a call pays it. [s]

    The tuner lengthens the steps inside a node to what a proxy needs for its posts. With LL and LL128 the
    flags travel in the data and no proxy takes part in those steps, so a call does not pay that: 16 A100
    take 38 us for 8 bytes, over virtual functions (ar-a100-2n-deepops-ring), the tuner says 68, this 29. With
    Simple it stays.
    """
    if protocol == "simple":
        return steps(op, protocol, group, path)
    across, within = _counts(op, group)
    inner = step_latency(group.medium, "ring", protocol)
    return base_latency("ring", protocol) + within * inner + across * _outer(protocol, group, path)


def inside(op: Op, protocol: str, group: Group) -> float:
    """busbw that the rings of one node can carry, as NCCL's tuner assumes. [byte/s]

    Source: NCCL 2.30 src/graph/tuning.cc (llMaxBws, perChMaxRingLL128Bws) and topo.h (NVLink rates).
    """
    return _within(protocol, group, 1.0)


def carried(op: Op, protocol: str, group: Group) -> float:
    """busbw that the rings of one node carry in a call. [byte/s]

    A chunk is sent `sends` times and received once more, which nothing is sent beside: busbw counts the sends
    alone, so that rings of two GPUs carry less than rings of eight. The tuner knows nothing of it.
    Source: NCCL 2.30 src/device/all_reduce.h, runRing (the last `recv`); its share of a send's time:
    nccl.yaml, last_receive.
    Over a mesh nothing of it is seen: busbw is the number of links times the same 56 to 60 GB/s on 2, 4 and 8
    MI355X (`Group.reach`). RCCL's rings over several nodes leave each of them once, so that of the k hops in
    one k - 1 are over its lanes: 16 MI300X and 16 to 64 MI325X with 400 Gb/s a GPU reach 350 to 357 GB/s, 8
    alone 316 to 319, which is 8/7 (hisohara/ai-scripts at 7b8b1ec, training/01_rccl-smoketest/README.md).
    NCCL gives a ring one speed inside and across, from a short list: 160 GB/s on 16 H800 (issue 1411), whose
    lanes have 165.
    """
    if op == "broadcast":
        return inside(op, protocol, group)
    if group.links:
        here = group.ranks_per_node
        return _within(protocol, group, here / (here - 1) if group.nodes > 1 and here > 1 else 1.0)
    sends = sum(_counts(op, group))
    share = sends / (sends + float(nccl()["last_receive"]))
    return _within(protocol, group, share, doubled=group.nodes > 1)


def filled(protocol: str, group: Group) -> float | None:
    """Latency of one step inside a node, where all ranks send and receive at once. [s]

    What is lost to filling and draining does not grow with the number of steps there: published curves have
    about the same `k sqrt(S)` on 2, 4 and 8 GPUs (measure/data/collectives.yaml, one_node_fits).
    """
    return step_latency(group.medium, "ring", protocol) if group.nodes == 1 else None


def hides(op: Op, group: Group, network: float, inside: float) -> float:
    """Seconds of the bandwidth term behind which the latency of steps across nodes hides. [s]

    network  what the NICs take for all of it [s]
    inside   what the lanes inside nodes take [s]
    A chunk travels in two slices: a step waits only for what its latency is beyond the time that the slice
    before takes.  With T the larger of the two, N steps of which the slowest take T / N cost
    max(T, latencies + half of what all steps take), instead of latencies + T.  Steps inside a node are as
    much shorter as its lanes are faster than its NICs.  A broadcast's chunk is one slice.
    Source: NCCL 2.30 src/include/collectives.h (ALLREDUCE_CHUNKSTEPS over ALLREDUCE_SLICESTEPS, and so on).
    24 A100 take 5 to 50 us beyond the wire for 23 to 133 MB, where all latencies are 110 (LL128) and 443; 512
    to 2,160 of four a node take what this says of one of their points within 12 % (tests/validation/
    test_collectives_large_rings.py).
    """
    if group.nodes == 1 or op == "broadcast":
        return 0.0
    across, within = _counts(op, group)
    steps = (across * network + within * inside) / (across + within)
    return max(network, inside) - steps / 2.0


def channels_of(group: Group) -> int:
    """Channels that run: NCCL's search opens one per NIC across nodes, 16 inside one; users limit them."""
    return group.channels(_own_channels(group))


def crowding(group: Group) -> float:
    """NICs of a node over those it uses: a channel sends through one, so few channels leave some idle."""
    return group.nics / min(group.nics, channels_of(group))


def per_nic(op: Op, group: Group) -> float:
    """Bytes the busiest NIC sends per byte of S: the rings share the NICs evenly."""
    if group.nodes == 1:
        return 0.0
    share = {"all_reduce": 2 * (group.ranks - 1) / group.ranks, "broadcast": 1.0}
    return share.get(op, (group.ranks - 1) / group.ranks) / group.nics


def traffic(fabric: Fabric, groups: Sequence[Communicator], op: Op, pxn: bool) -> Traffic:
    """Demands of ring collectives of S = 1 byte."""
    from railwright.traffic.rings import broadcast, rings

    if op == "broadcast":
        return join([broadcast(fabric, comm, 1.0, pxn=pxn) for comm in groups])
    rounds = 2 if op == "all_reduce" else 1
    return rings(fabric, groups, [rounds * (len(comm) - 1) / len(comm) for comm in groups], pxn)


def _within(protocol: str, group: Group, share: float, doubled: bool = False) -> float:
    """busbw of one node's rings whose lanes are busy with sends for a share of the time. [byte/s]

    doubled  with the channels that run, RINGS_PER_NIC for each that the tuner counts
    """
    rate = group.usable_lane * share if group.nodes < group.ranks else float("inf")
    if channels_of(group) < _own_channels(group):
        # fewer channels than NCCL wants: with Simple one is taken to carry what a tree's does
        rate = min(rate, channels_of(group) * by_nodes("channel_max_tree", group.generation, group.nodes))
    if protocol == "ll":
        row = group.generation if group.nodes == 1 else str(nccl()["ll_max_cpu"][group.cpu])
        return min(rate * 0.5, by_nodes("ll_max", row, group.nodes))
    if protocol == "ll128":
        channels = group.channels(RINGS_PER_NIC * _own_channels(group)) if doubled else channels_of(group)
        return min(rate * 0.92, channels * by_nodes("channel_max_ring_ll128", group.generation, group.nodes))
    return rate


def _own_channels(group: Group) -> int:
    """Channels that NCCL's search opens."""
    return int(nccl()["channels"]["one_node"]) if group.nodes == 1 else group.nics


def _counts(op: Op, group: Group) -> tuple[int, int]:
    """Steps over the network and steps inside nodes."""
    rounds = 2 if op == "all_reduce" else 1
    across = rounds * (group.nodes - 1)
    return across, rounds * (group.ranks - 1) - across


def _outer(protocol: str, group: Group, path: Path) -> float:
    """One step over the network. [s]"""
    return step_latency("net", "tree" if group.ranks == group.nodes else "ring", protocol) + path.mean


def _unavailable(op: Op, group: Group, sharp: bool) -> str:
    return ""


RING = Algorithm(
    "ring",
    ("all_reduce", "all_gather", "reduce_scatter", "broadcast"),
    PROTOCOLS,
    _unavailable,
    steps,
    inside,
    ring_wire,
    per_nic,
    traffic,
    timed_steps,
    carried,
    filled,
    hides,
)
