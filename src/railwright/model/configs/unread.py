"""What a config.json says and its family does not read: mistakes where it changes the model, else notes.

A config of Hugging Face carries dozens of keys that say nothing about shapes (dropout, initialisers, ids of
tokens, versions); of those nothing is said.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, TypeGuard

from railwright.errors import nearest
from railwright.model.configs.keys import SPELT_ALIKE, Keys
from railwright.model.configs.nearest_families import nearest_families
from railwright.model.configs.other_layers import not_understood, said_of_layers
from railwright.model.shape.architecture import Transformer

_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")
_CHOSEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
)
_WIDTHS = ("moe_intermediate_size", "expert_ffn_hidden_size")
_SHARED = (
    *("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    *("shared_expert_intermediate_size", "shared_intermediate_size"),
)
_EXTRA = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_SCORERS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForRewardModel")
_ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")

ROTATIONS = ("default", "deepseek_yarn", "dynamic", "linear", "llama3", "longrope", "mrope", "yarn")
"""Kinds of rotary positions: ROPE_INIT_FUNCTIONS of huggingface/transformers 5.24 and older names."""

ROUTINGS = ("greedy", "group_limited_greedy", "noaux_tc")
"""`topk_method` of DeepSeek's models (modeling_deepseek.py of V2 and V3)."""

ACTIVATIONS = (
    *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh"),
    *(
        "gelu_pytorch_tanh",
        "geglu",
        "hardswish",
        "laplace",
        "leaky_relu",
        "linear",
        "mish",
        "prelu",
        "quick_gelu",
        "relu",
    ),
    *(
        "relu2",
        "relu6",
        "sigmoid",
        "silu",
        "sqrtsoftplus",
        "squared_relu",
        "swish",
        "swiglu",
        "tanh",
        "xielu",
    ),
)
"""Activations that configs name: ACT2FN of huggingface/transformers 5.24 (activations.py), and the names of
gated ones that GPT-2's offspring use (Jais)."""


def refuse_unread(keys: Keys, arch: Transformer) -> None:
    """Complain about keys that change what the layers are and that this family does not read.

    keys  when the family's function has asked for all it reads
    """
    kind, unread = keys.raw("model_type"), keys.unread()
    for key, value in unread.items():
        told = _experts(key, value, arch) or _latent(key, value) or said_of_layers(key, value, arch)
        if told:
            said = (
                f"{value!r} means {told}, which model_type '{kind}' does not read; give the model_type of a "
            )
            said += "family that does, or take the key out if the model has no such thing. "
            keys.doubt(key, f"{said}{nearest_families(keys)}".rstrip())
    absent = keys.lacking()
    for key in unread:
        meant = get_close_matches(key, absent, n=1, cutoff=SPELT_ALIKE)
        keys.need(
            not meant,
            key,
            f"not a key of '{kind}'; did you mean '{''.join(meant)}'? Rename it, or take it out.",
        )


def notes_of(keys: Keys, outer: Keys, arch: Transformer) -> tuple[str, ...]:
    """What the user should know of keys that change memory or time and that nobody reads.

    keys   when everybody has asked for what they read
    outer  the whole file, of which `keys` may be the language model
    """
    odd = (*_odd_activation(keys), *_odd_words(keys))
    found = (*_quantized(keys, outer), *odd, *_windows(keys), *_extra_layers(keys))
    return (*found, *_headless(outer), *not_understood(keys, arch))


def _experts(key: str, value: Any, arch: Transformer) -> str:
    """What an unread key says about experts that the decoder has not, '' where nothing."""
    if key in _COUNTS:
        many = max(value, default=0) if _whole_list(value) else value
        if _whole(many) and many > 1 and many != arch.experts:
            return "routed experts"
    if not arch.is_moe or not _whole(value) or value < 1:
        return ""
    if key in _CHOSEN and value != arch.experts_per_token:
        return "experts that a token visits"
    if key in _WIDTHS and value != arch.expert_ffn:
        return "the width of an expert"
    return "shared experts" if key in _SHARED and not arch.shared_ffn else ""


def _latent(key: str, value: Any) -> str:
    return "latent attention" if key == "kv_lora_rank" and _whole(value) and value > 0 else ""


def _quantized(keys: Keys, outer: Keys) -> tuple[str, ...]:
    found = keys.raw("quantization_config") or outer.raw("quantization_config")
    if not found:
        return ()
    method = found.get("quant_method") if isinstance(found, dict) else None
    stored = f" (weights stored by '{method}')" if isinstance(method, str) else ""
    return (
        f"quantization_config{stored} is not read: the formats of a job are its own "
        "(jobs: dtype; serving: weights, kv).",
    )


def _odd_activation(keys: Keys) -> tuple[str, ...]:
    return tuple(
        f"{key}: '{name}' is no activation that we know{nearest(name, ACTIVATIONS) or ';'} it is costed like "
        "the others, by the elements that it reads and writes."
        for key in _ACTIVATIONS
        if isinstance(name := keys.raw(key), str) and name.lower() not in ACTIVATIONS
    )


def _odd_words(keys: Keys) -> tuple[str, ...]:
    """Words that choose a kernel or a tensor, misspelt: a letter or two of a known one."""
    said: list[tuple[str, Any, tuple[str, ...]]] = [("topk_method", keys.raw("topk_method"), ROUTINGS)]
    for key in ("rope_parameters", "rope_scaling"):
        whole = keys.raw(key)
        given = whole if isinstance(whole, dict) else {}
        for below, one in ((key, given), *((f"{key}.{kind}", one) for kind, one in given.items())):
            if isinstance(one, dict):
                said += [(f"{below}.{name}", one.get(name), ROTATIONS) for name in ("rope_type", "type")]
    return tuple(
        f"{key}: '{word}' is read as none of {', '.join(known)}; did you mean '{meant[0]}'?"
        for key, word, known in said
        if isinstance(word, str)
        and word not in known
        and (meant := get_close_matches(word, known, n=1, cutoff=0.7))
    )


def _windows(keys: Keys) -> tuple[str, ...]:
    """Windows shorter than the context in a family that has none."""
    switched = "use_sliding_window" in keys.lacking() or keys.raw("use_sliding_window") is False
    window, context = keys.unread().get("sliding_window"), keys.raw("max_position_embeddings")
    if not _whole(window) or window < 1 or switched:
        return ()
    if _whole(context) and window >= context:
        return ()
    return (f"sliding_window: {window} is not read: '{keys.raw('model_type')}' has no windows.",)


def _extra_layers(keys: Keys) -> tuple[str, ...]:
    if keys.raw("use_mtp") is False:
        return ()
    return tuple(
        f"{key}: {value} is not read: extra layers of multi-token prediction are left out of "
        f"'{keys.raw('model_type')}'."
        for key, value in keys.unread().items()
        if key in _EXTRA and _whole(value) and value > 0
    )


def _headless(outer: Keys) -> tuple[str, ...]:
    """Models that give a score, a class (reward models) or vectors (embeddings) have no LM head."""
    named = outer.raw("architectures")
    return tuple(
        f"architectures: '{name}' has no LM head; it is counted with one, as a language model."
        for name in (named if isinstance(named, list) else [])
        if isinstance(name, str) and (name.endswith(_SCORERS) or _is_bare(name))
    )


def _is_bare(name: str) -> bool:
    """Whether a class of Hugging Face is the layers alone; ChatGLM's has a head under that name."""
    return name.endswith("Model") and not name.endswith("LMHeadModel") and name != "ChatGLMModel"


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole_list(value: Any) -> bool:
    return isinstance(value, list) and all(_whole(one) for one in value)
