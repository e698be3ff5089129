"""GraphML: every device and every cable, lanes inside servers included, with their figures.

Format: GraphML primer and DTD (graphml.graphdrawing.org); attribute types as NetworkX reads them.
"""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from railwright.export.sheet import Sheet, xml_comment
from railwright.fabric.graph import Kind, Role

_NODE_KEYS = (("kind", "string"), ("server", "int"), ("rail", "int"), ("group", "int"), ("latency", "double"))
_EDGE_KEYS = (
    ("role", "string"), ("port_a", "int"), ("port_b", "int"), ("rate", "double"), ("length", "double"),
    ("capacity_ab", "double"), ("capacity_ba", "double"),
)  # fmt: skip


def render(sheet: Sheet) -> dict[str, str]:
    """Base units: byte/s, s, m.  capacity is what each direction carries after faults (0: failed)."""
    f = sheet.fabric
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        xml_comment(sheet.title),
    ]
    for owner, keys in (("node", _NODE_KEYS), ("edge", _EDGE_KEYS)):
        lines += [f'<key id="{k}" for="{owner}" attr.name="{k}" attr.type="{t}"/>' for k, t in keys]
    lines.append('<graph id="fabric" edgedefault="undirected">')
    kinds, roles = {k: k.name.lower() for k in Kind}, {r: r.name.lower() for r in Role}
    nodes = zip(
        f.kind.tolist(), f.server.tolist(), f.rail.tolist(), f.group.tolist(), f.latency.tolist(), strict=True
    )  # fmt: skip
    names = [quoteattr(name) for name in sheet.names]
    for i, (kind, server, rail, group, latency) in enumerate(nodes):
        values = (kinds[Kind(kind)], server, rail, group, repr(latency))
        data = "".join(f'<data key="{k}">{v}</data>' for (k, _), v in zip(_NODE_KEYS, values, strict=True))
        lines.append(f"<node id={names[i]}>{data}</node>")
    columns = (f.role, f.port_a, f.port_b, f.rate, f.length, f.capacity[0::2], f.capacity[1::2])
    edges = zip(f.a.tolist(), f.b.tolist(), *(c.tolist() for c in columns), strict=True)
    for i, (a, b, role, *rest) in enumerate(edges):
        values_ = (roles[Role(role)], *rest)
        data = "".join(f'<data key="{k}">{v}</data>' for (k, _), v in zip(_EDGE_KEYS, values_, strict=True))
        lines.append(f'<edge id="c{i}" source={names[a]} target={names[b]}>{data}</edge>')
    return {"fabric.graphml": "\n".join([*lines, "</graph>", "</graphml>"]) + "\n"}
