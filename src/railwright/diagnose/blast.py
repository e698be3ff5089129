"""What an element takes with it: GPUs touched, and in words."""

from __future__ import annotations

import numpy as np

from railwright.diagnose.elements import Elements
from railwright.fabric.graph import Fabric, Kind, Role


def blast_of(elements: Elements, element: int) -> tuple[int, str]:
    """(GPUs touched, a sentence) of one element; (0, '') where there is no topology to tell it."""
    kind, fabric = elements.kind[element], elements.fabric
    if kind == "rank":
        return 1, "the ranks that wait for it in every collective of its groups"
    if fabric is None:
        return (1, "one GPU") if kind == "gpu" else (0, "")
    if kind == "node":
        server = np.flatnonzero(elements.of_server == element)
        if not len(server):
            return 0, ""
        return fabric.gpus_per_server, f"all {fabric.gpus_per_server} GPUs of the server"
    if kind == "cable":
        cable = np.flatnonzero(elements.of_cable == element)
        return _cable(fabric, int(cable[0])) if len(cable) else (0, "")
    device = np.flatnonzero(elements.of_device == element)
    if not len(device):
        return (1, "one GPU") if kind == "gpu" else (0, "")
    return _device(fabric, int(device[0]))


def _cable(fabric: Fabric, cable: int) -> tuple[int, str]:
    a, b = int(fabric.a[cable]), int(fabric.b[cable])
    if fabric.role[cable] == Role.NODE_LEAF:
        users = int(np.count_nonzero(fabric.nic_of_gpu == a))
        return users, f"{users} GPU(s) behind this NIC"
    lower = a if fabric.kind[a] < fabric.kind[b] else b
    ups = int(
        np.count_nonzero(((fabric.a == lower) | (fabric.b == lower)) & (fabric.role == fabric.role[cable]))
    )
    word = Kind(int(fabric.kind[lower])).name.lower()
    gpus = _under(fabric, lower) if fabric.kind[lower] == Kind.LEAF else 0
    tail = f", which {gpus} GPUs share" if gpus else ""
    return gpus, f"1 of {ups} cables that go up from its {word}{tail}"


def _device(fabric: Fabric, device: int) -> tuple[int, str]:
    kind = Kind(int(fabric.kind[device]))
    if kind is Kind.GPU:
        return 1, "one GPU"
    if kind is Kind.NIC:
        users = int(np.count_nonzero(fabric.nic_of_gpu == device))
        return users, f"{users} GPU(s) that send through it"
    if kind is Kind.LEAF:
        gpus = _under(fabric, device)
        return gpus, f"{gpus} GPUs have their NIC on it"
    number = len(fabric.devices(kind))
    return fabric.num_gpus, f"1 of {number} {kind.name.lower()}s: its part of what crosses that tier"


def _under(fabric: Fabric, leaf: int) -> int:
    nics = fabric.a[(fabric.b == leaf) & (fabric.role == Role.NODE_LEAF)]
    return int(np.isin(fabric.nic_of_gpu, nics).sum())
