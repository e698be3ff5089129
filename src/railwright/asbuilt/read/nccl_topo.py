"""NCCL topology XML: NCCL_TOPO_FILE as shipped by clouds, and NCCL_TOPO_DUMP_FILE as NCCL writes it.

Format: NCCL, src/graph/xml.h and src/graph/topo.cc (elements cpu, pci, gpu, nvlink, c2c, nic, net).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

from railwright.asbuilt.host import Bridge, Cpu, Gpu, HostTopology, Nic
from railwright.asbuilt.read.dump import Dump, listed
from railwright.asbuilt.read.pcie import distances, lane_rate
from railwright.asbuilt.read.xmltext import parse_xml

_GPU, _NIC, _BRIDGE, _NVSWITCH = ("0x0302", "0x0300"), ("0x0200", "0x0207"), "0x0604", "0x0680"
_START = re.compile(r"<(?:\?xml[^>]*\?>\s*<)?system\s+version=|<graphs\s+version=")
_SPEED = re.compile(r"([\d.]{1,8})\s*GT/s")


def recognise(dump: Dump) -> bool:
    """The root element `system` (or `graphs`, of NCCL_GRAPH_FILE) with its version."""
    return bool(_START.search(dump.text[:20000]))


def parse(dump: Dump) -> HostTopology:
    """The server of an NCCL topology file. SpecError when the XML is broken or has no device."""
    root = parse_xml(dump)
    if root.tag == "graphs":
        dump.fail(
            1,
            "this is an NCCL graph file (NCCL_GRAPH_FILE), which has no devices; give "
            "NCCL_TOPO_DUMP_FILE's output",
        )
    return _Reader(dump).read(root)


class _Reader:
    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.notes: list[str] = list(dump.notes)
        self.cpus: list[Cpu] = []
        self.bridges: list[Bridge] = []
        self.gpus: list[Gpu] = []
        self.nics: list[Nic] = []
        self.links: dict[str, list[tuple[str, int, str]]] = {}
        self.unknown: list[str] = []

    def read(self, root: ElementTree.Element) -> HostTopology:
        for element in root.iter("cpu"):
            numa = _number(element.get("numaid"), -1)
            model = "/".join(
                filter(None, (element.get("vendor"), element.get("familyid"), element.get("modelid")))
            )
            self.cpus.append(Cpu(numa, element.get("affinity", ""), model))
            self._walk(element, numa)
        if not (self.gpus or self.nics or self.bridges or self.unknown):
            self.dump.fail(1, "no PCIe device found below a 'cpu' element; is the file cut off?")
        if self.unknown:
            self.notes.append(
                f"{len(self.unknown)} PCIe devices have no class, so neither GPU nor NIC: "
                f"{listed(self.unknown)}"
            )
        if self.gpus and not any(self.links.values()):
            self.notes.append(
                "no NVLink information: a file given to NCCL (NCCL_TOPO_FILE) leaves it to be detected"
            )
        return HostTopology(
            source=self.dump.source("NCCL topology"),
            cpus=tuple(self.cpus),
            bridges=tuple(self.bridges),
            gpus=tuple(self._with_switch_links()),
            nics=tuple(self.nics),
            nvlink=self._matrix(),
            paths=distances(self.bridges, self.gpus, self.nics, between=0),
            notes=tuple(self.notes),
        )

    def _walk(self, element: ElementTree.Element, numa: int) -> None:
        waiting = [(child, "") for child in reversed(element)]
        while waiting:
            child, above = waiting.pop()
            if child.tag == "pci":
                below = self._pci(child, above, numa)
                waiting.extend((inner, below) for inner in reversed(child) if inner.tag == "pci")
            elif child.tag == "nic":
                self._virtual(child, above, numa)

    def _pci(self, element: ElementTree.Element, above: str, numa: int) -> str:
        """Take one PCIe device; the key of the bridge its children hang from."""
        key, kind = element.get("busid", ""), element.get("class", "")
        lanes = min(max(_number(element.get("link_width"), 0), 0), 32)
        match = _SPEED.search(element.get("link_speed", ""))
        rate = lane_rate(_float(match[1]) if match else 0.0) * lanes
        gpu, nic = element.find("gpu"), element.find("nic")
        if not key:
            self.notes.append("a PCIe device has no bus id; it is left out")
        elif kind.startswith(_GPU) or gpu is not None:
            name = f"GPU{gpu.get('dev')}" if gpu is not None and gpu.get("dev") else ""
            own_link = gpu is not None and gpu.find("c2c") is not None
            self.gpus.append(Gpu(key, name, numa, above, lanes, rate, c2c=own_link))
            found = gpu.iter("nvlink") if gpu is not None else ()
            self.links[key] = [
                (e.get("target", ""), _number(e.get("count"), 0), e.get("tclass", "")) for e in found
            ]
        elif kind.startswith(_NIC) or nic is not None:
            nets = list(nic.iter("net")) if nic is not None else []
            names = ",".join(e.get("name", "") for e in nets)
            # NCCL writes Mb/s.
            speed = sum(max(_float(e.get("speed")), 0.0) for e in nets) * 1e6 / 8
            self.nics.append(Nic(key, names, numa, above, lanes, rate, speed))
        elif kind.startswith(_BRIDGE):
            self.bridges.append(Bridge(key, above, numa, rate))
            return key
        elif not kind.startswith(_NVSWITCH):
            self.unknown.append(key)
        return above

    def _virtual(self, element: ElementTree.Element, above: str, numa: int) -> None:
        """A NIC that NCCL could place no deeper than its CPU."""
        for net in element.iter("net"):
            name = net.get("name", "")
            speed = max(_float(net.get("speed")), 0.0) * 1e6 / 8
            self.nics.append(Nic(name or f"NIC{len(self.nics)}", name, numa, above, speed=speed))

    def _with_switch_links(self) -> list[Gpu]:
        return [
            replace(
                g,
                switch_nvlinks=sum(
                    n for _, n, kind in self.links.get(g.key, ()) if kind.startswith(_NVSWITCH)
                ),
            )
            for g in self.gpus
        ]

    def _matrix(self) -> tuple[tuple[int, ...], ...]:
        if not any(self.links.values()):
            return ()
        index = {gpu.key: i for i, gpu in enumerate(self.gpus)}
        matrix = [[0] * len(self.gpus) for _ in self.gpus]
        for gpu, links in self.links.items():
            for target, count, _ in links:
                if target == gpu:
                    self.notes.append(
                        f"GPU {gpu} has {count} NVLinks to itself, which cannot be; they are left out"
                    )
                elif target in index:
                    matrix[index[gpu]][index[target]] += count
        return tuple(tuple(row) for row in matrix)


def _number(text: str | None, default: int) -> int:
    return int(text) if text and re.fullmatch(r"-?\d{1,9}", text.strip()) else default


def _float(text: str | None) -> float:
    return float(text) if text and re.fullmatch(r"\d{1,12}(?:\.\d{1,12})?", text.strip()) else 0.0
