"""`ibnetdiscover`: the topology file, plain or grouped by chassis (`-g`).

Format: infiniband-diags, doc/rst/ibnetdiscover.8.in.rst, "TOPOLOGY FILE FORMAT".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from railwright.asbuilt.read.dump import Dump
from railwright.asbuilt.read.gather import Device, End, Gathering
from railwright.asbuilt.read.speeds import WIDTHS, speed_name
from railwright.asbuilt.wiring import NodeKind, Wiring

KINDS: Mapping[str, NodeKind] = {"S": "switch", "H": "host", "R": "router"}

_DEVICE = re.compile(
    r'(?P<word>Switch|Ca|Rt|Hca)\s+(?P<ports>\d{1,3})\s+"(?P<kind>[SHR])-(?P<guid>[0-9a-fA-F]{1,16})"\s*'
    r'#\s*"(?P<name>.*)"(?P<rest>[^"]*)$'
)
_PORT = re.compile(
    r"\[(?P<port>\d{1,3})\](?:\[ext \d+\])?(?:\((?P<guid>[0-9a-fA-F]{1,16})\))?\s*"
    r'"(?P<kind>[SHR])-(?P<far>[0-9a-fA-F]{1,16})"\[(?P<far_port>\d{1,3})\](?:\[ext \d+\])?'
    r"(?:\((?P<far_guid>[0-9a-fA-F]{1,16})\))?\s*#\s*(?:lid (?P<lid>\d{1,5}) lmc \d+\s*)?"
    r'"(?P<name>.*)" lid (?P<far_lid>\d{1,5})\s+(?P<width>\d{1,2})x(?P<speed>\w+)'
)
_FIELD = re.compile(r"(?P<field>vendid|devid|sysimgguid|switchguid|caguid|rtguid)=(?P<value>0x[0-9a-fA-F]+)")
_CHASSIS = re.compile(r"Chassis\s+(?P<number>\d{1,6})(?:\s*\(guid (?P<guid>0x[0-9a-fA-F]{1,16})\))?")
_LID = re.compile(r"\blid (\d{1,5})\b")
_SILENT = re.compile(r"\s*(#|$|Non-Chassis Nodes|ibwarn:|ibpanic:|src/\w+\.c:|DR path|vendid=|-+$)")
_START = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"[SHR]-[0-9a-fA-F]', re.MULTILINE)
_LOOSE_START = re.compile(r'^\[\d+\].*"[SHR]-[0-9a-fA-F]+"\[\d+\]', re.MULTILINE)
_ANY_START = re.compile(r"^(#\s*\n)?# Topology file:|^switchguid=0x|^caguid=0x", re.MULTILINE)

# Device ids of vendor 15b3 (pciids.sourceforge.net): the silicon is known even where the name says nothing.
_MODELS = {
    0xBD36: "InfiniScale IV", 0xC738: "SwitchX", 0xCB20: "Switch-IB", 0xCF08: "Switch-IB 2",
    0xD2F0: "Quantum", 0xD2F2: "Quantum-2", 0xD2F4: "Quantum-3", 0x1003: "ConnectX-3", 0x1011: "Connect-IB",
    0x1013: "ConnectX-4", 0x1017: "ConnectX-5", 0x1019: "ConnectX-5 Ex", 0x101B: "ConnectX-6",
    0x101D: "ConnectX-6 Dx", 0x1021: "ConnectX-7", 0x1023: "ConnectX-8", 0xA2D6: "BlueField-2",
    0xA2DC: "BlueField-3",
}  # fmt: skip


def recognise(dump: Dump) -> bool:
    """A device or port line of the topology file, or its heading."""
    return any(form.search(dump.head) for form in (_START, _LOOSE_START, _ANY_START))


def parse(dump: Dump, names: Mapping[str, str]) -> Wiring:
    """The fabric of a topology file. SpecError when it describes no device."""
    return _Reader(dump).read(names)


class _Reader:
    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.gathering = Gathering(dump, "ibnetdiscover", told_twice=True)
        self.keys: dict[str, str] = {}
        self.owner: dict[str, str] = {}
        self.fields: dict[str, str] = {}
        self.images: dict[str, list[Device]] = {}
        self.chassis = ""
        self.device: Device | None = None

    def read(self, names: Mapping[str, str]) -> Wiring:
        self._learn_keys()
        for number, line in enumerate(self.dump.lines, start=1):
            if line.startswith("["):
                self._port(number, line)
            elif match := _DEVICE.match(line):
                self._device(number, match)
            elif match := _FIELD.match(line):
                if match["field"] == "vendid":
                    self.fields, self.device = {}, None
                self.fields[match["field"]] = match["value"]
            elif match := _CHASSIS.match(line):
                self.chassis = match["guid"] or f"chassis {match['number']}"
            elif not _SILENT.match(line):
                self.device = None
                self.gathering.strange(number, line)
            elif line.startswith("Non-Chassis"):
                self.chassis = ""
        for image, devices in self.images.items():
            if len(devices) > 1:
                for device in devices:
                    device.system = device.system or image
        return self.gathering.wiring(names)

    def _learn_keys(self) -> None:
        """Adapters are known by the GUID of their first port: the one name every format has for them."""
        node = ""
        for line in self.dump.lines:
            if line.startswith("["):
                if match := _PORT.match(line):
                    if match["kind"] != "S" and match["far_guid"]:
                        self._learn(match["far"], match["far_guid"], int(match["far_port"]))
                    if node and match["guid"]:
                        self._learn(node, match["guid"], int(match["port"]))
            elif match := _DEVICE.match(line):
                node = match["guid"] if match["kind"] != "S" else ""

    def _learn(self, node: str, port_guid: str, port: int) -> None:
        value = int(port_guid, 16) - port + 1
        key, node = f"0x{max(value, 0):016x}", _guid(node)
        if node not in self.keys and self.owner.setdefault(key, node) == node:
            self.keys[node] = key

    def _key(self, guid: str) -> str:
        node = _guid(guid)
        key = self.keys.get(node, node)
        self.gathering.aliases[node] = key
        return key

    def _device(self, number: int, match: re.Match[str]) -> None:
        key = self._key(match["guid"])
        known = self.gathering.devices.get(key)
        if known is not None and known.line:
            self.gathering.note(
                number, f"{match['name']} ({key}) is described again; line {known.line} did before"
            )
        device = self.gathering.device(key, KINDS[match["kind"]], match["name"].strip(), line=number)
        device.ports = max(int(match["ports"]), 0)
        if device.kind == "switch":
            device.system = self.chassis
            if lid := _LID.search(match["rest"]):
                device.tell_lid(0, int(lid[1]))
            if image := self.fields.get("sysimgguid"):
                self.images.setdefault(image, []).append(device)
        device.model = _MODELS.get(int(self.fields.get("devid", "0x0")[:18], 16), "")
        self.device, self.fields = device, {}

    def _port(self, number: int, line: str) -> None:
        match = _PORT.match(line)
        if match is None:
            self.gathering.strange(number, line)
            return
        if self.device is None:
            self.gathering.note(
                number,
                f"port {match['port']} stands before any device; its heading line is missing, so "
                "it is left out",
            )
            return
        far = self.gathering.device(
            self._key(match["far"]), KINDS[match["kind"]], match["name"].strip(), named=number
        )
        far_lid, port, far_port = int(match["far_lid"]), int(match["port"]), int(match["far_port"])
        far.tell_lid(far_port if far.kind != "switch" else 0, far_lid)
        if match["lid"]:
            self.device.tell_lid(port, int(match["lid"]))
        if self.device.ports and port > self.device.ports:
            self.gathering.note(
                number,
                f"port {port} of {self.device.name or self.device.key}, which has {self.device.ports} ports",
            )
        width, speed = int(match["width"]), speed_name(match["speed"])
        if not speed or width not in WIDTHS:
            self.gathering.note(number, f"unknown width or speed '{match['width']}x{match['speed']}'")
            width = width if width in WIDTHS else 0
        self.gathering.end(End(self.device.key, port, far.key, far_port, width, speed, line=number))


def _guid(text: str) -> str:
    return f"0x{int(text, 16):016x}"
