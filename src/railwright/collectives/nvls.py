"""NVLS: the NVSwitch reduces and multicasts; inside one domain, or as leaves of a tree between domains."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.collectives.algorithm import Algorithm, Path, ring_wire
from railwright.collectives.constants import by_nodes, nccl, step_latency
from railwright.collectives.group import Group
from railwright.collectives.prediction import Op
from railwright.collectives.ring import channels_of
from railwright.collectives.tree import depth
from railwright.collectives.tree import per_nic as tree_per_nic
from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic, join


def multicast_rate(op: Op, group: Group, channels: int) -> float:
    """busbw of NVLS. [byte/s]

    Channels' rate x efficiency x (channels - 1) / channels, doubled for all-reduce, which reduces and
    multicasts at once. Source: NCCL 2.30 src/graph/tuning.cc, nvlsEfficiency and ncclTopoTuneModel.
    """
    facts = nccl()
    rate = group.scale_up * float(facts["usable"]["nvls"][group.generation])
    rate *= float(facts["nvls_efficiency"].get(group.generation, 0.0)) * (channels - 1) / channels
    if group.max_channels is not None:
        rate *= min(1.0, group.max_channels / int(facts["channels"]["one_node"]))
    return 2 * rate if op == "all_reduce" else rate * (group.ranks_per_node - 1) / group.ranks_per_node


def missing(group: Group) -> str:
    """Why the scale-up domains of a group cannot multicast, or ''."""
    if group.generation not in nccl()["nvls_more_than"]:
        return "NVLS needs NVSwitch of Hopper or later"
    if not group.scale_up:
        return "NVLS needs an NVSwitch"
    least = int(nccl()["nvls_more_than"][group.generation])
    if group.ranks_per_node <= least:
        return f"NVLS is used above {least} GPUs of a domain"
    return ""


def _one_domain(op: Op, group: Group, sharp: bool) -> str:
    return "NVLS stays inside one domain" if group.nodes > 1 else missing(group)


def _steps(op: Op, protocol: str, group: Group, path: Path) -> float:
    return step_latency("nvlink", "nvls", protocol)


def _inside(op: Op, protocol: str, group: Group) -> float:
    return multicast_rate(op, group, max(2, channels_of(group)))


def _nothing(op: Op, group: Group) -> float:
    return 0.0


def _up_and_down(fabric: Fabric, groups: Sequence[Communicator], op: Op, pxn: bool) -> Traffic:
    """Each GPU sends and receives S once: a shift by one rank loads the scale-up lanes alike."""
    from railwright.traffic.rings import rings

    return rings(fabric, groups, [1.0] * len(groups), pxn)


def _several_domains(op: Op, group: Group, sharp: bool) -> str:
    return "NVLSTree joins several domains" if group.nodes == 1 else missing(group)


def tree_steps(op: Op, protocol: str, group: Group, path: Path) -> float:
    """Latency of NVLSTree: one multicast and 2 log2(nodes) network steps. [s]

    Source: NCCL 2.30 src/graph/tuning.cc ncclTopoTuneModel, NVLS_TREE.
    """
    outer = step_latency("net", "nvlstree", protocol) + path.worst
    return step_latency("nvlink", "nvlstree", protocol) + 2 * depth(group) * outer


def _tree_inside(op: Op, protocol: str, group: Group) -> float:
    return multicast_rate(op, group, max(2, group.nics))


def _across(fabric: Fabric, groups: Sequence[Communicator], op: Op, pxn: bool) -> Traffic:
    from railwright.traffic.trees import tree_across

    return join([tree_across(fabric, comm, 1.0) for comm in groups])


def nominal_channel_limit(group: Group) -> float:
    """busbw that NCCL's tuner grants NVLSTree, for choosing only. [byte/s]

    Source: NCCL 2.30 src/graph/tuning.cc, perChMaxNVLSTreeBws; measured plateaus exceed it by 0-5 %.
    """
    return group.nics * by_nodes("channel_max_nvlstree", group.generation, group.nodes)


NVLS = Algorithm(
    "nvls",
    ("all_reduce", "all_gather", "reduce_scatter"),
    ("simple",),
    _one_domain,
    _steps,
    _inside,
    ring_wire,
    _nothing,
    _up_and_down,
)
NVLS_TREE = Algorithm(
    "nvlstree",
    ("all_reduce",),
    ("simple",),
    _several_domains,
    tree_steps,
    _tree_inside,
    ring_wire,
    tree_per_nic,
    _across,
)
