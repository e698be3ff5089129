"""NCCL's topology of one server (NCCL_TOPO_FILE): which GPU shares a PCIe switch with which NIC.

Format: NCCL, src/graph/xml.cc and topo.cc (system, cpu, pci, gpu, nvlink, nic, net and their attributes);
PCI classes from PCI Code and ID Assignment 1.12 (0302 3D controller, 0207 InfiniBand, 0200 Ethernet,
0604 bridge, 0680 other bridge: an NVSwitch).
"""

from __future__ import annotations

from railwright.catalog.parts import Gpu
from railwright.export.hierarchy import gpus_per_host
from railwright.export.sheet import Sheet, xml_comment
from railwright.fabric.graph import Kind, Role

# byte/s of one PCIe lane, one direction: 8 and 16 and 32 GT/s at 128b/130b, 64 GT/s at 242 of 256 byte
# (PCI Express Base Specification 6.0, 4.2).
_LANES = {
    "8.0 GT/s PCIe": 8e9 * 128 / 130 / 8,
    "16.0 GT/s PCIe": 16e9 * 128 / 130 / 8,
    "32.0 GT/s PCIe": 32e9 * 128 / 130 / 8,
    "64.0 GT/s PCIe": 64e9 * 242 / 256 / 8,
}

# One NVLink, one direction [byte/s] (NVIDIA data sheets: 6 of V100, 12 of A100, 18 of H100, B200 and Rubin),
# and the compute capability NCCL calls sm (CUDA C++ Programming Guide; Rubin: NCCL 2.32.3's release notes).
_NVLINK = {
    "volta": 25e9,
    "ampere": 25e9,
    "hopper": 25e9,
    "blackwell": 50e9,
    "blackwell-ultra": 50e9,
    "rubin": 100e9,
}
_SM = {
    "volta": 70,
    "ampere": 80,
    "ada": 89,
    "hopper": 90,
    "blackwell": 100,
    "blackwell-ultra": 103,
    "rubin": 107,
}

_CPUS = {
    "intel": 'arch="x86_64" vendor="GenuineIntel"',
    "amd": 'arch="x86_64" vendor="AuthenticAMD"',
    "arm": 'arch="arm64"',
}
_NVSWITCH = "0000:f0:00.0"


def render(sheet: Sheet) -> dict[str, str]:
    """The first host: a PCIe switch per NIC with the GPUs that share it, half of them on each socket.

    The catalogue knows neither bus ids nor sockets: those here are placeholders, to be replaced by the
    machine's own (`nvidia-smi -q`, `ibdev2netdev -v`) before NCCL finds its devices in the file.
    """
    sheet.need_gpus("NCCL")
    switches = _switches(sheet)
    sockets = 2 if len(switches) > 1 else 1
    cpu = _CPUS[sheet.server.cpu] if sheet.server else ""
    width, speed = _lanes(float(sheet.fabric.rate[sheet.fabric.role == Role.PCIE][0]))
    link = f'link_speed="{speed}" link_width="{width}"'
    net_class = "0x020700"
    if (leaf := sheet.switch(Kind.LEAF)) and leaf.technology == "ethernet":
        net_class = "0x020000"
    lines = [xml_comment(f"{sheet.title}: one host; bus ids are placeholders")]
    lines.append('<system version="1">')
    share = -(-len(switches) // sockets)
    for socket in range(sockets):
        lines.append(f'  <cpu numaid="{socket}"{" " + cpu if cpu else ""}>')
        for number in range(socket * share, min((socket + 1) * share, len(switches))):
            gpus, nics = switches[number]
            bus = 0x10 + number * 0x10 if len(switches) <= 14 else number
            lines.append(f'    <pci busid="{number:04x}:{bus & 0xFF:02x}:00.0" class="0x060400" {link}>')
            inside = 1
            for gpu in gpus:
                place = f"{number:04x}:{(bus & 0xFF) + inside:02x}:00.0"
                lines.append(f'      <pci busid="{place}" class="0x030200" {link}>')
                lines += [*_gpu(sheet, gpu), "      </pci>"]
                inside += 1
            for nic in nics:
                place = f"{number:04x}:{(bus & 0xFF) + inside:02x}:00.0"
                lines.append(f'      <pci busid="{place}" class="{net_class}" {link}>')
                lines += [*_nic(sheet, nic), "      </pci>"]
                inside += 1
            lines.append("    </pci>")
        lines.append("  </cpu>")
    return {"nccl-topo.xml": "\n".join([*lines, "</system>"]) + "\n"}


def nvlinks(gpu: Gpu | None) -> int:
    """NVLinks of one GPU: its scale-up bandwidth over that of a link; 0 for a generation without them."""
    each = _NVLINK.get(gpu.generation, 0.0) if gpu else 0.0
    return round(gpu.scale_up_bandwidth / each) if gpu and each else 0


def _switches(sheet: Sheet) -> list[tuple[list[int], list[int]]]:
    """GPUs and NICs (numbers in the host) that lanes join, in order of the GPUs of the first host."""
    f = sheet.fabric
    first = gpus_per_host(sheet)
    lanes = [
        (a, sheet.local[b])
        for a, b, role in zip(f.a.tolist(), f.b.tolist(), f.role.tolist(), strict=True)
        if role == Role.PCIE and a < first
    ]
    found: list[tuple[list[int], list[int]]] = []
    for gpu, nic in sorted(lanes):
        home = next((s for s in found if gpu in s[0] or nic in s[1]), None)
        if home is None:
            found.append(([gpu], [nic]))
            continue
        home[0].extend([gpu] if gpu not in home[0] else [])
        home[1].extend([nic] if nic not in home[1] else [])
    return found


def _gpu(sheet: Sheet, gpu: int) -> list[str]:
    part = sheet.gpu
    generation = part.generation if part else ""
    sm = f' sm="{_SM[generation]}"' if generation in _SM else ""
    links = nvlinks(part)
    if not links:
        return [f'        <gpu dev="{gpu}"{sm}/>']
    return [
        f'        <gpu dev="{gpu}"{sm}>',
        f'          <nvlink target="{_NVSWITCH}" count="{links}" tclass="0x068000"/>',
        "        </gpu>",
    ]


def _nic(sheet: Sheet, nic: int) -> list[str]:
    f = sheet.fabric
    rate = float(f.rate[f.role == Role.NODE_LEAF][0])
    speed = round(rate * 8 / 1e6)
    nets = [
        f'          <net name="{sheet.adapters[nic]}" port="{port + 1}" speed="{speed}" gdr="1"/>'
        for port in range(sheet.nic_ports)
    ]
    return ["        <nic>", *nets, "        </nic>"]


def _lanes(rate: float) -> tuple[int, str]:
    """Width and speed whose product is nearest, the widest of equals: 63e9 is 16 lanes of 32 GT/s."""
    return min(
        ((width, speed) for width in (16, 8, 4) for speed in _LANES),
        key=lambda choice: (round(abs(_LANES[choice[1]] * choice[0] / rate - 1), 2), -choice[0]),
    )
