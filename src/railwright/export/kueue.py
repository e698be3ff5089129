"""Kueue's topology-aware scheduling: the levels, the flavor that uses them, and the labels of every node.

Formats: Kueue, concepts "Topology Aware Scheduling" (kueue.x-k8s.io/v1beta1); labels as NVIDIA topograph's
Kubernetes engine sets them (topograph, docs/engines/k8s.md).
"""

from __future__ import annotations

from railwright.export.hierarchy import hierarchy, hosts_of, rack_scale
from railwright.export.sheet import Sheet
from railwright.export.yamltext import quoted

PREFIX = "network.topology.nvidia.com"
HOST = "kubernetes.io/hostname"


def render(sheet: Sheet) -> dict[str, str]:
    """Levels from the widest to the host; a level that joins nothing in this fabric is left out.

    The labels are complete objects of kind Node for `kubectl apply --server-side`, which merges them into
    the nodes that exist.
    """
    sheet.need_gpus("Kueue")
    labels = node_labels(sheet)
    levels = list(next(iter(labels.values())))
    topology = [
        f"# {sheet.title}",
        "apiVersion: kueue.x-k8s.io/v1beta1",
        "kind: Topology",
        "metadata:",
        "  name: fabric",
        "spec:",
        "  levels:",
        *(f"  - nodeLabel: {quoted(level)}" for level in levels),
        "---",
        "apiVersion: kueue.x-k8s.io/v1beta1",
        "kind: ResourceFlavor",
        "metadata:",
        "  name: gpu-nodes",
        "spec:",
        "  nodeLabels:",
        f"    railwright/gpu: {quoted(sheet.part_name('gpu'))}",
        "  topologyName: fabric",
    ]
    nodes = [f"# {sheet.title}"]
    for host, values in labels.items():
        nodes += ["---", "apiVersion: v1", "kind: Node", "metadata:", f"  name: {host}", "  labels:"]
        nodes += [f"    {label}: {quoted(value)}" for label, value in values.items()]
        nodes.append(f"    railwright/gpu: {quoted(sheet.part_name('gpu'))}")
    return {"topology.yaml": "\n".join(topology) + "\n", "node-labels.yaml": "\n".join(nodes) + "\n"}


def node_labels(sheet: Sheet) -> dict[str, dict[str, str]]:
    """Host -> its label of every level, widest first; every host has every level."""
    tree, hosts = hierarchy(sheet), hosts_of(sheet)
    above = tree.parent()
    tops = {top for top, _ in tree.islands}
    labels: dict[str, dict[str, str]] = {}
    for unit in tree.units:
        parent = above.get(unit.name, unit.name)
        # A unit that is alone in its pod hangs on the top itself, and is its own pod here.
        pod = unit.name if parent in tops else parent
        top = above.get(pod, pod)
        chain = {"leaf": unit.name}
        if tree.pods:
            chain = {"core": top, "spine": pod, **chain}
        elif tree.islands:
            chain = {"spine": parent, **chain}
        for server in unit.servers:
            for host in hosts[server]:
                row = {f"{PREFIX}/{level}": name for level, name in chain.items()}
                if rack_scale(sheet):
                    row[f"{PREFIX}/accelerator"] = f"rack-{server + 1:02d}"
                labels[host] = row | {HOST: host}
    return labels
