"""A plan as tables: racks, elevations, circuits, cords, cables, bundles; headers name the units."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from railwright.fabric import Fabric, Role
from railwright.fabric.names import device_names
from railwright.fabric.wired.cables import ROLE_WORDS
from railwright.site.billing import bill
from railwright.site.circuits import feed_name
from railwright.site.connecting import cord_name
from railwright.site.feeding import landing
from railwright.site.runs import Runs, tier_lengths

if TYPE_CHECKING:
    from railwright.site.plan import SitePlan

RACK_COLUMNS = (
    "rack", "kind", "row", "place", "x_m", "y_m", "machines", "units_used", "power_w", "peak_w", "air_w",
    "liquid_w", "air_cfm", "coolant_l_per_min", "pdus",
)  # fmt: skip
ELEVATION_COLUMNS = ("rack", "unit", "units", "machine", "part", "kind", "power_w")
CIRCUIT_COLUMNS = (
    "rack", "circuit", "feed", "phases", "plug", "receptacle", "breaker_a", "limit_a", "line_a_a", "line_b_a",
    "line_c_a", "worst_line_a", "power_w", "worst_power_w",
)  # fmt: skip
CORD_COLUMNS = (
    "rack", "machine", "supply", "feed", "circuit", "bank", "legs", "outlet", "cord", "power_w",
    "worst_power_w",
)  # fmt: skip
CABLE_COLUMNS = (
    "cable", "network", "label_a", "label_b", "rack_a", "rack_b", "role", "rate_gbps", "way_m", "length_m",
    "ordered_m", "medium", "kind", "breakout", "bundle",
)  # fmt: skip
BUNDLE_COLUMNS = ("bundle", "network", "rack_a", "rack_b", "medium", "cables", "longest_m")
BILL_COLUMNS = ("item", "part", "quantity", "unit", "note", "source")


def rack_rows(plan: SitePlan) -> Iterator[tuple[Any, ...]]:
    """One row a rack, as RACK_COLUMNS."""
    for rack, heat in zip(plan.racks, plan.heat, strict=True):
        yield (
            rack.name,
            rack.kind,
            rack.row + 1,
            rack.place + 1,
            round(rack.x, 3),
            round(rack.y, 3),
            len(rack.content),
            sum(placed.units for placed in rack.content),
            round(rack.power.watts),
            round(rack.power.peak),
            round(heat.air),
            round(heat.liquid),
            round(heat.cfm),
            round(heat.litres_per_minute, 1),
            rack.power.pdus,
        )


def elevation_rows(plan: SitePlan) -> Iterator[tuple[Any, ...]]:
    """One row a machine, from the bottom of each rack up, as ELEVATION_COLUMNS."""
    for rack in plan.racks:
        for placed in sorted(rack.content, key=lambda p: p.unit):
            yield rack.name, placed.unit, placed.units, placed.name, placed.part, placed.kind, placed.watts


def power_rows(plan: SitePlan) -> Iterator[tuple[Any, ...]]:
    """One row a branch circuit (PDU or power shelf), as CIRCUIT_COLUMNS."""
    derate = next(iter(plan.racks)).power.supplying.derate
    for index, rack in enumerate(plan.racks):
        phases = "-".join(f"L{phase + 1}" for phase in landing(index))
        for circuit in rack.power.circuits:
            lines = [round(amps, 2) for amps in circuit.lines[0]]
            yield (
                rack.name,
                circuit.name,
                feed_name(circuit.feed),
                phases,
                circuit.plug.title,
                circuit.plug.receptacle,
                circuit.plug.amps,
                circuit.plug.amps * derate,
                *(lines + [""] * 3)[:3],
                round(max(max(of) for of in circuit.lines), 2),
                round(circuit.watts[0]),
                round(max(circuit.watts)),
            )


def cord_rows(plan: SitePlan) -> Iterator[tuple[Any, ...]]:
    """One row a cord, as CORD_COLUMNS."""
    for rack in plan.racks:
        for cord in rack.power.cords:
            circuit = rack.power.circuits[cord.circuit]
            yield (
                rack.name,
                rack.content[cord.machine].name,
                cord.supply + 1,
                feed_name(cord.feed),
                circuit.name,
                cord.bank + 1 or "",
                circuit.banks[cord.bank].bank.legs if circuit.banks else "",
                cord.outlet.upper() if circuit.banks else circuit.plug.receptacle,
                cord_name(cord),
                round(cord.watts[0]),
                round(max(cord.watts)),
            )


def cable_rows(plan: SitePlan) -> Iterator[tuple[Any, ...]]:
    """One row a cable of every network, as CABLE_COLUMNS; a label says the near end first.

    Legs of a breakout cable have a row each, and its number in `breakout`.
    """
    number, offset, splits = 0, 0, 0
    racks = [rack.name for rack in plan.racks]
    for network, run in plan.runs.items():
        fabric = plan.networks[network]
        names = [name if network == "compute" else f"{network}/{name}" for name in device_names(fabric)]
        ends = [c[run.cable].tolist() for c in (fabric.a, fabric.port_a, fabric.b, fabric.port_b)]
        roles, rates = fabric.role[run.cable].tolist(), (fabric.rate[run.cable] * 8e-9).tolist()
        splitter = np.where(run.pieces.split > 1, np.cumsum(run.pieces.split > 1) + splits, 0)[run.pieces.of]
        columns = (
            run.rack_a, run.rack_b, run.way, run.length, run.bought, run.medium, splitter, run.bundle,
        )  # fmt: skip
        for a, port_a, b, port_b, role, rate, *rest in zip(
            *ends, roles, rates, *(c.tolist() for c in columns), strict=True
        ):
            rack_a, rack_b, way, length, bought, medium, breakout, bundle = rest
            number += 1
            near, far, kind = f"{names[a]}:{port_a}", f"{names[b]}:{port_b}", run.media[medium]
            yield (
                f"C{number:06d}",
                network,
                f"{near} > {far}",
                f"{far} > {near}",
                racks[rack_a],
                racks[rack_b],
                ROLE_WORDS[Role(role)],
                round(rate, 6),
                round(way, 2),
                round(length, 2),
                bought,
                kind.kind,
                kind.name,
                f"S{breakout:05d}" if breakout else "",
                f"B{offset + bundle + 1:05d}" if bundle >= 0 else "",
            )
        offset += run.bundles
        splits = max(splits, int(splitter.max(initial=0)))


def bundle_rows(plan: SitePlan) -> Iterator[tuple[Any, ...]]:
    """One row a bundle, as BUNDLE_COLUMNS."""
    offset = 0
    for network, run in plan.runs.items():
        tied = run.bundle >= 0
        count = np.bincount(run.bundle[tied], minlength=run.bundles)
        longest = np.zeros(run.bundles)
        np.maximum.at(longest, run.bundle[tied], run.bought[tied])
        first = np.full(run.bundles, -1, np.int64)
        first[run.bundle[tied][::-1]] = np.flatnonzero(tied)[::-1]
        for number, at in enumerate(first.tolist()):
            yield (
                f"B{offset + number + 1:05d}",
                network,
                plan.racks[int(run.rack_a[at])].name,
                plan.racks[int(run.rack_b[at])].name,
                run.media[int(run.medium[at])].kind,
                int(count[number]),
                float(longest[number]),
            )
        offset += run.bundles


def csv_files(plan: SitePlan) -> dict[str, str]:
    """Every table as CSV text by file name."""
    lines = ((b.item, b.part, b.quantity, b.unit, b.note, b.source) for b in bill(plan))
    return {
        "racks.csv": _csv(RACK_COLUMNS, rack_rows(plan)),
        "elevations.csv": _csv(ELEVATION_COLUMNS, elevation_rows(plan)),
        "circuits.csv": _csv(CIRCUIT_COLUMNS, power_rows(plan)),
        "cords.csv": _csv(CORD_COLUMNS, cord_rows(plan)),
        "cables.csv": _csv(CABLE_COLUMNS, cable_rows(plan)),
        "bundles.csv": _csv(BUNDLE_COLUMNS, bundle_rows(plan)),
        "bill.csv": _csv(BILL_COLUMNS, lines),
    }


def plan_dict(plan: SitePlan) -> dict[str, Any]:
    """The plan's figures as plain data, in base units."""
    return {
        "study": plan.study,
        "racks": {"total": len(plan.racks), **plan.kinds},
        "servers_per_rack": plan.fill.servers,
        "limited_by": plan.fill.why,
        "floor": asdict(plan.floor),
        "power": plan.power,
        "peak": plan.peak,
        "pue": plan.pue,
        "site_power": plan.site_power,
        "heat": {
            "air": sum(h.air for h in plan.heat),
            "liquid": sum(h.liquid for h in plan.heat),
            "air_flow": sum(h.air_flow for h in plan.heat),
            "coolant_flow": sum(h.coolant_flow for h in plan.heat),
            "hottest_rack": max(r.power.watts for r in plan.racks),
        },
        "feeds": {
            feed_name(f.feed): {"normal": f.normal, "worst": f.worst, "phases": list(f.phases)}
            for f in plan.feeds
        },
        "busway_runs": sum(plan.busways.values()),
        "cables": {name: _cables(run, plan.networks[name]) for name, run in plan.runs.items()},
        "storage": _storage(plan),
        "notes": list(plan.notes),
    }


def _cables(run: Runs, fabric: Fabric) -> dict[str, Any]:
    return {
        "tiers": {
            tier: {"shortest": low, "mean": mean, "longest": high}
            for tier, (low, mean, high) in tier_lengths(run, fabric).items()
        },
        "count": len(run.pieces),
        "links": len(run.cable),
        "bundles": run.bundles,
        "longest": float(run.length.max(initial=0.0)),
        "ordered": float(run.bought[run.pieces.first].sum()),
        "media": {kind.name: run.count(index) for index, kind in enumerate(run.media) if run.count(index)},
        "modules": [asdict(module) for module in run.modules],
    }


def _storage(plan: SitePlan) -> dict[str, Any] | None:
    if plan.storage is None:
        return None
    return {
        "need": asdict(plan.storage.need),
        "options": [
            {
                "name": option.kind.name,
                "servers": option.servers,
                "binding": option.binding,
                "read": option.read,
                "write": option.write,
                "usable": option.usable,
                "refusal": option.refusal,
            }
            for option in plan.storage.options
        ],
        "notes": list(plan.storage.notes),
    }


def _csv(header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    out = StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    return out.getvalue()
