"""Slurm's own picture of the network: topology.conf and topology.yaml, trees and blocks.

Slurm knows switches and nodes, but neither ports nor adapters: all port numbers are 0.
A block is a group of nodes with something fast between them; it becomes a switch of that name, and a note.
Sources: Slurm, topology.conf(5) and topology.yaml(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from railwright.asbuilt.read.dump import Dump, shorten
from railwright.asbuilt.read.gather import End, Gathering
from railwright.asbuilt.read.hostlist import expand
from railwright.asbuilt.wiring import NodeKind, Wiring

_CONF = re.compile(r"^[ \t]*(SwitchName|BlockName)[ \t]*=", re.IGNORECASE | re.MULTILINE)
_YAML = re.compile(r"^[ \t]*(?:-[ \t]+)?(tree|block|topology)[ \t]*:", re.MULTILINE)
_YAML_ROOT = re.compile(r"^[ \t]*-[ \t]+(topology|switch|block|tree)[ \t]*:", re.MULTILINE)
_PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)")
_SETTINGS = {"blocksizes", "topologyparam", "include"}


def recognise_conf(dump: Dump) -> bool:
    """A line that begins with SwitchName= or BlockName=."""
    return bool(_CONF.search(dump.text))


def recognise_yaml(dump: Dump) -> bool:
    """A YAML list with a tree or block in it."""
    return bool(
        _YAML.search(dump.text) and _YAML_ROOT.search(dump.text)
    ) and not dump.text.lstrip().startswith("{")


def parse_conf(dump: Dump, names: Mapping[str, str]) -> Wiring:
    """Switches, blocks and nodes of a topology.conf. SpecError when a line cannot be understood."""
    gathering = Gathering(dump, "topology.conf", told_twice=False)
    blocks = 0
    for number, line in _joined(dump):
        pairs = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line)}
        name = pairs.get("switchname") or pairs.get("blockname")
        if not name:
            if not _SETTINGS & pairs.keys():
                gathering.strange(number, line)
            continue
        blocks += "blockname" in pairs
        if not (pairs.get("nodes") or pairs.get("switches")):
            gathering.note(number, f"'{name}' has neither Nodes= nor Switches=; it stands alone")
        _switch(gathering, number, name, pairs.get("switches", ""), pairs.get("nodes", ""))
    return _close(gathering, blocks, names)


def parse_yaml(dump: Dump, names: Mapping[str, str]) -> Wiring:
    """The default topology of a topology.yaml. SpecError when the YAML or its structure is broken."""
    gathering = Gathering(dump, "topology.yaml", told_twice=False)
    data = _load(dump)
    entries = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else [data]
    usable = [
        e
        for e in entries
        if isinstance(e, dict) and (isinstance(e.get("tree"), dict) or isinstance(e.get("block"), dict))
    ]
    if not usable:
        dump.fail(1, "no topology with a 'tree' or a 'block' found; see Slurm's topology.yaml(5)")
    chosen = next((e for e in usable if e.get("cluster_default") in (True, "yes", "true")), usable[0])
    if len(usable) > 1:
        others = ", ".join(str(e.get("topology", "?")) for e in usable if e is not chosen)
        gathering.note(
            0, f"read topology '{chosen.get('topology', '?')}', the default; left out: {shorten(others)}"
        )
    blocks = 0
    for part, key, below in (("tree", "switches", "switch"), ("block", "blocks", "block")):
        section = chosen.get(part)
        items = section.get(key) if isinstance(section, dict) else None
        if items is None:
            continue
        if not isinstance(items, list):
            dump.fail(_line(section, key), f"'{part}.{key}' must be a list")
        for item in items:
            if not isinstance(item, dict) or not isinstance(item.get(below), str | int):
                gathering.note(
                    _line(items, None), f"an entry of '{part}.{key}' has no '{below}: name'; it is left out"
                )
                continue
            blocks += part == "block"
            _switch(
                gathering,
                _line(item, below),
                str(item[below]),
                _text(item.get("children")),
                _text(item.get("nodes")),
            )
    return _close(gathering, blocks, names)


def _close(gathering: Gathering, blocks: int, names: Mapping[str, str]) -> Wiring:
    if blocks:
        gathering.note(
            0,
            f"{blocks} blocks are shown as switches: Slurm says which nodes are near, not how "
            "they are cabled",
        )
    if gathering.devices:
        gathering.note(0, "Slurm's topology names neither ports nor adapters: port numbers are unknown")
    return gathering.wiring(names)


def _switch(gathering: Gathering, line: int, name: str, switches: str, nodes: str) -> None:
    parts: tuple[tuple[NodeKind, str], ...] = (("switch", switches), ("host", nodes))
    known = gathering.devices.get(name)
    if known is not None and known.line:
        gathering.note(line, f"switch '{name}' is described again; line {known.line} did before")
    gathering.device(name, "switch", name, line=line or 1)
    for kind, text in parts:
        try:
            below = expand(text)
        except ValueError as error:
            gathering.dump.fail(line, f"{name}: {error}")
        for child in below:
            if child == name:
                gathering.note(line, f"switch '{name}' is its own child; left out")
                continue
            device = gathering.device(child, kind, child, line=line if kind == "host" else 0, named=line)
            if device.kind != kind:
                gathering.note(line, f"'{child}' is a {kind} here and a {device.kind} in line {device.named}")
            elif kind == "host":
                device.host = child
            gathering.end(End(name, 0, child, 0, line=line))


def _joined(dump: Dump) -> Iterator[tuple[int, str]]:
    """(number, line) without comments, lines that end in a backslash joined to the next."""
    held, start = "", 0
    for number, raw in enumerate(dump.lines, start=1):
        line = raw.split("#", 1)[0].rstrip()
        start = start or number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        if whole := (held + line).strip():
            yield start, whole
        held, start = "", 0
    if held.strip():
        yield start, held.strip()


def _load(dump: Dump) -> object:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    reader = YAML(typ="rt", pure=True)
    reader.allow_duplicate_keys = True
    try:
        return reader.load(dump.text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        dump.fail(line, f"not valid YAML: {error.problem or 'broken structure'}")
    except (YAMLError, ValueError, TypeError, KeyError, AttributeError, IndexError, AssertionError) as error:
        # ruamel's round-trip loader lets some broken documents through as bare Python errors.
        dump.fail(0, f"not valid YAML: {shorten(str(error))}")


def _line(container: object, key: object) -> int:
    """1-based line of a key in what ruamel loaded; 0 when it does not say."""
    place = getattr(container, "lc", None)
    try:
        if place is None:
            return 0
        return int(place.key(key)[0] if key is not None else place.line) + 1
    except (KeyError, TypeError, AttributeError):
        return 0


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(v) for v in value)
    return "" if value is None else str(value)
