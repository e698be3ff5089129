"""Graphviz: servers below, tiers above, parallel cables as one line with their number.

Format: Graphviz, "DOT Language" (graphviz.org/doc/info/lang.html).
"""

from __future__ import annotations

from collections import Counter

from railwright.export.sheet import SWITCH_KINDS, Sheet
from railwright.fabric.graph import Kind

_SHAPES = {Kind.LEAF: "box", Kind.SPINE: "box", Kind.CORE: "box"}


def render(sheet: Sheet) -> dict[str, str]:
    """A bundle without a working cable is dashed red; one that lost some is orange, with how many work."""
    owner = [name.split("/")[0] for name in sheet.names]
    all_, working = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for c in sheet.cables:
        all_[owner[c.a], owner[c.b]] += 1
        working[owner[c.a], owner[c.b]] += c.live > 0
    lines = [
        "graph fabric {",
        f'  label="{_escaped(sheet.title)}"; labelloc=t; rankdir=BT; ranksep=2;',
        "  node [fontname=Helvetica]; edge [fontname=Helvetica, fontsize=9];",
        "  subgraph servers { rank=same; node [shape=box, style=rounded];",
        *(f'    "{host}";' for host in sheet.hosts),
        "  }",
    ]
    for kind in SWITCH_KINDS:
        devices = sheet.fabric.devices(kind).tolist()
        if devices:
            lines.append(f"  subgraph {kind.name.lower()} {{ rank=same; node [shape={_SHAPES[kind]}];")
            lines += [f'    "{sheet.names[d]}";' for d in devices]
            lines.append("  }")
    for (a, b), count in all_.items():
        lines.append(f'  "{a}" -- "{b}"{_style(count, working[a, b])};')
    return {"fabric.dot": "\n".join([*lines, "}"]) + "\n"}


def _style(count: int, working: int) -> str:
    if working == count:
        return f' [label="{count}"]' if count > 1 else ""
    if working:
        return f' [label="{working} of {count}", color=orange]'
    return f' [label="0 of {count}", color=red, style=dashed]'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
