"""Weights of linear layers in 8 or 4 bits, made once a step: its first microbatch does what later ones find.

Transformer Engine keeps them until the optimizer has changed the weights.  What is made depends on what was
gathered: of weights in fp8 with a scale per tensor only their transpose, where products want one; of 16 bits
all copies that products read.
Sources: Transformer Engine d0067d0, pytorch/module/base.py, get_weight_workspace (update_workspace:
is_first_microbatch); tensor/float8_tensor.py, _create_transpose (its transpose is valid until the next
update); Megatron-LM d98e8a6, core/distributed/param_and_grad_buffer.py (MXFP8 cast behind its gather).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railwright.catalog.parts import Gpu
from railwright.model import layer_parameters
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.pattern import Layer, kinds_present
from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import Task, ahead_of
from railwright.training.layers.casts import compiled_casts
from railwright.training.layers.communication import WEIGHT_BYTES
from railwright.training.layers.costs import KernelTime
from railwright.training.layers.input_casts import TURNED
from railwright.training.layers.one_copy import weighs_one_byte
from railwright.training.layout.sizes import weights_cut
from railwright.training.software.eras import era_of
from railwright.training.software.formats import scales_at_once
from railwright.training.software.narrow_weights import has_narrow, keeps_wide

COPY_BYTES = {"fp8": 1.0, "mxfp8": 1 + 1 / 32, "fp8_block": 1 + 4 / 128**2, "nvfp4": 0.5 + 1 / 16}
"""Bytes of one copy of a weight with its scales, as products read it (`memory.states.WEIGHT_BYTES` says whose
scales they are)."""

WIDE = ("fp8_block", "nvfp4")
"""Formats whose weights have 16 bits under every sharding, and copies that Transformer Engine keeps whole
over a step (module/linear.py, cache_name): under Megatron-FSDP too, which shards the others' in 8 bits.  Told
--disable-parameter-transpose-cache, each pass would make them, and keep them for its backward pass."""

KERNELS = 4
"""Kernels of a layer: one for the weights of each of its linear layers."""

NAME = "weights made narrow"


def made_bytes(job: TrainingJob, gpu: Gpu, ranks: int) -> float:
    """Bytes moved once a step for a weight of a layer; of frozen ones where adapters train.

    ranks  that hold the same weights, of experts or of the rest
    NVFP4's weights, and those in fp8 with a scale found at once, are read for their largest element first
    (Transformer Engine, common/recipe/current_scaling.cu, nvfp4.cu).  Frozen weights that are kept in 8 bits
    alone stay as they are.  ZeRO-3 gathers what it has in 8 bits, but for `WIDE`; PyTorch's and JAX's casts
    are of every pass.
    """
    if job.dtype not in COPY_BYTES or (job.layout.zero == 3 and job.dtype not in WIDE):
        return 0.0
    if era_of(job).framework != "megatron" or compiled_casts(job):
        return 0.0
    copies = 1 if weighs_one_byte(job, gpu.generation) else 2
    if has_narrow(job) and not keeps_wide(job, ranks):
        if job.lora:
            return 0.0
        if job.dtype == "fp8":
            return TURNED * (copies - 1)
    searched = job.dtype == "nvfp4" or (job.dtype == "fp8" and scales_at_once(job))
    return WEIGHT_BYTES * (1 + searched) + copies * COPY_BYTES[job.dtype]


def made_seconds(
    job: TrainingJob, arch: Transformer, gpu: Gpu, ranks: int, timed: KernelTime
) -> Mapping[Layer, float]:
    """How long that takes one GPU for each kind of layer; {} where nothing is made. [s]

    ranks  as in `made_bytes`
    """
    each = made_bytes(job, gpu, ranks)
    if not each:
        return {}
    held = {kind: layer_parameters(arch, kind, weights_cut(job.layout, kind)) for kind in kinds_present(arch)}
    return {
        kind: timed(Operator(NAME, "memory", 0.0, each * (of.dense + of.expert), "bf16", launches=KERNELS))
        for kind, of in held.items()
    }


def making(tasks: Sequence[Task], seconds: Sequence[float], beside: bool = False) -> list[Task]:
    """A forward pass that makes the weights of each layer narrow ahead of what the layer computes.

    seconds  for each layer of the chunk
    beside   whether a backward pass of another microbatch is among the tasks
    """
    found: list[Task] = []
    place: list[int] = []
    waiting = {ahead_of(i) if beside else i: each for i, each in enumerate(seconds)}
    for task in tasks:
        if task.lane == "compute" and (first := waiting.pop(task.layer, 0.0)):
            found.append(Task("compute", NAME, NAME, first, (), task.layer))
        place.append(len(found))
        found.append(task.behind(tuple([place[n] for n in task.after])))
    return found
