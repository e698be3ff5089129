"""What a layer's backward pass computes again under selective recomputation, and what the host waits for."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from railwright.errors import PlanError
from railwright.model.operators.layer import LayerOperators
from railwright.model.operators.recompute import CORE, MODULES, UNNEEDED, whole_parts
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer, has_dense, kinds_present
from railwright.model.tensors.every_second import check_every_second
from railwright.spec.training import TrainingJob
from railwright.training.layers.costs import Cost, KernelTime
from railwright.training.layers.cut import dispatch_of
from railwright.training.layers.stages import layers_per_piece
from railwright.training.layout.route import Chunk
from railwright.training.layout.schedule import route_of
from railwright.training.software.eras import era_of
from railwright.training.software.host import LaunchTimes

BESIDE = re.compile(
    "( (input cast|adapter dropout|adapter in|adapter out|adapter scale|adapter sum)|, dequantised)$"
)
"""Ends of the names of what runs in front of a product (`casts`, `lora`, `nf4`)."""


@dataclass(frozen=True)
class Again:
    """What of one kind of layer is computed again.

    whole  parts that run with their collectives
    core   the core attention, with what context-parallel ranks exchange around it; None: not of it [s]
    rest   operators of neither [s]
    """

    whole: tuple[str, ...] = ()
    core: float | None = None
    rest: float = 0.0


def check_again(job: TrainingJob, arch: Transformer) -> None:
    """Raise PlanError where what a job computes again cannot be told of a layer of its model."""
    layout = job.layout
    if layout.recompute == "full" and layout.recompute_layers is not None:
        _check_layers_again(job, arch, layout.recompute_layers)
    if layout.recompute != "selective" or "ops" not in layout.recompute_modules:
        return
    try:
        for kind in kinds_present(arch):
            check_every_second(arch, kind)
    except PlanError as no:
        raise PlanError(f"{job.name}: {no}") from None


def _check_layers_again(job: TrainingJob, arch: Transformer, layers: int) -> None:
    layout = job.layout
    pieces = layers_per_piece(arch.layers, route_of(layout).model_pieces, layout, arch.mtp_layers)
    most, name = max(pieces), f"{job.name}: layout.recompute_layers"
    if layers > most:
        where = "a stage" if len(pieces) == layout.pipeline else "a virtual stage"
        raise PlanError(
            f"{name} is {layers}, but {where} has at most {most} {'layer' if most == 1 else 'layers'} of "
            f"{arch.name}; use at most {most}, or leave it out for all."
        )
    if "activations" in layout.offload:
        raise PlanError(
            f"{name} beside offload of activations is not modelled (Megatron-LM refuses any recomputation "
            "there); leave one of them out."
        )


def again_of(
    job: TrainingJob, arch: Transformer, kind: Layer, operators: LayerOperators, kernel_time: KernelTime
) -> Again:
    """What a job computes again of one kind of layer; nothing where it does so of none or of all."""
    if job.layout.recompute != "selective":
        return Again()
    whole = whole_parts(arch, kind, job.layout.recompute_modules) if era_of(job).repeats else ()
    core: float | None = None
    rest = 0.0
    for op in operators.recomputed:
        if op.name in CORE:
            core = (core or 0.0) + kernel_time(op)
        elif not any(_within(op.name, part) for part in whole):
            rest += kernel_time(op)
    return Again(whole, core, rest)


def part_of(found: list[Cost], part: str) -> list[Cost]:
    """Those of a layer's operators that are in a part of it."""
    return [cost for cost in found if _within(cost.name, part)]


def needed(operators: LayerOperators) -> LayerOperators:
    """The operators where only what the backward pass reads is computed again."""
    return replace(operators, recomputed=tuple(op for op in operators.recomputed if op.name not in UNNEEDED))


def layers_again(job: TrainingJob, arch: Transformer, chunk: Chunk) -> int:
    """Layers at the front of a chunk that `layout.recompute` is for; the others keep all.

    Those of multi-token prediction, behind the model's own, are not among them where layers are counted.
    Source: Megatron-LM d98e8a64, core/recompute.py, checkpointed_forward ('block': the first layers of each
    block, which is a virtual stage); multi_token_prediction.py, _checkpointed_forward ('block' skips them).
    """
    layout = job.layout
    if layout.recompute != "full" or layout.recompute_layers is None:
        return len(chunk.layers)
    return min(layout.recompute_layers, own_layers(arch, chunk))


def own_layers(arch: Transformer, chunk: Chunk) -> int:
    """Layers of a chunk without those of multi-token prediction."""
    return max(len(chunk.layers) - (arch.mtp_layers if chunk.head else 0), 0)


def counts_again(job: TrainingJob) -> bool:
    """Whether the backward pass of a layer that is computed again routes tokens again, so that the host waits
    for their counts there too."""
    layout = job.layout
    part = layout.recompute == "selective" and "moe" in layout.recompute_modules and era_of(job).repeats
    return part or layout.recompute == "full"


def counts_stay(job: TrainingJob) -> bool:
    """Whether numbers of tokens stay on the GPU, so that the host waits for none: where no token leaves it
    and operations of PyTorch move rows around grouped products (`grouped_rows`)."""
    return dispatch_of(job) == "eager" and "experts" not in job.unfused


def launched_again(job: TrainingJob, known: LaunchTimes) -> float:
    """Host time of what one layer's backward pass computes again. [s]"""
    return {"none": 0.0, "selective": known.again, "full": known.forward}[job.layout.recompute]


def _within(name: str, part: str) -> bool:
    """Whether an operator is in a part of a layer; what runs beside a product goes with it (BESIDE)."""
    return BESIDE.sub("", name) in MODULES[part]


def has_part(arch: Transformer, module: str) -> bool:
    """Whether a model has the part of a layer that a name of `recompute_modules` stands for."""
    latent = arch.attention == "mla"
    return {
        "core_attn": True,
        "layernorm": latent or arch.is_moe,
        "mla_up_proj": latent,
        "mlp": has_dense(arch),
        "moe": arch.is_moe,
        "moe_act": arch.is_moe,
        "shared_experts": arch.is_moe and arch.shared_ffn > 0,
        "ops": True,
    }[module]
