"""Kubernetes with Kueue: the fabric as a topology, a namespace and line per person.

Formats: Kueue, ResourceFlavor, ClusterQueue and LocalQueue (kueue.x-k8s.io/v1beta1, as the topology that
`fabric export … kueue` writes); Topology Aware Scheduling annotation kueue.x-k8s.io/podset-required-topology.
"""

from __future__ import annotations

import re

from railwright import export
from railwright.catalog.parts import HOST_SHARE
from railwright.deploy.hosts import Host
from railwright.deploy.masks import logins
from railwright.errors import PlanError
from railwright.export.hierarchy import gpus_per_host, hosts_of
from railwright.export.sheet import Sheet
from railwright.spec.sharing import Sharing

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

PREFIX = "network.topology.nvidia.com"


def render(sheet: Sheet, sharing: Sharing, host: Host) -> dict[str, str]:
    """Topology, node labels, the cluster's queue, one namespace and line per user, and a job to begin with.

    With tenants every namespace has a share of its own and may borrow what others leave; else all share one.
    Raises PlanError for a login name that no namespace can have.
    """
    made = export.render(sheet.fabric, "kueue", sheet.title, sheet.catalog)
    hosts = sum(len(names) for names in hosts_of(sheet))
    gpus = gpus_per_host(sheet)
    whole = (hosts * gpus, hosts * host.cores * host.threads, int(hosts * HOST_SHARE * host.memory / 2**30))
    names = namespaces(sharing)
    objects: list[str] = []
    if sharing.isolation == "tenants":
        for i, name in enumerate(names):
            share = [total // len(names) + (i < total % len(names)) for total in whole]
            objects += [_queue(name, share, "cluster"), *_line(name, name)]
    else:
        objects.append(_queue("cluster", list(whole), ""))
        for name in names:
            objects += _line(name, "cluster")
    return {
        "kubernetes/topology.yaml": made["topology.yaml"],
        "kubernetes/node-labels.yaml": made["node-labels.yaml"],
        "kubernetes/queues.yaml": "---\n".join(objects),
        "kubernetes/job.yaml": _job(names[0], gpus, min(2, hosts), _level(made["topology.yaml"])),
    }


def namespaces(sharing: Sharing) -> tuple[str, ...]:
    """The users' namespaces. Raises PlanError for a login name that none can have (RFC 1123: no '_')."""
    names = logins(sharing)
    for name in names:
        if not _LABEL.fullmatch(name):
            raise PlanError(
                f"sharing.names: '{name}' can be no namespace of Kubernetes; give small letters, digits and "
                "'-' between them"
            )
    return names


def left_without(sharing: Sharing, gpus: int) -> list[str]:
    """A sentence where there are more tenants than GPUs; a share of part of a GPU is not made."""
    if sharing.isolation != "tenants" or sharing.users <= gpus:
        return []
    return [
        f"{gpus} GPUs do not go round {sharing.users} tenants: the last {sharing.users - gpus} have no share "
        "of their own, and run on what others leave until those ask for it."
    ]


def _queue(name: str, share: list[int], cohort: str) -> str:
    gpus, cores, memory = share
    return "\n".join(
        [
            "apiVersion: kueue.x-k8s.io/v1beta1",
            "kind: ClusterQueue",
            "metadata:",
            f"  name: {name}",
            "spec:",
            "  namespaceSelector: {}",
            *([f"  cohort: {cohort}"] if cohort else []),
            "  resourceGroups:",
            '  - coveredResources: ["nvidia.com/gpu", "cpu", "memory"]',
            "    flavors:",
            "    - name: gpu-nodes",
            "      resources:",
            '      - name: "nvidia.com/gpu"',
            f"        nominalQuota: {gpus}",
            '      - name: "cpu"',
            f"        nominalQuota: {cores}",
            '      - name: "memory"',
            f"        nominalQuota: {memory}Gi",
            "",
        ]
    )


def _line(name: str, queue: str) -> list[str]:
    namespace = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n"
    line = "\n".join(
        [
            "apiVersion: kueue.x-k8s.io/v1beta1",
            "kind: LocalQueue",
            "metadata:",
            f"  namespace: {name}",
            "  name: gpu",
            "spec:",
            f"  clusterQueue: {queue}",
            "",
        ]
    )
    return [namespace, line]


def _level(topology: str) -> str:
    """The narrowest level above the host that the topology has."""
    levels = [
        x.split(": ", 1)[1].strip('"') for x in topology.splitlines() if x.strip().startswith("- nodeLabel")
    ]
    return levels[-2] if len(levels) > 1 else levels[-1]


def _job(namespace: str, gpus: int, pods: int, level: str) -> str:
    return "\n".join(
        [
            "# A job of whole hosts that starts when all of them are free together, under one switch.",
            "apiVersion: batch/v1",
            "kind: Job",
            "metadata:",
            f"  namespace: {namespace}",
            "  generateName: train-",
            "  labels:",
            "    kueue.x-k8s.io/queue-name: gpu",
            "spec:",
            f"  parallelism: {pods}",
            f"  completions: {pods}",
            "  completionMode: Indexed",
            "  suspend: true",
            "  template:",
            "    metadata:",
            "      annotations:",
            f'        kueue.x-k8s.io/podset-required-topology: "{level}"',
            "    spec:",
            "      restartPolicy: Never",
            "      containers:",
            "      - name: train",
            "        image: nvcr.io/nvidia/pytorch:25.01-py3",
            '        command: ["nvidia-smi", "-L"]',
            "        resources:",
            "          limits:",
            f"            nvidia.com/gpu: {gpus}",
            '            cpu: "8"',
            "            memory: 64Gi",
            "        volumeMounts:",
            "        - {name: nccl, mountPath: /etc/nccl.conf, subPath: nccl.conf}",
            "        - {name: shm, mountPath: /dev/shm}",
            "      volumes:",
            "      # kubectl -n NAMESPACE create configmap nccl --from-file=nccl/nccl.conf",
            "      - {name: nccl, configMap: {name: nccl}}",
            "      - {name: shm, emptyDir: {medium: Memory}}",
            "",
        ]
    )
