"""Slurm: topology in both of its files and both of its shapes, with the nodes and GPUs to go with it.

Formats: Slurm topology.conf(5), topology.yaml(5) (25.05), slurm.conf(5) "NodeName", gres.conf(5).
"""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.export.hierarchy import (
    Hierarchy,
    gpus_per_host,
    hierarchy,
    hosts_of,
    rack_scale,
)
from railwright.export.hostlist import hostlist
from railwright.export.sheet import Sheet
from railwright.fabric.trays import RACK_SCALE, TRAY_GPUS


def render_tree(sheet: Sheet) -> dict[str, str]:
    """topology/tree: what hangs on which logical switch (see `hierarchy`)."""
    sheet.need_gpus("Slurm")
    tree, hosts = hierarchy(sheet), hosts_of(sheet)
    switches = _switches(tree, hosts)
    conf = [
        f"SwitchName={name} " + (f"Nodes={children}" if leaf else f"Switches={children}")
        for name, children, leaf in switches
    ]
    text = ["- topology: tree", "  cluster_default: true", "  tree:", "    switches:"]
    for name, children, leaf in switches:
        text += [f"      - switch: {name}", f"        {'nodes' if leaf else 'children'}: {children}"]
    return _files(sheet, "tree", conf, text)


def render_block(sheet: Sheet) -> dict[str, str]:
    """topology/block: a block per rack-scale scale-up domain.

    Block sizes are a rack, and every doubling of it that the cluster holds.
    Raises PlanError where servers are single hosts: there the tree says all that Slurm can use.
    """
    sheet.need_gpus("Slurm")
    if not rack_scale(sheet):
        raise PlanError(
            f"Slurm's block topology is for scale-up domains of several hosts (more than {RACK_SCALE} GPUs, "
            f"{TRAY_GPUS} a host); servers of this fabric have {sheet.gpus} GPUs and are one host each; "
            "take format slurm"
        )
    hosts = hosts_of(sheet)
    blocks = [(f"rack-{i + 1:02d}", hostlist(names)) for i, names in enumerate(hosts)]
    sizes = [len(hosts[0])]
    while sizes[-1] * 2 <= len(hosts[0]) * len(hosts):
        sizes.append(sizes[-1] * 2)
    conf = [f"BlockName={name} Nodes={nodes}" for name, nodes in blocks]
    conf.append("BlockSizes=" + ",".join(map(str, sizes)))
    text = ["- topology: block", "  cluster_default: true", "  block:", "    block_sizes:"]
    text += [f"      - {size}" for size in sizes] + ["    blocks:"]
    for name, nodes in blocks:
        text += [f"      - block: {name}", f"        nodes: {nodes}"]
    return _files(sheet, "block", conf, text)


def gpu_type(sheet: Sheet) -> str:
    """The GPU's first word, as `--gres=gpu:h100:8` is usually written."""
    return sheet.part_name("gpu").split("-")[0]


def _switches(tree: Hierarchy, hosts: list[list[str]]) -> list[tuple[str, str, bool]]:
    """(switch, hostlist of what hangs on it, whether that is nodes), units first."""
    rows = [(u.name, hostlist(h for s in u.servers for h in hosts[s]), True) for u in tree.units]
    rows += [(pod, hostlist(tree.units[u].name for u in members), False) for pod, members in tree.pods]
    return rows + [(top, hostlist(children), False) for top, children in tree.islands]


def _files(sheet: Sheet, plugin: str, conf: list[str], text: list[str]) -> dict[str, str]:
    head = f"# {sheet.title}"
    nodes = hostlist(h for names in hosts_of(sheet) for h in names)
    kind, count = gpu_type(sheet), gpus_per_host(sheet)
    slurm = [
        head,
        "# Lines to add to slurm.conf.  Sockets, cores and memory of a node: run `slurmd -C` on one.",
        f"TopologyPlugin=topology/{plugin}",
        "SelectType=select/cons_tres",
        "GresTypes=gpu",
        f"NodeName={nodes} Gres=gpu:{kind}:{count} State=UNKNOWN",
        f"PartitionName=gpu Nodes={nodes} Default=YES MaxTime=INFINITE State=UP",
    ]
    return {
        "topology.conf": "\n".join([head, *conf]) + "\n",
        "topology.yaml": "\n".join([head, *text]) + "\n",
        "slurm.conf": "\n".join(slurm) + "\n",
        "gres.conf": f"{head}\nNodeName={nodes} Name=gpu Type={kind} {_files_of(sheet, count)}\n",
    }


def _files_of(sheet: Sheet, count: int) -> str:
    """Device files of NVIDIA's driver; others' numbering is not known beforehand, so only their count."""
    if sheet.gpu is None or sheet.gpu.vendor != "nvidia":
        return f"Count={count}"
    return f"File=/dev/nvidia[0-{count - 1}]" if count > 1 else "File=/dev/nvidia0"
