"""The blast radius of one element or of a named group: the fabric with it and without it, compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from railwright.audit.result import Blast
from railwright.audit.survey import Survey, survey
from railwright.audit.ways import flow_between
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Role
from railwright.fabric.names import find_devices

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

TIERS = ((Role.NODE_LEAF, "node-leaf"), (Role.LEAF_SPINE, "leaf-spine"), (Role.SPINE_CORE, "spine-core"))


def blast_radius(fabric: Fabric, elements: str | Sequence[str], name: str = "") -> Blast:
    """What is lost with one element ('leaf-03', 'server-07/nic-2', 'leaf-03 port 37') or with all of several.

    name  of a group (a power feed, a rack); the elements joined by commas when left out
    Raises PlanError for an element the fabric does not have, and for a group of none.
    """
    listed = [elements] if isinstance(elements, str) else list(elements)
    if not listed:
        raise PlanError(
            f"group '{name}' names no device, so nothing is lost with it; "
            "list its devices as in the drawing, for example 'leaf-03' or 'server-07'"
        )
    gone = np.zeros(fabric.num_devices, bool)
    lost = np.zeros(fabric.num_cables, bool)
    for element in listed:
        devices, port = _find(fabric, element)
        at_a, at_b = np.isin(fabric.a, devices), np.isin(fabric.b, devices)
        if port:
            lost |= (at_a & (fabric.port_a == port)) | (at_b & (fabric.port_b == port))
        else:
            lost |= at_a | at_b
            gone[devices] = True
    return compare(survey(fabric), lost, gone, name or ", ".join(listed))


def compare(before: Survey, lost: Bools, gone: Bools, name: str) -> Blast:
    """What the loss of the cables marked in `lost` (C,) and devices marked in `gone` (N,) costs."""
    fabric = before.fabric
    after = survey(fabric, lost)
    server = before.nic_server()
    servers = fabric.num_servers
    had = np.bincount(server[before.nic_alive], minlength=servers)
    has = np.bincount(server[after.nic_alive], minlength=servers)
    cut_server = (had > 0) & (has == 0)

    gpu_server = fabric.server[: fabric.num_gpus]
    could, can = _gpu_works(before), _gpu_works(after) & ~gone[: fabric.num_gpus]
    nic = fabric.nic_of_gpu - before.first_nic
    cut = could & (had[gpu_server] > 0) & (~can | (has[gpu_server] == 0))
    lost_nic = before.nic_alive[nic] & ~after.nic_alive[nic]
    slower = _nic_bandwidth(after)[nic] < _nic_bandwidth(before)[nic]
    apart = _apart(after) & ~_apart(before) & ~cut_server
    network = fabric.role >= Role.NODE_LEAF
    return Blast(
        element=name,
        cables=int(np.count_nonzero(network & (before.rate > 0) & (after.rate <= 0))),
        gpus_cut=int(cut.sum()),
        gpus_moved=int((could & ~cut & lost_nic).sum()),
        gpus_slowed=int((could & ~cut & ~lost_nic & slower).sum()),
        servers_cut=int(cut_server.sum()),
        servers_apart=int(apart.sum()),
        rails_lost=int((had - has)[has > 0].max(initial=0)),
        leaf_pairs_cut=_leaf_pairs(before) - _leaf_pairs(after),
        bandwidth_lost=tuple(_bandwidth_lost(before, after)),
        worst_pair=_worst_pair(before, after),
    )


def _find(fabric: Fabric, element: str) -> tuple[NDArray[np.int32], int]:
    try:
        return find_devices(fabric, element)
    except PlanError as refusal:
        # The names' own refusal speaks of a study's faults; here nothing has failed yet.
        raise PlanError(str(refusal).replace("fault '", "element '", 1)) from None


def _gpu_works(survey: Survey) -> Bools:
    """(G,) whether a GPU has a live lane to its scale-up switch or to a NIC."""
    fabric = survey.fabric
    inside = (fabric.role == Role.SCALE_UP) | (fabric.role == Role.PCIE)
    if not inside.any():
        return np.ones(fabric.num_gpus, bool)
    lanes = np.bincount(survey.low[inside & (survey.rate > 0)], minlength=fabric.num_devices)
    works: Bools = lanes[: fabric.num_gpus] > 0
    return works


def _nic_bandwidth(survey: Survey) -> Floats:
    """(K,) live bandwidth of each NIC's cables [byte/s]."""
    hung = np.flatnonzero(survey.fabric.role == Role.NODE_LEAF)
    nic = survey.low[hung] - survey.first_nic
    return np.bincount(nic, survey.rate[hung], minlength=survey.num_nics).astype(np.float64)


def _apart(survey: Survey) -> Bools:
    """(servers,) servers with a live NIC outside the largest set of servers that the network joins.

    Two servers are joined when a NIC of one reaches a NIC of the other, or over servers joined so in turn.
    """
    servers, parts = survey.fabric.num_servers, int(survey.part.max(initial=-1)) + 1
    usable = survey.nic_alive[survey.nic]
    server = survey.nic_server()[survey.nic[usable]]
    part = survey.part[survey.leaf[usable]]
    size = servers + parts
    graph = csr_array(coo_array((np.ones(len(server)), (server, servers + part)), shape=(size, size)))
    _, label = connected_components(graph, directed=False)
    has = np.bincount(server, minlength=servers) > 0
    if not has.any():
        return has
    largest = int(np.argmax(np.bincount(label[:servers][has])))
    apart: Bools = has & (label[:servers] != largest)
    return apart


def _leaf_pairs(survey: Survey) -> int:
    """Pairs of leaves with servers that are joined."""
    served = np.unique(survey.leaf)
    size = np.bincount(survey.part[served]).astype(np.int64)
    return int((size * (size - 1) // 2).sum())


def _bandwidth_lost(before: Survey, after: Survey) -> list[tuple[str, float]]:
    found = []
    for role, name in TIERS:
        of_tier = before.fabric.role == role
        whole = float(before.rate[of_tier].sum())
        if whole > 0:
            found.append((name, 1.0 - float(after.rate[of_tier].sum()) / whole))
    return found


def _worst_pair(before: Survey, after: Survey) -> tuple[str, str, float, float] | None:
    """The two joined leaves that keep servers and lose most uplink bandwidth, alone on the network."""
    lost = _uplinks(before) - _uplinks(after)
    stays = np.intersect1d(np.unique(before.leaf), np.unique(after.leaf))
    stays = stays[np.argsort(-lost[stays], kind="stable")]
    if not len(stays) or lost[stays[0]] <= 0:
        return None
    one = int(stays[0])
    others = stays[1:][before.part[stays[1:]] == before.part[one]]
    if not len(others):
        return None
    other = int(others[0])
    flows = []
    for state in (before, after):
        graph, unit = _capacities(state)
        flows.append(flow_between(graph, one, other) * unit)
    return before.switch_name(one), before.switch_name(other), flows[0], flows[1]


def _uplinks(survey: Survey) -> Floats:
    """(S,) live bandwidth between each switch and other switches [byte/s]."""
    network = np.flatnonzero(survey.fabric.role > Role.NODE_LEAF)
    ends = np.concatenate([survey.low[network], survey.high[network]]) - survey.first_switch
    rate = np.tile(survey.rate[network], 2)
    return np.bincount(ends, rate, minlength=survey.num_switches).astype(np.float64)


def _capacities(survey: Survey) -> tuple[csr_array, float]:
    """Bandwidth between each two switches as whole multiples of a unit [byte/s], and that unit.

    The unit is the rates' common divisor, or a part in 2^30 of their sum where that is not a whole number.
    """
    network = np.flatnonzero((survey.fabric.role > Role.NODE_LEAF) & (survey.rate > 0))
    rate = survey.rate[network]
    whole = np.rint(rate).astype(np.int64)
    unit = float(np.gcd.reduce(whole)) if len(whole) and np.array_equal(whole, rate) else 0.0
    if len(rate) and (not unit or 2 * rate.sum() / unit > 2**30):
        unit = 2 * float(rate.sum()) / 2**30
    a, b = survey.low[network] - survey.first_switch, survey.high[network] - survey.first_switch
    ends = (np.concatenate([a, b]), np.concatenate([b, a]))
    units = np.tile(np.rint(rate / unit), 2) if len(rate) else np.zeros(0)
    graph = csr_array(coo_array((units, ends), shape=(survey.num_switches,) * 2))
    graph.sum_duplicates()
    return graph, unit
