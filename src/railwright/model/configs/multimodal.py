"""The language model inside a multimodal config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.model.configs.class_defaults import NESTED
from railwright.model.configs.keys import Keys

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
    "emu3": "emu3_text_model",
    "aria": "aria_text",
    "fuyu": "persimmon",
    "got_ocr2": "qwen2",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "muse_glimmer": "muse_glimmer_text",
    "step3p7": "step3p5",
    "apertus1p5": "apertus1p5_text",
}
"""Multimodal families, and the model_type of a language model that does not name its own."""


TIED_OUTSIDE = frozenset(("qwen3_vl_moe",))
"""Families where the outer object alone says whether embeddings are tied.

transformers 5 (configuration_qwen3_vl_moe.py) writes `true`, its class's default, into the text_config of
models whose outer object says `false`, and ties nothing.  Elsewhere it is the other way round: LLaVA's and
GLM-4V's classes take `true` from inside, Mistral 3's and InternVL's are `true` outside for untied models.
"""


def language_part(keys: Keys) -> tuple[Keys, str]:
    """The keys of the language model, and what of the file is left out ('' where the file is one).

    Raises SpecError where a multimodal config has no language model in it, or several (Qwen's Omni).
    """
    kind = keys.raw("model_type")
    if keys.raw("thinker_config") is not None:
        raise keys.refuse(
            "thinker_config",
            f"'{kind}' has a language model that thinks and one that talks, which are not modelled together. "
            "Save the text_config in here as a config.json of its own, with the model_type of its layers "
            "(qwen2, or qwen3_moe where it has experts), to simulate the thinker's.",
        )
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
    _need_agreement(keys, name, part)
    inner = part.get("model_type") or (INNER.get(kind) if isinstance(kind, str) else None)
    found = keys.inside(name).filled(_defaults(inner, keys))
    if isinstance(kind, str) and kind in TIED_OUTSIDE:
        found = found.replaced({"tie_word_embeddings": keys.raw("tie_word_embeddings") or False})
    return found, LEFT_OUT


def _need_agreement(keys: Keys, name: str, part: Mapping[str, Any]) -> None:
    """Complain where the depth stands outside too, as in older files, and is another there."""
    key = "num_hidden_layers"
    one, other = keys.raw(key), part.get(key)
    keys.need(
        not (type(one) is int and type(other) is int and one != other),
        key,
        f"{one} contradicts {name}.{key}: {other}, which counts; make them the same or take this one out.",
    )


LEFT_OUT = "its language model; encoders of images or sound are left out"


def _defaults(kind: Any, outer: Keys) -> Mapping[str, Any]:
    """For keys that the language model lacks: those of its class, and what the outer object says of tying."""
    known = NESTED.get(kind, {}) if isinstance(kind, str) else {}
    tying = outer.raw("tie_word_embeddings")
    return {"model_type": kind, **known, **({} if tying is None else {"tie_word_embeddings": tying})}
