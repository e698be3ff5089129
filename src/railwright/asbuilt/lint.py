"""What is wrong inside one server: NICs far from their GPUs, PCIe links too slow, NVLinks missing.

A rule needs no catalogue: a server's GPUs and NICs are alike, so the odd one out is the suspect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from railwright.asbuilt.host import Gpu, HostTopology, Nic, PathType
from railwright.fabric.finding import Finding, Severity
from railwright.units import show_bit_rate, show_rate

DISTANCE: dict[PathType, int] = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 3, "SYS": 4}
GPUDIRECT = 1
"""Farthest distance at which NCCL uses GPUDirect RDMA by default: PXB, no CPU in between (NCCL documentation,
NCCL_NET_GDR_LEVEL).  A GPU with NVLink-C2C reaches the NICs of its own CPU too (NCCL_NET_GDR_C2C, on by
default: NCCL 2.30 src/graph/paths.cc, ncclTopoCheckGdr)."""
OTHER_CARD = 4
"""A card with under a quarter of the others' lanes or rate never was one of them (a 1 Gb/s port, say)."""
PCIE_PAYLOAD = 0.8
"""Least share of a PCIe link's raw rate that must reach the wire: 55.4 of 63 GB/s are measured host to
device on Gen5 x16 (0.88), less a tenth for RDMA headers (stas00/ml-engineering, network)."""


def lint(host: HostTopology) -> list[Finding]:
    """Every finding about one server, faults first."""
    found = [
        *_far_nics(host),
        *_shared_nics(host),
        *_numa(host),
        *_slow_slots(host),
        *_narrow(host.gpus, "GPU"),
        *_narrow(host.nics, "NIC"),
        *_nvlinks(host),
    ]
    order: tuple[Severity, ...] = ("fault", "warning", "note")
    return sorted(found, key=lambda f: (order.index(f.severity), f.kind, f.element))


def nearest_nics(host: HostTopology, gpu: int) -> tuple[int, list[int]]:
    """Distance of a GPU's nearest NICs, and which they are; (-1, []) where the dump does not tell."""
    known = [(DISTANCE[path], nic) for nic, path in enumerate(host.paths[gpu]) if path]
    if not known:
        return -1, []
    least = min(known)[0]
    return least, [nic for distance, nic in known if distance == least]


def _label(device: Gpu | Nic) -> str:
    return f"{device.name} ({device.key})" if device.name and device.name != device.key else device.key


def _finding(
    kind: str, severity: Severity, element: str, expected: str, found: str, evidence: str, test: str
) -> Finding:
    return Finding(kind, severity, element, ((element, 0),), expected, found, evidence, 0.9, test)


def _enough_nics(host: HostTopology) -> bool:
    """Whether the server has NICs for all parts of it: with one, or one for many GPUs, some must be far."""
    return len(host.nics) > 1 and len(host.nics) * 4 >= len(host.gpus)


def _far_nics(host: HostTopology) -> Iterator[Finding]:
    """A GPU whose nearest NIC is behind a CPU while its fellows' are not, or for all of them."""
    names = {distance: name for name, distance in DISTANCE.items()}
    least = [nearest_nics(host, g)[0] for g in range(len(host.gpus))]
    known = [distance for distance in least if distance >= 0]
    if not known or not _enough_nics(host):
        return
    best = min(known)
    for gpu, distance in zip(host.gpus, least, strict=True):
        if distance > best:
            yield _finding(
                "NIC far from GPU",
                "fault" if distance > GPUDIRECT else "warning",
                _label(gpu),
                f"a NIC at {names[best]}, as the other GPUs have",
                f"its nearest NIC at {names[distance]}",
                "the other GPUs of this server have a NIC closer by; the slot or the riser is another one",
                "compare the slot numbers of the NICs with the vendor's drawing, then lspci -tv",
            )
    own_cpu = best <= DISTANCE["NODE"]
    if best > GPUDIRECT and not (own_cpu and all(gpu.c2c for gpu in host.gpus)):
        grace = (
            " (unless the GPUs hang on Grace by NVLink-C2C, as in GB200: there it reaches the CPU's own NICs)"
        )
        yield _finding(
            "no GPUDirect path",
            "warning",
            "all GPUs",
            "a NIC at PIX or PXB of every GPU",
            f"none nearer than {names[best]}",
            "NCCL uses GPUDirect RDMA only up to PXB; traffic will be staged through the CPU"
            + (grace if own_cpu else ""),
            "NCCL_NET_GDR_LEVEL=PHB allows it through the host bridge; measure both",
        )


def _shared_nics(host: HostTopology) -> Iterator[Finding]:
    """Several GPUs nearest to one NIC while another NIC is nearest to none."""
    if len(host.nics) < len(host.gpus) or not host.paths:
        return
    near = [set(nearest_nics(host, g)[1]) for g in range(len(host.gpus))]
    if not all(near):
        return
    taken: dict[int, int] = {}

    def assign(gpu: int, seen: set[int]) -> bool:
        """Augmenting path: one NIC of its own for every GPU."""
        for nic in sorted(near[gpu]):
            if nic not in seen:
                seen.add(nic)
                if nic not in taken or assign(taken[nic], seen):
                    taken[nic] = gpu
                    return True
        return False

    for index, gpu in enumerate(host.gpus):
        if not assign(index, set()):
            idle = [_label(host.nics[n]) for n in range(len(host.nics)) if not any(n in s for s in near)]
            rest = f"; nearest to no GPU: {', '.join(idle)}" if idle else ""
            yield _finding(
                "NIC shared by GPUs",
                "fault",
                _label(gpu),
                "a nearest NIC of its own",
                f"only NICs that other GPUs need too{rest}",
                "no assignment gives every GPU one of its nearest NICs",
                "nvidia-smi topo -m; look for a NIC in another slot than in the sister servers",
            )


def _numa(host: HostTopology) -> Iterator[Finding]:
    """A GPU with every nearest NIC on another NUMA node."""
    if not _enough_nics(host):
        return
    for index, gpu in enumerate(host.gpus):
        _, nics = nearest_nics(host, index)
        nodes = {host.nics[n].numa for n in nics}
        if gpu.numa >= 0 and nodes and -1 not in nodes and gpu.numa not in nodes:
            yield _finding(
                "NIC on another NUMA node",
                "warning",
                _label(gpu),
                f"its nearest NIC on NUMA node {gpu.numa}",
                f"on node {', '.join(map(str, sorted(nodes)))}",
                "host buffers and the proxy thread sit across the CPU link",
                "check the BIOS setting of NUMA nodes per socket, then the slot",
            )


def _slow_slots(host: HostTopology) -> Iterator[Finding]:
    """A NIC whose PCIe link carries less than its network ports; of several ports that may be meant so."""
    for nic in host.nics:
        if nic.rate and nic.speed and nic.rate * PCIE_PAYLOAD < nic.speed * (1 - 1e-9):
            yield _finding(
                "PCIe slower than NIC",
                "note" if "," in nic.name else "fault",
                _label(nic),
                f"PCIe for {show_bit_rate(nic.speed)}",
                f"{show_rate(nic.rate)} raw on {nic.lanes or 'unknown'} lanes",
                "the slot cannot feed the network port",
                "lspci -vv: LnkSta against LnkCap; reseat, or set the slot's generation in the BIOS",
            )


def _narrow(devices: Sequence[Gpu] | Sequence[Nic], word: str) -> Iterator[Finding]:
    """A device with fewer lanes or a lower rate than most; far below, it is another kind of card."""
    for field, unit in (("lanes", "lanes"), ("rate", "byte/s")):
        values = [getattr(d, field) for d in devices if getattr(d, field)]
        if len(values) < 3:
            continue
        usual, times = Counter(values).most_common(1)[0]
        if times <= len(values) / 2:
            continue
        for device in devices:
            value = getattr(device, field)
            if usual / OTHER_CARD <= value < usual and not (
                field == "rate" and device.lanes and _fewer(device, devices)
            ):
                yield _finding(
                    f"{word} PCIe link degraded",
                    "fault",
                    _label(device),
                    f"{usual:g} {unit}, as most",
                    f"{value:g} {unit}",
                    f"{times} of {len(values)} {word}s of this server have more",
                    "lspci -vv: LnkSta against LnkCap; reseat the card or the riser",
                )


def _fewer(device: Gpu | Nic, devices: Sequence[Gpu] | Sequence[Nic]) -> bool:
    """Whether the device's lanes already tell why its rate is low."""
    usual = Counter(d.lanes for d in devices if d.lanes).most_common(1)[0][0]
    return 0 < device.lanes < usual


def _nvlinks(host: HostTopology) -> Iterator[Finding]:
    """GPUs with fewer NVLinks than most, and links that only one end knows."""
    totals = [gpu.switch_nvlinks for gpu in host.gpus]
    if not any(totals) and host.nvlink:
        totals = [sum(row) for row in host.nvlink]
    if any(totals):
        usual = Counter(totals).most_common(1)[0][0]
        for gpu, links in zip(host.gpus, totals, strict=True):
            if links < usual:
                yield _finding(
                    "NVLink missing",
                    "fault",
                    _label(gpu),
                    f"{usual} NVLinks, as most",
                    f"{links}",
                    "the GPUs of one server have the same links",
                    "nvidia-smi nvlink --status; then the fabric manager's log",
                )
    for i, row in enumerate(host.nvlink):
        for j in range(i):
            pair = f"{_label(host.gpus[j])} - {_label(host.gpus[i])}"
            both = min(host.gpus[i].switch_nvlinks, host.gpus[j].switch_nvlinks)
            if 0 < row[j] == host.nvlink[j][i] < both:
                yield _finding(
                    "NVLink missing",
                    "fault",
                    pair,
                    f"{both} NVLinks, as each has to other GPUs",
                    f"{row[j]}",
                    "NVSwitches join every GPU to every other by all of its links",
                    "nvidia-smi nvlink --status; then the fabric manager's log",
                )
            if row[j] != host.nvlink[j][i]:
                yield _finding(
                    "NVLink told differently by its ends",
                    "fault",
                    pair,
                    "the same number of links from both sides",
                    f"{host.nvlink[j][i]} and {row[j]}",
                    "a link has two ends",
                    "read the topology again after a GPU reset; then nvidia-smi nvlink --status",
                )
