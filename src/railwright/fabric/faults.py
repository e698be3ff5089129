"""What is broken or slow: capacities lowered, and GPUs moved to another NIC when theirs is dead.

NCCL uses the NICs that are up when it starts, so a GPU whose NIC has no link sends through another NIC of
its server: it does not stand still, it shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Floats, Ints, Kind, Role, server_name
from railwright.fabric.names import find_devices
from railwright.spec.study import Fault
from railwright.units import number

INSTEAD = "mend it, or name other servers in `servers` (which counts from 0)"
"""What the user of a job can do that takes a server that cannot join."""


def apply_faults(fabric: Fabric, faults: Sequence[Fault], left_out: Sequence[int] = ()) -> Fabric:
    """The fabric with the links of each faulty element failed (capacity 0) or slowed, both directions.

    A slow element still carries `rate` per cable.  A slow server is slow on its network cables only.
    GPUs whose NIC has no live way to a leaf send through the live NICs of their server, spread evenly; each
    such GPU gets a PCIe lane to its new NIC, appended after all other cables, so link numbers do not move.
    Raises PlanError for an unknown element, a slow one without a rate, and when a GPU is left out: its server
    has no live NIC, or the GPU itself has failed.

    left_out  servers (from 0) that the job does without: they are neither refused nor moved
    """
    if not faults:
        return fabric
    capacity = _after(fabric, faults)
    notes = [f"fault: {f.element} {f.state}" for f in faults]
    broken = replace(fabric, capacity=capacity)
    if _between(broken) != _between(fabric) and (parts := _parts(broken)) > (before := _sound_parts(fabric)):
        notes.append(
            f"the switches now fall into {parts} parts instead of {before}: GPUs under different parts reach "
            "each other only through the scale-up domain of a server (PXN), or not at all"
        )
    return _move_gpus(replace(broken, notes=(*fabric.notes, *notes)), left_out)


def with_study_faults(fabric: Fabric, faults: Sequence[Fault]) -> Fabric:
    """The fabric after the faults of a study, with the servers that cannot join any more in `lost`.

    Raises PlanError as `apply_faults` does, of servers only where none can join.
    """
    lost = lost_servers(fabric, faults)
    if not lost or len(lost) == fabric.num_servers:
        return apply_faults(fabric, faults)
    broken = apply_faults(fabric, faults, lost)
    note = f"{_named(lost)} cannot join, {_why_lost(broken, lost[0])}: what would take it is refused"
    return replace(broken, lost=tuple(lost), notes=(*broken.notes, note))


def check_joins(fabric: Fabric, gpus: Ints, who: str, instead: str) -> None:
    """Refuse GPUs of servers that cannot join (PlanError).

    who      what takes the GPUs
    instead  what its user can do
    """
    if not fabric.lost:
        return
    taken = np.intersect1d(fabric.server[gpus], fabric.lost).tolist()
    if taken:
        raise PlanError(
            f"{who}: {_named(taken)} cannot join, {_why_lost(fabric, taken[0])} (cluster.faults); {instead}."
        )


def _named(servers: Sequence[int]) -> str:
    """The first of some servers, and how many others."""
    more = f" and {number(len(servers) - 1, 'more server')}" if len(servers) > 1 else ""
    return server_name(servers[0]) + more


def _why_lost(fabric: Fabric, server: int) -> str:
    silent = _dead_gpus(fabric)
    dead = silent[fabric.server[silent] == server]
    if len(dead):
        return f"where every link of {_gpus(fabric, dead.tolist())} has failed"
    return "where no NIC has a live way to a leaf"


def _gpus(fabric: Fabric, gpus: Sequence[int]) -> str:
    return fabric.device_name(gpus[0]) + (f" and {len(gpus) - 1} more" if len(gpus) > 1 else "")


def lost_servers(fabric: Fabric, faults: Sequence[Fault]) -> list[int]:
    """Servers (from 0) that cannot join once the faults have struck: no live NIC, or a GPU without a link.

    With these as `left_out`, `apply_faults` refuses none of them.
    """
    broken = replace(fabric, capacity=_after(fabric, faults))
    reached = np.unique(fabric.server[fabric.devices(Kind.NIC)[live_nics(broken)]])
    silent = np.unique(fabric.server[_dead_gpus(broken)])
    cut_off = np.setdiff1d(np.arange(fabric.num_servers), reached)
    return [int(server) for server in np.union1d(cut_off, silent)]


def live_nics(fabric: Fabric) -> NDArray[np.bool_]:
    """(NICs,) whether each NIC has a live cable to a leaf and a live lane to a GPU."""
    nics = fabric.devices(Kind.NIC)
    alive = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2]) > 0
    ways = np.bincount(fabric.a[alive & (fabric.role == Role.NODE_LEAF)], minlength=fabric.num_devices)
    lanes = np.bincount(fabric.b[alive & (fabric.role == Role.PCIE)], minlength=fabric.num_devices)
    return (ways[nics] > 0) & (lanes[nics] > 0)


def _after(fabric: Fabric, faults: Sequence[Fault]) -> Floats:
    """(L,) capacity that the faults leave."""
    capacity = fabric.capacity.copy()
    for place, fault in enumerate(faults):
        try:
            cables, left = _cables_of(fabric, fault), _left(fault)
        except PlanError as refusal:
            raise refusal.within(f"faults.{place}") from None
        links = np.concatenate([2 * cables, 2 * cables + 1])
        capacity[links] = np.minimum(capacity[links], left)
    return capacity


def _left(fault: Fault) -> float:
    if fault.state == "failed":
        return 0.0
    if fault.rate is None:
        raise PlanError(
            f"fault '{fault.element}' is slow but says no rate; write what a port of it still carries, "
            "as rate: 100 Gb/s"
        )
    return fault.rate


def _cables_of(fabric: Fabric, fault: Fault) -> Ints:
    """The cables that a fault strikes, kept for each fabric: sets of failures share their elements."""
    kept = _STRUCK.setdefault(fabric, {})
    key = fault.element, fault.state
    if key not in kept:
        kept[key] = _struck(fabric, fault)
    return kept[key]


_STRUCK: WeakKeyDictionary[Fabric, dict[tuple[str, str], Ints]] = WeakKeyDictionary()


def _struck(fabric: Fabric, fault: Fault) -> Ints:
    devices, port = find_devices(fabric, fault.element)
    at_a, at_b = np.isin(fabric.a, devices), np.isin(fabric.b, devices)
    if port:
        at_a &= fabric.port_a == port
        at_b &= fabric.port_b == port
    touched = at_a | at_b
    if len(devices) > 1 and fault.state == "slow":
        touched &= fabric.role == Role.NODE_LEAF
    return np.flatnonzero(touched).astype(np.int32)


def _sound_parts(fabric: Fabric) -> int:
    """`_parts` of a fabric before its faults, kept for it."""
    if fabric not in _PARTS:
        _PARTS[fabric] = _parts(fabric)
    return _PARTS[fabric]


_PARTS: WeakKeyDictionary[Fabric, int] = WeakKeyDictionary()


def _between(fabric: Fabric) -> bytes:
    """Which cables between switches are alive: while these are, the switches fall into no more parts."""
    alive = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2]) > 0
    return (alive & (fabric.role >= Role.LEAF_SPINE)).tobytes()


def _parts(fabric: Fabric) -> int:
    """Separate networks that the leaves with a live server cable fall into."""
    first = int(fabric.devices(Kind.LEAF)[0])
    alive = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2]) > 0
    between = np.flatnonzero(alive & (fabric.role >= Role.LEAF_SPINE))
    a, b = fabric.a[between] - first, fabric.b[between] - first
    size = fabric.num_devices - first
    # Here, not above: loading it takes longer than building a sound fabric.
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import connected_components

    _, part = connected_components(csr_array(coo_array((np.ones(len(a)), (a, b)), shape=(size, size))))
    in_use = fabric.b[alive & (fabric.role == Role.NODE_LEAF)] - first
    return len(np.unique(part[in_use]))


def _move_gpus(fabric: Fabric, left_out: Sequence[int]) -> Fabric:
    """Give the GPUs of dead NICs a live one of their server."""
    stays = ~np.isin(fabric.server[: fabric.num_gpus], left_out)
    _check_gpus(fabric, stays)
    nics = fabric.devices(Kind.NIC)
    first = int(nics[0])
    alive = live_nics(fabric)
    stranded = np.flatnonzero(~alive[fabric.nic_of_gpu - first] & stays)
    if not len(stranded):
        return fabric
    per_server = len(nics) // fabric.num_servers
    nic_of_gpu = fabric.nic_of_gpu.copy()
    notes: list[str] = []
    for server in np.unique(fabric.server[stranded]):
        live = np.flatnonzero(alive[server * per_server : (server + 1) * per_server])
        gpus = stranded[fabric.server[stranded] == server]
        if not len(live):
            raise PlanError(
                f"{server_name(server)} has no live NIC left, so its {fabric.gpus_per_server} GPUs cannot "
                "join: mend one of its NICs, ports or leaves, or plan without this server",
                "faults",
            )
        # Start beside the dead NIC: NCCL prefers the nearest one, and neighbours are nearest on every server.
        start = int(np.searchsorted(live, nic_of_gpu[gpus[0]] - first - server * per_server))
        turn = (start + np.arange(len(gpus))) % len(live)
        nic_of_gpu[gpus] = nics[server * per_server + live[turn]]
    moved = np.unique(fabric.server[stranded])
    dead = nics[~alive & ~np.isin(fabric.server[nics], left_out)]
    notes.append(
        f"{len(stranded)} GPU(s) on {len(moved)} server(s) send through another NIC of their server, because "
        f"{len(dead)} NIC(s) have no live way to a leaf (first: {fabric.device_name(int(dead[0]))})"
    )
    return _with_lanes(replace(fabric, nic_of_gpu=nic_of_gpu, notes=(*fabric.notes, *notes)), stranded)


def _dead_gpus(fabric: Fabric) -> NDArray[np.intp]:
    """GPUs that cannot send at all."""
    alive = fabric.capacity[0::2] > 0
    inside = (fabric.role == Role.SCALE_UP) | (fabric.role == Role.PCIE)
    ways = np.bincount(fabric.a[alive & inside], minlength=fabric.num_devices)[: fabric.num_gpus]
    return np.flatnonzero(ways == 0)


def _check_gpus(fabric: Fabric, stays: NDArray[np.bool_]) -> None:
    """Refuse a fabric with a GPU of the job that cannot send at all."""
    silent = _dead_gpus(fabric)
    if dead := silent[stays[silent]].tolist():
        raise PlanError(
            f"{_gpus(fabric, dead)} cannot join: every link of it has failed; mend one, or plan without that "
            "server",
            "faults",
        )


def _with_lanes(fabric: Fabric, gpus: NDArray[np.intp]) -> Fabric:
    """Append a PCIe lane from each GPU to its new NIC, where it has none yet."""
    lanes = np.flatnonzero(fabric.role == Role.PCIE)
    have = set(zip(fabric.a[lanes].tolist(), fabric.b[lanes].tolist(), strict=True))
    gpus = np.array([g for g in gpus.tolist() if (g, int(fabric.nic_of_gpu[g])) not in have], dtype=np.intp)
    count = len(gpus)
    rate: Floats = np.full(count, fabric.rate[lanes[0]])
    zeros = np.zeros(count, np.int32)
    return replace(
        fabric,
        a=np.concatenate([fabric.a, gpus.astype(np.int32)]),
        b=np.concatenate([fabric.b, fabric.nic_of_gpu[gpus]]),
        port_a=np.concatenate([fabric.port_a, zeros]),
        port_b=np.concatenate([fabric.port_b, zeros]),
        rate=np.concatenate([fabric.rate, rate]),
        length=np.concatenate([fabric.length, np.zeros(count)]),
        role=np.concatenate([fabric.role, np.full(count, Role.PCIE, np.int32)]),
        capacity=np.concatenate([fabric.capacity, np.repeat(rate, 2)]),
    )
