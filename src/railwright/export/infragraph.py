"""InfraGraph (Keysight, MLCommons): devices as templates, instances of them, and an edge per cable.

Format: InfraGraph 2.4, artifacts/openapi.yaml (Infrastructure, Device, Component, Link, Instance, Edge);
endpoints are slices, 'port[32:40]', and scheme one2one joins the members of two slices in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from railwright.export.delays import Delays
from railwright.export.sheet import SWITCH_KINDS, Cable, Sheet, gigabits
from railwright.fabric.graph import Kind, Role
from railwright.fabric.wired.cables import ROLE_WORDS

_INSTANCES = {Kind.NIC: "server", Kind.LEAF: "leaf", Kind.SPINE: "spine", Kind.CORE: "core"}


def render(sheet: Sheet) -> dict[str, str]:
    """The same infrastructure as JSON and as YAML.

    A server is a device of xpus, nics and its scale-up switch; a switch is its asic and its ports.
    Failed cables are left out; a slow one has a link of its rate.  Cables of a bundle are one edge of slices.
    """
    sheet.need_gpus("InfraGraph")
    graph = infrastructure(sheet)
    return {"infragraph.json": json.dumps(graph, indent=1) + "\n", "infragraph.yaml": _yaml(graph)}


def infrastructure(sheet: Sheet) -> dict[str, Any]:
    """The infrastructure object of the format."""
    links: dict[tuple[int, float, float], dict[str, Any]] = {}
    edges = list(_edges(sheet, links))
    kinds = [k for k in SWITCH_KINDS if len(sheet.fabric.devices(k))]
    instances = [_instance("server", sheet.part_name("server"), sheet.fabric.num_servers)]
    instances += [
        _instance(_INSTANCES[k], sheet.part_name(_INSTANCES[k]), len(sheet.fabric.devices(k))) for k in kinds
    ]
    devices = {d["name"]: d for d in [_server(sheet), *_switch_devices(sheet, kinds)]}
    return {
        "name": _name(sheet.title),
        "description": f"{sheet.fabric.name}, written by Railwright",
        "devices": list(devices.values()),
        "links": list(links.values()),
        "instances": instances,
        "edges": edges,
    }


def _server(sheet: Sheet) -> dict[str, Any]:
    f = sheet.fabric
    pcie, lane = (float(f.rate[f.role == role].max()) for role in (Role.PCIE, Role.SCALE_UP))
    components = [
        _component("xpu", "xpu", sheet.gpus, sheet.part_name("gpu")),
        _component("nic", "nic", sheet.nics, sheet.part_name("nic")),
        _component("scaleup", "switch", 1, "scale-up switches of the server, as one"),
    ]
    edges = [
        *_lanes(sheet),
        _edge(("xpu", 0, sheet.gpus), ("scaleup", 0, 1), "many2many", "scale-up"),
    ]
    if sheet.nic_ports > 1:
        components.append(_component("port", "port", sheet.nics * sheet.nic_ports, "ports of the NICs"))
        edges += [
            _edge(("nic", n, 1), ("port", n * sheet.nic_ports, sheet.nic_ports), "many2many", "pcie")
            for n in range(sheet.nics)
        ]
    return {
        "name": _name(sheet.part_name("server")),
        "components": components,
        "links": [_link("pcie", pcie), _link("scale-up", lane)],
        "edges": edges,
    }


def _lanes(sheet: Sheet) -> list[dict[str, Any]]:
    """PCIe lanes of the first server; one edge where GPU i has NIC i."""
    f = sheet.fabric
    pairs = [
        (a, sheet.local[b])
        for a, b, role in zip(f.a.tolist(), f.b.tolist(), f.role.tolist(), strict=True)
        if role == Role.PCIE and a < sheet.gpus
    ]
    if pairs == [(i, i) for i in range(sheet.gpus)]:
        return [_edge(("xpu", 0, sheet.gpus), ("nic", 0, sheet.gpus), "one2one", "pcie")]
    return [_edge(("xpu", g, 1), ("nic", n, 1), "one2one", "pcie") for g, n in pairs]


def _switch_devices(sheet: Sheet, kinds: list[Kind]) -> Iterator[dict[str, Any]]:
    """One device per part; tiers of the same part share it, with the ports of the larger."""
    ports: dict[str, int] = {}
    rates: dict[str, float] = {}
    for kind in kinds:
        name = sheet.part_name(_INSTANCES[kind])
        most = max(sheet.ports[int(d)] for d in sheet.fabric.devices(kind))
        ports[name] = max(ports.get(name, 0), most)
        switch = sheet.switch(kind)
        rates[name] = switch.rate if switch else sheet.cables[0].rate
    for name, count in ports.items():
        yield {
            "name": _name(name),
            "components": [
                _component("asic", "switch", 1, "the switch's silicon"),
                _component("port", "port", count, "port 1 of the front panel is index 0"),
            ],
            "links": [_link("internal", rates[name])],
            "edges": [_edge(("asic", 0, 1), ("port", 0, count), "many2many", "internal")],
        }


def _edges(sheet: Sheet, links: dict[tuple[int, float, float], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """An edge per bundle; fills `links` with what the edges use."""
    delays = Delays(sheet)
    for first, count in _bundles(sheet.working):
        key = (first.role, first.live, first.length)
        if key not in links:
            same = sum(1 for role, rate, _ in links if (role, rate) == key[:2])
            name = f"{ROLE_WORDS[Role(first.role)]}-{gigabits(first.live).replace('.', '_')}g"
            links[key] = _link(name + (f"-{same + 1}" if same else ""), first.live, delays.cable(first))
        yield {
            "ep1": _endpoint(sheet, first.a, first.port_a, count),
            "ep2": _endpoint(sheet, first.b, first.port_b, count),
            "scheme": "one2one",
            "link": links[key]["name"],
        }


def _bundles(cables: list[Cable]) -> Iterator[tuple[Cable, int]]:
    """Runs of cables between two devices whose ports count up together: first cable, how many."""
    first: Cable | None = None
    count = 0
    for c in cables:
        if first is not None and (c.a, c.b, c.port_a, c.port_b, c.live, c.length) == (
            *(first.a, first.b, first.port_a + count, first.port_b + count, first.live, first.length),
        ):
            count += 1
            continue
        if first is not None:
            yield first, count
        first, count = c, 1
    if first is not None:
        yield first, count


def _endpoint(sheet: Sheet, device: int, port: int, count: int) -> dict[str, str]:
    """Ports count from 0 here; a server's endpoint is its NIC, or its NIC's port where NICs have several."""
    kind = Kind(int(sheet.fabric.kind[device]))
    place = sheet.local[device]
    if kind is not Kind.NIC:
        return {"instance": f"{_INSTANCES[kind]}[{place}]", "component": _slice("port", port - 1, count)}
    server = int(sheet.fabric.server[device])
    if sheet.nic_ports == 1:
        return {"instance": f"server[{server}]", "component": _slice("nic", place, 1)}
    return {
        "instance": f"server[{server}]",
        "component": _slice("port", place * sheet.nic_ports + port - 1, count),
    }


def _edge(a: tuple[str, int, int], b: tuple[str, int, int], scheme: str, link: str) -> dict[str, Any]:
    return {
        "ep1": {"component": _slice(*a)},
        "ep2": {"component": _slice(*b)},
        "scheme": scheme,
        "link": link,
    }


def _slice(component: str, first: int, count: int) -> str:
    return f"{component}[{first}]" if count == 1 else f"{component}[{first}:{first + count}]"


def _component(name: str, choice: str, count: int, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "count": count, "choice": choice}


def _instance(name: str, device: str, count: int) -> dict[str, Any]:
    return {"name": name, "device": _name(device), "count": count}


def _link(name: str, rate: float, delay: float | None = None) -> dict[str, Any]:
    unit = "gigabits_per_second"
    physical: dict[str, Any] = {"bandwidth": {"choice": unit, unit: round(rate * 8 / 1e9, 6)}}
    if delay is not None:
        physical["latency"] = {"choice": "ns", "ns": round(delay * 1e9, 3)}
    return {"name": name, "physical": physical}


def _name(text: str) -> str:
    """Letters, digits, blanks and '-_()<>[]' are allowed in names."""
    return re.sub(r"[^\sa-zA-Z0-9\-_()<>\[\]]", "-", text) or "unnamed"


def _yaml(graph: dict[str, Any]) -> str:
    """Sections as blocks, their members one a line in flow style (JSON is YAML)."""
    lines = []
    for key, value in graph.items():
        if isinstance(value, list):
            lines.append(f"{key}:" if value else f"{key}: []")
            lines += [f"- {json.dumps(member)}" for member in value]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"
