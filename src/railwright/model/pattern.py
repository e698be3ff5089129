"""Which layers of a model hold experts, and which see the whole sequence: asked here and nowhere else."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Literal

from railwright.model.architecture import Transformer

Layer = Literal["dense", "moe"]


@lru_cache(maxsize=256)
def layer_kinds(arch: Transformer) -> tuple[Layer, ...]:
    """What the MLP of every layer is, in order, the extra multi-token-prediction layers last.

    Behind the leading dense layers one layer in `expert_every` holds experts, the first of them included;
    an extra layer holds experts in every model that has them (DeepSeek-V3, GLM-4.5).
    """
    if not arch.is_moe:
        return ("dense",) * (arch.layers + arch.mtp_layers)
    behind: list[Layer] = ["dense"] * (arch.layers - arch.dense_layers)
    behind[:: arch.expert_every] = ["moe"] * len(behind[:: arch.expert_every])
    extra: tuple[Layer, ...] = ("moe",) * arch.mtp_layers
    return (*(("dense",) * min(arch.dense_layers, arch.layers)), *behind, *extra)


def kinds_present(arch: Transformer) -> tuple[Layer, ...]:
    """The kinds of layers a model has, extra ones too, in the order in which they come first."""
    return tuple(dict.fromkeys(layer_kinds(arch)))


def num_moe_layers(arch: Transformer) -> int:
    """Layers whose MLP is a mixture of experts, without the extra ones."""
    return layer_kinds(arch)[: arch.layers].count("moe")


def num_dense_layers(arch: Transformer) -> int:
    """Layers with a dense MLP, without the extra ones."""
    return arch.layers - num_moe_layers(arch)


def stage_kinds(arch: Transformer, stages: int) -> tuple[Layer, ...]:
    """The layers of the last of so many pipeline stages, the fullest of them: the leading ones are dense."""
    return layer_kinds(arch)[: arch.layers][-ceil(arch.layers / stages) :]


def full_layers(arch: Transformer, stages: int = 1) -> int:
    """Layers that see the whole sequence: the last of every `full_every`, or none of a windowed model.

    stages  of a pipeline; the most such layers that one of several can hold
    """
    layers = ceil(arch.layers / stages)
    if not arch.sliding_window:
        return layers
    if not arch.full_every:
        return 0
    return layers // arch.full_every if stages == 1 else ceil(layers / arch.full_every)


def windowed_share(arch: Transformer) -> float:
    """Share of the layers that are windowed."""
    return 1.0 - full_layers(arch) / arch.layers
