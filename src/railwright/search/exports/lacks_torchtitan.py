"""What torchtitan has not of a layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import is_hybrid
from railwright.search.exports.dispatcher import sends_one_copy
from railwright.search.exports.lacks import dispatched, has_sinks, schedule_words, shown_ring
from railwright.search.exports.torchtitan import GROUPED, LINEAR, SCHEDULES, TRAINED
from railwright.search.space.axes import apply
from railwright.spec.training import TrainingJob
from railwright.training.layout.schedule import SHARED
from railwright.training.software.hosted import unoffered


def torchtitan_lacks(setting: Mapping[str, Any], job: TrainingJob, arch: Transformer) -> list[str]:
    """Sources, of the version in `torchtitan`: config/job_config.py; models/*/infra/parallelize.py and
    distributed/utils.py (DistributedDataParallel, and no 16 bits without FSDP); train.py (microbatches
    without no_sync); components/quantization/ (converters); distributed/dual_pipe_v.py; models/gpt_oss/infra/
    parallelize.py (attention sinks); distributed/activation_checkpoint.py ('selective' is by operators, or
    whole layers, every n-th); models/llama4/infra/parallelize.py (DeepEP); distributed/parallel_dims.py
    (dp_shard_cp); models/llama4/infra/parallelize.py (apply_moe_ep_tp: experts are cut by tensor parallelism
    where they are on one rank); models/deepseek_v3/model/model.py (no multi-token prediction); PyTorch 2.13,
    distributed/pipelining/schedules.py (Schedule1F1B)."""
    virtual = setting["virtual_pipeline"] > 1
    known = (virtual and setting["schedule"] == "zb-h1") or setting["schedule"] in ("auto", *SCHEDULES)
    found = [] if known else [schedule_words(setting)]
    if is_hybrid(arch):
        found.append("layers that are not attention with an MLP")
    staged, cut = setting["pipeline"] > 1, setting["tensor"] > 1
    apart, experts = setting["context"] > 1, setting["expert"] > 1
    if setting["overlap_ep"] and experts and setting["schedule"] not in SHARED:
        found.append("expert all-to-alls hidden")
    if cut and not setting["sequence_parallel"]:
        found.append("tensor parallelism without sequence parallelism")
    if cut and setting["overlap_tp"] and has_sinks(arch):
        found.append("tensor parallelism hidden beside attention sinks")
    if apart and setting["context_kind"] == "all-to-all":
        found.append("context parallelism over heads")
    if apart and has_sinks(arch):
        found.append("context parallelism beside attention sinks")
    if (setting["zero"] == 0 or setting["replicas"] == 1) and (staged or cut or apart or experts):
        found.append("parameters that are not sharded beside other than data parallelism")
    elif setting["zero"] == 0 and setting["accumulates"]:
        found.append("gradients of parameters that are not sharded reduced once for several microbatches")
    if job.optimizer != "adam":
        found.append(f"optimizer {job.optimizer}")
    if job.lora:
        found.append("adapters")
    if job.dtype not in TRAINED:
        found.append(f"training in {job.dtype}")
    if arch.mtp_layers:
        found.append("multi-token prediction")
    if arch.is_moe and cut and not experts and setting["expert_tensor"] == 1:
        found.append("experts that are not cut beside tensor parallelism without expert parallelism")
    if staged and setting["starved"] and setting["schedule"] in ("auto", "1f1b") and not virtual:
        found.append("1F1B with fewer microbatches than stages")
    if setting["folds"]:
        found.append("experts cut into another number of parts than the rest")
    if setting["zero"] in (1, 2):
        found.append("zero 1 and 2, which shard gradients or optimizer states but not parameters")
    if setting["zero"] == 3:
        found += _fully_sharded(setting, staged)
    if setting["schedule"] == "dualpipe-v" and experts and setting["recompute"] != "none":
        found.append("DualPipeV with expert parallelism and recomputation")
    if setting["recompute"] == "selective" and job.layout.recompute_modules != ("ops",):
        found.append(f"recomputation of {', '.join(job.layout.recompute_modules)}")
    if setting["recompute"] == "full" and setting["recompute_layers"] is not None:
        found.append("recomputation of the first layers of a stage")
    found += _quantized(job.dtype, arch, staged or apart, cut)
    found += dispatched(setting, job, arch)
    if sends_one_copy(apply(job, setting), arch) and (setting["expert_tensor"] or setting["tensor"]) > 1:
        found.append("one copy to each server (DeepEP) beside tensor parallelism inside experts")
    if not setting["overlap_dp"] or (setting["zero"] in (1, 2) and not job.overlap.gather):
        found.append("data parallelism that is not hidden")
    if staged and not setting["overlap_pp"] and not job.launch_blocking:
        found.append("pipeline sends that are not hidden")
    found += shown_ring(setting, job)
    found += unoffered("torchtitan", apply(job, setting).layout, setting["copies"])
    return found


def _fully_sharded(setting: Mapping[str, Any], staged: bool) -> list[str]:
    """When FSDP2 reduces gradients, and over which ranks it shards."""
    found = []
    if staged and setting["reduce_each"]:
        found.append("gradients of a pipeline reduced after every microbatch")
    if not staged and not setting["reduce_each"] and setting["accumulates"]:
        found.append("sharded gradients reduced once for several microbatches without a pipeline")
    if setting["splits_context"]:
        found.append("parameters sharded over some context ranks of a sequence")
    return found


def _quantized(dtype: str, arch: Transformer, outside: bool, cut: bool) -> list[str]:
    """What torchtitan's converters and plans refuse.

    Experts in fp8 `outside` of one stage and whole sequences; compiled mxfp8 in layers that are `cut`; fp8 by
    tensor in latent attention that is, which deepseek_v3's plan calls untested (and in this version misses,
    since it looks for the converter under its older name).
    """
    found = []
    if arch.is_moe and outside and "quantize.grouped_mm.float8" in GROUPED.get(dtype, {}):
        found.append("experts in fp8 beside a pipeline or context parallelism")
    if cut and "quantize.linear.mx" in LINEAR.get(dtype, {}):
        found.append("compiled mxfp8 beside tensor parallelism")
    if cut and dtype == "fp8" and arch.attention == "mla":
        found.append("fp8 with a scale per tensor in latent attention beside tensor parallelism")
    return found
