"""What a config.json says of a model beside its shape, for whoever has to tell a framework.

Nothing here changes a step's time or memory, but for activations where a job runs them operation by operation
(`mlp_kernels.splits_square`).  Sources, read 2026-11-25: configuration and modelling code of
huggingface/transformers (5.24) of the families that are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from railwright.model.configs.keys import MOST, Keys
from railwright.model.shape.architecture import Details, Transformer
from railwright.model.shape.pattern import layer_kinds

_ACTIVATIONS = ("hidden_activation", "hidden_act", "activation_function", "mlp_hidden_act")

_GEMMA: dict[str, Any] = {"hidden_activation": "gelu_pytorch_tanh"}
_CAPPED: dict[str, Any] = {
    **_GEMMA,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "query_pre_attn_scalar": 256,
}
_CLASSES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("gemma", "gemma3_text", "gemma4_text", "gemma4_unified_text"), _GEMMA),
    **dict.fromkeys(("gemma2", "vaultgemma"), _CAPPED),
    **{kind: {"hidden_act": "relu2"} for kind in ("nemotron", "jais2", "arcee", "nanochat", "persimmon")},
    "nemotron_h": {"mlp_hidden_act": "relu2"},
}
"""What a class takes where its file does not say it, and Llama's does not."""

_EPSILONS = (
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "layernorm_epsilon",
    "norm_epsilon",
    "norm_eps",
)
"""Keys under which families have the epsilon of their norms."""

_LAYER_NORMS = ("cohere", "cohere2", "dbrx", "mpt", "olmo")
"""Families whose norms have no biases and subtract the mean all the same."""

_TURNED_IN_WINDOWS = (
    *("cohere2", "cohere2_moe", "exaone4", "exaone_moe", "llama4_text", "afmoe", "beam", "flint", "kolibri1"),
    "muse_glimmer_text",
)
"""Families whose layers that see the whole sequence have no rotary positions."""

_BASES = "layer_rope_theta"
"""Bases of the rotary positions of every layer, 0 where it has none (Granite with windows, Muse Glimmer)."""

_SCALES = (
    *(
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "query_pre_attn_scalar",
        "attn_temperature_tuning",
    ),
    *("logits_scaling", "logit_scale", "scale_emb", "scale_depth", "dim_model_base", "clip_qkv"),
)


def details_of(keys: Keys, arch: Transformer) -> Details:
    """What the file or the family's class says of them.

    keys  when all checks are done: what is asked here is still unread by the family
    """
    kind = keys.raw("model_type")
    said = keys.filled(_CLASSES.get(kind, {}))
    named = (said.raw(key) for key in _ACTIVATIONS)
    activation = next((name for name in named if isinstance(name, str)), "")
    # alpha, the offset and the limit are constants of GptOssExperts, whatever hidden_act says
    clamped = kind == "gpt_oss"
    return Details(
        activation="quick_gelu" if clamped else activation,
        gate_offset=1.0 if clamped else 0.0,
        gate_limit=7.0 if clamped else 0.0,
        norm=_norm(keys, arch),
        norm_epsilon=next(filter(None, (_number(keys.raw(key)) for key in _EPSILONS)), 0.0),
        rotary_base=_rotary_base(keys),
        unturned=_unturned(keys, arch),
        scales=_scales(said, arch),
    )


def _norm(keys: Keys, arch: Transformer) -> Literal["", "LayerNorm", "RMSNorm"]:
    """The kind of its norms; a file that names the epsilon of one kind says so."""
    kind, plain = keys.raw("model_type"), keys.raw("rms_norm_eps") is None
    if arch.norm_bias or kind in _LAYER_NORMS or (kind == "cohere2_moe" and plain):
        return "LayerNorm"
    return "" if plain else "RMSNorm"


def _rotary_base(keys: Keys) -> float:
    """The base of all layers' rotary positions, in a section of its own since transformers 5.

    0 where the file has none, or one for each kind of layer.
    """
    section = keys.raw("rope_parameters")
    within = _number(section.get("rope_theta")) if isinstance(section, Mapping) else 0.0
    several = any(keys.raw(key) is not None for key in ("rope_local_base_freq", "swa_rope_theta"))
    bases = keys.raw(_BASES)
    if isinstance(bases, list):
        found = {_number(base) for base in bases} - {0.0}
        return found.pop() if len(found) == 1 else 0.0
    return 0.0 if several else within or _number(keys.raw("rope_theta"))


def _number(value: Any) -> float:
    """A number above 0 that a model can have; 0 for anything else."""
    right = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST
    return float(value) if right else 0.0


def _unturned(keys: Keys, arch: Transformer) -> tuple[int, ...]:
    """Layers, counted from 0, without rotary positions among others that have them."""
    kind, bases = keys.raw("model_type"), keys.raw(_BASES)
    if isinstance(bases, list):
        return tuple(i for i, base in enumerate(bases[: arch.layers]) if not _number(base))
    if kind == "smollm3":
        listed, every = keys.raw("no_rope_layers"), keys.raw("no_rope_layer_interval") or 4
        if isinstance(listed, list) and listed:
            return tuple(i for i, turned in enumerate(listed[: arch.layers]) if not turned)
        return tuple(range(every - 1, arch.layers, every)) if isinstance(every, int) and every > 0 else ()
    if kind not in _TURNED_IN_WINDOWS or not arch.sliding_window:
        return ()
    whole = arch.whole_layers
    if not whole and arch.full_every:
        whole = tuple(range(0 if arch.full_first else arch.full_every - 1, arch.layers, arch.full_every))
    # its leading dense layers, where all of them see everything, have them all the same
    forced = kind == "cohere2_moe" and keys.raw("prefix_dense_sliding_window_pattern") in (None, 1)
    return tuple(i for i in whole if not (forced and layer_kinds(arch)[i] == "dense"))


def _scales(keys: Keys, arch: Transformer) -> tuple[str, ...]:
    """Multipliers and caps that are not neutral, 'key value'."""
    found = {key: keys.raw(key) for key in (*_SCALES, *(k for k in keys.unread() if "multiplier" in k))}
    if found["query_pre_attn_scalar"] == arch.head_dim:
        del found["query_pre_attn_scalar"]
    return tuple(f"{key} {value}" for key, value in found.items() if value not in (None, False, 1, []))
