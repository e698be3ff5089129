"""What of a TOML file of torchtitan's is predicted otherwise than it stands, or was not read.

Sources: as `torchtitan`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.model.shape.architecture import Transformer
from railwright.runs.tables import Tables

OTHERWISE: tuple[tuple[str, str, tuple[Any, ...], str], ...] = (
    (
        "training", "mixed_precision_param", ("bfloat16",),
        "parameters are multiplied in fp32; bf16 is predicted",
    ),
    ("optimizer", "name", ("AdamW", "Adam"), "optimizer {} is not modelled; AdamW is predicted"),
    (
        "optimizer", "implementation", ("fused",),
        "the optimizer's implementation {} launches more kernels; the fused one is predicted",
    ),
    ("optimizer", "fused", (True,), "the optimizer is not fused; a fused one is predicted"),
    (
        "optimizer", "early_step_in_backward", (False,),
        "weights are updated within the backward pass, which frees their gradients; an update after it is "
        "predicted, with all gradients in memory",
    ),
    (
        "debug", "deterministic", (False,),
        "deterministic kernels ([debug] deterministic) take longer; usual ones are predicted",
    ),
)  # fmt: skip
"""Section, key, values that are predicted as they stand, and what to say of any other."""

DEFAULTS: Mapping[str, Any] = {
    "training.data_parallel_degree": -1,
    "training.data_parallel_type": "fsdp",
    "training.mixed_precision_reduce": "float32",
    "training.enable_compiled_autograd": False,
    "training.gc_debug": False,
    "experimental.enable_compiled_autograd": False,
    "experimental.custom_import": "",
    "experimental.custom_model_path": "",
    "parallelism.enable_compiled_autograd": False,
    "parallelism.module_fqns_per_model_part": [],
    "parallelism.pipeline_parallel_split_points": [],
    "parallelism.pipeline_parallel_schedule_csv": "",
    "parallelism.pipeline_parallel_expert_parallel_overlap": True,
    "parallelism.context_parallel_load_balancer": "headtail",
    "parallelism.expert_parallel_comm_backend": "standard",
    "activation_checkpoint.early_stop": False,
    "activation_checkpoint.preserve_rng_state": True,
    "activation_checkpoint.determinism_check": "default",
    "activation_checkpoint.debug": False,
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns": ["moe.router.gate"],
    "compile.backend": "inductor",
    "model.norm_type": "rmsnorm",
    "debug.moe_force_load_balance": False,
    "quantize.linear.float8.emulate": False,
    "quantize.linear.mx.mxfp8_dim1_cast_kernel_choice": "triton",
    "quantize.linear.mx.recipe_name": "mxfp8_cublas",
    "quantize.grouped_mm.float8.fqns": ["experts"],
    "quantize.grouped_mm.mx.fqns": ["experts"],
    "quantize.grouped_mm.mx.recipe_name": "mxfp8",
    "float8.emulate": False,
    "float8.force_recompute_fp8_weight_in_bwd": False,
    "comm.mode": "default",
    "memory_estimation.enable": False,
    "memory_estimation.enabled": False,
    "fault_tolerance.enable": False,
    "checkpoint.create_seed_checkpoint": False,
}
"""Settings that a prediction may depend on and has at torchtitan's default."""

UNTIMED: Mapping[str, tuple[str, ...]] = {
    "job": ("",),
    "profiling": ("",),
    "metrics": ("",),
    "lr_scheduler": ("",),
    "checkpoint": ("",),
    "validation": ("",),
    "comm": ("",),
    "memory_estimation": ("disable_fake_mode",),
    "fault_tolerance": ("",),
    "model": ("hf_assets_path", "tokenizer_path", "print_after_conversion"),
    "optimizer": ("lr", "beta", "eps", "weight_decay"),
    "training": ("dataset", "max_norm", "warmup_steps", "gc_freq", "seed"),
    "training.dataloader": ("",),
    "experimental": ("custom_args_module",),
    "debug": ("seed", "deterministic_warn_only"),
    "activation_checkpoint": ("visualize_memory_budget",),
    "quantize.linear.float8": ("precompute_float8",),
    "float8": ("precompute_float8",),
}
"""First letters of the keys of each section that change neither the time nor the memory of a step."""

PARALLEL = ("parallelism", "experimental", "training")
"""Sections that sizes of groups stood in over time, and what goes with them."""

BELONGING: Mapping[str, tuple[str, ...]] = {
    "pipeline": (
        "pipeline_parallel_schedule", "pipeline_parallel_schedule_csv", "pipeline_parallel_layers_per_stage",
        "pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers",
        "pipeline_parallel_microbatch_size", "pipeline_parallel_microbatches",
        "pipeline_parallel_split_points", "pipeline_parallel_expert_parallel_overlap",
        "module_fqns_per_model_part",
    ),
    "context": ("context_parallel_rotate_method", "context_parallel_load_balancer"),
    "expert": ("expert_parallel_degree", "expert_tensor_parallel_degree", "expert_parallel_comm_backend"),
}  # fmt: skip
"""Keys of the sections above that do nothing without such a group, by their whole names: one letter less in
that of its size is no setting, and must be told."""

QUANTIZED = ("quantize", "float8", "mx")
"""Sections, and first parts of sections, of converters."""

KEPT = {"output", "router.gate", "moe.router.gate"}
"""Modules that are predicted in 16 bits, whether filter_fqns names them or not."""


def otherwise(read: Tables) -> list[str]:
    """Sentences on settings whose effect is known and not modelled."""
    found = []
    for section, key, values, sentence in OTHERWISE:
        value = read.get(section, key, values[0])
        if value not in values:
            found.append(sentence.format(value))
    return found


def unread(read: Tables, layout: Mapping[str, Any], arch: Transformer) -> list[str]:
    """Sentences on what nobody asked for and may change time or memory, those that are no setting of
    torchtitan's with the nearest one that is."""
    rest: list[str] = []
    found: list[str] = []
    for section, key, value in read.unasked():
        if _is_default(section, key, value) or key.startswith(UNTIMED.get(section, ())):
            continue
        if _is_idle(read, section, key, value, layout, arch):
            continue
        shown = f"[{section}] {key}" if section else key
        keys = [name for names in BELONGING.values() for name in names] if section in PARALLEL else []
        hint = "" if _is_known(section, key) else read.hint(section, key, keys, UNTIMED)
        (found if hint else rest).append(f"{shown}{hint}")
    return [f"not read: {one}" for one in ([", ".join(rest)] if rest else []) + found]


def _is_known(section: str, key: str) -> bool:
    """Whether it is a setting of torchtitan's, if one that is not read."""
    return f"{section}.{key}" in DEFAULTS or section.startswith(QUANTIZED)


def _is_default(section: str, key: str, value: Any) -> bool:
    name = f"{section}.{key}"
    return name in DEFAULTS and DEFAULTS[name] == value


def _is_idle(
    read: Tables, section: str, key: str, value: Any, layout: Mapping[str, Any], arch: Transformer
) -> bool:
    """Whether it has no effect, as what it belongs to is not asked for."""
    if section.split(".")[0] in QUANTIZED:
        listed = read.get("model", "converters", [])
        used = section.split(".")[-1] in str(listed) or read.get("float8", "enable_float8_linear", False)
        names = value if isinstance(value, list) else [value]
        return not used or (key == "filter_fqns" and set(map(str, names)) <= KEPT)
    if section in PARALLEL:
        has = {
            "pipeline": layout.get("pipeline", 1) > 1,
            "context": layout.get("context", 1) > 1,
            "expert": arch.is_moe,
        }
        return any(key in names and not has[part] for part, names in BELONGING.items())
    if section == "activation_checkpoint":
        # what is left of it belongs to ways of computing again that are not asked for, or are told
        return layout.get("recompute", "none") == "none" or key == "memory_budget"
    return section == "fault_tolerance" and not read.get("fault_tolerance", "enable", False)
