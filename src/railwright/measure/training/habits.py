"""What the software of a published training step does where its record does not say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from railwright.measure.training.recipes import recipe_of
from railwright.model.operators.eager import Part
from railwright.spec.training import Software
from railwright.training.software.eras import eras


@dataclass(frozen=True)
class Habits:
    """What software does where a record does not say.

    era       of `training.software.eras`
    sequence_parallel  with tensor parallelism
    tp, dp, pp  what it hides behind compute; `tp` in dense models with sequence parallelism
    zero      optimizer states sharded over data-parallel ranks
    gradients type they are kept and reduced in; None: fp32, or fp16 in fp16 training
    master    'remainder': of the fp32 master weight only the 16 bits beyond the bf16 weight are kept
    unfused   what its layers run without fused kernels (`TrainingJob.unfused`); a router only with experts
    capacity  of its experts (`TrainingJob.expert_capacity`)
    source    where that is read
    """

    era: Software
    sequence_parallel: bool = True
    tp: bool = False
    dp: bool = True
    pp: bool = True
    zero: int = 1
    gradients: str | None = None
    master: str = "fp32"
    unfused: tuple[Part, ...] = ()
    capacity: float | None = None
    source: str = ""


HABITS: dict[str, Habits] = {
    "vtrain": Habits(
        "megatron-2021", False, dp=False, pp=False, zero=0, source="vTrain (MICRO 2024), Megatron-DeepSpeed"
    ),
    "bigscience": Habits(
        "megatron-2021", False, dp=False, pp=False, source="bigscience-workshop/Megatron-DeepSpeed, 2021"
    ),
    "korthikanti": Habits(
        "megatron-2022",
        dp=False,
        source="arXiv 2205.05198, section 6; Megatron-LM hides gradients since 28766b55 (August 2023)",
    ),
    "simumax": Habits(
        "megatron-2025",
        dp=False,
        pp=False,
        unfused=("router",),
        capacity=1.0,
        source="SimuMax, docs/b200/b200_real_repro_guide.md, section 3.3, and simu_tools/megatron_scripts: "
        "overlap off, no --overlap-grad-reduce, no --moe-router-fusion; --moe-expert-capacity-factor 1, "
        "--moe-pad-expert-input-to-capacity; the cases of b200_release_v1.2_summary.json end in '_cef', "
        "in docs/strategy.md --cross-entropy-loss-fusion --cross-entropy-fusion-impl te",
    ),
    "llmfoundry": Habits("fsdp-2023", source="llm-foundry scripts/train/benchmarking"),
    "fmsfsdp": Habits("fsdp-2024", source="foundation-model-stack/fms-fsdp README"),
    "torchtitan": Habits(
        "fsdp-2024",
        unfused=("rotary",),
        source="torchtitan benchmarks/; models/llama/model.py, apply_rotary_emb (`eager.TURN_LAUNCHES`)",
    ),
    "mbridge": Habits(
        "megatron-2025",
        tp=True,
        gradients="bf16",
        source="Megatron-Bridge scripts/performance: tp_comm_overlap, grad_reduce_in_fp32 = False",
    ),
    "amd": Habits(
        "megatron-2025",
        source="AMD-AGI/Primus, examples/megatron/configs, and AMD's MLPerf submissions 5.0 and 5.1: "
        "Megatron-LM of 2025 for ROCm, use_distributed_optimizer, overlap_grad_reduce, "
        "overlap_param_gather, fp32 gradients",
    ),
    "": Habits(
        "nemo-2024",
        tp=True,
        gradients="bf16",
        master="remainder",
        unfused=("router",),
        source="NeMo-Framework-Launcher, conf/training: ub_tp_comm_overlap; NeMo recipes: "
        "grad_reduce_in_fp32 = False; megatron_gpt_model.py, setup_optimization: store_param_remainders; "
        "Megatron-LM core up to 0.12 has no fused router (moe/router.py)",
    ),
}
"""By the first word of a record's family; '' for all others (NeMo, Megatron-LM, MLPerf of 2023 to 2025)."""

UNCOMPILED = ("torchtitan-t1-8b-8-fsdp", "torchtitan-t3-8b-128-fsdp")
"""torchtitan's rows without torch.compile (benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3)."""


def habits_of(record: Mapping[str, str]) -> Habits:
    """The habits of the software a record ran on."""
    software, name = record["software"], record["family"].split("-")[0]
    if software.startswith(("MaxText", "PaXML")):
        # paxml/configure.sh: ENABLE_TE=1, of March 2024; maxtext: quantization=fp8, of December 2024
        era: Software = "xla-2024" if software.startswith("PaXML") else "xla-2025"
        return Habits(era, source="JAX: XLA hides what it can")
    found = HABITS.get(name, HABITS[""])
    if is_nemo_2(record):
        return replace(found, era="megatron-2025", master="fp32")
    if record["model"].startswith("gpt-oss") and software == UNFUSED_SINKS:
        return replace(found, era="megatron-2025-unfused")
    if record.get("id") in UNCOMPILED:
        return replace(found, era="fsdp-2024-eager", unfused=("rotary", "norm", "activation"))
    if name == "torchtitan" and not software.startswith("torchtitan 2024"):
        # components/loss.py compiles the loss since 2 April 2025 (bbb1b616)
        return replace(found, era="fsdp-2025")
    if recipe_of(record).get("fused"):
        return replace(found, era="megatron-2026-06-01" if software == SPILLED_BIASES else "megatron-2026")
    return found


def is_nemo_2(record: Mapping[str, str]) -> bool:
    """Whether a record ran by NeMo's recipes of 2025."""
    of_nemo = record["family"].split("-")[0] not in HABITS
    return of_nemo and OF_2025.search(record["software"]) is not None


def framework_of(record: Mapping[str, str]) -> str:
    """The framework that a record ran on (`training.software.eras.Era.framework`)."""
    return eras()[habits_of(record).era].framework


OF_2025 = re.compile(r"(NeMo|Nemo|Release) 25\.|\(recipes\)")
"""NeMo 2 of 2025, and of 24.12 where it ran so: recipes in Python, and GPUs that give their power to tensor
cores first, where the launcher of 2024 ran YAML files without (dgxc-benchmarking v25.04, llama3.1/
pretrain_llama31.py, and v25.02, llama3/finetuning/llama3_finetune.py: enable_vboost)."""

DELAYED = re.compile(r"fp8 NeMo 25\.0[24]")
"""Format and software with delayed scaling beyond the eras that always have it: NeMo's recipes ask for
bf16_with_fp8_mixed by default (scripts/performance: --fp8_recipe ds); only GPT-3 175B's sets
tp_only_amax_red."""

UNFUSED_SINKS = "Megatron-Bridge 25.09"
"""Release whose attention with learned sinks (gpt-oss) is not one fused kernel: Transformer Engine needs
cuDNN 9.13.1 for that (fused_attn.cpp, softmax type), its container has 9.11.0, that of 25.11 has 9.13.1
(Megatron-Bridge, docs/releases/software-versions.md)."""

SPILLED_BIASES = "Megatron-Bridge 26.06.01"
"""Release whose fused backward kernel of experts with biases (gpt-oss) keeps sums in memory: cuDNN frontend
1.24.0 with CUTLASS DSL 4.5.0 (Megatron-Bridge v0.5.1, docker/; v0.5.0 has 1.23.0 with 4.4.1, v0.6.0 1.26.0),
cudnn-frontend issue 256, which NVIDIA's archive of results names as the cause of this release's figures."""
