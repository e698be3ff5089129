"""Keys of a config.json that its family does not read and that speak of its layers.

Some certainly say that layers are others than those that would be modelled, under whatever model_type they
stand: those are mistakes.  Of others only the name tells that they might, and the user is told of them.
Sources, read 2026-11-30: configuration and modelling code of huggingface/transformers (5.24), and of Kimi K3
as vLLM and MaxText have it; keys of published config.json files that carry no weight are left out by name.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from railwright.model.configs.keys import Keys
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import is_routed, layer_kinds

_LATENTS = "experts that work on latents"
_BLOCKS = "attention to a few blocks of keys (sparse attention)"

_NUMBERS = {
    "moe_latent_size": (1, _LATENTS),
    "routed_expert_hidden_size": (1, _LATENTS),
    "attn_res_block_size": (1, "attention to what earlier layers added (attention residuals)"),
    "hc_mult": (2, "several streams from layer to layer (hyper-connections)"),
    "zero_expert_num": (1, "experts that do nothing"),
    "num_hash_layers": (1, "experts that a table chooses for each token"),
    "num_kv_shared_layers": (1, "layers that share keys and values"),
    "hidden_size_per_layer_input": (1, "embeddings in every layer"),
    "o_lora_rank": (1, "an attention output of two products"),
    "gated_norm_rank": (1, "gates in its norms"),
}
"""Key -> the least number that changes the layers, and what it then says they have."""

_OBJECTS = {
    "sparse_attention_config": _BLOCKS,
    "sparse_config": _BLOCKS,
    "compress_ratios": "attention to compressed keys",
}
"""Keys of objects and lists that say so by being there."""

_GATES = ("attn_output_gate", "attention_output_gate", "mla_use_output_gate", "use_attention_gate")
_LEADING = ("first_k_dense_replace", "num_dense_layers", "moe_layer_num_skipped")
_EVERY = (
    *("moe_layer_freq", "moe_layer_frequency", "moe_layer_interval", "decoder_sparse_step"),
    *("interleave_moe_layer_step", "expert_layer_period"),
)
_NORMS = ("use_qk_norm", "qk_norm", "qk_layernorm")


def said_of_layers(key: str, value: Any, arch: Transformer) -> str:
    """What an unread key says of layers that the decoder has not, '' where nothing."""
    least, what = _NUMBERS.get(key, (0, ""))
    if what and _whole(value) and value >= least:
        return what
    if key in _OBJECTS and _is_on(value):
        return _OBJECTS[key]
    if key in _GATES and value is True and not arch.attention_gate:
        return "gates on attention's outputs"
    return _said_of_experts(key, value, arch) if arch.is_moe else ""


def _said_of_experts(key: str, value: Any, arch: Transformer) -> str:
    """The same of which layers have experts, in a model that has some."""
    has = [is_routed(kind) for kind in layer_kinds(arch)[: arch.layers]]
    if key in _LEADING and _whole(value) and value > 0:
        return "" if any(has) and has.index(True) == value else "leading layers without experts"
    if key not in _EVERY:
        return ""
    if isinstance(value, list):
        return "" if [bool(mark) for mark in value] == has else "experts in some layers only"
    neighbours = any(one and other for one, other in pairwise(has))
    return "experts in some layers only" if _whole(value) and value > 1 and neighbours else ""


_SPEAKING = re.compile(
    "attn|attention|head|expert|moe|layer|ffn|mlp|hidden|intermediate|rank|kv|gate|gating|window|sparse|conv"
    "|state|norm|resid|stream|compress|index|gram|loop|share|latent|mixer|linear|mamba|ssm|bias|block|vocab"
)
"""Words in the name of a key that speaks of layers or tables."""

_WEIGHTLESS = re.compile(
    "dropout|pdrop|drop_|activation|parallel_size|dtype|fp16|bf16|fp32|fuse|fusion|flash|kernel|cache"
    "|token|_eps|epsilon|_coef|_loss|mtp|nextn|^time_step|^summary_|^num_beam|^vit_|^classifier|^rope_"
    "|^moe_router_|^moe_use_|^moe_gate|^moe_capacity|_alpha$|_beta$|_factors?$|_overlap$|_scale$|_scaling$"
)
"""Parts of names that say nothing of them: dropout, formats, kernels, losses, generation, how experts are
chosen, multipliers; of extra layers a note of its own is made."""

_OF_EXPERTS = re.compile("expert|moe")

_KNOWN = (
    *("apply_query_key_layer_scaling", "attention_layers", "auto_map", "block_size", "cla_share_factor"),
    *("embd_layer", "index_share_for_mtp_iteration", "indexer_rope_interleave", "interleaved_qkv"),
    "is_moe_layer",
    *("layer_switch", "lm_head", "max_window_layers", "moe_layers_enum", "moe_norm_gate_logits"),
    *("moe_norm_min", "moe_renormalize", "need_fp32_gate", "norm_expert_weight", "norm_head"),
    *("norm_softmax", "norm_topk_prob", "num_expert_group", "num_expert_groups", "num_group"),
    *("num_limited_groups", "org_vocab_size", "post_norm", "postnorm", "qk_head_dim"),
    *("rescale_prenorm_residual", "route_norm", "scale_attn_weights", "skip_bias_add", "sliding_window"),
    *("use_grouped_topk", "use_head_wise_attn_gate", "use_logn_attn", "use_mixed_mlp_moe", "use_moe"),
    *("use_moe_router_bias", "use_parallel_block", "use_rmsnorm", "use_rope_layers"),
    "vocab_size_per_layer_input",
)
"""Keys of published files that are such in name only, or that say once more what another says."""


def not_understood(keys: Keys, arch: Transformer) -> tuple[str, ...]:
    """A note of the keys that speak of layers and that nobody here knows, if there are any."""
    found = [
        f"{key}: {_short(value)}"
        for key, value in keys.unread().items()
        if _speaks(key) and _is_on(value) and not _agrees(key, value, arch)
    ]
    if not found:
        return ()
    several = len(found) > 1
    return (
        f"{', '.join(found)} {'are' if several else 'is'} not read: '{keys.raw('model_type')}' has no such "
        f"{'keys' if several else 'key'}. Where {'one of them' if several else 'it'} changes what a layer "
        "computes, these figures are of another model.",
    )


def _speaks(key: str) -> bool:
    return key not in _KNOWN and bool(_SPEAKING.search(key)) and not _WEIGHTLESS.search(key)


def _agrees(key: str, value: Any, arch: Transformer) -> bool:
    """Whether it says what the decoder has anyway."""
    if key in _GATES:
        return bool(arch.attention_gate)
    if key in _NORMS:
        return arch.qk_norm
    if key in ("sliding_window_size", "attention_chunk_size"):
        return bool(value == arch.sliding_window)
    if key in ("attention_head_dim", "kv_channels"):
        return bool(value == arch.head_dim)
    if key in ("num_kv_heads", "n_kv_heads", "num_key_value_heads"):
        return bool(value == arch.kv_heads)
    # of experts that are there a mistake was made, others say nothing
    return key in _LEADING + _EVERY or bool(not arch.is_moe and _OF_EXPERTS.search(key))


def _is_on(value: Any) -> bool:
    """Whether a value may change a layer: true, a number above 1, a list or object with anything in it."""
    if isinstance(value, list):
        return any(value)
    if isinstance(value, dict):
        return bool(value) and value.get("use_sparse_attention") is not False
    return value is True or (_whole(value) and value > 1)


def _short(value: Any) -> str:
    """A value on a line, or what it is."""
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else str(value).lower()


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
