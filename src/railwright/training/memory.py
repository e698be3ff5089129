"""Peak memory of the fullest GPU, part by part, and what would help a job that does not fit."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.model import head_activation_bytes, layer_activation_bytes
from railwright.model.architecture import Transformer
from railwright.spec.study import Layout, TrainingJob
from railwright.training.communication import GRADIENT_BYTES, WEIGHT_BYTES
from railwright.training.constants import constant
from railwright.training.plan import check, data_parallel, microbatches
from railwright.training.result import Memory
from railwright.training.schedule import in_flight, schedule
from railwright.training.stages import StageShape, stage_shapes

STATE_BYTES = {"bf16": 12.0, "fp16": 16.0, "fp8": 12.0}
"""Optimizer states per parameter: fp32 master weight and two Adam moments; in fp16 also the fp32 copy of the
gradient.  Source: Megatron-LM, docs, "dist_optimizer": bf16 parameters with fp32 gradients 18 bytes, or
6 + 12/d over d ranks; fp16 20 bytes, or 4 + 16/d."""

SYSTEM = "CUDA context and NCCL buffers"
"""The part of the memory that no tensor of the job takes."""

GIB = 2.0**30


def peak_memory(job: TrainingJob, arch: Transformer, fabric: Fabric, capacity: float) -> Memory:
    """Parts of the fullest GPU's memory over all stages; the job must have passed `plan.check`.

    capacity  of one GPU [byte]
    """
    data = data_parallel(job, fabric)
    layout = job.layout
    orders = schedule(layout.pipeline, layout.virtual_pipeline, microbatches(job, data))
    shapes = stage_shapes(arch, layout)
    fullest: dict[str, float] = {}
    for shape, order in zip(shapes, orders, strict=True):
        parts = {
            **state_parts(job, shape, data),
            **_activations(job, arch, shape, in_flight(order)),
            SYSTEM: _system(job, data),
        }
        if sum(parts.values()) > sum(fullest.values()):
            fullest = parts
    return Memory(fullest, sum(fullest.values()), capacity)


def check_memory(job: TrainingJob, arch: Transformer, fabric: Fabric, capacity: float) -> Memory:
    """`peak_memory`, or PlanError with the parts, the excess and the changes that would make it fit."""
    memory = peak_memory(job, arch, fabric, capacity)
    if memory.total <= capacity:
        return memory
    parts = ", ".join(
        f"{name} {size / GIB:.1f}" for name, size in sorted(memory.parts.items(), key=lambda p: -p[1])
    )
    raise PlanError(
        f"{job.name}: {arch.name} needs {memory.total / GIB:.1f} GiB on its fullest GPU, "
        f"{(memory.total - capacity) / GIB:.1f} GiB more than its {capacity / GIB:.1f} GiB ({parts}); "
        + _help(job, arch, fabric, capacity)
    )


def state_parts(job: TrainingJob, shape: StageShape, data: int) -> dict[str, float]:
    """Weights, gradients and optimizer states of one GPU of a stage [byte]."""
    expert_data = data // job.layout.expert
    dense, expert = shape.dense_total, shape.expert_total
    over, expert_over = (data, expert_data) if job.layout.zero else (1, 1)
    states = STATE_BYTES[job.dtype]
    return {
        "weights": WEIGHT_BYTES * (dense + expert),
        "gradients": GRADIENT_BYTES[job.dtype] * (dense + expert),
        "optimizer states": states * (dense / over + expert / expert_over),
    }


def _activations(job: TrainingJob, arch: Transformer, shape: StageShape, passes: int) -> dict[str, float]:
    """Activations of all passes in flight, the layer being recomputed, and the head's logits [byte]."""
    layout, rows = job.layout, job.micro_batch * job.sequence

    def layer(kind: str, recompute: str) -> float:
        return layer_activation_bytes(
            arch,
            kind,  # type: ignore[arg-type]
            rows,
            job.sequence,
            tp=layout.tensor,
            sequence_parallel=layout.sequence_parallel,
            ep=layout.expert if kind == "moe" else 1,
            imbalance=job.expert_imbalance if kind == "moe" else 1.0,
            recompute=recompute,  # type: ignore[arg-type]
        )

    kinds = sorted({k for chunk in shape.chunks for k in chunk.layers})
    kept = {kind: layer(kind, layout.recompute) for kind in kinds}
    parts = {
        "activations": passes * max(sum(kept[k] for k in chunk.layers) for chunk in shape.chunks),
    }
    if layout.recompute == "full":
        parts["layer being recomputed"] = max(layer(kind, "none") for kind in kinds)
    if any(chunk.head for chunk in shape.chunks):
        parts["logits"] = head_activation_bytes(
            arch, rows, tp=layout.tensor, sequence_parallel=layout.sequence_parallel
        )
    return parts


def _system(job: TrainingJob, data: int) -> float:
    """CUDA context and the buffers of every communicator of more than one rank [byte]."""
    layout = job.layout
    plain = [layout.tensor, layout.pipeline, data]
    if layout.expert > 1:
        plain.append(data // layout.expert)
    total = constant("cuda_context_bytes") + constant("communicator_bytes") * sum(n > 1 for n in plain)
    return total + (constant("all_to_all_bytes") if layout.expert > 1 else 0.0)


def _help(job: TrainingJob, arch: Transformer, fabric: Fabric, capacity: float) -> str:
    """Neighbouring settings that fit, found by trying them."""
    fitting = []
    for label, other in _neighbours(job):
        try:
            check(other, arch, fabric)
        except PlanError:
            continue
        total = peak_memory(other, arch, fabric, capacity).total
        if total <= capacity:
            fitting.append(f"{label} ({total / GIB:.1f} GiB)")
        if len(fitting) == 4:
            break
    if not fitting:
        return (
            "no step or two in tensor, pipeline, expert, recompute or micro_batch makes it fit here; "
            "use more or larger GPUs."
        )
    return "what would fit: " + "; ".join(fitting) + "."


def _neighbours(job: TrainingJob) -> Iterator[tuple[str, TrainingJob]]:
    """Single changes first, then pairs."""
    single: list[tuple[str, dict[str, object], int]] = []
    layout = job.layout
    if layout.zero == 0:
        single.append(("zero: 1", {"zero": 1}, job.micro_batch))
    for mode in ("selective", "full"):
        if mode != layout.recompute and layout.recompute != "full":
            single.append((f"recompute: {mode}", {"recompute": mode}, job.micro_batch))
    if job.micro_batch > 1:
        single.append((f"micro_batch: {job.micro_batch // 2}", {}, job.micro_batch // 2))
    if layout.tensor > 1 and not layout.sequence_parallel:
        single.append(("sequence_parallel: true", {"sequence_parallel": True}, job.micro_batch))
    for name in ("tensor", "pipeline", "expert"):
        value: int = getattr(layout, name)
        for factor in (2, 4, 8):
            single.append((f"{name}: {value * factor}", {name: value * factor}, job.micro_batch))
    pairs = [
        (f"{a[0]} with {b[0]}", {**a[1], **b[1]}, min(a[2], b[2]))
        for i, a in enumerate(single)
        for b in single[i + 1 :]
        if not set(a[1]) & set(b[1])
    ]
    for label, change, micro_batch in single + pairs:
        yield (
            label,
            job.model_copy(
                update={"layout": Layout(**{**layout.model_dump(), **change}), "micro_batch": micro_batch}
            ),
        )
