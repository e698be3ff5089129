"""What a site adds to the bill: racks, PDUs, cords, receptacles, busways, cables and optics; no prices.

Servers and switches are on the fabric's bill (export/bom.py) already; cables are here with planned lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from railwright.site.circuits import RackPower
from railwright.site.connecting import cord_name
from railwright.site.parts import OPTICAL, CableKind
from railwright.site.runs import Runs

if TYPE_CHECKING:
    from railwright.site.plan import SitePlan


@dataclass(frozen=True)
class BillLine:
    """One thing to buy.  item: its class; part: which; source: where the part's figures come from."""

    item: str
    part: str
    quantity: float
    unit: str
    note: str = ""
    source: str = ""


def bill(plan: SitePlan) -> tuple[BillLine, ...]:
    """Everything the room needs beside servers and switches, like things added up."""
    counts = Counter(id(rack.power) for rack in plan.racks)
    powers = [(power, counts[key]) for key, power in {id(r.power): r.power for r in plan.racks}.items()]
    lines = [*_racks(plan), *_circuits(powers), *_cords(powers), *_busways(plan)]
    for run in plan.runs.values():
        lines += [*_cables(run), *_modules(run, plan.parts.media)]
    return tuple(_added(lines))


def _racks(plan: SitePlan) -> list[BillLine]:
    kind = plan.parts.racks[_rack_name(plan)]
    # A rack-scale server comes with its rack and its shelves.
    own = sum(1 for rack in plan.racks if all(circuit.banks for circuit in rack.power.circuits))
    lines = [BillLine("rack", kind.name, own, "pieces", kind.title, kind.source)] if own else []
    hosts = Counter(p.part for rack in plan.racks for p in rack.content if p.kind == "host")
    for part, count in sorted(hosts.items()):
        source = plan.parts.machines[part].source
        lines.append(BillLine("host", part, count, "pieces", "storage and management hosts", source))
    return lines


def _rack_name(plan: SitePlan) -> str:
    return plan.site.rack.strip().lower().replace("_", "-").replace(" ", "-")


def _circuits(powers: list[tuple[RackPower, int]]) -> list[BillLine]:
    lines = []
    for power, racks in powers:
        pdu = power.supplying.pdu
        if power.pdus:
            lines.append(BillLine("pdu", pdu.name, power.pdus * racks, "pieces", pdu.title, pdu.source))
        for circuit in power.circuits:
            plug = circuit.plug
            poles = f"{plug.phases if plug.phases == 3 else 2}-pole"
            lines.append(BillLine("receptacle", plug.receptacle, racks, "pieces", plug.title, plug.source))
            lines.append(BillLine("branch breaker", f"{plug.amps:g} A {poles}", racks, "pieces"))
            if not circuit.banks:
                note = "part of a rack-scale server"
                lines.append(BillLine("power shelf", "power shelf", racks, "pieces", note))
    return lines


def _cords(powers: list[tuple[RackPower, int]]) -> list[BillLine]:
    lines = []
    for power, racks in powers:
        for name, count in sorted(Counter(cord_name(cord) for cord in power.cords).items()):
            lines.append(BillLine("cord", name, count * racks, "pieces"))
    return lines


def _busways(plan: SitePlan) -> list[BillLine]:
    if not plan.busways:
        return []
    busway = plan.parts.busways[str(plan.site.power.busway)]
    metres = sum(plan.busways.values()) * plan.floor.racks_per_row * _width(plan)
    taps = sum(len(rack.power.circuits) for rack in plan.racks)
    return [
        BillLine("busway", busway.name, round(metres, 1), "metres", busway.title, busway.source),
        BillLine("tap-off unit", busway.name, taps, "pieces", "one a branch circuit"),
    ]


def _width(plan: SitePlan) -> float:
    return plan.parts.racks[_rack_name(plan)].width


def _cables(run: Runs) -> list[BillLine]:
    lines = []
    first, split = run.pieces.first, run.pieces.split
    for index, kind in enumerate(run.media):
        mine = run.medium[first] == index
        sorts = np.stack([split[mine], run.bought[first[mine]]])
        for (legs, length), count in zip(*np.unique(sorts.T, axis=0, return_counts=True), strict=True):
            item = "fibre cable" if kind.kind in OPTICAL else "cable"
            part, title = f"{kind.name}, {length:g} m", _title(kind)
            if legs > 1:
                item, part, title = (
                    f"breakout {item}",
                    f"{kind.name} 1:{legs:g}, {length:g} m",
                    f"{title}, split",
                )
            lines.append(BillLine(item, part, int(count), "pieces", title, kind.source))
    return lines


def _modules(run: Runs, media: Mapping[str, CableKind]) -> list[BillLine]:
    lines = []
    for modules in run.modules:
        kind = media[modules.medium]
        ports = f"{modules.ports}-port " if modules.ports > 1 else ""
        note = f"{ports}{kind.module}, {modules.watts:g} W"
        part = f"{kind.name}, {modules.ports} ports" if modules.ports > 1 else kind.name
        lines.append(BillLine("transceiver", part, modules.count, "pieces", note, kind.source))
    return lines


def _title(kind: CableKind) -> str:
    return f"{kind.kind}, {kind.rate * 8e-9:g} Gb/s {kind.technology}"


def _added(lines: list[BillLine]) -> list[BillLine]:
    """Lines of the same thing as one, in the order they were first met."""
    total: dict[tuple[str, str], BillLine] = {}
    for line in lines:
        key = line.item, line.part
        before = total[key].quantity if key in total else 0
        total[key] = BillLine(line.item, line.part, before + line.quantity, line.unit, line.note, line.source)
    return list(total.values())
