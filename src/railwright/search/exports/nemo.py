"""A layout as the configurations that NeMo and Megatron-Bridge take.

Sources, read 2026-11-22: NeMo 2, nemo/lightning/pytorch/strategies/megatron_strategy.py (MegatronStrategy),
and Megatron-Bridge 067f987, whose providers take the same fields of Megatron's configurations (Megatron-LM
d98e8a6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from railwright.model.shape.architecture import Transformer
from railwright.search.exports.dispatcher import Hosts
from railwright.search.exports.later import newer_fields
from railwright.search.exports.megatron_words import COLLECTED_EVERY, unsaid
from railwright.search.exports.one_mlp import one_mlp
from railwright.search.exports.sharding import STRATEGIES, copies, sharers
from railwright.search.exports.transformer_config import (
    communication,
    fusions,
    graphs,
    muon,
    optimizer_fields,
    precision,
    recomputation,
    stages,
)
from railwright.spec.dataset import Data
from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import gradient_type
from railwright.training.layers.graphs import graphed
from railwright.training.layers.unhidden import gathers_late
from railwright.training.software.narrow_weights import gathers_narrow, shares_gradients_buffer

TORCH = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16", "fp8": "torch.uint8"}
"""What arguments.py makes of the names of types (validate_args, dtype_map)."""

ADAPTED = {"attention output": "linear_proj", "mlp up": "linear_fc1", "mlp down": "linear_fc2"}
"""Modules that adapters are added to, beside those of queries, keys and values (LoRA.target_modules)."""


OVERWRITTEN = (
    "number formats and grad_reduce_in_fp32: NeMo 2's MegatronMixedPrecision and Megatron-Bridge's "
    "mixed_precision overwrite the fields below; give them the same",
    "overlaps and bucket_size: NeMo 2's MegatronCommOverlapCallback and Megatron-Bridge's comm_overlap do so "
    "too (they have 128 Mi parameters where they are told none); give them the same, or leave them out",
)
"""Objects of a recipe that overwrite what an export sets.

Source: Megatron-Bridge, training/mixed_precision.py (update_config_with_precision_overrides) and
comm_overlap.py (CommOverlapConfig.setup); NeMo 2 has both from the same hand.
"""


COLLECTED = (
    f"ranks collect Python's garbage every {COLLECTED_EVERY} steps together, as recipes for speed do: "
    f"NeMo 2's GarbageCollectionCallback({COLLECTED_EVERY}, {COLLECTED_EVERY}), Megatron-Bridge's "
    f"manual_gc=True and manual_gc_interval={COLLECTED_EVERY} (train); a rank that stops alone stops all, "
    "which is not predicted"
)


class Part(NamedTuple):
    """Keyword arguments of one of the objects that a run is configured by.

    what  whose they are, and where it is defined; name  what they are called in the export
    """

    what: str
    name: str
    values: Mapping[str, Any]


def nemo(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """Keyword arguments of NeMo's MegatronStrategy and what goes into the configurations beside it."""
    lines = [
        *unsaid(job, arch, hosts),
        *(f"# {sentence}" for sentence in (*newer_fields(job), *OVERWRITTEN, COLLECTED)),
    ]
    for what, name, values in _parts(job, arch, hosts):
        lines += [f"# {what}", f"{name} = dict("]
        lines += [f"    {key}={value!r}," for key, value in values.items()]
        lines.append(")")
    return lines


def _parts(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[Part]:
    found = [
        Part(
            "MegatronStrategy (nemo/lightning/pytorch/strategies/megatron_strategy.py)",
            "strategy",
            _strategy(job, arch),
        ),
        Part(
            "its ddp=DistributedDataParallelConfig (megatron/core/distributed)",
            "ddp",
            _data_parallel(job, arch, hosts),
        ),
        Part(
            "the model's TransformerConfig (megatron/core/transformer)",
            "model",
            _model(job, arch, hosts),
        ),
        Part("the data module", "data", _data(job)),
    ]
    if held := _optimizer(job, hosts):
        found.append(Part("the OptimizerConfig (megatron/core/optimizer)", "optimizer", held))
    if job.lora:
        targets = [name for target in job.lora.targets for name in _adapted(target, arch)]
        adapters: dict[str, Any] = {"target_modules": targets, "dim": job.lora.rank}
        if job.lora.dropout:
            adapters |= {"dropout": job.lora.dropout, "dropout_position": job.lora.dropout_position}
        found.append(Part("llm.peft.LoRA; routed experts have no adapters here", "peft", adapters))
    return found


def _strategy(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
    """Sizes of groups, and stages."""
    layout = job.layout
    found: dict[str, Any] = {
        "tensor_model_parallel_size": layout.tensor,
        "pipeline_model_parallel_size": layout.pipeline,
        "virtual_pipeline_model_parallel_size": layout.virtual_pipeline
        if layout.virtual_pipeline > 1
        else None,
        "context_parallel_size": layout.context,
        "sequence_parallel": layout.sequence_parallel and layout.tensor > 1,
        "expert_model_parallel_size": layout.expert,
    }
    if arch.is_moe:
        # always: Megatron-Bridge takes 1 where it is left out, Megatron the tensor-parallel size
        found["expert_tensor_parallel_size"] = layout.expert_cut
    found |= stages(job, arch)
    if layout.zero >= 2:
        found["save_ckpt_format"] = "fsdp_dtensor"  # MegatronStrategy refuses Megatron-FSDP without
    return found


def _by_matrix(job: TrainingJob) -> bool:
    """Whether each data-parallel rank updates whole matrices of its own."""
    return job.optimizer == "muon" and job.layout.zero > 0


def _data_parallel(job: TrainingJob, arch: Transformer, hosts: Hosts) -> dict[str, Any]:
    """What data-parallel ranks share, hide, and reduce in which type."""
    layout, overlap = job.layout, job.overlap
    same = sharers(job, hosts)
    narrow = gathers_narrow(job, same)
    sharded = layout.zero > 0 or bool(optimizer_fields(job)) or (narrow and not job.lora)
    found: dict[str, Any] = {
        "use_distributed_optimizer": sharded and not _by_matrix(job),
        "overlap_grad_reduce": overlap.dp,
        "overlap_param_gather": overlap.dp and overlap.gather and layout.zero > 0,
        "grad_reduce_in_fp32": gradient_type(job) == "fp32",
    }
    if job.ddp_bucket is not None and layout.zero < 2:
        found["bucket_size"] = round(job.ddp_bucket)
    if gathers_late(job):
        found["align_param_gather"] = False
    if layout.zero >= 2:
        found |= {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": STRATEGIES[layout.zero]}
        found["megatron_fsdp_main_grads_dtype"] = _Name(TORCH[gradient_type(job)])
    if narrow:
        found["fp8_param_gather"] = True
    if shares_gradients_buffer(job, same):
        found["reuse_grad_buf_for_mxfp8_param_ag"] = True
    if (instances := copies(job, hosts)) > 1:
        found["num_distributed_optimizer_instances"] = instances
    if "step" in graphed(job, arch):  # nothing can be looked at inside one graph
        found["check_for_nan_in_grad"] = False
    return found


def _model(job: TrainingJob, arch: Transformer, hosts: Hosts) -> dict[str, Any]:
    """What the model's own layers are told of a layout."""
    overlap = job.overlap
    found: dict[str, Any] = {"recompute_granularity": None, "tp_comm_overlap": False}
    if job.layout.virtual_pipeline > 1:
        found |= {"overlap_p2p_comm": overlap.pp, "batch_p2p_comm": not overlap.pp}
    found |= communication(job, arch, hosts) | recomputation(job, arch) | precision(job)
    found |= fusions(job, arch, loss="te") | one_mlp(job, arch, hosts) | graphs(job, arch)
    if gathers_narrow(job, sharers(job, hosts)):
        found["fp8_param"] = True
    if "rotary" in job.unfused or arch.index_topk:
        found["apply_rope_fusion"] = False
    if job.attention_backend:
        found["attention_backend"] = _Name(f"AttnBackend.{job.attention_backend}")
    if "cpu_offloading_num_layers" in found:
        found["cpu_offloading"] = True
    return found


def _data(job: TrainingJob) -> dict[str, Any]:
    found = {
        "micro_batch_size": job.micro_batch,
        "global_batch_size": job.global_batch,
        "seq_length": job.sequence,
    }
    if job.data.workers != Data().workers:
        found["num_workers"] = job.data.workers
    return found


def _optimizer(job: TrainingJob, hosts: Hosts) -> dict[str, Any]:
    """The optimizer, where it is not Adam in fp32 on the GPU of weights in 16 bits."""
    found = optimizer_fields(job) | muon(job)
    if shares_gradients_buffer(job, sharers(job, hosts)):
        found["reuse_grad_buf_for_mxfp8_param_ag"] = True
    if not found:
        return {}
    if job.optimizer == "muon":
        found |= {
            "use_distributed_optimizer": False,
            "use_layer_wise_distributed_optimizer": _by_matrix(job),
        }
    if "use_precision_aware_optimizer" in found and (recipe := precision(job).get("fp8_recipe")):
        found["fp8_recipe"] = recipe  # who updates and casts weights depends on it
    found = {k: _Name(TORCH[v]) if k.endswith("_dtype") else v for k, v in found.items()}
    if job.master == "fp32" and job.optimizer == "adam":
        found["store_param_remainders"] = False
    return found


def _adapted(target: str, arch: Transformer) -> tuple[str, ...]:
    """Modules of one target of adapters."""
    if target != "qkv":
        return (ADAPTED[target],)
    if arch.attention != "mla":
        return ("linear_qkv",)
    return ("linear_q_up_proj" if arch.q_lora else "linear_q_proj", "linear_kv_up_proj")


class _Name(str):
    """A name of Python's in keyword arguments that are written: without quotes."""

    def __repr__(self) -> str:
        return str(self)
