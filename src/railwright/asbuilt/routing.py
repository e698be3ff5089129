"""Forwarding tables of a real or simulated subnet on a fabric's own links.

Legend: S switches of the fabric in order of device id, D cables between NICs and leaves in order of cable id:
the rows and columns of `network.Tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from railwright.asbuilt.compare_plan import label, listed
from railwright.asbuilt.fabric import fabric_names
from railwright.asbuilt.forwarding import NO_PORT, ForwardingTables
from railwright.asbuilt.infer_machine import Inferred
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.fabric.names import device_names

Ints = NDArray[np.int32]
Owners = Mapping[str, tuple[int, int]]
"""GUID, '0x%016x' -> (device id, its port); port 0 for a switch."""

NO_LINK = -1
"""No route, or none that leaves by a cable of the fabric."""


def out_links(tables: ForwardingTables, fabric: Fabric, owners: Owners) -> tuple[Ints, tuple[str, ...]]:
    """(S, D) directed link by which each switch sends to each NIC port, and what could not be placed.

    owners  whose GUIDs are whose: `machine_owners`, or those of an export
    Raises PlanError when not one switch or not one NIC port of the tables is of this fabric.
    """
    first = int(np.searchsorted(fabric.kind, Kind.LEAF))
    lid_of = _lids(tables, owners)
    by_port = _links_by_port(fabric)
    cables = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    ends = zip(fabric.a[cables].tolist(), fabric.port_a[cables].tolist(), strict=True)
    lids = np.array([lid_of.get(end, 0) for end in ends], dtype=np.int64)
    out = np.full((fabric.num_devices - first, len(cables)), NO_LINK, np.int32)
    known = np.flatnonzero(lids > 0)
    strangers: list[str] = []
    loose = 0
    placed = 0
    for key, row in tables.ports.items():
        device, _ = owners.get(key, (-1, 0))
        if device < first:
            strangers.append(tables.names.get(key) or key)
            continue
        placed += 1
        told = np.full(len(known), NO_PORT, np.int64)
        within = lids[known] < len(row)
        told[within] = row[lids[known][within]]
        link = np.where(
            (told >= 0) & (told < by_port.shape[1]),
            by_port[device][np.minimum(told, by_port.shape[1] - 1)],
            -1,
        )
        loose += int(np.count_nonzero((told > 0) & (link < 0)))
        out[device - first, known] = link
    if not placed or not len(known):
        what = "switches" if not placed else "adapters"
        raise PlanError(
            f"{tables.source}: none of its {len(tables.ports) if not placed else len(tables.keys)} {what} is "
            "of this fabric, by GUID; give the `ibnetdiscover` dump of the same machine as well"
        )
    notes = [*tables.notes]
    if strangers:
        notes.append(f"tables of {len(strangers)} switches that the fabric has not: {listed(strangers)}")
    if loose:
        notes.append(
            f"{loose} entries leave by a port that has no cable in this fabric; they count as no route"
        )
    return out, tuple(notes)


def gaps(fabric: Fabric, out: Ints) -> tuple[str, ...]:
    """Switches without any table and live NIC ports without any route, one sentence each."""
    first = fabric.num_devices - len(out)
    names = device_names(fabric)
    cables = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    alive = (fabric.capacity[2 * cables] > 0) & (fabric.capacity[2 * cables + 1] > 0)
    has = (out >= 0).any(axis=1)
    silent = [names[first + s] for s in np.flatnonzero(~has).tolist()]
    unknown = [
        f"{names[int(fabric.a[c])]} port {int(fabric.port_a[c])}"
        for c in cables[alive & ~(out >= 0).any(axis=0)].tolist()
    ]
    told = []
    if silent:
        told.append(f"{len(silent)} switches have no table: {listed(silent)}")
    if unknown:
        told.append(f"{len(unknown)} live NIC ports have no LID or no route anywhere: {listed(unknown)}")
    return tuple(told)


def machine_owners(machine: Inferred, fabric: Fabric) -> dict[str, tuple[int, int]]:
    """Whose GUID is whose, for the fabric that `to_fabric(machine)` gave; port p of an adapter has the key
    of its first port and p - 1.

    Raises PlanError for a dump that names devices without GUIDs.
    """
    device = {name: i for i, name in enumerate(device_names(fabric))}
    known = {dump: device[ours] for ours, dump in fabric_names(machine, fabric).items() if ours in device}
    owners: dict[str, tuple[int, int]] = {}
    for node in machine.wiring.nodes:
        at = known.get(label(node))
        if at is None or not node.key.startswith("0x"):
            continue
        if node.kind == "host":
            for port in range(1, max(node.ports, 1) + 1):
                owners.setdefault(f"0x{int(node.key, 16) + port - 1:016x}", (at, port))
        elif node.kind == "switch":
            owners[node.key] = at, 0
    if not owners:
        raise PlanError(
            f"{machine.wiring.source} has no GUIDs, by which forwarding tables name switches and adapters; "
            "take `ibnetdiscover` of the same machine"
        )
    return owners


def with_lids(tables: ForwardingTables, machine: Inferred) -> ForwardingTables:
    """The tables with the LIDs that a dump of the machine tells, where they do not say themselves whose
    LID is whose (`ibroute -n`)."""
    told = {node.lid: node.key for node in machine.wiring.nodes if node.lid and node.key.startswith("0x")}
    return replace(tables, keys={**told, **tables.keys})


def _lids(tables: ForwardingTables, owners: Owners) -> dict[tuple[int, int], int]:
    """(NIC, port) -> its lowest LID."""
    found: dict[tuple[int, int], int] = {}
    for lid in sorted(tables.keys):
        owner = owners.get(tables.keys[lid])
        if owner is not None and owner[1] > 0:
            found.setdefault(owner, lid)
    return found


def _links_by_port(fabric: Fabric) -> Ints:
    """(N, ports) directed link that leaves each device by each port, -1 where no cable is."""
    cables = np.flatnonzero(fabric.role >= Role.NODE_LEAF)
    widest = int(max(fabric.port_a[cables].max(initial=0), fabric.port_b[cables].max(initial=0)))
    table = np.full((fabric.num_devices, widest + 1), NO_LINK, np.int32)
    table[fabric.a[cables], fabric.port_a[cables]] = 2 * cables
    table[fabric.b[cables], fabric.port_b[cables]] = 2 * cables + 1
    table[:, 0] = NO_LINK
    return table
