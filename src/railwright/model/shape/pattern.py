"""What the layers of a model are made of, and which see the whole sequence: asked here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Literal, NamedTuple

from railwright.model.shape.architecture import Layer as Layer
from railwright.model.shape.architecture import Transformer

Mixer = Literal["attention", "linear", ""]
"""What moves between tokens in a layer, '' where nothing does."""

Mlp = Literal["dense", "moe", ""]
"""What follows it, '' where nothing does."""


ModelKind = Literal["dense", "moe", "linear"]
"""Kind of a model: 'linear' has layers with a linear mixer, with experts or without."""


class Parts(NamedTuple):
    """The blocks of one layer, each with a norm before it and a sum behind it."""

    mixer: Mixer
    mlp: Mlp


PARTS: dict[Layer, Parts] = {
    "dense": Parts("attention", "dense"),
    "moe": Parts("attention", "moe"),
    "attention": Parts("attention", ""),
    "windowed dense": Parts("attention", "dense"),
    "windowed moe": Parts("attention", "moe"),
    "sharing dense": Parts("attention", "dense"),
    "sharing moe": Parts("attention", "moe"),
    "linear": Parts("linear", ""),
    "linear dense": Parts("linear", "dense"),
    "linear moe": Parts("linear", "moe"),
    "mlp": Parts("", "dense"),
    "experts": Parts("", "moe"),
}
"""What each kind of layer is made of: attention, or a mixer whose state does not grow with the sequence, and
an MLP or experts; where one is missing, the layer is the other block alone (Nemotron-H).  Windowed ones are
attention with a window, in a model whose windowed layers have heads of their own; elsewhere a layer with
attention stands for the mean of windowed and other ones.  Sharing ones meet the keys that the indexer of a
layer before them chose."""


@lru_cache(maxsize=1024)
def made_as(arch: Transformer, layer: Layer) -> Transformer:
    """The model as if its attention were that of this kind of layer throughout: windowed layers may have
    heads of their own (`window_heads`), and then the others have no window; sharing ones have no indexer."""
    if takes_keys(layer):
        return replace(arch, index_heads=0, index_dim=0)
    if not arch.window_heads or PARTS[layer].mixer != "attention":
        return arch
    if not layer.startswith("windowed"):
        return replace(arch, sliding_window=0, window_heads=0)
    return replace(
        arch,
        heads=arch.window_heads,
        kv_heads=arch.window_kv_heads or arch.kv_heads,
        head_dim=arch.window_head_dim or arch.head_dim,
        shared_values=False,
        attention_sinks=arch.attention_sinks or arch.window_sinks,
        window_heads=0,
        full_every=0,
        whole_layers=(),
    )


def is_routed(layer: Layer) -> bool:
    """Whether a layer holds experts."""
    return PARTS[layer].mlp == "moe"


def additions(arch: Transformer, layer: Layer) -> int:
    """How often a layer adds to the hidden states: behind each of its blocks, or once where they share a norm
    and run beside each other."""
    return 1 if arch.norms_per_layer == 1 else sum(map(bool, PARTS[layer]))


def takes_keys(layer: Layer) -> bool:
    """Whether a layer's attention meets the keys that the indexer of a layer before it chose."""
    return layer.startswith("sharing")


def has_dense(arch: Transformer) -> bool:
    """Whether any layer of a model has a dense MLP."""
    return any(PARTS[layer].mlp == "dense" for layer in kinds_present(arch))


def has_attention(arch: Transformer) -> bool:
    """Whether any layer of a model has attention."""
    return any(PARTS[layer].mixer == "attention" for layer in kinds_present(arch))


def is_hybrid(arch: Transformer) -> bool:
    """Whether some layer is other than attention with an MLP behind it."""
    return any(PARTS[layer].mixer != "attention" or not PARTS[layer].mlp for layer in arch.pattern)


def kind_of(arch: Transformer) -> ModelKind:
    """The kind of model, by what sets how far off its predicted steps are."""
    if arch.linear is not None:
        return "linear"
    return "moe" if arch.is_moe else "dense"


def num_norms(arch: Transformer, layer: Layer) -> int:
    """Norms of width `hidden` of one layer; one that is a single block has half of `norms_per_layer`."""
    return arch.norms_per_layer if all(PARTS[layer]) else arch.norms_per_layer // 2


def num_layers(arch: Transformer, *, mixer: Mixer | None = None, mlp: Mlp | None = None) -> int:
    """Layers with such a mixer or such an MLP, without the extra ones."""
    parts = [PARTS[layer] for layer in layer_kinds(arch)[: arch.layers]]
    return sum(mixer in (None, part.mixer) and mlp in (None, part.mlp) for part in parts)


@lru_cache(maxsize=256)
def layer_kinds(arch: Transformer) -> tuple[Layer, ...]:
    """What every layer is, in order, the extra multi-token-prediction layers last.

    An explicit `pattern` says so; else, behind the leading dense layers, one layer in `expert_every` holds
    experts, the first of them included, or else those of `expert_layers` do.  An extra layer holds experts in
    a model that has them (DeepSeek-V3, GLM-4.5), unless it is `mtp_dense`, and a window where windowed layers
    have heads of their own (Step 3.5).
    """
    extra: Layer = "moe" if arch.is_moe and not arch.mtp_dense else "dense"
    if arch.window_heads:
        extra = "windowed moe" if extra == "moe" else "windowed dense"
    if arch.pattern:
        return (*arch.pattern, *[extra] * arch.mtp_layers)
    kinds: list[Layer] = ["dense"] * arch.layers
    if arch.is_moe:
        for i in arch.expert_layers or range(arch.dense_layers, arch.layers, arch.expert_every):
            kinds[i] = "moe"
    return (*kinds, *[extra] * arch.mtp_layers)


@lru_cache(maxsize=256)
def kinds_present(arch: Transformer) -> tuple[Layer, ...]:
    """The kinds of layers a model has, extra ones too, in the order in which they come first."""
    return tuple(dict.fromkeys(layer_kinds(arch)))


def num_moe_layers(arch: Transformer) -> int:
    """Layers whose MLP is a mixture of experts, without the extra ones."""
    return num_layers(arch, mlp="moe")


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
