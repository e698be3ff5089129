"""hwloc XML (`lstopo file.xml`), versions 1 to 3.

Format: hwloc, doc "Synthetic and XML topologies" and hwloc2.dtd; PCI classes 03xx display, 02xx network.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from railwright.asbuilt.host import Bridge, Cpu, Gpu, HostTopology, Nic
from railwright.asbuilt.read.dump import Dump
from railwright.asbuilt.read.pcie import distances
from railwright.asbuilt.read.xmltext import parse_xml

_START = re.compile(r"<!DOCTYPE topology|<topology[\s>]")
_TYPE = re.compile(r"(?P<kind>[0-9a-fA-F]{4}) \[(?P<vendor>[0-9a-fA-F]{4}):(?P<device>[0-9a-fA-F]{4})\]")
_FLOAT = re.compile(r"\d{1,6}(?:\.\d{1,12})?")
_NVIDIA, _AMD = "10de", "1002"
_GPU_NAMES = re.compile(r"(?:cuda|nvml|rsmi|opencl|card|render)\d")
_NIC_NAMES = re.compile(r"(?:mlx\d_|ib|hfi|bnxt|irdma|efa|roce)")
# OSDev types by number (hwloc 2: hwloc_obj_osdev_type_e; hwloc 3 sets bits of hwloc_obj_osdev_types_e).
_NETWORK = {"2", "3", "Net", "OpenFabrics"}


def recognise(dump: Dump) -> bool:
    """The root element `topology`."""
    return bool(_START.search(dump.text[:20000])) and "<object" in dump.text


def parse(dump: Dump) -> HostTopology:
    """The server of an lstopo file. SpecError when the XML is broken or shows no CPU."""
    return _Reader(dump).read(parse_xml(dump))


class _Reader:
    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.notes: list[str] = list(dump.notes)
        self.cpus: list[Cpu] = []
        self.bridges: list[Bridge] = []
        self.gpus: list[Gpu] = []
        self.nics: list[Nic] = []

    def read(self, root: ElementTree.Element) -> HostTopology:
        machine = [child for child in root if child.tag == "object"]
        waiting = [(child, "", -1, "") for child in reversed(machine)]
        while waiting:
            element, bridge, numa, model = waiting.pop()
            model = _info(element, "CPUModel") or model
            kind = element.get("type", "")
            # hwloc 2 hangs the NUMA node beside the cores and devices of its package, not above them.
            for child in element:
                if child.tag == "object" and child.get("type") == "NUMANode":
                    numa = self._numa(child, model)
                    break
            if kind == "NUMANode" and not any(c.numa == _index(element) for c in self.cpus):
                numa = self._numa(element, model)
            elif kind == "NUMANode":
                numa = _index(element)
            elif kind == "Bridge":
                bridge = self._bridge(element, bridge, numa)
            elif kind == "PCIDev":
                self._device(element, bridge, numa)
            waiting.extend((c, bridge, numa, model) for c in reversed(element) if c.tag == "object")
        if not self.cpus and not self.gpus and not self.nics:
            self.dump.fail(1, "no NUMA node and no PCIe device found; write the file with: lstopo server.xml")
        if not self.gpus:
            self.notes.append(
                "no GPU found (PCI class 03xx of NVIDIA or AMD, or a device such as cuda0 or nvml0)"
            )
        self.notes.append(
            "hwloc tells no network speed of a NIC, and no number of PCIe lanes but their joint rate"
        )
        return HostTopology(
            source=self.dump.source("hwloc"),
            cpus=tuple(sorted(self.cpus, key=lambda c: c.numa)),
            bridges=tuple(self.bridges),
            gpus=tuple(self.gpus),
            nics=tuple(self.nics),
            nvlink=self._nvlink(root),
            paths=distances(self.bridges, self.gpus, self.nics, between=1),
            notes=tuple(self.notes),
        )

    def _numa(self, element: ElementTree.Element, model: str) -> int:
        numa = _index(element)
        if not any(c.numa == numa for c in self.cpus):
            self.cpus.append(Cpu(numa, element.get("cpuset", ""), model))
        return numa

    def _bridge(self, element: ElementTree.Element, above: str, numa: int) -> str:
        host = element.get("bridge_type", "").startswith("0")
        key = (
            f"host-{len(self.bridges)}"
            if host
            else element.get("pci_busid", "") or f"bridge-{len(self.bridges)}"
        )
        self.bridges.append(Bridge(key, above, numa, _rate(element)))
        return key

    def _device(self, element: ElementTree.Element, bridge: str, numa: int) -> None:
        key = element.get("pci_busid", "")
        match = _TYPE.match(element.get("pci_type", ""))
        inner = [c for c in element.iter("object") if c.get("type") == "OSDev"]
        names = [c.get("name", "") for c in inner]
        kind, vendor = (match["kind"], match["vendor"].lower()) if match else ("", "")
        if not key:
            return
        if kind in ("0302", "0380", "1200") or (kind == "0300" and vendor in (_NVIDIA, _AMD)):
            name = next((n for n in names if _GPU_NAMES.match(n)), "")
            self.gpus.append(Gpu(key, name, numa, bridge, 0, _rate(element)))
        elif kind in ("0200", "0207") or any(c.get("osdev_type") in _NETWORK for c in inner):
            fabric = [n for n in names if _NIC_NAMES.match(n)] or names[:1]
            self.nics.append(Nic(key, ",".join(fabric), numa, bridge, 0, _rate(element)))

    def _nvlink(self, root: ElementTree.Element) -> tuple[tuple[int, ...], ...]:
        """NVLinkBandwidth of hwloc 2.5 and later is a rate, not a count of links: noted, not counted."""
        for element in root.iter():
            if "NVLink" in (element.get("name") or "") and "istances" in element.tag:
                self.notes.append(
                    "NVLink is told as bandwidth between GPUs, not as a number of links; it is left out"
                )
                break
        return ()


def _info(element: ElementTree.Element, name: str) -> str:
    for child in element:
        if child.tag == "info" and child.get("name") == name:
            return child.get("value", "")
    return ""


def _index(element: ElementTree.Element) -> int:
    text = element.get("os_index", "")
    return int(text) if re.fullmatch(r"\d{1,6}", text) else -1


def _rate(element: ElementTree.Element) -> float:
    """pci_link_speed is in GB/s after coding."""
    text = element.get("pci_link_speed", "")
    return float(text) * 1e9 if _FLOAT.fullmatch(text) else 0.0
