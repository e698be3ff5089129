"""Ethernet neighbours: NetQ's topology graph and `lldpctl -f json`.

Formats: NVIDIA NetQ user guide, "Topology" (GET topology graph); lldpd, lldpcli(8), "-f json" and "-f json0".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from railwright.asbuilt.read.dump import Dump, shorten
from railwright.asbuilt.read.gather import End, Gathering
from railwright.asbuilt.read.interfaces import is_switch_port, port_numbers
from railwright.asbuilt.wiring import NodeKind, Wiring

Place = tuple[str, str]
"""Device and interface."""


def recognise_netq(dump: Dump) -> bool:
    """JSON with links that are compounded."""
    return dump.text.lstrip()[:1] in ("[", "{") and '"compounded_links"' in dump.text


def recognise_lldp(dump: Dump) -> bool:
    """JSON with an 'lldp' object."""
    return dump.text.lstrip()[:1] in ("[", "{") and '"lldp"' in dump.text


def parse_netq(dump: Dump, names: Mapping[str, str]) -> Wiring:
    """Switches, adapters and cables of a NetQ graph. SpecError when the JSON is broken."""
    gathering = Gathering(dump, "NetQ topology", told_twice=False)
    data = _load(dump)
    graph = next((g for g in _items(data) if isinstance(g.get("links"), list)), None)
    if graph is None:
        dump.fail(1, "no 'links' found in the graph; is the file cut off?")
    devices = {str(d.get("id")): d for d in _devices(graph.get("nodes"))}
    called = {key: str(d.get("name") or key) for key, d in devices.items()}
    kinds = {called[key]: str(d.get("device_type") or "") for key, d in devices.items()}
    cables: list[tuple[Place, Place]] = []
    loose = 0
    for link in _items(graph["links"]):
        parts = list(_items(link.get("compounded_links"))) or [link]
        for part in parts:
            ends = [
                (str(e.get("node") or ""), str(e.get("interface") or ""))
                for e in _items(part.get("interfaces"))
            ]
            if len(ends) != 2 or not all(node for node, _ in ends):
                gathering.note(
                    0, f"link '{shorten(str(part.get('id', '?')))}' has not two ends; it is left out"
                )
                continue
            loose += not all(interface for _, interface in ends)
            (a, a_if), (b, b_if) = ends
            cables.append(((called.get(a, a), a_if), (called.get(b, b), b_if)))
    if loose:
        gathering.note(0, f"{loose} links name no interface at one end or both: their ports are unknown")
    if not cables:
        dump.fail(1, "the graph has no link; is the file cut off?")
    _join(gathering, cables, kinds, {called[k] for k in devices})
    return gathering.wiring(names)


def parse_lldp(dump: Dump, names: Mapping[str, str]) -> Wiring:
    """Neighbours of one device (or of several: an object of device name -> lldpctl output).

    lldpctl does not say whose neighbours it lists: the file's name is taken.
    SpecError when the JSON is broken.
    """
    gathering = Gathering(dump, "lldpctl", told_twice=False)
    data = _load(dump)
    several = (
        {str(k): v for k, v in data.items() if isinstance(v, dict) and "lldp" in v}
        if isinstance(data, dict)
        else {}
    )
    if not several:
        several = {dump.stem: data}
        gathering.note(
            0, f"lldpctl does not name the device it ran on; it is called '{dump.stem}' after the file"
        )
    cables: list[tuple[Place, Place]] = []
    kinds: dict[str, str] = {}
    for local, output in several.items():
        for item in _items(output):
            for interface, told in _interfaces(item.get("lldp")):
                far, kind, far_port = _neighbour(told)
                if not far:
                    gathering.note(0, f"the neighbour at {local} {interface} has no name; it is left out")
                    continue
                kinds.setdefault(far, kind)
                cables.append(((local, interface), (far, far_port)))
    if not cables:
        dump.fail(
            1, "no neighbour found; lldpctl lists none until the neighbours have sent a first frame (30 s)"
        )
    _join(gathering, cables, kinds, set(several))
    return gathering.wiring(names)


def _join(
    gathering: Gathering, cables: list[tuple[Place, Place]], kinds: Mapping[str, str], described: set[str]
) -> None:
    """Cables between named interfaces as devices and ends: a switch has ports, a host adapters."""
    ports: dict[str, list[str]] = {}
    for ends in cables:
        for device, interface in ends:
            ports.setdefault(device, []).append(interface)
    kind_of = {device: _kind(kinds.get(device, ""), names) for device, names in ports.items()}
    numbers = {d: port_numbers(names) for d, names in ports.items() if kind_of[d] != "host"}

    def place(device: str, interface: str) -> tuple[str, int]:
        kind = kind_of[device]
        line = 1 if device in described else 0
        if kind != "host":
            gathering.device(device, kind, device, line=line, named=1)
            return device, numbers[device][interface.strip()]
        key = f"{device} {interface}".strip()
        found = gathering.device(key, "host", key, line=line, named=1)
        found.host, found.adapter, found.ports = device, interface, 1
        return key, 1 if interface else 0

    for (a, a_if), (b, b_if) in cables:
        (key, port), (far, far_port) = place(a, a_if), place(b, b_if)
        gathering.end(End(key, port, far, far_port))
    for switch in gathering.devices.values():
        if switch.kind == "switch":
            switch.ports = max(numbers[switch.key].values(), default=0)


def _kind(told: str, interfaces: list[str]) -> NodeKind:
    if told in ("switch", "router", "bridge"):
        return "switch"
    return "switch" if any(is_switch_port(name) for name in interfaces) else "host"


def _devices(nodes: object) -> Iterator[dict[str, Any]]:
    """Devices inside tiers inside tiers."""
    waiting = list(_items(nodes))
    while waiting:
        node = waiting.pop(0)
        inner = list(_items(node.get("compounded_nodes")))
        if inner:
            waiting[:0] = inner
        elif node.get("node_type", "device") == "device":
            yield node


def _interfaces(lldp: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """(local interface, what it hears) of json, where the name is a key, and json0, where it is a field."""
    for group in _items(lldp):
        for entry in _items(group.get("interface")):
            if isinstance(entry.get("name"), str):
                yield entry["name"], entry
                continue
            for name, told in entry.items():
                if isinstance(told, dict):
                    yield str(name), told


def _neighbour(told: Mapping[str, Any]) -> tuple[str, str, str]:
    """(name, kind, port) of what an interface hears."""
    name, kind, port = "", "", ""
    for chassis in _items(told.get("chassis")):
        facts: Mapping[str, Any] = chassis
        if "name" in chassis:
            name = _value(chassis["name"])
        elif "id" not in chassis and len(chassis) == 1 and isinstance(next(iter(chassis.values())), dict):
            name, facts = next(iter(chassis.items()))
        else:
            name = _value(chassis.get("id"))
        for capability in _items(facts.get("capability")):
            if capability.get("type") in ("Bridge", "Router") and capability.get("enabled") in (
                True,
                "on",
                "true",
            ):
                kind = "switch"
        break
    for entry in _items(told.get("port")):
        by_type = {str(i.get("type")): _value(i) for i in _items(entry.get("id"))}
        port = (
            by_type.get("ifname")
            or by_type.get("local")
            or _value(entry.get("descr"))
            or next(iter(by_type.values()), "")
        )
        break
    return str(name), kind, str(port)


def _value(told: object) -> str:
    """The text of 'x', {'value': 'x'} or [{'value': 'x'}]."""
    if isinstance(told, list):
        told = told[0] if told else ""
    if isinstance(told, dict):
        told = told.get("value", "")
    return told if isinstance(told, str) else ""


def _items(told: object) -> Iterator[dict[str, Any]]:
    """The objects of a list, or the one object."""
    for item in told if isinstance(told, list) else [told]:
        if isinstance(item, dict):
            yield item


def _load(dump: Dump) -> Any:
    try:
        return json.loads(dump.text)
    except json.JSONDecodeError as error:
        dump.fail(error.lineno, f"not valid JSON: {error.msg}; the file is cut off or damaged here")
    except ValueError as error:  # integers of more digits than Python converts
        dump.fail(0, f"not valid JSON: {shorten(str(error))}")
