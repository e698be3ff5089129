"""The architectures that published training records name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from typing import Any

from railwright.measure.machines import Unsupported
from railwright.model import load_model
from railwright.model.shape.architecture import Details, Transformer


@lru_cache(maxsize=1)
def architectures() -> Mapping[str, Transformer]:
    """The architectures that the training records name."""
    data = resources.files("railwright.measure").joinpath("data")
    found: dict[str, Any] = {}
    for name in ("training_models.json", "training_read_models.json"):
        found |= json.loads(data.joinpath(name).read_text(encoding="utf-8"))
    named = {name: _transformer(name, m) for name, m in found.items() if not m.get("hybrid")}
    return named | {name: load_model(name) for name in BUNDLED}


def gpt(name: str, layers: int, hidden: int, heads: int, vocab: int, positions: int) -> Transformer:
    """GPT-2's architecture in another size: MLPs four times as wide, GELU, learned positions, a tied head."""
    return Transformer(
        name=name,
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=4 * hidden,
        gated=False,
        tied_embeddings=True,
        position_embeddings=positions,
    )


HYBRIDS = ("nemotronh-56b", "nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b")
"""Models with linear layers: in no fit, whose factors would stand for what their layers lack."""

BUNDLED = ("llama-2-13b", "llama-4-scout", "mixtral-8x22b", "mixtral-8x7b", "qwen2.5-7b", *HYBRIDS)
"""Models of the records whose architectures come with the project: of the rows that we read ourselves, and
those whose layers the table of architectures does not say."""


def architecture_of(record: Mapping[str, str]) -> Transformer:
    """The record's architecture. Raises Unsupported for one whose layers are not known."""
    if record["model"] not in architectures():
        raise Unsupported("a model whose layers are not in the table of architectures")
    found = architectures()[record["model"]]
    if found.name == "deepseek-v3" and record["family"].startswith(("mbridge", "dgxc")):
        # Megatron-Bridge, recipes/deepseek/deepseek_v3.py, and NeMo, recipes/deepseek_v3.py: one
        # multi-token-prediction layer by default
        return found if "w-o-mtp" in record["id"] else replace(found, mtp_layers=1)
    if found.name == "nemotron-3-super-120b-a12b":
        # Megatron-Bridge v0.5.1, recipes/nemotronh/nemotron_3_super.py: mtp_num_layers = 2, one layer that
        # runs twice (mtp_use_repeated_layer); its weights are counted twice here
        return replace(found, mtp_layers=2)
    if record["family"].startswith("bigscience"):
        return replace(found, **BIGSCIENCE)
    return found


BIGSCIENCE: dict[str, Any] = {"position_embeddings": 0, "alibi": True, "embedding_norm": True}
"""What all of bigscience's runs of February 2022 asked for beside their sizes: --position-embedding-type
alibi and --embed-layernorm (train/tr11-200B-ml/tr11-200B-ml.slurm from 6 February, 0b536e8, to 28 February,
1a13e1f)."""

SQUARED_RELU = ("nemotron-8b", "nemotron-22b", "nemotron4-15b", "nemotron4-340b")
"""Models with squared ReLU, which the table of architectures does not say.
Source: NeMo, collections/llm/gpt/model/nemotron.py, NemotronConfig (activation_func: squared_relu)."""

LEARNED, LEARNED_POSITIONS = re.compile(r"gpt3?-\d|megatron-|mpt-"), 2048
"""Models without rotary positions, and rows of their table; all tie the output matrix to the embedding.
Sources: Megatron-LM before 2023 knew no other; NeMo, collections/llm/gpt/model/base.py, GPTConfig
(position_embedding_type, share_embeddings_and_output_weights); llm-foundry, configuration_mpt.py,
learned_pos_emb, and modeling_mpt.py of 2023, whose logits are those of wte.weight. bigscience's ALiBi adds
its bias to the scores inside their kernel: no kernel either."""


def _transformer(name: str, m: Mapping[str, Any]) -> Transformer:
    """One record's architecture under our names."""
    mla = m.get("mla") or {}
    return Transformer(
        name=name,
        layers=m["layers"],
        hidden=m["hidden"],
        vocab=m["vocab"],
        heads=m["heads"],
        kv_heads=m["kv_heads"],
        head_dim=mla.get("nope", m["head_dim"]),
        ffn=m["ffn"],
        gated=m["glu"],
        attention="mla" if mla else "gqa",
        q_lora=mla.get("q_lora", 0),
        kv_lora=mla.get("kv_lora", 0),
        rope_dim=mla.get("rope", 0),
        v_head_dim=mla.get("v", 0),
        experts=m.get("experts", 0),
        experts_per_token=m.get("topk", 0),
        expert_ffn=m.get("moe_ffn", 0),
        shared_experts=m.get("shared_experts", 0),
        shared_ffn=m.get("shared_experts", 0) * m.get("moe_ffn", 0),
        dense_layers=min(m.get("first_dense_layers", 0), m["layers"]),
        sliding_window=128 if "sliding window 128" in m["attn"] else 0,
        full_every=2 if "alternate" in m["attn"] else 0,
        expert_groups=8 if name.startswith("deepseek-v") else 1,
        router_bias=name == "deepseek-v3",
        # openai/gpt-oss, model.py: mlp1_bias, mlp2_bias; RotaryEmbedding, _compute_concentration_and_inv_freq
        mlp_bias=name.startswith("gpt-oss"),
        yarn=name.startswith("gpt-oss"),
        position_embeddings=LEARNED_POSITIONS if LEARNED.match(name) else 0,
        tied_embeddings=bool(LEARNED.match(name)),
        details=Details(activation="relu2") if name in SQUARED_RELU else Details(),
        source=m.get("source", ""),
    )
