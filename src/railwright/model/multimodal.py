"""The language model inside a multimodal config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.model.keys import Keys

PARTS = ("text_config", "llm_config", "language_config")
"""Where a multimodal config keeps its language model: most; InternVL's own; DeepSeek-VL2."""

INNER = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "llava": "llama",
    "llava_next": "llama",
    "kimi_k25": "deepseek_v3",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
}
"""Multimodal families, and the model_type of a language model that does not name its own."""

_LAYERS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "max_position_embeddings"),
)

_SHAPES: dict[str, tuple[int | None, ...]] = {
    "llama": (32000, 4096, 11008, 32, 32, None, None, 2048),
    "mistral": (32000, 4096, 14336, 32, 32, 8, None, 131072),
    "qwen2": (151936, 4096, 22016, 32, 32, 32, None, 32768),
    "gemma3_text": (262208, 2304, 9216, 26, 8, 4, 256, 131072),
    "llama4_text": (202048, 5120, 8192, 48, 40, 8, 128, 131072),
}

_MORE: dict[str, dict[str, Any]] = {
    "gemma3_text": {"sliding_window": 4096},
    "llama4_text": {"num_local_experts": 16, "num_experts_per_tok": 1, "attention_chunk_size": 8192},
}

DEFAULTS: dict[str, dict[str, Any]] = {
    kind: {k: v for k, v in zip(_LAYERS, shape, strict=True) if v is not None} | _MORE.get(kind, {})
    for kind, shape in _SHAPES.items()
}
"""What Hugging Face leaves out of a nested config, which it writes as the difference from its class.
Source: the configuration classes of huggingface/transformers 5.23, of those whose published configs rely on
them (Gemma 3, LLaVA)."""


def language_part(keys: Keys) -> tuple[Keys, str]:
    """The keys of the language model, and what of the file is left out ('' where the file is one).

    Raises SpecError where a multimodal config has no language model in it.
    """
    kind = keys.raw("model_type")
    name = next((part for part in PARTS if keys.raw(part) is not None), None)
    if name is None:
        if isinstance(kind, str) and kind in INNER and keys.raw("num_hidden_layers") is None:
            raise keys.refuse(
                "model_type",
                f"'{kind}' is a multimodal model that nests its language model under text_config, which is "
                "missing here; a whole config.json is expected.",
            )
        return keys, "" if keys.raw("vision_config") is None else LEFT_OUT
    part = keys.raw(name)
    if not isinstance(part, dict) or not part:
        raise keys.refuse(
            name, "the language model of this multimodal model is expected here, as an object with its keys."
        )
    inner = part.get("model_type") or (INNER.get(kind) if isinstance(kind, str) else None)
    return keys.inside(name, _defaults(inner, keys)), LEFT_OUT


LEFT_OUT = "its language model; encoders of images or sound are left out"


def _defaults(kind: Any, outer: Keys) -> Mapping[str, Any]:
    """For keys that the language model lacks: those of its class, and what the outer object says of tying."""
    known = DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}
    tying = outer.raw("tie_word_embeddings")
    return {"model_type": kind, **known, **({} if tying is None else {"tie_word_embeddings": tying})}
