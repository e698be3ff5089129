"""InfiniBand text: ibsim's net file, `ibnetdiscover` in both of its forms, and the node-name map.

All four say the fabric as it stands: a failed cable is absent, a slow one shows a lower width or speed, and a
device that no working cable reaches is not there, because discovery would not find it.
Adapters are called as their hosts call them, 'server-03 mlx5_2'; switches as in the drawing.
An Ethernet fabric is written as the InfiniBand fabric of the same rates.

Formats: infiniband-diags, doc/rst/ibnetdiscover.8.in.rst ("Topology file format", "ports report");
ibsim, net-examples/net.
"""

from __future__ import annotations

from collections.abc import Callable

from railwright.errors import PlanError
from railwright.export.sheet import Sheet
from railwright.fabric.graph import Kind
from railwright.fabric.trays import host_of_nic

# Signalling rate of one lane [Gb/s], as InfiniBand's names go (IBTA roadmap; FDR's 14.0625 carries 13.6).
LANES = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR": 14.0,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
WIDTHS = (4, 1, 2, 8, 12)
"""Lanes of a port, the usual one first."""

UNICAST_LIDS = 0xBFFF
"""LIDs 0x0001 to 0xBFFF are unicast. Source: InfiniBand Architecture Specification, vol. 1, 4.1.1."""

# ibsim 0.10 knows no speed above HDR; routing does not look at speeds.
_IBSIM_SPEEDS = {"NDR": "HDR", "XDR": "HDR"}

# PCI ids of switch and adapter silicon by the port's rate [Gb/s] (pciids.sourceforge.net, vendor 15b3).
_SWITCH_IDS = {100: 0xCF08, 200: 0xD2F0, 400: 0xD2F2, 800: 0xD2F4}
_ADAPTER_IDS = {100: 0x1017, 200: 0x101B, 400: 0x1021, 800: 0x1023}


def guid(sheet: Sheet, device: int) -> int:
    """A made-up GUID: locally administered, kind and number inside, 16 apart for the GUIDs of ports."""
    kind = int(sheet.fabric.kind[device])
    ordinal = sheet.local[device]
    if kind == Kind.NIC:
        ordinal += int(sheet.fabric.server[device]) * sheet.nics
    return 0x0272_7700_0000_0000 | kind << 32 | (ordinal + 1) << 4


def node_name(sheet: Sheet, device: int) -> str:
    """What the device calls itself: 'server-03 mlx5_2', 'server-03-tray-18 mlx5_0' in a rack, 'leaf-07'."""
    if sheet.fabric.kind[device] == Kind.NIC:
        server = sheet.hosts[sheet.fabric.server[device]]
        host, place = host_of_nic(server, sheet.local[device], sheet.gpus, sheet.nics)
        return f"{host} {sheet.adapters[place]}"
    return sheet.names[device]


def speed_name(rate: float) -> tuple[int, str]:
    """Width and speed nearest to a rate [byte/s], the usual width where several fit: 50e9 is (4, 'NDR')."""
    gbps = rate * 8 / 1e9
    choices = ((abs(w * lane - gbps), i, w, s) for i, w in enumerate(WIDTHS) for s, lane in LANES.items())
    _, _, width, speed = min(choices)
    return width, speed


def render_ibsim(sheet: Sheet) -> dict[str, str]:
    """Says how large a simulator it takes: ibsim's own limits are 2,048 nodes and 256 switches."""
    devices = list(_lids(sheet))
    adapter = _is_adapter(sheet)
    switches = sum(1 for d in devices if not adapter[d])
    ports = sum(sheet.ports[d] + 1 for d in devices)
    head = [
        f"# {sheet.title}",
        f"# ibsim -s -N {len(devices) + 1} -S {switches + 1} -P {ports + 1} fabric.net",
        "# Speeds above HDR are written as HDR, the fastest that ibsim 0.10 knows.",
    ]
    return {"fabric.net": _topology(sheet, head, lambda s: _IBSIM_SPEEDS.get(s, s), first_port=1)}


def render_discovered(sheet: Sheet) -> dict[str, str]:
    head = ["#", f"# Topology file: {sheet.title}", "#"]
    return {"fabric.ibnetdiscover": _topology(sheet, head, str, first_port=0)}


def render_ports(sheet: Sheet) -> dict[str, str]:
    lids = _lids(sheet)
    names, guids, at = _ends(sheet, lids)
    rates = _Speeds()
    adapter = _is_adapter(sheet)
    word = ["CA" if a else "SW" for a in adapter]
    lines = []
    for device in lids:
        for port, far, far_port, live in at[device]:
            width, speed = rates[live]
            # An adapter's port is its GUID and the port's number from 0; a switch's is the switch's own.
            own = guids[device] + (port - 1 if adapter[device] else 0)
            other = guids[far] + (far_port - 1 if adapter[far] else 0)
            lines.append(
                f"{word[device]} {lids[device]:5d} {port:2d} 0x{own:016x} {width}x {speed} - "
                f"{word[far]} {lids[far]:5d} {far_port:2d} 0x{other:016x} "
                f"( '{names[device]}' - '{names[far]}' )"
            )
    return {"fabric.ports": "\n".join(lines) + "\n"}


def render_names(sheet: Sheet) -> dict[str, str]:
    """Every switch and adapter of the design, working or not, in the order of the graph."""
    devices = [
        d for d, kind in enumerate(sheet.fabric.kind.tolist()) if kind == Kind.NIC or kind >= Kind.LEAF
    ]
    lines = [f'0x{guid(sheet, d):016x} "{node_name(sheet, d)}"' for d in devices]
    return {"node-name-map": "\n".join([f"# {sheet.title}", *lines]) + "\n"}


class _Speeds(dict[float, tuple[int, str]]):
    """`speed_name`, asked once per rate."""

    def __missing__(self, rate: float) -> tuple[int, str]:
        self[rate] = speed_name(rate)
        return self[rate]


Ends = dict[int, list[tuple[int, int, int, float]]]


def _topology(sheet: Sheet, head: list[str], speed_word: Callable[[str], str], first_port: int) -> str:
    """first_port  what an adapter's GUID and the number of its port 1 differ by (ibsim counts from 1)"""
    lids = _lids(sheet)
    names, guids, at = _ends(sheet, lids)
    words = {rate: f"{w}x{speed_word(s)}" for rate, (w, s) in _rates(at).items()}
    adapter = _is_adapter(sheet)
    lines = [*head]
    for device in lids:
        own = guids[device]
        gbps = round(max(live for *_, live in at[device]) * 8 / 1e9)
        known, other = (_ADAPTER_IDS, 0x1021) if adapter[device] else (_SWITCH_IDS, 0xD2F2)
        lines += ["", "vendid=0x2c9", f"devid=0x{known.get(gbps, other):x}", f"sysimgguid=0x{own:x}"]
        if adapter[device]:
            lines += [f"caguid=0x{own:x}", f'Ca\t{sheet.ports[device]} "H-{own:016x}"\t\t# "{names[device]}"']
        else:
            lines += [
                f"switchguid=0x{own:x}({own:016x})",
                f'Switch\t{sheet.ports[device]} "S-{own:016x}"\t\t# "{names[device]}" enhanced port 0 '
                f"lid {lids[device]} lmc 0",
            ]
        for port, far, far_port, live in at[device]:
            if adapter[device]:
                near, told = f"[{port}]({own + port - 1 + first_port:016x}) ", f"lid {lids[device]} lmc 0 "
            else:
                near, told = f"[{port}]", ""
            peer = f'"{"H" if adapter[far] else "S"}-{guids[far]:016x}"[{far_port}]'
            if adapter[far]:
                peer += f"({guids[far] + far_port - 1 + first_port:016x}) "
            lines.append(f'{near}\t{peer}\t\t# {told}"{names[far]}" lid {lids[far]} {words[live]}')
    return "\n".join(lines) + "\n"


def _lids(sheet: Sheet) -> dict[int, int]:
    """LID of every device that a working cable reaches, cores and spines before leaves before adapters."""
    reached = {d for c in sheet.working for d in (c.a, c.b)}
    order = sorted(reached, key=lambda d: (-int(sheet.fabric.kind[d]), d))
    if len(order) > UNICAST_LIDS:
        raise PlanError(
            f"{len(order)} InfiniBand devices need a LID each, and one subnet has {UNICAST_LIDS}; "
            "take format graphml or cable-schedule, or export a smaller cluster"
        )
    return {device: lid for lid, device in enumerate(order, 1)}


def _ends(sheet: Sheet, lids: dict[int, int]) -> tuple[dict[int, str], dict[int, int], Ends]:
    """Name, GUID and connected ports (port, far device, its port, rate) of every reached device."""
    at: Ends = {device: [] for device in lids}
    for c in sheet.working:
        at[c.a].append((c.port_a, c.b, c.port_b, c.live))
        at[c.b].append((c.port_b, c.a, c.port_a, c.live))
    for ports in at.values():
        ports.sort()
    return {d: node_name(sheet, d) for d in lids}, {d: guid(sheet, d) for d in lids}, at


def _rates(at: Ends) -> _Speeds:
    rates = _Speeds()
    for live in sorted({live for ports in at.values() for *_, live in ports}):
        rates[live]
    return rates


def _is_adapter(sheet: Sheet) -> list[bool]:
    """Of every device, whether it is a NIC."""
    return [bool(x) for x in sheet.fabric.kind == Kind.NIC]
