"""InfraGraph (Keysight, MLCommons): devices as templates, instances of them, and edges between slices.

Format: InfraGraph 2.4, artifacts/openapi.yaml (Infrastructure, Device, Component, Link, Instance, Edge).  An
endpoint 'leaf[0:2]', 'port[4:6]' is every member of the first slice with every one of the second, in order;
scheme one2one joins the members of two endpoints pairwise, many2many each with each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from railwright.asbuilt.read.dump import Dump, shorten
from railwright.asbuilt.read.gather import End, Gathering
from railwright.asbuilt.read.speeds import name_of
from railwright.asbuilt.wiring import Wiring

MOST_CABLES = 2_000_000
"""More than this is no fabric but a damaged slice."""
_SLICE = re.compile(r"^(?P<name>[^\[\]]+?)(?:\[(?P<first>\d+)(?::(?P<last>\d+))?\])?$")
_UNITS = {"gigabits_per_second": 1e9 / 8, "gigabytes_per_second": 1e9}


@dataclass(frozen=True)
class _Template:
    """A device template: whether it is a server, and how many of each component it has."""

    is_host: bool
    counts: Mapping[str, int]
    kinds: Mapping[str, str]

    @property
    def ports_per_nic(self) -> int:
        nics = sum(self.counts[c] for c, kind in self.kinds.items() if kind == "nic")
        ports = sum(self.counts[c] for c, kind in self.kinds.items() if kind == "port")
        return max(1, ports // nics) if nics else 1


def recognise(dump: Dump) -> bool:
    """JSON or YAML with instances, devices and edges."""
    words = ("instances", "devices", "edges")
    if dump.text.lstrip().startswith("{"):
        return all(f'"{word}"' in dump.text for word in words)
    return all(re.search(rf"(?m)^{word}\s*:", dump.text) for word in words)


def parse(dump: Dump, names: Mapping[str, str]) -> Wiring:
    """Switches, adapters and cables between instances. SpecError when the file is broken."""
    graph = _load(dump)
    gathering = Gathering(dump, "InfraGraph", told_twice=False)
    templates = {str(d.get("name")): _template(d) for d in _items(graph.get("devices"))}
    placed = {str(i.get("name")): i for i in _items(graph.get("instances"))}
    rates = {str(link.get("name")): _rate(link) for link in _items(graph.get("links"))}
    cables = 0
    for edge in _items(graph.get("edges")):
        ends = [list(_members(dump, edge.get(ep), placed, templates)) for ep in ("ep1", "ep2")]
        pairs = list(zip(*ends, strict=False)) if edge.get("scheme") == "one2one" else product(*ends)
        cables += len(ends[0]) * (1 if edge.get("scheme") == "one2one" else len(ends[1]))
        if cables > MOST_CABLES:
            dump.fail(0, f"edges expand to more than {MOST_CABLES:,} cables; a slice is damaged")
        if edge.get("scheme") == "one2one" and len(ends[0]) != len(ends[1]):
            gathering.note(
                0, f"edge {shorten(str(edge))} joins {len(ends[0])} to {len(ends[1])} members one2one"
            )
        rate = rates.get(str(edge.get("link")), 0.0)
        width, speed = name_of(rate) if rate else (0, "")
        for (a, a_port), (b, b_port) in pairs:
            for key in (a, b):
                _describe(gathering, key, placed, templates)
            gathering.end(End(a, a_port, b, b_port, width, speed, rate))
    if not cables:
        dump.fail(0, "no edge joins two instances; is the file cut off?")
    return gathering.wiring(names)


def _describe(
    gathering: Gathering, key: str, placed: Mapping[str, Any], templates: Mapping[str, _Template]
) -> None:
    """The device of a key: 'leaf-03' is a switch, 'server-03/nic-2' an adapter."""
    instance = key.split("/")[0].rsplit("-", 1)[0]
    template = templates[str(placed[instance].get("device"))]
    device = gathering.device(key, "host" if template.is_host else "switch", key, line=1)
    device.model = str(placed[instance].get("device"))
    if template.is_host:
        device.host, device.adapter = key.split("/")
        device.ports = template.ports_per_nic
    else:
        device.ports = max((n for c, n in template.counts.items() if template.kinds[c] == "port"), default=0)


def _members(
    dump: Dump, endpoint: Any, placed: Mapping[str, Any], templates: Mapping[str, _Template]
) -> Iterator[tuple[str, int]]:
    """(device key, port) of every member of an endpoint, instance by instance."""
    if not isinstance(endpoint, dict):
        dump.fail(0, f"an edge's endpoint is {shorten(str(endpoint))}, not an instance and a component")
    name, first, last = _slice(dump, str(endpoint.get("instance")))
    if name not in placed:
        dump.fail(0, f"an edge names the instance '{shorten(name)}', which is not listed")
    template = templates.get(str(placed[name].get("device")))
    if template is None:
        dump.fail(0, f"instance '{shorten(name)}' is of a device that is not described")
    component, from_, to = _slice(dump, str(endpoint.get("component")))
    if component not in template.counts:
        dump.fail(0, f"an edge names the component '{shorten(component)}', which its device does not have")
    instances = range(*_bounds(first, last, _count(placed[name])))
    components = range(*_bounds(from_, to, template.counts[component]))
    if len(instances) * len(components) > MOST_CABLES:
        dump.fail(0, f"an endpoint has more than {MOST_CABLES:,} members; a count or a slice is damaged")
    for i in instances:
        for c in components:
            yield _place(f"{name}-{i + 1:02d}", template, template.kinds[component], c)


def _place(device: str, template: _Template, kind: str, index: int) -> tuple[str, int]:
    """Ports count from 1 here; an adapter's endpoint is itself, or one of its ports."""
    if not template.is_host:
        return device, index + 1
    if kind == "port":
        nic, port = divmod(index, template.ports_per_nic)
        return f"{device}/nic-{nic}", port + 1
    return f"{device}/nic-{index}", 1


def _bounds(first: int | None, last: int | None, count: int) -> tuple[int, int]:
    """The range of a slice; without brackets every member."""
    if first is None:
        return 0, count
    return first, min(first + 1 if last is None else last, count)


def _slice(dump: Dump, text: str) -> tuple[str, int | None, int | None]:
    match = _SLICE.match(text)
    if match is None:
        dump.fail(0, f"'{shorten(text)}' is not a slice; expected 'leaf', 'leaf[0]' or 'leaf[0:4]'")
    first, last = match["first"], match["last"]
    return match["name"], int(first) if first else None, int(last) if last else None


def _template(device: Mapping[str, Any]) -> _Template:
    """A device with an accelerator, a processor or an adapter inside is a server; others are switches."""
    components = list(_items(device.get("components")))
    kinds = {str(c.get("name")): str(c.get("choice")) for c in components}
    counts = {str(c.get("name")): _count(c) for c in components}
    return _Template(bool({"xpu", "cpu", "nic"} & set(kinds.values())), counts, kinds)


def _count(member: Mapping[str, Any]) -> int:
    count = member.get("count", 1)
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def _rate(link: Mapping[str, Any]) -> float:
    """One direction [byte/s]; 0 where the link does not say."""
    physical = link.get("physical")
    bandwidth = physical.get("bandwidth") if isinstance(physical, dict) else None
    if not isinstance(bandwidth, dict):
        return 0.0
    unit = str(bandwidth.get("choice"))
    value = bandwidth.get(unit)
    return float(value) * _UNITS[unit] if unit in _UNITS and isinstance(value, int | float) else 0.0


def _items(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _load(dump: Dump) -> dict[str, Any]:
    """The document, JSON or YAML. SpecError with the line where it breaks."""
    data: Any
    if dump.text.lstrip().startswith("{"):
        try:
            data = json.loads(dump.text)
        except ValueError as error:
            line = getattr(error, "lineno", 0)
            dump.fail(line, f"broken JSON: {error}; is the file cut off?")
    else:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            data = YAML(typ="safe").load(dump.text)
        except (YAMLError, ValueError, TypeError) as error:  # TypeError: a mapping as a key
            mark = getattr(error, "problem_mark", None)
            dump.fail(mark.line + 1 if mark else 0, "broken YAML; is the file cut off?")
    if not isinstance(data, dict):
        dump.fail(1, "no infrastructure object found")
    return data
