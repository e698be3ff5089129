"""Families of decoders with a dense MLP beside their routed experts.

No class in huggingface/transformers reads them; each function names the code that does.
"""

from __future__ import annotations

from dataclasses import replace

from railwright.model.configs.dense_families import mistral
from railwright.model.configs.family_parts import plain, routed, with_shared
from railwright.model.configs.keys import Keys
from railwright.model.shape.architecture import Transformer


def grok2(keys: Keys, name: str) -> Transformer:
    """Grok-2: as Grok-1, but not tied, and a dense MLP as wide as intermediate_size beside narrower experts
    (sgl-project/sglang, models/grok.py, residual_moe)."""
    if keys.raw("num_local_experts") is None:
        raise keys.refuse(
            "model_type",
            "'git' is the name of an image captioner, which is not modelled, and of Grok-2, whose config has "
            "num_local_experts.",
        )
    base = plain(keys, name)
    arch = routed(
        keys,
        replace(base, norms_per_layer=4),
        [True] * base.layers,
        experts="num_local_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size", base.ffn),
    )
    beside = base.ffn if keys.flag("residual_moe", False) else 0
    return with_shared(arch, beside)


def arctic(keys: Keys, name: str) -> Transformer:
    """Arctic: beside the experts a dense MLP as wide as the hidden states, with a norm of its own.

    Experts read what the layer does, not what attention adds to it (Snowflake's modeling_arctic.py,
    ArcticDecoderLayer); here all of a layer runs in a row.
    """
    base, every = mistral(keys, name), keys.whole("moe_layer_frequency", 2)
    arch = routed(
        keys,
        base,
        [(i + 1) % every == 0 for i in range(base.layers)],
        experts="num_local_experts",
        per_token="num_experts_per_tok",
        width=base.ffn,
    )
    beside = base.hidden if arch.is_moe and keys.flag("parallel_attn_mlp_res", False) else 0
    return replace(with_shared(arch, beside), shared_norm=beside > 0)
