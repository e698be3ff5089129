"""Families that mix attention with layers whose state does not grow with the sequence.

Each function knows what its family fixes outside the config, as in its configuration and modelling code in
huggingface/transformers (5.24); where a family is older than its class, as beside its checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from railwright.model.configs.expert_families import granitemoe, qwen_experts
from railwright.model.configs.family_parts import (
    extra_layers,
    llama,
    named_layers,
    normed_queries,
    plain,
    with_shared,
    without,
)
from railwright.model.configs.keys import Keys
from railwright.model.shape.architecture import Layer, LinearMixer, Transformer
from railwright.model.shape.pattern import PARTS, Parts, is_routed, layer_kinds

BLOCKS: dict[str, Layer] = {"M": "linear", "-": "mlp", "*": "attention", "E": "experts"}
"""Nemotron-H's letters for layers that are one block each."""

NAMES: dict[str, Layer] = {
    **dict.fromkeys(("mamba", "linear_attention"), "linear"),
    **dict.fromkeys(("attention", "full_attention"), "attention"),
    "mlp": "mlp",
    "moe": "experts",
}
"""The same in words, of transformers 5 and before."""


def nemotron_h(keys: Keys, name: str) -> Transformer:
    """Nemotron-H, Nemotron 3 Nano and Super: every layer is one block, Mamba-2, attention, MLP or experts;
    attention has no positions, neither MLP nor experts are gated, and embeddings are never tied."""
    pattern = _blocks(keys)
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    for key in ("use_bias", "attention_bias", "mamba_proj_bias"):
        without(keys, key)
    biased = keys.flag("mlp_bias", False)
    arch = Transformer(
        name=name,
        layers=len(pattern),
        hidden=hidden,
        vocab=keys.whole("vocab_size"),
        heads=heads,
        kv_heads=keys.whole("num_key_value_heads", heads),
        head_dim=keys.whole("head_dim", max(hidden // heads, 1)),
        ffn=keys.whole("intermediate_size"),
        gated=False,
        mlp_bias=biased,
        rotary=False,
        pattern=pattern,
        max_positions=keys.whole("max_position_embeddings", 0),
        source=keys.source(),
    )
    if "linear" in pattern:
        mixer = LinearMixer(
            "mamba2",
            heads=keys.whole("mamba_num_heads"),
            value_dim=keys.whole("mamba_head_dim"),
            key_heads=keys.whole("n_groups"),
            key_dim=keys.whole("ssm_state_size"),
            conv=keys.whole("conv_kernel", 4),
            conv_bias=keys.flag("use_conv_bias", True),
            chunk=keys.whole("chunk_size", 128),
        )
        _need_groups(keys, mixer, "n_groups")
        arch = replace(arch, linear=mixer)
    # The class writes a count of experts (8) into every config; the pattern says whether there are any.
    keys.raw("n_routed_experts")
    return _nemotron_experts(keys, arch) if "experts" in pattern else arch


def _nemotron_experts(keys: Keys, arch: Transformer) -> Transformer:
    """Its experts: a bias on the router, shared ones of their own width, tokens brought to latents for the
    routed ones in Nemotron 3 Super; extra layers are attention and
    experts, a block each."""
    extra = keys.raw("mtp_hybrid_override_pattern")
    keys.need(extra in (None, "*E"), "mtp_hybrid_override_pattern", "only '*E' is supported.")
    words = keys.raw("mtp_layers_block_type")
    named = isinstance(words, list) and all(isinstance(word, str) for word in words)
    right = words is None or (named and [NAMES.get(word) for word in words] == ["attention", "experts"])
    keys.need(right, "mtp_layers_block_type", "only attention and moe, in this order, are supported.")
    shared = keys.whole("n_shared_experts", 1, least=0)
    return replace(
        arch,
        experts=keys.whole("n_routed_experts"),
        experts_per_token=keys.whole("num_experts_per_tok"),
        expert_ffn=keys.whole("moe_intermediate_size"),
        expert_latent=keys.whole("moe_latent_size", 0, least=0),
        shared_experts=shared,
        shared_ffn=keys.whole("moe_shared_expert_intermediate_size") if shared else 0,
        expert_groups=keys.whole("n_group", 1),
        router_bias=True,
        mtp_layers=extra_layers(keys),
    )


def _blocks(keys: Keys) -> tuple[Layer, ...]:
    """What every layer is, by letters or by words."""
    letters = keys.raw("hybrid_override_pattern")
    if letters is not None:
        right = isinstance(letters, str) and letters and set(letters) <= set(BLOCKS)
        keys.need(
            bool(right),
            "hybrid_override_pattern",
            f"letters of {', '.join(BLOCKS)} (Mamba-2, MLP, attention, experts), one for each layer, are "
            "expected.",
        )
        found = tuple(BLOCKS[letter] for letter in letters) if right else ("attention",)
        _need_as_many(keys, found if right else (), "hybrid_override_pattern")
        return found
    key = "layers_block_type" if keys.raw("layer_types") is None else "layer_types"
    words = keys.raw(key)
    named = (
        isinstance(words, list) and words and all(isinstance(word, str) and word in NAMES for word in words)
    )
    keys.need(bool(named), key, f"a list of {', '.join(NAMES)} is expected, one for each layer.")
    listed = tuple(NAMES[word] for word in words) if named else ()
    _need_as_many(keys, listed, key)
    return listed or ("attention",)


def _need_as_many(keys: Keys, found: Sequence[Layer], key: str) -> None:
    """Complain where num_hidden_layers is not what `key` has entries for, if it has any."""
    layers = keys.whole("num_hidden_layers", len(found) or 1)
    keys.need(
        not found or layers == len(found),
        "num_hidden_layers",
        f"{layers} layers, but {key} has {len(found)} of them.",
    )


def _mamba(keys: Keys, hidden: int) -> LinearMixer:
    """Mamba-2 by the keys of Bamba and Granite 4; heads' width may be 'auto'."""
    without(keys, "mamba_proj_bias")
    heads, inner = keys.whole("mamba_n_heads", 128), keys.whole("mamba_expand", 2) * hidden
    width = keys.raw("mamba_d_head")
    width = inner // heads if width in (None, "auto") else keys.whole("mamba_d_head")
    keys.need(
        heads * width == inner,
        "mamba_n_heads",
        f"{heads} heads of {width} are not mamba_expand x hidden_size = {inner}.",
    )
    mixer = LinearMixer(
        "mamba2",
        heads=heads,
        value_dim=max(width, 1),
        key_heads=keys.whole("mamba_n_groups", 1),
        key_dim=keys.whole("mamba_d_state", 256),
        conv=keys.whole("mamba_d_conv", 4),
        conv_bias=keys.flag("mamba_conv_bias", True),
        chunk=keys.whole("mamba_chunk_size", 256),
    )
    _need_groups(keys, mixer, "mamba_n_groups")
    return mixer


def _need_groups(keys: Keys, mixer: LinearMixer, key: str) -> None:
    """Complain where heads of keys, or groups, are not shared by as many heads each."""
    # A count that was itself refused is 1 here.
    keys.need(
        mixer.heads % mixer.key_heads == 0 or mixer.heads == 1,
        key,
        f"{mixer.key_heads} does not divide the {mixer.heads} heads of the linear layers.",
    )


def bamba(keys: Keys, name: str) -> Transformer:
    """Bamba: attention in the layers that attn_layer_indices names, Mamba-2 in the others; a gated MLP in
    all."""
    arch = llama(keys, name)
    full = named_layers(keys, "attn_layer_indices", arch.layers)
    linear = [i not in full for i in range(arch.layers)]
    return mixed(arch, _mamba(keys, arch.hidden), linear)


def granitemoehybrid(keys: Keys, name: str) -> Transformer:
    """Granite 4: attention where layer_types says so, Mamba-2 elsewhere; experts beside a shared one, or
    without any its shared expert as the MLP."""
    key = "layers_block_type" if keys.raw("layer_types") is None else "layer_types"
    types = keys.raw(key)
    layers = keys.depth("num_hidden_layers")
    known = ("attention", "full_attention", "mamba", "linear_attention")
    right = types is None or (
        isinstance(types, list) and len(types) == layers and all(kind in known for kind in types)
    )
    keys.need(right, key, f"{layers} of {', '.join(known)} are expected, one for each layer.")
    listed = types if isinstance(types, list) and right else ["mamba"] * layers
    linear = [kind in ("mamba", "linear_attention") for kind in listed]
    if keys.whole("num_local_experts", 8, least=0):
        arch = granitemoe(keys, name)
    else:
        arch = replace(plain(keys, name), ffn=keys.whole("shared_intermediate_size"))
    key = "position_embedding_type"
    keys.need(keys.raw(key) in (None, "rope", "nope"), key, "only rope and nope are supported.")
    arch = replace(arch, rotary=keys.raw(key) == "rope")
    if not any(linear):
        return arch
    return mixed(arch, _mamba(keys, arch.hidden), linear)


def qwen3_next(keys: Keys, name: str) -> Transformer:
    """Qwen3-Next and Qwen3.5 with experts: gated delta nets but for every fourth layer, whose attention is
    gated element by element; a shared expert with a gate."""
    # Qwen3.5's has no dense layers
    keys = keys.filled({"intermediate_size": keys.raw("moe_intermediate_size")})
    arch = qwen_experts(keys, _gated(keys, name))
    shared = keys.whole("shared_expert_intermediate_size", 0, least=0)
    arch = replace(with_shared(arch, shared), shared_gate=shared > 0)
    return _delta(keys, arch)


def qwen3_5(keys: Keys, name: str) -> Transformer:
    """Qwen3.5's dense models: the same with an MLP."""
    return _delta(keys, _gated(keys, name))


def _gated(keys: Keys, name: str) -> Transformer:
    """Attention with normed queries and keys, and a gate for every element beside each query."""
    without(keys, "attention_bias")
    arch = plain(keys.filled({"head_dim": 256}), name)
    return replace(normed_queries(arch), attention_gate="element")


def _delta(keys: Keys, arch: Transformer) -> Transformer:
    mixer = LinearMixer(
        "gated_deltanet",
        heads=keys.whole("linear_num_value_heads", 32),
        value_dim=keys.whole("linear_value_head_dim", 128),
        key_heads=keys.whole("linear_num_key_heads", 16),
        key_dim=keys.whole("linear_key_head_dim", 128),
        conv=keys.whole("linear_conv_kernel_dim", 4),
    )
    _need_groups(keys, mixer, "linear_num_key_heads")
    every = keys.whole("full_attention_interval", 4)
    linear = linear_layers(keys, arch.layers, [(i + 1) % every > 0 for i in range(arch.layers)])
    return mixed(arch, mixer, linear)


def linear_layers(keys: Keys, layers: int, default: Sequence[bool]) -> list[bool]:
    """Which layers are linear: as `layer_types` says, else as the family has them."""
    types = keys.raw("layer_types")
    if types is None:
        return list(default)
    known = ("full_attention", "linear_attention")
    right = isinstance(types, list) and len(types) == layers and all(kind in known for kind in types)
    keys.need(right, "layer_types", f"{layers} of {', '.join(known)} are expected, one for each layer.")
    return [kind == "linear_attention" for kind in types] if right else list(default)


def mixed(arch: Transformer, mixer: LinearMixer, linear: Sequence[bool]) -> Transformer:
    """The model with a mixer in place of attention in its linear layers; their MLPs stay what they are."""
    # of kinds with the same blocks the first: neither windowed nor of keys that another layer chose
    kinds = {parts: kind for kind, parts in reversed(PARTS.items())}
    has = [is_routed(kind) for kind in layer_kinds(arch)[: arch.layers]]
    pattern = tuple(
        kinds[Parts("linear" if line else "attention", "moe" if routed else "dense")]
        for line, routed in zip(linear, has, strict=True)
    )
    return replace(arch, pattern=pattern, linear=mixer) if any(linear) else arch
