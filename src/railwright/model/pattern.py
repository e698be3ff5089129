"""Which layers of a model hold experts, and which see the whole sequence: asked here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Literal

from railwright.model.architecture import Transformer

Layer = Literal["dense", "moe"]


@lru_cache(maxsize=256)
def layer_kinds(arch: Transformer) -> tuple[Layer, ...]:
    """What the MLP of every layer is, in order, the extra multi-token-prediction layers last.

    Behind the leading dense layers one layer in `expert_every` holds experts, the first of them included, or
    else those of `expert_layers` do; an extra layer holds experts in a model that has them (DeepSeek-V3,
    GLM-4.5), unless it is `mtp_dense`.
    """
    kinds: list[Layer] = ["dense"] * (arch.layers + arch.mtp_layers)
    if arch.is_moe:
        extra = () if arch.mtp_dense else range(arch.layers, len(kinds))
        held = arch.expert_layers or range(arch.dense_layers, arch.layers, arch.expert_every)
        for i in [*held, *extra]:
            kinds[i] = "moe"
    return tuple(kinds)


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
    """The layers of the last of so many pipeline stages, the fullest of them: the leading ones are dense.

    Where layers with experts are listed one by one it is the first stage that has most of them.
    """
    kinds, size = layer_kinds(arch)[: arch.layers], ceil(arch.layers / stages)
    if not arch.expert_layers:
        return kinds[-size:]
    starts = (*range(0, arch.layers - size, size), arch.layers - size)
    return max((kinds[i : i + size] for i in starts), key=lambda held: held.count("moe"))


def full_layers(arch: Transformer, stages: int = 1) -> int:
    """Layers that see the whole sequence: one of every `full_every`, or none of a windowed model.

    stages  of a pipeline; the most such layers that one of several can hold
    """
    layers = ceil(arch.layers / stages)
    if not arch.sliding_window:
        return layers
    if arch.whole_layers:
        return max(
            sum(start <= i < start + layers for i in arch.whole_layers)
            for start in range(0, arch.layers, layers)
        )
    if not arch.full_every:
        return 0
    if stages == 1 and not arch.full_first:
        return layers // arch.full_every
    return ceil(layers / arch.full_every)


def windowed_share(arch: Transformer) -> float:
    """Share of the layers that are windowed."""
    return 1.0 - full_layers(arch) / arch.layers


def expert_pattern(routed: Sequence[bool]) -> tuple[int, int] | None:
    """(dense_layers, expert_every) of layers that hold experts where `routed`; None where no two numbers do.

    Layers without any are all leading ones.
    """
    held = [i for i, has in enumerate(routed) if has]
    if not held:
        return len(routed), 1
    step = held[1] - held[0] if len(held) > 1 else len(routed) - held[0]
    return (held[0], step) if held == list(range(held[0], len(routed), step)) else None


def window_pattern(full: Sequence[bool]) -> tuple[int, bool] | None:
    """(full_every, full_first) of layers with a window except where `full`; None where they do not say it."""
    seen = [i for i, sees in enumerate(full) if sees]
    if not seen:
        return 0, False
    last = seen[0] + 1
    if seen == list(range(last - 1, len(full), last)):
        return last, False
    every = seen[1] if len(seen) > 1 else len(full)
    return (every, True) if seen == list(range(0, len(full), every)) else None
