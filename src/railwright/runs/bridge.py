"""A run of Megatron-Bridge, by the `run_config.yaml` that it writes beside every checkpoint.

Its sections hold Megatron-core's own configurations, so that most names are those of Megatron-LM's arguments.
Sources, read 2026-11-29: Megatron-Bridge 067f987, src/megatron/bridge/training/config.py (ConfigContainer),
comm_overlap.py, mixed_precision.py and peft/lora.py; Megatron-LM d98e8a6, megatron/training/config/
yaml_utils.py (how types, functions and enumerations are written).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.runs.given import FIELDS, Given, Value, number_format, texts

SECTIONS = ("model", "train", "ddp")
"""What a file has by which it is known."""

READ = ("model", "ddp", "optimizer", "train", "dataset", "tokenizer", "mixed_precision", "comm_overlap")
"""Sections, in an order in which later ones overrule: overlaps are set by the last (`CommOverlapConfig`)."""

RENAMED = {
    **FIELDS,
    "num_moe_experts": "num_experts",
    "bucket_size": "ddp_bucket_size",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
}
"""Fields that arguments call otherwise."""

NAMED: Mapping[str, Mapping[str, Any]] = {
    "mxfp8": {"fp8": "e4m3", "fp8_recipe": "mxfp8", "fp8_param_gather": True},
    "nvfp4": {"fp4": "e2m1"},
    "fp8_delayed": {"fp8": "hybrid", "fp8_recipe": "delayed", "fp8_param_gather": True},
    "fp8_current": {"fp8": "hybrid", "fp8_recipe": "tensorwise", "fp8_param_gather": True},
    "fp8_subchannel": {"fp8": "hybrid", "fp8_recipe": "blockwise"},
    "nanov2": {"fp8": "hybrid", "fp8_recipe": "blockwise"},
}
"""What the name of a recipe of mixed precision stands for, by a part of it (mixed_precision.py)."""

TARGETS = {
    "linear_qkv": "qkv",
    "linear_proj": "attention output",
    "linear_fc1": "mlp up",
    "linear_fc2": "mlp down",
}
"""Layers that get adapters by default, and ours (peft/lora.py)."""


def is_bridges(read: Any) -> bool:
    """Whether YAML is a configuration of Megatron-Bridge."""
    return isinstance(read, Mapping) and all(isinstance(read.get(name), Mapping) for name in SECTIONS)


def of_bridge(read: Mapping[str, Any], file: str, lines: Mapping[str, int]) -> Given:
    """Its fields as arguments. Nothing in it says on how many GPUs it ran."""
    found: dict[str, Any] = {}
    for name in READ:
        section = read.get(name)
        if isinstance(section, str) and name == "mixed_precision":
            section = _precision(section)
        if isinstance(section, Mapping):
            found |= {RENAMED.get(key, str(key)): v for key, v in section.items() if v is not None}
    found |= _shape(read["model"], found)
    if found.get("grad_reduce_in_fp32") is False:
        found["grad_reduce_in_bf16"] = True
    values = {
        key: Value(_words(value), lines.get(key, 0), key) for key, value in found.items() if value is not None
    }
    return Given(
        file,
        values,
        environment=texts(read.get("env_vars")),
        everything=True,
        adapters=_adapters(read.get("peft")),
    )


def _precision(name: str) -> dict[str, Any]:
    """The fields of a recipe that is given by its name."""
    found: dict[str, Any] = {"fp16" if name.startswith("fp16") else "bf16": True}
    return found | dict(next((fields for part, fields in NAMED.items() if part in name), {}))


def _shape(model: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What arguments say of a model's parts otherwise than its configuration does."""
    function = str(_plain(model.get("activation_func") or ""))
    gated = bool(model.get("gated_linear_unit"))
    groups = model.get("num_query_groups")
    return {
        "swiglu": gated and "quick" not in function,
        "quick_geglu": gated and "quick" in function,
        "squared_relu": not gated and "squared_relu" in function,
        "untie_embeddings_and_output_weights": not model.get("share_embeddings_and_output_weights", True),
        "group_query_attention": groups not in (None, model.get("num_attention_heads")),
        "vocab_size": model.get("vocab_size") or found.get("vocab_size"),
    }


def _adapters(peft: Any) -> dict[str, Any] | None:
    """LoRA's section of a job; None where all weights train, {} for adapters that are not modelled."""
    if not isinstance(peft, Mapping):
        return None
    listed = peft.get("target_modules")
    modules = [str(one).rsplit(".", 1)[-1] for one in (listed if isinstance(listed, list) else TARGETS)]
    targets = tuple(TARGETS[one] for one in TARGETS if one in modules)
    if "dim" not in peft or not targets:
        return {}
    found: dict[str, Any] = {"rank": peft["dim"], "targets": targets}
    if peft.get("dropout"):
        found |= {"dropout": peft["dropout"], "dropout_position": peft.get("dropout_position", "pre")}
    return found


def _words(value: Any) -> tuple[str, ...]:
    """A value as the words of an argument."""
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else (_plain(value),)


def _plain(value: Any) -> str:
    """A type, function or enumeration by its name; anything else as it is."""
    if isinstance(value, Mapping):
        value = str(value.get("_name_") or value.get("_target_") or "").rsplit(".", 1)[-1]
    return number_format(str(value))
