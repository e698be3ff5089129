"""The bill of materials: what to buy, counted from the graph; no prices."""

from __future__ import annotations

from collections import Counter

import numpy as np

from railwright.export.sheet import SWITCH_KINDS, Cable, Sheet, csv_text, gigabits, medium
from railwright.fabric.graph import Kind, Role
from railwright.fabric.wired.breakout import pieces, reserved_pieces

COLUMNS = ("item", "part", "quantity", "note")

# Lengths cables are stocked in [m]: NVIDIA LinkX ordering tables (copper 0.5 to 3 m, fibre 3 to 100 m and
# single-mode up to 150 m); longer ones are ordered to length.
STOCK = (0.5, 1, 1.5, 2, 2.5, 3, 5, 7, 10, 15, 20, 30, 40, 50, 60, 70, 80, 100, 150)


def render(sheet: Sheet) -> dict[str, str]:
    """Servers, NICs, switches, cables by rate, medium and stock length, and transceivers.

    A network without GPUs joins servers that are on the bill of the compute network already.
    Ports reserved for machines outside the graph get cables and transceivers too.
    A twin-port module in a switch cage serves both of its cables, so modules are fewer than optical ends.
    """
    rows = [*_parts(sheet), *_cables(sheet), *_transceivers(sheet)]
    return {"bom.csv": csv_text(COLUMNS, rows)}


def _parts(sheet: Sheet) -> list[tuple[str, str, int, str]]:
    f = sheet.fabric
    rows: list[tuple[str, str, int, str]] = []
    if f.num_gpus:
        gpus = f"{sheet.gpus} GPUs '{sheet.part_name('gpu')}' each"
        rows.append(("server", sheet.part_name("server"), f.num_servers, gpus))
        nics = len(f.devices(Kind.NIC))
        rows.append(("nic", sheet.part_name("nic"), nics, "compute network; usually part of the server"))
    if f.directors:
        rows.append(("director", f.parts.get("spine", "unknown"), f.directors, "with all its modules"))
    for kind in SWITCH_KINDS[:1] if f.directors else SWITCH_KINDS:
        if count := len(f.devices(kind)):
            word = kind.name.lower()
            rows.append((f"{word} switch", sheet.part_name(word), count, ""))
    return rows


def _cables(sheet: Sheet) -> list[tuple[str, str, int, str]]:
    """Shortest, slowest first; a cable is bought in the next stock length, a breakout cable whole."""
    cables = sheet.pulled
    made = pieces(sheet.fabric, np.array([c.link for c in cables], np.int64))
    lengths = made.longest(np.array([c.length for c in cables])).tolist()
    counts: Counter[tuple[int, float, float]] = Counter(
        (split, cables[first].rate, length)
        for split, first, length in zip(made.split.tolist(), made.first.tolist(), lengths, strict=True)
    )
    if sheet.fabric.reserved_ports:
        counts[sheet.fabric.breakout, *_to_nodes(sheet)] += reserved_pieces(sheet.fabric)
    rows = []
    for (split, rate, length), count in sorted(counts.items()):
        made_of = medium(length, rate) or "unknown medium"
        bought = next((f"{s:g} m" for s in STOCK if s >= length), f"{length:g} m, to order")
        bought = bought if length else "length not planned yet"
        note = f"planned {length:g} m" if length else ""
        item, legs = ("breakout cable", f"{split} x ") if split > 1 else ("cable", "")
        rows.append((item, f"{legs}{gigabits(rate)} Gb/s {made_of}, {bought}", count, note))
    return rows


def _transceivers(sheet: Sheet) -> list[tuple[str, str, int, str]]:
    optical = [c for c in sheet.pulled if c.medium in ("multimode", "single-mode")]
    ends: Counter[tuple[str, float]] = Counter()
    modules: dict[tuple[str, float, int], set[tuple[int, int]]] = {}
    per_cage = {k: sheet.cage_ports(k) for k in SWITCH_KINDS}
    kinds = sheet.fabric.kind.tolist()
    made = pieces(sheet.fabric, np.array([c.link for c in optical], np.int64))
    for cable, split in zip(optical, made.split[made.of].tolist(), strict=True):
        ends[cable.medium, cable.rate] += 1 if split > 1 else 2
        for device, port in _ends(cable):
            kind = Kind(kinds[device])
            each = per_cage.get(kind, 1)
            cage = (device, (port - 1) // each)
            # A leaf with breakout numbers its ports in parts, of which an uplink takes all.
            whole = kind is Kind.LEAF and cable.role != Role.NODE_LEAF
            ports = each // sheet.fabric.breakout if whole else each
            modules.setdefault((cable.medium, cable.rate, ports), set()).add(cage)
    for first, split in zip(made.first.tolist(), made.split.tolist(), strict=True):
        ends[optical[first].medium, optical[first].rate] += split > 1
    rows = []
    for (made_of, rate, each), cages in sorted(modules.items()):
        what = f"{each}-port module" if each > 1 else "module"
        rows.append((f"transceiver {what}", f"{gigabits(rate)} Gb/s a port, {made_of}", len(cages), ""))
    reserved = sheet.fabric.reserved_ports
    rate, length = _to_nodes(sheet)
    if reserved and (made_of := medium(length, rate)) in ("multimode", "single-mode"):
        both = reserved + reserved_pieces(sheet.fabric)
        ends[made_of, rate] += both
        what = f"{gigabits(rate)} Gb/s a port, {made_of}"
        rows.append(("transceiver module", what, both, "reserved ports"))
    for (made_of, rate), count in sorted(ends.items()):
        rows.append(
            ("optical cable ends", f"{gigabits(rate)} Gb/s, {made_of}", count, "what the modules above serve")
        )
    return rows


def _to_nodes(sheet: Sheet) -> tuple[float, float]:
    """Rate and length of the cables to servers, which the reserved ones are taken to be like."""
    first = next(c for c in sheet.pulled if c.role == Role.NODE_LEAF)
    return first.rate, first.length


def _ends(cable: Cable) -> tuple[tuple[int, int], tuple[int, int]]:
    return (cable.a, cable.port_a), (cable.b, cable.port_b)
