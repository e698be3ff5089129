"""What training frameworks run of a layout: schedules, overlaps and combinations that they do not have.

Only what changes a step's time or memory, or is refused, counts; names, placements and notes are the exports'
matter (`export_megatron`, `export_torchtitan`, with the versions that were read).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.errors import RailwrightError, nearest
from railwright.model.architecture import Transformer
from railwright.model.mixers import WHOLE
from railwright.model.pattern import is_hybrid
from railwright.search.dispatcher import sends_one_copy
from railwright.search.export_megatron_words import (
    MODULES,
    keeps_remainders,
    narrow,
    ungraphed,
    whole_masters,
)
from railwright.search.export_torchtitan import GROUPED, LINEAR, SCHEDULES
from railwright.search.pricing import PASSING
from railwright.search.space import Block, Space, apply, setting_of
from railwright.spec.training import TrainingJob
from railwright.training.eras import era_of
from railwright.training.schedule import SHARED
from railwright.training.sizes import Sizes

Bools = NDArray[np.bool_]
Rule = Callable[[Mapping[str, Any], TrainingJob, Transformer], list[str]]
"""(axis -> value, job, model) -> what a framework has not, in words.  Of a layout it looks at the axes of
STRUCTURE and CHOICES alone, of numbers whether they are 1, 2 or more, and at `replicas` (ranks with the same
dense parameters), `copies` (the same, or those with the same experts), `splits_context` (whether the groups
of `shard` hold some context-parallel ranks of a sequence and not others), `folds` (whether experts are cut,
and into another number of parts than the rest) and `accumulates` (whether a step has several microbatches);
of the job at what is no axis."""

STRUCTURE = (
    "schedule",
    "virtual_pipeline",
    "pipeline",
    "tensor",
    "context",
    "context_kind",
    "expert",
    "expert_tensor",
    "placement",
    "reshard",
    "reduce_each",
)
PASSES = ("sequence_parallel", "recompute", "overlap_tp", "overlap_ep", "overlap_cp")
CHOICES = (*PASSES, "zero", "offload", "overlap_dp", "overlap_pp")
"""Axes that a `Rule` may look at."""

MANY = 3
"""Numbers from here on are alike to every rule."""


@dataclass(frozen=True)
class Framework:
    """A framework by its name, and what it lacks for a layout.

    eras      the `framework` of the software eras that are its own
    software  the era of today, which a job with another framework's is searched with
    fsdp      whether it shards as FSDP2 does (`Space.fsdp`)
    """

    title: str
    rule: Rule
    eras: str
    software: str
    fsdp: bool = False

    def runs_era_of(self, job: TrainingJob) -> bool:
        """Whether a job's software is one of this framework's."""
        return era_of(job).framework == self.eras

    def job(self, job: TrainingJob) -> TrainingJob:
        """A job with this framework's software: its own, or where that is another's, today's."""
        return job if self.runs_era_of(job) else job.model_copy(update={"software": self.software})

    def space(self, space: Space) -> Space:
        """A space with this framework's defaults."""
        return replace(space, fsdp=self.fsdp)

    def lacks(self, job: TrainingJob, arch: Transformer, data: int) -> list[str]:
        """What of a job's layout the framework has not, in words; `data` its data-parallel size."""
        sizes = Sizes.under(job.layout, data)
        counts = {
            "replicas": sizes.replicas,
            "copies": sizes.copies,
            "splits_context": _splits_context(setting_of(job)),
            "folds": _folds(setting_of(job)),
            "accumulates": _accumulates(job, data, job.micro_batch),
        }
        return self.rule(_few({**setting_of(job), **counts}), job, arch)


def framework_named(name: str) -> Framework:
    """A framework of FRAMEWORKS. Raises RailwrightError for one that is not known."""
    if name not in FRAMEWORKS:
        hint = nearest(name, FRAMEWORKS) or f"; choose one of {', '.join(FRAMEWORKS)}"
        raise RailwrightError(f"there is no framework '{name}'{hint}")
    return FRAMEWORKS[name]


def runs(framework: Framework, block: Block, job: TrainingJob, arch: Transformer) -> tuple[Bools, Bools]:
    """Which layouts of a block a framework runs: (X, zero, overlap_dp, overlap_pp) whatever goes to the host,
    and (X, zero, offload) whatever of sending is hidden; the two do not depend on each other.

    job  whose other fields count; its own layout does not
    """
    counts = {
        "replicas": block.data * block.structure["context"],
        "copies": block.copies,
        "splits_context": _splits_context(block.structure),
        "folds": _folds(block.structure),
    }
    few = _few({**{a: block.structure[a] for a in STRUCTURE}, **counts})
    values = tuple(block.of(axis) for axis in CHOICES)
    several = [_accumulates(job, block.data, size) for size in block.of("micro_batch")]
    kinds = tuple(sorted(set(several)))
    able = _able(framework, tuple(few.items()), (kinds, *values), job, arch)
    able = able[[kinds.index(one) for one in several]]
    # every axis of a class of passes, then zero, offload, overlap_dp and overlap_pp
    places = {axis: i for i, axis in enumerate(("micro_batch", *CHOICES))}
    last = ("zero", "offload", "overlap_dp", "overlap_pp")
    shape = [len(block.of(axis)) if axis in places else 1 for axis in PASSING]
    order = [places[axis] for axis in PASSING if axis in places]
    spread = able.transpose(*order, *(places[axis] for axis in last))
    spread = spread.reshape(*shape, *spread.shape[-4:])
    full = np.broadcast_to(spread, (*(len(block.of(axis)) for axis in PASSING), *spread.shape[-4:]))
    flat = full.reshape(-1, *spread.shape[-4:])
    return np.any(flat, axis=2), np.any(flat, axis=(3, 4))


def runs_none(framework: Framework, space: Sequence[Block], job: TrainingJob, arch: Transformer) -> str:
    """That a framework runs no layout of a space, with what it lacks most often for the first of a block."""
    firsts = [(apply(job, block.at((0,) * len(block.shape))), block.data) for block in space]
    lacking = Counter(lack for first, data in firsts for lack in framework.lacks(first, arch, data))
    most = "; ".join(lack for lack, _ in lacking.most_common(3))
    count = sum(block.size for block in space)
    return (
        f"{job.name}: {framework.title} runs none of the {count:,} layouts of the space; it lacks "
        f"{most}. Give the job and the space what the framework has, or search without one."
    )


def _few(setting: Mapping[str, Any]) -> dict[str, Any]:
    """The same with numbers from MANY on alike, so that many structures share what is found for one."""
    counts = (*STRUCTURE, "replicas", "copies")
    return {k: min(v, MANY) if k in counts and isinstance(v, int) else v for k, v in setting.items()}


@lru_cache(maxsize=1024)
def _able(
    framework: Framework,
    structure: tuple[tuple[str, Any], ...],
    values: tuple[tuple[Any, ...], ...],
    job: TrainingJob,
    arch: Transformer,
) -> Bools:
    """Whether a framework runs each choice of `accumulates` and CHOICES under a structure."""
    able = [
        not framework.rule(
            {**dict(structure), **dict(zip(("accumulates", *CHOICES), choice, strict=True))}, job, arch
        )
        for choice in product(*values)
    ]
    return np.array(able).reshape([len(v) for v in values])


def _splits_context(setting: Mapping[str, Any]) -> bool:
    """Whether groups that share a copy hold some context-parallel ranks of a sequence and not the others."""
    return setting["shard"] is not None and setting["shard"] % setting["context"] > 0


def _accumulates(job: TrainingJob, data: int, micro_batch: int) -> bool:
    """Whether a step has several microbatches on a rank."""
    return job.global_batch > data * micro_batch


def _megatron(setting: Mapping[str, Any], job: TrainingJob, arch: Transformer) -> list[str]:
    """Sources: Megatron-LM, TransformerConfig.__post_init__ (overlap_moe_expert_parallel_comm,
    tp_comm_overlap, cpu_offloading, recompute_modules), core/transformer/moe/moe_layer.py (forward), core/
    pipeline_parallel/combined_1f1b.py (Megatron-FSDP, zero 2 and 3), training/arguments.py (overlap_p2p_
    comm), core/optimizer/__init__.py (precision-aware optimizer), and `export_megatron_words`, ungraphed and
    whole_masters;
    Transformer Engine d0067d0, dot_product_attention/context_parallel.py, attn_forward_func_with_cp."""
    found = [_schedule(setting)] if setting["schedule"] not in ("auto", "1f1b", "interleaved") else []
    if arch.linear and arch.linear.kind in WHOLE:
        found.append(f"layers with {arch.linear.kind}")
    again, virtual = setting["recompute"], setting["virtual_pipeline"]
    modules = job.layout.recompute_modules if again == "selective" else ()
    if unknown := [name for name in modules if name not in MODULES]:
        found.append(f"recomputation of {' and '.join(unknown)}")
    if setting["overlap_ep"] and setting["expert"] > 1 and setting["schedule"] not in SHARED:
        hidden = "expert all-to-alls hidden"
        if setting["pipeline"] > 1 and virtual == 1:
            found.append(f"{hidden} in a pipeline without virtual stages")
        if setting["zero"] >= 2 and virtual > 1:
            found.append(f"{hidden} in virtual stages beside zero 2 and 3")
        if again == "full" or "moe" in modules:
            found.append(f"{hidden} where experts are computed again")
    if virtual > 1 and setting["pipeline"] == 2 and not setting["overlap_pp"]:
        found.append("two interleaved stages that do not hide what they send")
    if setting["tensor"] > 1 and not setting["sequence_parallel"]:
        if setting["overlap_tp"]:
            found.append("tensor parallelism hidden without sequence parallelism")
        if arch.is_moe:
            found.append("experts under tensor parallelism without sequence parallelism")
    if setting["context"] > 1:
        found += _context(setting["context_kind"], arch)
    found += _ring(setting, job)
    found += _dispatched(setting, job, arch)
    if "activations" in setting["offload"] and (setting["pipeline"] > 1 or again != "none"):
        found.append("activations offloaded beside a pipeline or recomputation")
    if setting["zero"] == 0 and setting["copies"] > 1 and (narrow(job) or "optimizer" in setting["offload"]):
        found.append("narrow or offloaded optimizer states that are not sharded")
    if setting["zero"] == 3 and not setting["reshard"]:
        found.append("sharded parameters kept until the backward pass")
    if setting["zero"] >= 2 and not setting["reduce_each"]:
        found.append("sharded gradients reduced once per step")
    if setting["zero"] >= 2 and (kept := whole_masters(apply(job, setting))) and _could_keep(job):
        found.append(f"master weights as remainders {kept}")
    if job.cuda_graphs and (why := ungraphed(apply(job, setting), arch)):
        found.append(f"CUDA graphs of parts of a layer {why}")
    return found


def _ring(setting: Mapping[str, Any], job: TrainingJob) -> list[str]:
    """Rings of Transformer Engine and of PyTorch pass a block on beside the attention of another; neither has
    a switch for it."""
    ring = setting["context"] > 1 and setting["context_kind"] == "ring"
    shown = ring and not setting["overlap_cp"] and not job.launch_blocking
    return ["a ring of keys and values that is not hidden"] if shown else []


def _dispatched(setting: Mapping[str, Any], job: TrainingJob, arch: Transformer) -> list[str]:
    """What kernels of the expert exchange do not do; those that send one copy to each server want its ranks
    one after the other."""
    if job.dispatch_dtype == "fp8" and setting["expert"] > 1:
        return ["tokens dispatched in 8 bits"]
    if setting["placement"] == "expert-across" and sends_one_copy(apply(job, setting), arch):
        return ["one copy to each server (DeepEP) where an expert group has one rank on each"]
    return []


def _folds(setting: Mapping[str, Any]) -> bool:
    """Whether tensor-parallel ranks of experts are neither one nor those of the rest."""
    return setting["expert_tensor"] not in (None, 1, setting["tensor"])


def _could_keep(job: TrainingJob) -> bool:
    """Whether remainders are a matter of the layout, rather than of number formats under all of them."""
    return keeps_remainders(apply(job, {"zero": 1, "offload": ()}))


def _context(kind: str, arch: Transformer) -> list[str]:
    """What Transformer Engine's attention does not do over context-parallel ranks."""
    if _has_sinks(arch) and kind != "all-to-all":
        return ["context parallelism with attention sinks other than over heads"]
    if arch.sliding_window and not arch.window_chunked and kind == "ring":
        return ["context parallelism by rings with sliding windows"]
    return []


def _torchtitan(setting: Mapping[str, Any], job: TrainingJob, arch: Transformer) -> list[str]:
    """Sources, of the version in `export_torchtitan`: config/job_config.py; models/*/infra/parallelize.py and
    distributed/utils.py (DistributedDataParallel, and no 16 bits without FSDP); train.py (microbatches
    without no_sync); components/quantization/ (converters); distributed/dual_pipe_v.py; models/gpt_oss/infra/
    parallelize.py (attention sinks); distributed/activation_checkpoint.py ('selective' is by operators, or
    whole layers, every n-th); models/llama4/infra/parallelize.py (DeepEP); distributed/parallel_dims.py
    (dp_shard_cp)."""
    several = setting["schedule"] == "zb-h1" and setting["virtual_pipeline"] > 1
    known = several or setting["schedule"] in ("auto", *SCHEDULES)
    found = [] if known else [_schedule(setting)]
    if is_hybrid(arch):
        found.append("layers that are not attention with an MLP")
    staged, cut = setting["pipeline"] > 1, setting["tensor"] > 1
    apart, experts = setting["context"] > 1, setting["expert"] > 1
    if setting["overlap_ep"] and experts and setting["schedule"] not in SHARED:
        found.append("expert all-to-alls hidden")
    if cut and not setting["sequence_parallel"]:
        found.append("tensor parallelism without sequence parallelism")
    if cut and setting["overlap_tp"] and _has_sinks(arch):
        found.append("tensor parallelism hidden beside attention sinks")
    if apart and setting["context_kind"] == "all-to-all":
        found.append("context parallelism over heads")
    if apart and _has_sinks(arch):
        found.append("context parallelism beside attention sinks")
    if (setting["zero"] == 0 or setting["replicas"] == 1) and (staged or cut or apart or experts):
        found.append("parameters that are not sharded beside other than data parallelism")
    elif setting["zero"] == 0 and setting["accumulates"]:
        found.append("gradients of parameters that are not sharded reduced once for several microbatches")
    if job.optimizer != "adam":
        found.append(f"optimizer {job.optimizer}")
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
    found += _quantized(job.dtype, arch, staged or apart, cut)
    found += _dispatched(setting, job, arch)
    if sends_one_copy(apply(job, setting), arch) and (setting["expert_tensor"] or setting["tensor"]) > 1:
        found.append("one copy to each server (DeepEP) beside tensor parallelism inside experts")
    if not setting["overlap_dp"]:
        found.append("data parallelism that is not hidden")
    if staged and not setting["overlap_pp"] and not job.launch_blocking:
        found.append("pipeline sends that are not hidden")
    found += _ring(setting, job)
    if "activations" in setting["offload"]:
        found.append("activations offloaded")
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


def _schedule(setting: Mapping[str, Any]) -> str:
    virtual = setting["virtual_pipeline"] > 1
    return f"schedule {setting['schedule']}{' with virtual stages' if virtual else ''}"


FRAMEWORKS = {
    "megatron": Framework("Megatron-LM", _megatron, "megatron", "megatron-2025"),
    "nemo": Framework("NeMo", _megatron, "megatron", "megatron-2025"),
    "torchtitan": Framework("torchtitan", _torchtitan, "torchtitan", "fsdp-2025", fsdp=True),
}


def _has_sinks(arch: Transformer) -> bool:
    """Whether any layer's attention has a learned sink per head."""
    return arch.attention_sinks or arch.window_sinks
