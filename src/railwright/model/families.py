"""The model families of Hugging Face that are understood: model_type -> how its keys become a Transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from railwright.model import dense_families as dense
from railwright.model import expert_families as moe
from railwright.model.architecture import Transformer
from railwright.model.family_parts import plain
from railwright.model.keys import Keys

Family = Callable[[Keys, str], Transformer]

FAMILIES: dict[str, Family] = {
    "llama": plain,
    "mistral": dense.mistral,
    "mixtral": moe.mixtral,
    "qwen2": dense.qwen2,
    "qwen2_moe": moe.qwen2_moe,
    "qwen3": dense.qwen3,
    "qwen3_moe": moe.qwen3_moe,
    "deepseek_v2": moe.deepseek,
    "deepseek_v3": moe.deepseek,
    "kimi_k2": moe.deepseek,
    "glm4_moe_lite": moe.deepseek,
    "gpt2": dense.gpt2,
    "gpt_oss": moe.gpt_oss,
    "nemotron": dense.nemotron,
    "gemma": dense.gemma,
    "gemma2": dense.gemma2,
    "gemma3_text": dense.gemma3,
    "llama4_text": moe.llama4,
    "grok-1": moe.grok,
    "falcon": dense.falcon,
    "minimax_m2": moe.minimax_m2,
    "ministral": dense.mistral,
    "ministral3": dense.mistral,
    "phi3": dense.mistral,
    "phimoe": moe.phimoe,
    "phi": dense.phi,
    "glm": dense.glm,
    "glm4": dense.glm4,
    "glm4_moe": moe.glm4_moe,
    "dots1": moe.dots1,
    "ernie4_5": dense.ernie,
    "ernie4_5_moe": moe.ernie_moe,
    "hunyuan_v1_dense": dense.hunyuan,
    "hunyuan_v1_moe": moe.hunyuan_moe,
    "hy_v3": moe.hy_v3,
    "solar_open": moe.solar_open,
    "exaone4": dense.exaone4,
    "exaone_moe": moe.exaone_moe,
    "olmo2": dense.olmo2,
    "olmo3": dense.olmo3,
    "olmoe": moe.olmoe,
    "granite": plain,
    "granitemoe": moe.granitemoe,
    "granitemoeshared": moe.granitemoe,
    "granitemoehybrid": moe.granitemoehybrid,
    "cohere": dense.cohere,
    "cohere2": dense.cohere2,
    "seed_oss": dense.seed_oss,
    "smollm3": dense.smollm3,
    "starcoder2": dense.starcoder2,
    "gpt_bigcode": dense.gpt_bigcode,
    "gpt_neox": dense.gpt_neox,
    "opt": dense.opt,
    "stablelm": dense.stablelm,
    "dbrx": moe.dbrx,
    "internlm2": dense.internlm2,
    "internlm3": dense.internlm3,
    "bloom": dense.bloom,
    "mpt": dense.mpt,
    "arcee": dense.arcee,
    "apertus": dense.apertus,
    "qwen2_vl": dense.qwen2,
    "qwen2_vl_text": dense.qwen2,
    "qwen2_5_vl": dense.qwen2,
    "qwen2_5_vl_text": dense.qwen2,
    "qwen3_vl_text": dense.qwen3,
    "qwen3_vl_moe_text": moe.qwen3_moe,
    "glm4v_text": dense.glm4,
    "glm4v_moe_text": moe.glm4_moe,
}

NOT_DECODERS = (
    *("bert", "roberta", "albert", "distilbert", "electra", "deberta", "deberta-v2", "modernbert"),
    *("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "xlm-roberta"),
    *("clip", "siglip", "vit", "whisper", "wav2vec2", "mamba", "mamba2"),
)
"""Architectures that are certainly not decoder-only transformers."""

HYBRIDS = (
    *("nemotron_h", "jamba", "bamba", "zamba", "zamba2", "falcon_h1", "falcon_mamba"),
    *("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text", "kimi_linear", "minimax"),
    *("lfm2", "lfm2_moe", "recurrent_gemma", "olmo_hybrid", "bailing_hybrid", "bailing_moe_linear"),
    *("minimax_text_01", "minimax_m1"),
)
"""Architectures that mix attention with state-space, recurrent or linear-attention layers."""

_SPARSE = "attends to a few keys that an indexer chooses for each query (sparse attention)"

REFUSED = {
    **dict.fromkeys(("deepseek_v32", "deepseek_v4", "glm_moe_dsa"), _SPARSE),
    "jetmoe": "routes its attention heads as experts",
    **dict.fromkeys(("gemma3n", "gemma3n_text"), "has embeddings in every layer, and layers that share keys"),
    **dict.fromkeys(("gemma4", "gemma4_text"), "has wider heads in the layers that see the whole sequence"),
    "mimo_v2_flash": "has other key-value heads in the layers with a window",
    "longcat_flash": "has two attention blocks in a layer, and experts that do nothing",
    **dict.fromkeys(("mllama", "mllama_text_model"), "attends to an image encoder's outputs in some layers"),
}
"""Decoders with something in their layers that is not modelled: what that is."""

ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention")
"""What layer_types may say; the last is Granite 4's word for the first."""

MARKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "index_topk": (lambda value: value is not None, _SPARSE),
    "attn_type_list": (
        lambda value: isinstance(value, list) and any(kind != 1 for kind in value),
        "has layers with linear attention (those that are not 1)",
    ),
    "layer_types": (
        lambda value: isinstance(value, list) and any(kind not in ATTENTION for kind in value),
        f"has layers of other kinds than {', '.join(ATTENTION)}",
    ),
    "is_encoder_decoder": (lambda value: value is True, "has an encoder beside its decoder"),
    "add_cross_attention": (lambda value: value is True, "attends to an encoder's outputs"),
}
"""Keys that say what a model is under any model_type: whether a value does, and what it says.

SGLang and others run DeepSeek-V3.2 under deepseek_v3, and MiniMax-Text-01 has Mixtral's keys.
"""
