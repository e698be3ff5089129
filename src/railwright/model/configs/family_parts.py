"""What the model families share: the plain decoder, windows, experts. Each reads keys of one config.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast

from railwright.model.configs.keys import Keys
from railwright.model.shape.architecture import Layer, Transformer
from railwright.model.shape.pattern import expert_pattern, layer_kinds, window_pattern


def plain(keys: Keys, name: str) -> Transformer:
    """Llama's layers: two norms, rotary positions, grouped queries, a gated MLP; attention's biases as the
    key says, which not every class reads (`unbiased`)."""
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    biased = keys.flag("attention_bias", False)
    return Transformer(
        name=name,
        layers=keys.depth("num_hidden_layers"),
        hidden=hidden,
        vocab=keys.whole("vocab_size"),
        heads=heads,
        kv_heads=keys.whole("num_key_value_heads", heads),
        head_dim=head_width(keys, hidden, heads),
        ffn=keys.whole("intermediate_size"),
        tied_embeddings=keys.flag("tie_word_embeddings", False),
        attention_bias=biased,
        output_bias=biased,
        max_positions=keys.whole("max_position_embeddings", 0),
        source=keys.source(),
    )


def llama(keys: Keys, name: str) -> Transformer:
    """Llama itself, whose MLP may have biases too."""
    return replace(plain(keys, name), mlp_bias=keys.flag("mlp_bias", False))


def unbiased(keys: Keys, name: str) -> Transformer:
    """Llama's layers in a class without biases, whatever a config says."""
    return replace(plain(keys, name), attention_bias=False, output_bias=False)


def gpt(
    keys: Keys,
    name: str,
    depth: str,
    hidden: int,
    heads: int,
    ffn: int,
    *,
    biased: bool,
    positions: int,
) -> Transformer:
    """GPT's layers: as many heads of keys as of queries, an MLP of two products, tied embeddings.

    depth   the key that says how many layers there are
    biased  every product and norm has a bias, or none does
    """
    return Transformer(
        name=name,
        layers=keys.depth(depth),
        hidden=hidden,
        vocab=keys.whole("vocab_size"),
        heads=heads,
        kv_heads=heads,
        head_dim=head_width(keys, hidden, heads),
        ffn=ffn,
        gated=False,
        tied_embeddings=keys.flag("tie_word_embeddings", True),
        attention_bias=biased,
        output_bias=biased,
        mlp_bias=biased,
        norm_bias=biased,
        max_positions=positions,
        source=keys.source(),
    )


def head_width(keys: Keys, hidden: int, heads: int) -> int:
    """head_dim, or the hidden size over the heads."""
    if keys.raw("head_dim") is None and keys.raw("qk_nope_head_dim") is None:
        keys.need(
            # A width that was itself refused is 1 here, and says nothing about the heads.
            hidden % heads == 0 or hidden != keys.raw("hidden_size"),
            "num_attention_heads",
            f"{heads} does not divide hidden_size = {hidden}; give head_dim.",
        )
    return keys.whole("head_dim", max(hidden // heads, 1))


def need_heads_divide(keys: Keys, hidden: int, heads: int, width: str, count: str) -> None:
    """Complain where the width under `width` is no multiple of the heads under `count`."""
    # A width that was itself refused is 1 here, and says nothing about the heads.
    keys.need(
        hidden % heads == 0 or hidden != keys.raw(width),
        count,
        f"{heads} does not divide {width} = {hidden}.",
    )


def named_layers(keys: Keys, key: str, layers: int) -> list[int]:
    """The layers that a key lists by number, counted from 0; none where it is not there.

    Numbers behind the last layer are left alone: one list may serve models of several depths.
    """
    named = keys.raw(key)
    if named is None:
        return []
    right = isinstance(named, list) and all(type(i) is int and i >= 0 for i in named)
    keys.need(right, key, f"{named!r}: a list of layers, counted from 0, is expected.")
    return [i for i in named if i < layers] if right else []


def tied(keys: Keys, arch: Transformer) -> Transformer:
    """Embeddings are tied unless the keys say otherwise."""
    return replace(arch, tied_embeddings=keys.flag("tie_word_embeddings", True))


def without(keys: Keys, key: str) -> None:
    """Complain about a flag that changes what the layers are, where it is set."""
    keys.need(not keys.flag(key, False), key, "what it stands for is not modelled; it must be false.")


def window_of(keys: Keys) -> int:
    """The attention window in tokens; 0 without."""
    return keys.whole("sliding_window", 0, least=0)


def windowed(arch: Transformer, window: int, full: Sequence[bool]) -> Transformer:
    """The decoder with a window in the layers that are not `full`."""
    if not window or all(full):
        return replace(arch, sliding_window=0, full_every=0)
    found = window_pattern(full)
    every, first = found or (0, False)
    listed = () if found else _marked(full)
    return replace(arch, sliding_window=window, full_every=every, full_first=first, whole_layers=listed)


def with_heads(
    keys: Keys,
    arch: Transformer,
    key: str,
    heads: int,
    full: Sequence[bool],
    kv_heads: int = 0,
    head_dim: int = 0,
    *,
    sinks: bool = False,
) -> Transformer:
    """The decoder with so many query heads in the layers that are not `full`; `key` says so.

    kv_heads, head_dim  of those layers; 0 where they are those of the others
    sinks  those layers have a learned sink per head, and the others not
    """
    keys_of = kv_heads or arch.kv_heads
    alike = heads == arch.heads and keys_of == arch.kv_heads and head_dim in (0, arch.head_dim)
    if not arch.sliding_window or (alike and not arch.shared_values and not sinks):
        return arch
    keys.need(heads % keys_of == 0, key, f"{keys_of} key-value heads do not divide {heads}.")
    kinds = [
        cast(Layer, kind if whole else f"windowed {kind}")
        for kind, whole in zip(layer_kinds(arch), full, strict=False)
    ]
    return replace(
        arch,
        pattern=tuple(kinds),
        window_heads=heads,
        window_kv_heads=kv_heads,
        window_head_dim=head_dim,
        window_sinks=sinks,
    )


def full_layers_of(keys: Keys, layers: int, every: int, *, first: bool = False) -> list[bool]:
    """Which layers see the whole sequence: as `layer_types` says, else the last of `every`; none for 0.

    first  without `layer_types` it is the first of `every` instead
    """
    types = keys.raw("layer_types")
    if types is None:
        return [every > 0 and (i + (not first)) % every == 0 for i in range(layers)]
    known = ("full_attention", "sliding_attention", "chunked_attention")
    right = isinstance(types, list) and len(types) == layers and all(t in known for t in types)
    keys.need(right, "layer_types", f"{layers} of {', '.join(known)} are expected, one for each layer.")
    return [t == "full_attention" for t in types] if right else [False] * layers


def last_windowed(keys: Keys, arch: Transformer, window: int) -> Transformer:
    """Windows in the layers from max_window_layers on (Qwen)."""
    layers = arch.layers
    first = keys.whole("max_window_layers", 0, least=0)
    full = [i < first for i in range(layers)]
    if keys.raw("layer_types") is not None:
        full = full_layers_of(keys, layers, 0)
    return windowed(arch, window, full)


def routed(
    keys: Keys,
    dense: Transformer,
    has: Sequence[bool],
    *,
    experts: str,
    per_token: str,
    width: int,
    shared: int = 0,
    router_bias: bool = False,
) -> Transformer:
    """The dense decoder with experts in the layers that have them.

    has      per layer, whether it holds experts
    experts, per_token   keys of how many there are and how many a token visits
    width    of one expert; shared  always-on experts, as wide as a routed one each
    """
    if not any(has):
        # How many there would be is read all the same: a model whose layers have none says nothing wrong.
        keys.raw(experts)
        return dense
    found = expert_pattern(has)
    first, step = found or (0, 1)
    return replace(
        dense,
        experts=keys.whole(experts),
        experts_per_token=keys.alike(per_token),
        expert_ffn=width,
        shared_experts=shared,
        shared_ffn=shared * width,
        dense_layers=first,
        expert_every=step,
        expert_layers=() if found else _marked(has),
        router_bias=router_bias,
    )


def with_shared(arch: Transformer, width: int) -> Transformer:
    """The decoder with one shared expert of such a width beside the routed ones; 0 is none."""
    return replace(arch, shared_experts=int(width > 0), shared_ffn=width)


def behind_dense(keys: Keys, layers: int, leading: int, step: int = 1) -> list[bool]:
    """Which layers hold experts: as `mlp_layer_types` says, else every `step`-th one from `leading` on."""
    types = keys.raw("mlp_layer_types")
    if types is None:
        return [i >= leading and i % step == 0 for i in range(layers)]
    right = isinstance(types, list) and len(types) == layers and all(t in ("dense", "sparse") for t in types)
    keys.need(right, "mlp_layer_types", f"{layers} of dense, sparse are expected, one for each layer.")
    return [t == "sparse" for t in types] if right else [True] * layers


def extra_layers(keys: Keys) -> int:
    """Multi-token-prediction layers; transformers since version 5 writes the second key."""
    key = "num_nextn_predict_layers"
    return keys.whole(key if keys.raw(key) is not None else "num_mtp_layers", 0, least=0)


def untied(keys: Keys) -> None:
    """Complain where a head that has a bias of its own is tied to the embedding."""
    keys.need(
        not keys.flag("tie_word_embeddings", False),
        "tie_word_embeddings",
        "a tied LM head with a bias is not supported; it must be false.",
    )


def normed_queries(arch: Transformer, gains: Literal["head", "all", "none"] = "head") -> Transformer:
    """Queries and keys are normed."""
    return replace(arch, qk_norm=True, qk_norm_gains=gains)


def _marked(layers: Sequence[bool]) -> tuple[int, ...]:
    """Numbers of the layers that are marked, counted from 0."""
    return tuple(i for i, is_marked in enumerate(layers) if is_marked)
