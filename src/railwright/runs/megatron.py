"""A run of Megatron-LM as a training job: what its arguments say of layout, overlap, formats and kernels.

Each argument means what `search.exports` writes it for; tests hold the two to each other.
Source, read 2026-11-29: Megatron-LM d98e8a6, megatron/training/arguments.py and megatron/core's
TransformerConfig, OptimizerConfig and DistributedDataParallelConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.model.shape.architecture import Transformer
from railwright.runs.given import Given, ranks_of
from railwright.runs.overlap import buckets_of, overlap_of
from railwright.runs.pieces import cut
from railwright.training.software.eras import Era
from railwright.training.software.narrow_weights import FORMATS

GROUP = 8
"""GPUs of a server where nothing says how many there are: DGX and HGX have so many."""

RECIPES = {"delayed": "fp8", "tensorwise": "fp8", "blockwise": "fp8_block", "mxfp8": "mxfp8"}
"""Our names of the formats of `--fp8-recipe`; delayed is Megatron's default."""

CONTEXT = {"p2p": "ring", "a2a": "all-to-all", "allgather": "all-gather", "all_gather": "all-gather"}
STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
MODULES = {"core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"}
GRAPHS = {
    "attn": "attention",
    "mamba": "mixer",
    "mlp": "mlp",
    "moe_router": "router",
    "moe_preprocess": "router",
}
MOMENTS = ("fp32", "bf16", "fp16", "fp8")
"""Types of `--exp-avg-dtype`."""


def job_fields(given: Given, arch: Transformer, gpus: int | None, per_server: int | None) -> dict[str, Any]:
    """Fields of a TrainingJob but for its name and model; what cannot be said goes to `given.doubts`.

    gpus        GPUs of the run, None where nobody says
    per_server  GPUs of a server of the cluster it shall be predicted on
    Raises RailwrightError, naming file, line and argument, for a value that is none.
    """
    layout = _layout(given, arch, gpus)
    sequence = given.count("seq_length", "encoder_seq_length")
    micro = given.count("micro_batch_size") or 1
    if sequence is None:
        raise given.refuse("seq_length", "--seq-length is not given; the tokens of a sequence are expected")
    batch = given.count("global_batch_size") or _all_at_once(given, layout, micro, gpus)
    if given.has("rampup_batch_size", "step_batch_size_schedule"):
        given.doubts.append(f"the batch grows to {batch}; its full size is predicted")
    found: dict[str, Any] = {
        "sequence": sequence,
        "global_batch": batch,
        "micro_batch": micro,
        "tokens": _tokens(given, batch, sequence),
        "layout": layout,
        "overlap": overlap_of(given, arch, layout),
    }
    found |= _formats(given)
    found |= _weights(given, layout, found, gpus)
    found |= _states(given)
    found |= _exchange(given, arch, layout, per_server or given.gpus_per_node or GROUP)
    found |= _kernels(given, arch)
    found |= buckets_of(given, found["overlap"].get("dp", True) and layout["zero"] < 2)
    if gpus is not None:
        found["gpus"] = gpus
        ranks = ranks_of(layout)
        if gpus % ranks:
            given.doubts.append(
                f"{gpus} GPUs are no multiple of the {ranks} of one replica; --gpus says others"
            )
    if given.adapters:
        found["lora"] = dict(given.adapters)
    elif given.adapters is not None:
        given.doubts.append("adapters of this kind are not modelled; all weights are predicted to train")
    if given.has("num_workers") and (workers := given.whole("num_workers")) != 2:
        found["data"] = {"workers": workers}
    return found


def _layout(given: Given, arch: Transformer, gpus: int | None) -> dict[str, Any]:
    tensor = given.count("tensor_model_parallel_size") or 1
    context = given.count("context_parallel_size") or 1
    found = {"tensor": tensor} if tensor > 1 else {}
    found |= cut(given, arch.layers)
    if context > 1:
        found |= {"context": context} | _context_kind(given)
    if arch.is_moe:
        expert = given.count("expert_model_parallel_size") or 1
        inner = given.count("expert_tensor_parallel_size")
        found |= {"expert": expert} if expert > 1 else {}
        found |= {"expert_tensor": inner} if inner not in (None, tensor) else {}
    if given.yes("sequence_parallel") and tensor > 1:
        found["sequence_parallel"] = True
    found |= _sharding(given, ranks_of(found), context, gpus)
    return found | _again(given) | _held(given, arch)


def _context_kind(given: Given) -> dict[str, Any]:
    kinds = given.words("cp_comm_type") or ("p2p",)
    if kinds[0] not in CONTEXT:
        given.doubts.append(f"context parallelism by {kinds[0]} is not modelled; a ring is predicted")
    kind = CONTEXT.get(kinds[0], "ring")
    return {"context_kind": kind} if kind != "ring" else {}


def _sharding(given: Given, ranks: int, context: int, gpus: int | None) -> dict[str, Any]:
    """ZeRO, and ranks that share one copy."""
    zero = 1 if given.yes("use_distributed_optimizer") else 0
    if given.yes("use_megatron_fsdp"):
        named = given.text("data_parallel_sharding_strategy") or "no_shard"
        if named not in STRATEGIES:
            raise given.refuse(
                "data_parallel_sharding_strategy", f"there is no '{named}'; one of {', '.join(STRATEGIES)}"
            )
        zero = STRATEGIES[named]
    elif given.yes("use_torch_fsdp2"):
        zero = 3
    found: dict[str, Any] = {"zero": zero}
    if (
        zero == 3
        and given.yes("use_torch_fsdp2")
        and not given.yes("torch_fsdp2_reshard_after_forward", True)
    ):
        found["reshard"] = False
    copies = given.count("num_distributed_optimizer_instances") or 1
    if copies > 1 and zero and gpus is not None:
        found["shard"] = max(gpus // ranks * context // copies, 1)
    elif copies > 1 and zero:
        given.doubts.append(f"{copies} copies of what is sharded: with --gpus they are read")
    return found


def _again(given: Given) -> dict[str, Any]:
    """What is computed again."""
    asked = given.text("recompute_granularity")
    if asked == "full":
        every = given.text("recompute_method") != "block"
        count = given.whole("recompute_num_layers") or 1
        if every and count > 1:
            given.doubts.append(f"activations are kept of every {count}th layer; of every layer is predicted")
        return {"recompute": "full"} | ({} if every else {"recompute_layers": count})
    if asked != "selective" and not given.yes("recompute_activations"):
        return {}
    modules = given.words("recompute_modules") or ("core_attn",)
    if unknown := [name for name in modules if name not in MODULES]:
        given.doubts.append(f"recomputation of {' and '.join(unknown)} is not modelled")
    known = tuple(name for name in modules if name in MODULES)
    if not known:
        return {}
    return {"recompute": "selective"} | ({} if known == ("core_attn",) else {"recompute_modules": known})


def _held(given: Given, arch: Transformer) -> dict[str, Any]:
    """What lies in host memory."""
    held = []
    found: dict[str, Any] = {}
    if given.yes("optimizer_cpu_offload"):
        held.append("optimizer")
        share = given.number("optimizer_offload_fraction")
        if share is not None and share < 1:
            given.doubts.append(f"{100 * share:g} % of the optimizer lie on the host; all of it is predicted")
    layers = given.whole("cpu_offloading_num_layers") or 0
    if layers:
        held.append("activations")
        found["offload_layers"] = min(layers, arch.layers)
    if given.yes("fine_grained_activation_offloading"):
        given.doubts.append("activations of named modules go to the host; that is not modelled")
    return found | ({"offload": tuple(held)} if held else {})


def _formats(given: Given) -> dict[str, Any]:
    """What matrices are multiplied in."""
    if given.has("fp4"):
        return {"dtype": "nvfp4"}
    if given.has("fp8"):
        recipe = given.text("fp8_recipe") or "delayed"
        if recipe not in RECIPES:
            raise given.refuse("fp8_recipe", f"'{recipe}' is not modelled; one of {', '.join(RECIPES)} is")
        found: dict[str, Any] = {"dtype": RECIPES[recipe]}
        if recipe == "delayed":
            found["amax_over"] = "tensor" if given.yes("tp_only_amax_red") else "stage"
        elif recipe == "tensorwise":
            found["amax_over"] = "none"
        switches = {"attention": "fp8_dot_product_attention", "head": "fp8_output_proj"}
        if also := tuple(part for part, name in switches.items() if given.yes(name)):
            found["dtype_also"] = also
        if given.yes("activation_func_fp8_input_store"):
            found["activation_input_dtype"] = "fp8"
        return found
    if given.yes("fp16"):
        return {"dtype": "fp16"}
    if not given.yes("bf16"):
        given.doubts.append("neither --bf16 nor --fp16 is given, which is fp32; bf16 is predicted")
    return {}


def _weights(
    given: Given, layout: dict[str, Any], found: Mapping[str, Any], gpus: int | None
) -> dict[str, Any]:
    """Whether 16 bits lie beside weights in 8, where Megatron-LM could do without and is not told to: with
    the distributed optimizer, which one replica has for nothing (`narrow_weights.widened`)."""
    asked = given.yes("fp8_param_gather") or given.yes("fp8_param")
    held = "optimizer" in layout.get("offload", ()) and found.get("amax_over") in (None, "none")
    alone = layout["zero"] == 0 and gpus == ranks_of(layout) and "context" not in layout
    could = found.get("dtype") in FORMATS and (alone or 0 < layout["zero"] < 3) and not held
    return {"fp8_param_gather": False} if could and not asked else {}


def _states(given: Given) -> dict[str, Any]:
    """Optimizer, and the types of gradients and states."""
    found: dict[str, Any] = {}
    named = given.text("optimizer") or "adam"
    if named.endswith("muon"):
        found["optimizer"] = "muon"
        muon = {
            "steps": given.count("muon_num_ns_steps"),
            "tp_mode": given.text("muon_tp_mode"),
        }
        found |= {"muon": kept} if (kept := {k: v for k, v in muon.items() if v is not None}) else {}
    elif named not in ("adam", "adamw"):
        given.doubts.append(f"optimizer {named} is not modelled; Adam is predicted")
    if given.yes("fp16"):
        found |= {"gradient_dtype": "fp32"} if given.yes("accumulate_allreduce_grads_in_fp32") else {}
    elif given.yes("grad_reduce_in_bf16") or given.text("megatron_fsdp_main_grads_dtype") == "bf16":
        found["gradient_dtype"] = "bf16"
    if given.yes("use_precision_aware_optimizer"):
        moments = given.text("exp_avg_dtype") or "fp32"
        if moments not in MOMENTS:
            raise given.refuse("exp_avg_dtype", f"there is no '{moments}'; one of {', '.join(MOMENTS)}")
        if moments == "fp16":
            given.doubts.append("moments in fp16 take what those in bf16 do, which are predicted")
            moments = "bf16"
        found |= {"moment_dtype": moments} if moments != "fp32" else {}
        delayed = not given.has("fp8") or (given.text("fp8_recipe") or "delayed") == "delayed"
        held = given.yes("optimizer_cpu_offload") or given.yes("use_megatron_fsdp")
        if delayed and not held and not given.yes("fp16") and not given.has("fp4"):
            found["master"] = "remainder"
    return found


def _exchange(given: Given, arch: Transformer, layout: dict[str, Any], per_server: int) -> dict[str, Any]:
    """How tokens reach their experts."""
    if not arch.is_moe:
        return {}
    found: dict[str, Any] = {}
    flexible = given.text("moe_token_dispatcher_type") == "flex" or given.yes("moe_enable_deepep")
    if flexible and layout.get("expert", 1) > 1:
        ranks = layout["expert"] * layout.get("expert_tensor", layout.get("tensor", 1))
        servers = max(-(-ranks // per_server), 1)
        found["expert_nodes"] = min(given.count("moe_router_group_topk") or servers, servers)
    capacity = given.number("moe_expert_capacity_factor")
    if capacity is not None and given.yes("moe_pad_expert_input_to_capacity"):
        found["expert_capacity"] = max(capacity, 1.0)
    elif capacity is not None:
        given.doubts.append(
            "tokens beyond an expert's capacity are dropped, without padding; predicted are all tokens"
        )
    if given.text("moe_dispatch_fwd_dtype") in ("fp8", "mxfp8"):
        found["dispatch_dtype"] = "fp8"
    return found


def _kernels(given: Given, arch: Transformer) -> dict[str, Any]:
    """What runs one kernel per operation, and what is launched as CUDA graphs."""
    unfused = []
    if arch.rotary and not arch.position_embeddings and not given.yes("apply_rope_fusion", True):
        unfused.append("rotary")
    if arch.is_moe and not given.yes("moe_router_fusion"):
        unfused.append("router")
    if not given.yes("cross_entropy_loss_fusion"):
        unfused.append("loss")
    fused = given.yes("bias_swiglu_fusion", True) and given.yes("bias_activation_fusion", True)
    if arch.gated and not fused:
        unfused.append("activation")
    found: dict[str, Any] = {"unfused": tuple(unfused)} if unfused else {}
    if graphs := _graphs(given, arch):
        found["cuda_graphs"] = graphs
    if backend := _attention(given):
        found["attention_backend"] = backend
    if given.environment.get("CUDA_LAUNCH_BLOCKING") == "1":
        found["launch_blocking"] = True
    if (given.whole("empty_unused_memory_level") or 0) > 0:
        given.doubts.append(
            "unused memory goes back to the driver every step (--empty-unused-memory-level) and is asked for "
            "again; it is predicted to be kept"
        )
    if given.yes("deterministic_mode"):
        given.doubts.append(
            "deterministic kernels (--deterministic-mode) take longer; usual ones are predicted"
        )
    if not given.yes("gradient_accumulation_fusion", True) and not given.yes("use_megatron_fsdp"):
        given.doubts.append(
            "without gradient accumulation fusion weight gradients are added by kernels of their own, "
            "which are not predicted"
        )
    return found


def _attention(given: Given) -> str | None:
    """Whose kernel runs attention, by `--attention-backend` or the variables that Transformer Engine reads;
    None where it is left to choose."""
    off = [name for name in ("FUSED", "FLASH") if given.environment.get(f"NVTE_{name}_ATTN") == "0"]
    by_variables = {("FUSED",): "flash", ("FLASH",): "fused", ("FUSED", "FLASH"): "unfused"}
    told = given.text("attention_backend") or by_variables.get(tuple(off))
    if told in ("unfused", "local"):
        given.doubts.append(
            f"attention that writes its scores ({told}) is predicted as a fused kernel; --software "
            "megatron-2025-unfused has its own"
        )
    implementation = given.text("transformer_impl") or "transformer_engine"
    if implementation != "transformer_engine":
        given.doubts.append(
            f"--transformer-impl {implementation}: local layers write the scores of attention and have norms "
            "of their own; Transformer Engine's are predicted"
        )
        return None
    return told if told in ("fused", "flash") else None


def _graphs(given: Given, arch: Transformer) -> tuple[str, ...]:
    impl = given.text("cuda_graph_impl") or "none"
    if given.yes("enable_cuda_graph") or given.yes("external_cuda_graph"):
        impl = "local"
    if impl == "none":
        return ()
    scope = [name.rsplit(".", 1)[-1] for name in given.words("cuda_graph_scope")]
    if impl == "full_iteration" or "full_iteration" in scope:
        return ("step",)
    if not scope or scope == ["full"]:
        return ("attention",) if arch.is_moe else ("attention", "mlp")
    if unknown := [name for name in scope if name not in GRAPHS]:
        given.doubts.append(f"CUDA graphs of {' and '.join(unknown)} are not modelled")
    return tuple(dict.fromkeys(GRAPHS[name] for name in scope if name in GRAPHS))


def dropout(given: Given, era: Era) -> dict[str, float]:
    """Fields of a job for the shares of hidden states and of attention's scores that are dropped, where they
    are not the era's: 0.1 unless told."""
    found = {}
    for name in ("hidden_dropout", "attention_dropout"):
        told = given.number(name)
        share = 0.1 if told is None else told
        if not 0 <= share < 1:
            raise given.refuse(name, f"{share:g} is no share from 0 to below 1")
        if share != era.dropout:
            found[name] = share
    return found


def _all_at_once(given: Given, layout: dict[str, Any], micro: int, gpus: int | None) -> int:
    """The batch of a run that names none: one microbatch of every replica."""
    if gpus is None:
        raise given.refuse(
            "global_batch_size", "--global-batch-size is not given; with --gpus it is a microbatch a replica"
        )
    return max(gpus // ranks_of(layout), 1) * micro


def _tokens(given: Given, batch: int, sequence: int) -> float:
    if samples := given.whole("train_samples"):
        return float(samples * sequence)
    if steps := given.whole("train_iters"):
        return float(steps * batch * sequence)
    given.doubts.append("how long it trains is not told; one step is predicted")
    return float(batch * sequence)
