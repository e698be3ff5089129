"""What lies in host memory: its time over the link between GPU and host, and the host's own update.

Activations leave while the next layer computes and come back one layer ahead; optimizer states stay on the
host, which takes gradients, updates and returns parameters.
Sources: Ren et al., ZeRO-Offload (USENIX ATC 2021, arXiv 2101.06840), sections 3 and 4; Transformer Engine,
pytorch/cpu_offload.py (copies beside compute).
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.collectives.machine import Machine
from railwright.model.architecture import Transformer
from railwright.model.pattern import Layer, kinds_present
from railwright.spec.training import TrainingJob
from railwright.training.communication import WEIGHT_BYTES
from railwright.training.kept import layer_kept

PCIE_SHARE = 55.4 / 63.0
"""Copies from host to GPU over the nominal rate of PCIe 5.0 x16: 55.4 of 63 GB/s, as nvbandwidth measures
(NVIDIA, nvbandwidth, README, sample output)."""

CHIP_TO_CHIP = 225e9
"""NVLink-C2C between a Grace CPU and each of its two GPUs, one direction: 900 GB/s both ways over two GPUs.
Source: NVIDIA, GB200 NVL72, product page. [byte/s]"""

HOST_ADAM = 2.57 / 10e9
"""Host time per parameter of DeepSpeed's CPU Adam with all cores of a server: 2.57 s for 10 billion.
Source: ZeRO-Offload, table 4 (DGX-2 host), quoted from memory of the paper. [s]"""


def host_link(machine: Machine) -> float:
    """Rate between one GPU and its host, one direction: its own PCIe slot, whatever the NIC's. [byte/s]"""
    if machine.server.cpu == "arm":
        return CHIP_TO_CHIP
    return PCIE_SHARE * machine.gpu.slot


def copy_times(job: TrainingJob, arch: Transformer, machine: Machine) -> dict[Layer, float]:
    """Time to copy what one layer keeps for its backward pass, one way; empty without offload. [s]"""
    if "activations" not in job.layout.offload:
        return {}
    return {kind: layer_kept(job, arch, kind) / host_link(machine) for kind in kinds_present(arch)}


class HostUpdate(NamedTuple):
    """An optimizer step on the host: gradients down, Adam, 16-bit parameters up. [s]"""

    down: float = 0.0
    adam: float = 0.0
    up: float = 0.0


ON_GPU = HostUpdate()
"""Nothing of it runs on the host."""


def host_update(parameters: float, gradient: float, ranks: int, machine: Machine) -> HostUpdate:
    """How long each part of it takes, one after the other.

    parameters  of this GPU's shard; gradient  bytes of one; ranks  of the job on one server share its cores
    """
    link = host_link(machine)
    return HostUpdate(
        parameters * gradient / link, parameters * ranks * HOST_ADAM, parameters * WEIGHT_BYTES / link
    )
