"""The cluster model that NVIDIA topograph's simulated provider reads, to try a scheduler without the machine.

Format: topograph, tests/models/*.yaml (switches with the switches below them; blocks of nodes on a switch).
"""

from __future__ import annotations

from railwright.export.hierarchy import hierarchy, hosts_of, rack_scale
from railwright.export.hostlist import ranges
from railwright.export.sheet import Sheet
from railwright.export.yamltext import quoted

DOMAIN = "accelerator.topology.test/domain"


def render(sheet: Sheet) -> dict[str, str]:
    """Switches above the scalable units; the nodes of each unit, a block per rack where racks are domains."""
    sheet.need_gpus("topograph")
    tree, hosts = hierarchy(sheet), hosts_of(sheet)
    lines = [f"# {sheet.title}"]
    tops = [(top, list(children)) for top, children in tree.islands]
    tops += [(pod, [tree.units[u].name for u in members]) for pod, members in tree.pods]
    lines.append("switches:" if tops else "switches: {}")
    for name, children in tops:
        lines += [f"  {name}:", "    switches:", *(f"    - {child}" for child in children)]
    lines.append("blocks:")
    for unit in tree.units:
        domains = [[s] for s in unit.servers] if rack_scale(sheet) else [list(unit.servers)]
        for servers in domains:
            nodes = ranges(h for s in servers for h in hosts[s])
            lines += [f"- switch: {unit.name}", "  nodes:", *(f"  - {quoted(n)}" for n in nodes)]
            if rack_scale(sheet):
                lines += ["  annotations:", f"    {DOMAIN}: rack-{servers[0] + 1:02d}"]
    return {"model.yaml": "\n".join(lines) + "\n"}
