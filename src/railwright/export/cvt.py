"""UFM Cable Validation Tool: the point-to-point sheet, the topo file, and which adapter number is which.

Formats: NVIDIA UFM Cable Validation Tool 1.6, "P2P File" (columns, port names) and "Topo File" (as
ibdiagnet writes it).  The sheet is read from an Excel file: open the CSV and save it as one.
"""

from __future__ import annotations

from railwright.export.ibnet import LANES, speed_name
from railwright.export.sheet import SWITCH_KINDS, Cable, Sheet, csv_text
from railwright.fabric.graph import Kind

COLUMNS = ("A-Node Name", "A-Type", "A-Port", "Z-Node Name", "Z-Type", "Z-Port")

XDR = 100e9
"""Switches from this rate on [byte/s] run NVOS, which names its ports in another way."""


def render(sheet: Sheet) -> dict[str, str]:
    """Every cable of the design, faults or not."""
    device = [name.split("/")[0] for name in sheet.names]
    kinds = [Kind(k) for k in sheet.fabric.kind.tolist()]
    styles = {kind: _Ports(sheet, kind) for kind in SWITCH_KINDS}
    rails = (leaf := sheet.switch(Kind.LEAF)) is not None and leaf.technology == "ethernet"

    def end(at: int, port: int) -> tuple[str, str, str]:
        if kinds[at] == Kind.NIC:
            number = sheet.local[at] * sheet.nic_ports + port
            return device[at], "Host", f"rail{number}" if rails else str(number)
        return device[at], "Switch", styles[kinds[at]].name(port)

    rows = [(*end(c.a, c.port_a), *end(c.b, c.port_b)) for c in sheet.pulled]
    ports = range(sheet.nic_ports)
    numbers = [
        (i * sheet.nic_ports + p + 1, name, p + 1) for i, name in enumerate(sheet.adapters) for p in ports
    ]
    return {
        "p2p.csv": csv_text(COLUMNS, rows),
        "fabric.topo": _topo(sheet, device, kinds),
        "hca_map.csv": csv_text(("HCA/Port", "device", "port"), numbers),
    }


class _Ports:
    """How the ports of one tier's switches are called on the sheet."""

    def __init__(self, sheet: Sheet, kind: Kind) -> None:
        switch = sheet.switch(kind)
        self.each = sheet.cage_ports(kind)
        self.ethernet = switch is not None and switch.technology == "ethernet"
        self.nvos = switch is not None and not self.ethernet and switch.rate >= XDR

    def name(self, port: int) -> str:
        """'19', or cage and split: '10/1' (MLNX-OS), 'sw10p1' (NVOS), 'swp10s0' (Cumulus, from 0)."""
        cage, split = (port - 1) // self.each + 1, (port - 1) % self.each
        if self.ethernet:
            return f"swp{cage}s{split}" if self.each > 1 else f"swp{cage}"
        if self.nvos:
            return f"sw{cage}p{split + 1}"
        return f"{cage}/{split + 1}" if self.each > 1 else str(port)


def _topo(sheet: Sheet, device: list[str], kinds: list[Kind]) -> str:
    """A section per switch: its port, lanes and their rate [Gb/s], and what is at the other end."""
    at: dict[int, list[tuple[int, int, int, Cable]]] = {}
    for c in sheet.pulled:
        for near, port, far, far_port in ((c.b, c.port_b, c.a, c.port_a), (c.a, c.port_a, c.b, c.port_b)):
            if kinds[near] != Kind.NIC:
                at.setdefault(near, []).append((port, far, far_port, c))
    models = {kind: _model(sheet, kind) for kind in SWITCH_KINDS}
    speeds = {rate: speed_name(rate) for rate in sorted({c.rate for c in sheet.pulled})}
    lines = []
    for switch in sorted(at):
        lines.append(f"{models[kinds[switch]]} {device[switch]}")
        for port, far, far_port, cable in sorted(at[switch], key=lambda row: row[0]):
            width, speed = speeds[cable.rate]
            if kinds[far] == Kind.NIC:
                adapter = sheet.adapters[sheet.local[far]]
                there = f"HCA_{adapter} {device[far]} {adapter}/P{far_port}"
            else:
                there = f"{models[kinds[far]]} {device[far]} P{far_port}"
            lines.append(f"   P{port} -{width}x-{LANES[speed]:g}G-> {there}")
        lines.append("")
    return "\n".join(lines)


def _model(sheet: Sheet, kind: Kind) -> str:
    """The switch as ibdiagnet calls it: 'MQM9700' for NVIDIA's Quantum, else the part's name."""
    name = sheet.part_name(kind.name.lower()).upper()
    return f"M{name}" if name.startswith("QM") else name
