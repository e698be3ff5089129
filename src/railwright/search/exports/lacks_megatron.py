"""What Megatron-LM and NeMo have not of a layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.model.shape.architecture import Transformer
from railwright.model.shape.mixers import WHOLE
from railwright.search.exports.lacks import dispatched, has_sinks, schedule_words, shown_ring
from railwright.search.exports.later import not_yet
from railwright.search.exports.megatron_words import (
    MODULES,
    keeps_remainders,
    narrow,
    refused_again,
    whole_masters,
)
from railwright.search.exports.shape import has_biases
from railwright.search.space.axes import apply
from railwright.spec.training import TrainingJob
from railwright.training.layers.graphs import ungraphed
from railwright.training.layers.unhidden import exposed_products, exposed_turns
from railwright.training.layout.schedule import SHARED
from railwright.training.software.eras import era_of
from railwright.training.software.formats import has_masters
from railwright.training.software.hosted import unoffered
from railwright.training.software.nf4 import is_nf4


def megatron_lacks(setting: Mapping[str, Any], job: TrainingJob, arch: Transformer) -> list[str]:
    """The same as NeMo, whose layers are Megatron's, and adapters: in Megatron-LM d98e8a6 no model has any,
    in NeMo 2 (llm.peft.LoRA) and Megatron-Bridge (peft/lora.py) layers of Megatron's are wrapped in them."""
    return [*nemo_lacks(setting, job, arch), *(["adapters"] if job.lora else [])]


def nemo_lacks(setting: Mapping[str, Any], job: TrainingJob, arch: Transformer) -> list[str]:
    """Sources: Megatron-LM, TransformerConfig.__post_init__ (cpu_offloading, recompute_modules), core/
    transformer/moe/moe_layer.py (forward), training/arguments.py (overlap_p2p_comm), core/optimizer/
    __init__.py (precision-aware optimizer), core/enums.py (Fp8Recipe: delayed, tensorwise, mxfp8, blockwise,
    custom), `training.layers.unhidden`, `training.layers.graphs`, and `megatron_words`, whole_masters;
    Transformer Engine d0067d0, dot_product_attention/context_parallel.py, attn_forward_func_with_cp."""
    found = [schedule_words(setting)] if setting["schedule"] not in ("auto", "1f1b", "interleaved") else []
    if arch.linear and arch.linear.kind in WHOLE:
        found.append(f"layers with {arch.linear.kind}")
    if job.dtype == "fp8_rowwise":
        found.append("fp8 with a scale per row")
    if is_nf4(job):
        found.append("frozen weights in 4 bits")
    if not has_masters(job):
        found.append("weights without master weights")
    again, virtual = setting["recompute"], setting["virtual_pipeline"]
    modules = job.layout.recompute_modules if again == "selective" else ()
    if unknown := [name for name in modules if name not in MODULES]:
        found.append(f"recomputation of {' and '.join(unknown)}")
    found += [
        f"recomputation of {one} {why}" for one, why in refused_again(apply(job, setting), arch).items()
    ]
    if setting["overlap_ep"] and setting["expert"] > 1 and setting["schedule"] not in SHARED:
        found += [f"expert all-to-alls hidden {one}" for one in exposed_turns(apply(job, setting), arch)]
    if virtual > 1 and setting["pipeline"] == 2 and not setting["overlap_pp"]:
        found.append("two interleaved stages that do not hide what they send")
    if setting["tensor"] > 1 and setting["overlap_tp"]:
        where = exposed_products(apply(job, setting), arch)
        found += [f"tensor parallelism hidden {one}" for one in where]
    if setting["tensor"] > 1 and not setting["sequence_parallel"] and arch.is_moe:
        found.append("experts under tensor parallelism without sequence parallelism")
    if arch.is_moe and (setting["expert_tensor"] or setting["tensor"]) > 1 and has_biases(arch):
        found.append("biases in experts that are cut")
    if setting["context"] > 1:
        found += _context(setting["context_kind"], job, arch)
    found += not_yet(setting, job)
    found += shown_ring(setting, job)
    found += dispatched(setting, job, arch)
    found += unoffered("megatron", apply(job, setting).layout, setting["copies"])
    if setting["zero"] == 0 and setting["copies"] > 1 and narrow(job):
        found.append("narrow optimizer states that are not sharded")
    if "weights" in setting["offload"]:
        found.append("weights offloaded")
    if setting["zero"] == 3 and not setting["reshard"]:
        found.append("sharded parameters kept until the backward pass")
    if setting["zero"] >= 2 and not setting["reduce_each"]:
        found.append("sharded gradients reduced once per step")
    if setting["zero"] >= 2 and (kept := whole_masters(apply(job, setting))) and _could_keep(job):
        found.append(f"master weights as remainders {kept}")
    if job.cuda_graphs and (why := ungraphed(apply(job, setting), arch)):
        what = "the step" if "step" in job.cuda_graphs else "parts of a layer"
        found.append(f"CUDA graphs of {what} {why}")
    return found


def _could_keep(job: TrainingJob) -> bool:
    """Whether remainders are a matter of the layout, rather than of number formats under all of them."""
    return keeps_remainders(apply(job, {"zero": 1, "offload": ()}))


def _context(kind: str, job: TrainingJob, arch: Transformer) -> list[str]:
    """What Transformer Engine's attention does not do over context-parallel ranks.

    Source: Transformer Engine d0067d0, dot_product_attention/context_parallel.py and utils.py
    (get_attention_backend: "UnfusedDotProductAttention ... does not support context parallelism").
    """
    if era_of(job).attention == "unfused" and not era_of(job).biased:
        return ["context parallelism with attention that is not fused"]
    if has_sinks(arch) and kind != "all-to-all":
        return ["context parallelism with attention sinks other than over heads"]
    if arch.sliding_window and not arch.window_chunked and kind == "ring":
        return ["context parallelism by rings with sliding windows"]
    return []
