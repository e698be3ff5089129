"""Where a log's ranks sit on the study's machine: by the listed devices, else whole servers first."""

from __future__ import annotations

import numpy as np

from railwright.catalog.names import is_another_gpu
from railwright.catalog.parts import Gpu
from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.measure.logs.curve import Device, MeasuredCurve
from railwright.traffic.demand import Communicator

_RACK = 16
"""GPUs of one NVLink domain above which a host of the log is a tray of it, not a server of the study."""


def place(curve: MeasuredCurve, machine: Machine) -> tuple[tuple[Communicator, ...], tuple[str, ...]]:
    """The communicators that ran at the same time, and what was assumed of their places.

    Hosts of the log become servers of the study in order of their first rank; groups (NCCL_TESTS_SPLIT) run
    together.  Without a list of devices the ranks fill whole servers.
    Raises PlanError when the study's machine is smaller than the log's, or the log tells no rank count.
    """
    fabric = machine.network.fabric
    ranks = curve.ranks
    if ranks is None:
        raise PlanError(
            f"{curve.file}:{curve.line}: the log does not tell over how many ranks {curve.op} ran; "
            "say it with --ranks, like --ranks 16."
        )
    devices = curve.header.devices
    if _trusted(devices, ranks, curve.header.groups):
        gpus, note = _by_device(devices, fabric, curve)
        groups: dict[int, list[int]] = {}
        for device, gpu in zip(devices, gpus, strict=True):
            groups.setdefault(device.group, []).append(gpu)
        found = tuple(
            Communicator(np.array(g, np.int32), f"group {name}" if len(groups) > 1 else "world")
            for name, g in sorted(groups.items())
        )
        return found, note
    _check(ranks, fabric, curve, f"{ranks} ranks")
    note = () if ranks % fabric.gpus_per_server == 0 or ranks < fabric.gpus_per_server else (
        f"{ranks} ranks do not fill whole servers of {fabric.gpus_per_server} GPUs; the last is taken in "
        "part",
    )  # fmt: skip
    return (Communicator(np.arange(ranks, dtype=np.int32), "world"),), note


def other_gpus(curve: MeasuredCurve, gpu: Gpu) -> str:
    """What the log's devices are where they are no GPUs of the study, in words; else ''.

    rccl-tests does not list devices in its reports, but runs on AMD's alone.
    """
    named = dict.fromkeys(device.name for device in curve.header.devices)
    others = [name for name in named if is_another_gpu(name, gpu.name)]
    if others:
        return f"the log lists {others[0]}, and the study's GPUs are {gpu.name}"
    if curve.tool == "rccl-tests" and not gpu.generation.startswith("cdna"):
        return f"the log is of rccl-tests, which runs on AMD's GPUs, and the study's are {gpu.name}"
    return ""


def _trusted(devices: tuple[Device, ...], ranks: int, groups: int) -> bool:
    """Whether the list is whole and agrees with the rank count."""
    return len(devices) == ranks * groups and len({d.rank for d in devices}) == len(devices)


def _by_device(
    devices: tuple[Device, ...], fabric: Fabric, curve: MeasuredCurve
) -> tuple[list[int], tuple[str, ...]]:
    each = fabric.gpus_per_server
    if each > _RACK:
        _check(len(devices), fabric, curve, f"{len(devices)} ranks")
        return list(range(len(devices))), ("hosts are taken as trays of the study's racks, in order",)
    hosts = {host: i for i, host in enumerate(dict.fromkeys(d.host for d in devices))}
    if len(hosts) > fabric.num_servers:
        servers = f"{fabric.num_servers} server" + ("s" if fabric.num_servers > 1 else "")
        raise PlanError(
            f"{curve.file}:{curve.line}: the log lists {len(hosts)} hosts, but the study's cluster has "
            f"{servers}; compare with a study of at least that many (cluster.servers)."
        )
    members: dict[str, list[Device]] = {}
    for device in devices:
        members.setdefault(device.host, []).append(device)
    most = max(len(m) for m in members.values())
    if most > each:
        raise PlanError(
            f"{curve.file}:{curve.line}: the log lists {most} ranks on one host, but a server of the study "
            f"has {each} GPUs; name the right server in the study (cluster.server)."
        )
    place: dict[int, int] = {}
    for host, here in members.items():
        numbers = [d.device for d in here]
        # Launchers that show each process one GPU only make every device number 0.
        usable = len(set(numbers)) == len(numbers) and max(numbers) < each
        for order, device in enumerate(here):
            place[device.rank] = hosts[host] * each + (device.device if usable else order)
    return [place[d.rank] for d in devices], ()


def _check(needed: int, fabric: Fabric, curve: MeasuredCurve, what: str) -> None:
    if needed > fabric.num_gpus:
        raise PlanError(
            f"{curve.file}:{curve.line}: the log was measured on {what}, but the study's cluster has "
            f"{fabric.num_gpus} GPUs; compare with a study of at least that many (cluster.servers)."
        )
