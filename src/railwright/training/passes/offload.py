"""What lies in host memory: its time over the link between GPU and host, and the host's own update.

Activations leave while the next layer computes and come back one layer ahead; optimizer states stay on the
host, which takes gradients, updates and returns parameters.
Sources: Ren et al., ZeRO-Offload (USENIX ATC 2021, arXiv 2101.06840), sections 3 and 4; Transformer Engine,
pytorch/cpu_offload.py (copies beside compute).
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.collectives.machine import Machine
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer, kinds_present
from railwright.spec.training import TrainingJob
from railwright.training.lanes.contention import NICS, Uses
from railwright.training.lanes.tasks import Task
from railwright.training.layers.communication import WEIGHT_BYTES, gradient_bytes
from railwright.training.memory.activations import layer_kept
from railwright.training.software.eras import era_of
from railwright.training.software.hosted import ranks_together, weights_on_host

PCIE_SHARE = 55.4 / 63.0
"""Copies from host to GPU over the nominal rate of PCIe 5.0 x16: 55.4 of 63 GB/s, as nvbandwidth measures
(NVIDIA, nvbandwidth, README, sample output)."""

CHIP_TO_CHIP = {"gh": 450e9, "gb": 450e9 / 2, "vr": 900e9 / 2}
"""How GPUs with NVLink-C2C to their CPU begin their names, and each one's part of it, one direction: Grace
has 900 GB/s both ways, for one GPU (GH200) or two (GB200, GB300), Vera 1.8 TB/s for two.
Source: NVIDIA, GH200 Grace Hopper Superchip and GB200 NVL72, product pages; Inside the NVIDIA Rubin Platform
(2026). [byte/s]"""

HOST_ADAM = 2.57 / 10e9
"""Host time per parameter of DeepSpeed's CPU Adam with all cores of a server: 2.57 s for 10 billion.
Source: ZeRO-Offload, table 4 (DGX-2 host), quoted from memory of the paper. [s]"""

HOST_SUM = HOST_ADAM * 12.0 / 30.0
"""Host time per parameter of adding a gradient to another: two read, one written, 12 bytes in fp32, at the
rate of memory at which CPU Adam moves 30 (gradient, master and moments read, 16; master, moments and a
16-bit weight written, 14). [s]"""

HYBRID_BYTES = 4.0
"""Bytes that Megatron-LM's HybridDeviceOptimizer (--optimizer-cpu-offload) copies of a gradient, and of a
weight: its tensors on the host are fp32, and PyTorch converts on the GPU where a copy does not block.
Source: Megatron-LM (d98e8a64), core/optimizer/cpu_offloading/hybrid_optimizer.py, _set_sub_optimizer_grads,
param_copy_back_gpu_hook; PyTorch, ATen/native/cuda/Copy.cu, copy_kernel_cuda (conversion_device)."""


def host_link(machine: Machine) -> float:
    """Rate between one GPU and its host, one direction: its part of its Grace or Vera CPU's NVLink-C2C, else
    its own PCIe slot, whatever the NIC's. [byte/s]"""
    name = machine.gpu.name.lower()
    own = (rate for begin, rate in CHIP_TO_CHIP.items() if name.startswith(begin))
    return next(own, PCIE_SHARE * machine.gpu.slot)


def host_copy(machine: Machine, name: str, seconds: float, unit: int = -1, behind: float = 0.0) -> Task:
    """A copy between one GPU and its host.

    behind  what the host does with it then [s]

    GPUs without scale-up links have one slot for it and for all that they send each other, which then goes
    slower beside it (`contention`).
    """
    meets = machine.network.fabric.scale_up == "pcie"
    wire, uses = (seconds, Uses(nic=False, slot=1.0)) if meets else (0.0, NICS)
    return Task("copy", name, "copy", seconds + behind, (), unit, 0.0, wire, uses)


def layer_copies(job: TrainingJob, arch: Transformer, machine: Machine) -> dict[Layer, Task]:
    """A copy of what one layer keeps for its backward pass, one way; empty without offload."""
    if "activations" not in job.layout.offload:
        return {}
    link = host_link(machine)
    return {
        kind: host_copy(machine, "activations", layer_kept(job, arch, kind) / link)
        for kind in kinds_present(arch)
    }


class HostUpdate(NamedTuple):
    """An optimizer step on the host: gradients down, Adam, parameters up, one after the other. [s]

    hidden  copies beside Adam
    """

    down: float = 0.0
    adam: float = 0.0
    up: float = 0.0
    hidden: float = 0.0

    @property
    def seconds(self) -> float:
        """How long all of it takes. [s]"""
        return self.down + self.adam + self.up


ON_GPU = HostUpdate()
"""Nothing of it runs on the host."""


def host_update(
    parameters: float, gradient: float, ranks: int, machine: Machine, weight: float = WEIGHT_BYTES
) -> HostUpdate:
    """How long each part of it takes, one after the other.

    parameters  of this GPU's shard; gradient, weight  bytes of one as it is copied
    ranks       of the job on one host share its cores
    """
    link = host_link(machine)
    return HostUpdate(
        parameters * gradient / link, parameters * ranks * HOST_ADAM, parameters * weight / link
    )


def beside(update: HostUpdate, tensors: float) -> HostUpdate:
    """The same with every tensor on its own: one is copied down while another is updated and a third copied
    up, so that the slowest of the three sets the pace.

    tensors  of the shard, as large as each other
    Source: Megatron-LM (d98e8a64), hybrid_optimizer.py, build_cpu_optimizer_list (an optimizer per
    parameter), step (waits for its event), param_copy_back_gpu_hook (streams of their own).
    """
    many = max(tensors, 1.0)
    down, adam, up = (part / many for part in (update.down, update.adam, update.up))
    slowest = max(down, adam, up)
    shown_down = down + ((many - 1) * (down - adam) if slowest == down else 0.0)
    shown_up = up + ((many - 1) * (up - adam) if slowest == up and up > down else 0.0)
    hidden = update.down + update.up - shown_down - shown_up
    return HostUpdate(shown_down, update.adam, shown_up, hidden)


def overlaps_update(job: TrainingJob) -> bool:
    """Whether an optimizer on the host copies beside its update: where the job asks for it and its software
    can."""
    return job.overlap.offload and "optimizer" in job.layout.offload and era_of(job).hybrid_optimizer


def update_on_host(
    job: TrainingJob, parameters: float, ranks: int, machine: Machine, tensors: float = 1.0
) -> HostUpdate:
    """A job's optimizer step on the host over `parameters` of a GPU's shard.

    ranks  of the job; tensors  that the shard consists of
    """
    here = ranks_together(job, machine.network.fabric, machine.server, ranks)
    if weights_on_host(job):
        # gradients came in the backward passes, and weights go with the next pass
        return host_update(parameters, 0.0, here, machine, 0.0)
    if era_of(job).hybrid_optimizer:
        found = host_update(parameters, HYBRID_BYTES, here, machine, HYBRID_BYTES)
        return beside(found, tensors) if overlaps_update(job) else found
    return host_update(parameters, gradient_bytes(job), here, machine)
