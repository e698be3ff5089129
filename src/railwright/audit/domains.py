"""Fault domains: every class of device and cable, by what its costliest member takes with it.

One depth-first search over servers and switches finds each switch, cable and NIC that alone holds servers to
the rest; counting finds what NICs hang on each leaf.  Only the costliest member of each class is then removed
and compared in full.

Legend: K NICs, S switches, M nodes of the search: servers, then switches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from railwright.audit.blast import blast_radius, compare
from railwright.audit.cuts import Cuts, cuts
from railwright.audit.result import FaultDomain
from railwright.audit.survey import Survey, survey
from railwright.fabric.graph import Fabric, Kind, Role

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CABLES = (
    (Role.NODE_LEAF, "node-leaf cable"),
    (Role.LEAF_SPINE, "leaf-spine cable"),
    (Role.SPINE_CORE, "spine-core cable"),
)


def fault_domains(
    fabric: Fabric, groups: Mapping[str, Sequence[str]] | None = None
) -> tuple[FaultDomain, ...]:
    """Every class of devices and cables that still carry something, the one that can cost most first.

    groups  name -> devices that fail together, such as all that one power feed supplies; each is listed
    Raises PlanError for a group that names a device the fabric does not have.
    """
    before = survey(fabric)
    found = _cuts(before)
    every = [*_switches(before, found), *_servers(before, found), *_nics(before, found)]
    every += _cables(before, found)
    for name, elements in (groups or {}).items():
        blast = blast_radius(fabric, elements, name)
        every.append(FaultDomain("group", len(elements), int(_fatal(blast.rank)), blast))
    return tuple(sorted(every, key=lambda domain: domain.worst.rank, reverse=True))


def _fatal(rank: tuple[float, ...]) -> bool:
    return rank[0] > 0 or rank[1] > 0


def _cuts(before: Survey) -> Cuts:
    """Cuts of the graph of servers and switches, where servers count one each."""
    servers = before.fabric.num_servers
    usable = before.nic_alive[before.nic]
    server = before.nic_server()[before.nic[usable]]
    leaf = servers + before.leaf[usable]
    whole = coo_array(before.meshed)
    rows = np.concatenate([server, leaf, servers + whole.row])
    columns = np.concatenate([leaf, server, servers + whole.col])
    size = servers + before.num_switches
    graph = csr_array(coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size)))
    graph.sum_duplicates()
    weight = np.concatenate([np.ones(servers, np.int64), np.zeros(before.num_switches, np.int64)])
    return cuts(graph.indptr.tolist(), graph.indices.tolist(), weight.tolist())


def _switches(before: Survey, found: Cuts) -> list[FaultDomain]:
    fabric = before.fabric
    off = np.array(found.node[fabric.num_servers :], np.int64)
    moved = _gpus_on_leaf(before)
    carried = _carried(before)
    domains = []
    for kind in (Kind.LEAF, Kind.SPINE, Kind.CORE):
        here = fabric.devices(kind).astype(np.int64) - before.first_switch
        here = here[carried[here] > 0]
        if len(here):
            worst = here[np.lexsort((here, -carried[here], -moved[here], -off[here]))[0]]
            device = before.first_switch + int(worst)
            fatal = int(np.count_nonzero(off[here]))
            domains.append(_domain(before, kind.name.lower(), len(here), fatal, device))
    return domains


def _servers(before: Survey, found: Cuts) -> list[FaultDomain]:
    """Losing a server takes its own GPUs; here a server is fatal when others depend on it as well."""
    fabric = before.fabric
    off = np.array(found.node[: fabric.num_servers], np.int64)
    gpus = np.bincount(fabric.server[: fabric.num_gpus], minlength=fabric.num_servers)
    has = np.bincount(before.nic_server()[before.nic_alive], minlength=fabric.num_servers) > 0
    here = np.flatnonzero(has)
    if not len(here):
        return []
    worst = int(here[np.lexsort((here, -off[here], -gpus[here]))[0]])
    devices = fabric.server == worst
    lost = devices[fabric.a] | devices[fabric.b]
    name = fabric.device_name(int(np.flatnonzero(devices)[0])).split("/")[0]
    return [
        FaultDomain(
            "server", len(here), int(np.count_nonzero(off[here])), compare(before, lost, devices, name)
        )
    ]


def _nics(before: Survey, found: Cuts) -> list[FaultDomain]:
    fabric = before.fabric
    here = np.flatnonzero(before.nic_alive)
    if not len(here):
        return []
    off = _off_with_nic(before, found)
    users = np.bincount(fabric.nic_of_gpu - before.first_nic, minlength=before.num_nics)
    worst = int(here[np.lexsort((here, -users[here], -off[here]))[0]])
    fatal = int(np.count_nonzero(off[here]))
    return [_domain(before, "nic", len(here), fatal, before.first_nic + worst)]


def _cables(before: Survey, found: Cuts) -> list[FaultDomain]:
    fabric = before.fabric
    servers = fabric.num_servers
    off_nic = _off_with_nic(before, found)
    live_cables = np.bincount(before.nic, minlength=before.num_nics)
    domains = []
    for role, name in CABLES:
        here = np.flatnonzero((fabric.role == role) & (before.rate > 0))
        if not len(here):
            continue
        off = np.zeros(len(here), np.int64)
        if role is Role.NODE_LEAF:
            nic = before.low[here] - before.first_nic
            off = np.where(live_cables[nic] == 1, off_nic[nic], 0)
            moved = np.where(
                live_cables[nic] == 1,
                np.bincount(fabric.nic_of_gpu - before.first_nic, minlength=before.num_nics)[nic],
                0,
            )
        else:
            moved = off
            low, high = before.low[here] - before.first_switch, before.high[here] - before.first_switch
            size = before.num_switches
            _, where, bundle = np.unique(low * size + high, return_inverse=True, return_counts=True)
            for i in np.flatnonzero(bundle[where] == 1).tolist():
                one, other = servers + int(low[i]), servers + int(high[i])
                off[i] = found.bridges.get((one, other), found.bridges.get((other, one), 0))
        worst = int(here[np.lexsort((here, -before.rate[here], -moved, -off))[0]])
        lost = np.zeros(fabric.num_cables, bool)
        lost[worst] = True
        label = fabric.link_name(2 * worst).replace(" -> ", " - ")
        blast = compare(before, lost, np.zeros(fabric.num_devices, bool), label)
        domains.append(FaultDomain(name, len(here), int(np.count_nonzero(off)), blast))
    return domains


def _domain(before: Survey, what: str, members: int, fatal: int, device: int) -> FaultDomain:
    fabric = before.fabric
    gone = np.zeros(fabric.num_devices, bool)
    gone[device] = True
    lost = gone[fabric.a] | gone[fabric.b]
    return FaultDomain(what, members, fatal, compare(before, lost, gone, fabric.device_name(device)))


def _gpus_on_leaf(before: Survey) -> Ints:
    """(S,) GPUs whose NIC has no live leaf but this one."""
    fabric = before.fabric
    pairs = np.unique(before.nic * before.num_switches + before.leaf)
    nic, leaf = pairs // before.num_switches, pairs % before.num_switches
    leaves = np.bincount(nic, minlength=before.num_nics)
    users = np.bincount(fabric.nic_of_gpu - before.first_nic, minlength=before.num_nics)
    counted = np.where(leaves[nic] == 1, users[nic], 0) * before.nic_alive[nic]
    return np.bincount(leaf, counted, minlength=before.num_switches).astype(np.int64)


def _carried(before: Survey) -> NDArray[np.float64]:
    """(S,) live bandwidth of all cables at each switch [byte/s]."""
    network = np.flatnonzero(before.fabric.role >= Role.NODE_LEAF)
    ends = np.concatenate([before.low[network], before.high[network]]) - before.first_switch
    rate = np.tile(before.rate[network], 2)
    kept = ends >= 0
    return np.bincount(ends[kept], rate[kept], minlength=before.num_switches).astype(np.float64)


def _off_with_nic(before: Survey, found: Cuts) -> Ints:
    """(K,) servers that are no longer joined to the rest once the NIC is gone."""
    fabric = before.fabric
    server = before.nic_server()
    alive = np.bincount(server[before.nic_alive], minlength=fabric.num_servers)
    off: Ints = (before.nic_alive & (alive[server] == 1)).astype(np.int64)
    usable = before.nic_alive[before.nic]
    nic, leaf = before.nic[usable], before.leaf[usable]
    size = before.num_switches
    each = np.unique(nic * size + leaf)
    nic, leaf = each // size, each % size
    pair = server[nic] * size + leaf
    _, where, sharing = np.unique(pair, return_inverse=True, return_counts=True)
    for i in np.flatnonzero(sharing[where] == 1).tolist() if found.bridges else []:
        one, other = int(server[nic[i]]), fabric.num_servers + int(leaf[i])
        off[nic[i]] = max(off[nic[i]], found.bridges.get((one, other), found.bridges.get((other, one), 0)))
    return off
