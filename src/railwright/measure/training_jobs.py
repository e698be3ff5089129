"""A published training record as our job: its layout, and the habits of the software it ran on."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any

from railwright.collectives.machine import Machine
from railwright.measure.machines import Unsupported, machine_of
from railwright.measure.training_tuning import adapters, sample_length
from railwright.model.architecture import Transformer
from railwright.spec.study import Layout, Overlap, TrainingJob

DTYPES = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "mxfp8": "fp8",
    "fp8-cs": "fp8",
    "fp8-mx": "fp8",
    "fp8-tensorwise": "fp8",
    "fp8-rowwise": "fp8_rowwise",
    "nvfp4": "nvfp4",
}
"""FP8 recipes (per-tensor, current, micro-scaled) count as one dtype at this stage."""


@dataclass(frozen=True)
class Habits:
    """What software does where a record does not say.

    era       of `training.eras`
    sequence_parallel  with tensor parallelism
    tp, dp, pp  what it hides behind compute; `tp` in dense models with sequence parallelism
    zero      optimizer states sharded over data-parallel ranks
    gradients type they are kept and reduced in; None: fp32, or fp16 in fp16 training
    master    'remainder': of the fp32 master weight only the 16 bits beyond the bf16 weight are kept
    source    where that is read
    """

    era: str
    sequence_parallel: bool = True
    tp: bool = False
    dp: bool = True
    pp: bool = True
    zero: int = 1
    gradients: str | None = None
    master: str = "fp32"
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
        source="SimuMax, docs/b200/b200_real_repro_guide.md, section 3.3, and simu_tools/megatron_scripts: "
        "overlap off, no --overlap-grad-reduce",
    ),
    "llmfoundry": Habits("fsdp-2023", source="llm-foundry scripts/train/benchmarking"),
    "fmsfsdp": Habits("fsdp-2024", source="foundation-model-stack/fms-fsdp README"),
    "torchtitan": Habits("fsdp-2024", source="torchtitan benchmarks/"),
    "mbridge": Habits(
        "megatron-2025",
        tp=True,
        gradients="bf16",
        source="Megatron-Bridge scripts/performance: tp_comm_overlap, grad_reduce_in_fp32 = False",
    ),
    "": Habits(
        "nemo-2024",
        tp=True,
        gradients="bf16",
        master="remainder",
        source="NeMo-Framework-Launcher, conf/training: ub_tp_comm_overlap; NeMo recipes: "
        "grad_reduce_in_fp32 = False; megatron_gpt_model.py, setup_optimization: store_param_remainders",
    ),
}
"""By the first word of a record's family; '' for all others (NeMo, Megatron-LM, MLPerf of 2023 to 2025)."""


def habits_of(record: Mapping[str, str]) -> Habits:
    """The habits of the software a record ran on."""
    software, name = record["software"], record["family"].split("-")[0]
    if software.startswith(("MaxText", "PaXML")):
        # paxml/configure.sh: ENABLE_TE=1, of March 2024; maxtext: quantization=fp8, of December 2024
        era = "xla-2024" if software.startswith("PaXML") else "xla-2025"
        return Habits(era, source="JAX: XLA hides what it can")
    found = HABITS.get(name, HABITS[""])
    if found is HABITS[""] and OF_2025.search(software):
        return Habits("megatron-2025", tp=True, gradients="bf16", source=found.source)
    if record["model"].startswith("gpt-oss") and software == UNFUSED_SINKS:
        return replace(found, era="megatron-2025-unfused")
    if recipe_of(record).get("fused"):
        return replace(found, era="megatron-2026-06-01" if software == SPILLED_BIASES else "megatron-2026")
    return found


OF_2025 = re.compile(r"(NeMo|Nemo|Release) 25\.")
"""NeMo 2 of 2025: recipes in Python, and GPUs that give their power to tensor cores first, where the launcher
of 2024 ran YAML files without (dgxc-benchmarking v25.04, llama3.1/pretrain_llama31.py: enable_vboost)."""

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

RACK = 64
"""GPUs that jobs over several NVL72 racks use of each: whole trays, so that groups of powers of two stay
inside one (Slurm's topology/block with segments of 16 nodes; all published sizes are multiples of 64)."""

BLOCKING = ("bigscience",)
"""Families with CUDA_LAUNCH_BLOCKING=1: without it bigscience's jobs of 320 GPUs and more hung, and all its
records are of 384 (chronicles-prequel.md, "dealing with JZ hanging"; tr11-176B-ml.slurm)."""

MEASURED_NICS = {"bigscience": 40.6 * 4 / 8}
"""Rate per GPU that NCCL was measured to reach, where far below that of a record's own NICs. [Gb/s]
Jean Zay's A100 nodes have four Omni-Path links of 100 Gb/s for 8 GPUs, which NCCL 2.10 drives through verbs
and host memory: in an all-reduce of 4 GB over four nodes, both of whose rings leave every node by one link,
that link carried 40.6 Gb/s.  Source: bigscience-workshop/bigscience, experiments/bandwidth/
all_reduce_bench-a100-n4.txt (busbw of all trials behind the first; "[send] via NET/IB/3"; no plugin)."""

VARIANTS = {("torchtitan", "H100"): "H100-96"}
"""GPUs that are not their name's usual ones: Meta's H100 with HBM2e (torchtitan, benchmarks/)."""


def machine_for(record: Mapping[str, str]) -> Machine:
    """The machine a record ran on. Raises Unsupported for a GPU without a usual server."""
    nic = float(record["nic_gbps"]) if record["nic_gbps"] else None
    nic = MEASURED_NICS.get(record["family"].split("-")[0], nic)
    gpu = VARIANTS.get((record["family"].split("-")[0], record["gpu"]), record["gpu"])
    return machine_of(gpu, int(record["gpus"]), nic, rack=RACK)


def job_of(record: Mapping[str, str]) -> TrainingJob:
    """The record's job. Raises Unsupported for what is not modelled."""
    record = {**record, **SCRIPTS.get((record["family"], record["software"]), {}), **_laid_out(record)}
    _check(record)
    habits = habits_of(record)
    tensor = _number(record, "tp")
    parallel = habits.sequence_parallel if record["sp"] == "" else record["sp"] == "True"
    parallel = parallel and tensor > 1
    moe = architecture_of(record).is_moe
    return TrainingJob(
        name=record["id"],
        model=record["model"],
        gpus=int(record["gpus"]),
        sequence=_number(record, "seq"),
        sample_length=sample_length(record),
        global_batch=_number(record, "gbs"),
        micro_batch=_number(record, "mbs"),
        tokens=1e9,
        dtype=DTYPES[record["dtype"]],  # type: ignore[arg-type]
        layout=Layout(
            tensor=tensor,
            pipeline=_number(record, "pp"),
            virtual_pipeline=_number(record, "vpp"),
            context=_number(record, "cp"),
            # SimuMax, docs/b200/b200_real_repro_guide.md, section 7: cp_comm_type a2a; Megatron's own is p2p
            context_kind="all-to-all" if record["family"].startswith("simumax") else "ring",
            expert=_number(record, "ep"),
            expert_tensor=int(record["etp"]) if record["etp"] and moe else None,
            sequence_parallel=parallel,
            **_stages(record),
            **_sharding(record, habits),
            **_recompute(record),
        ),
        overlap=Overlap(
            tp=habits.tp and parallel and not moe,
            dp=habits.dp,
            pp=habits.pp,
            ep=recipe_of(record).get("hidden") == "yes",
        ),
        **_experts(record),
        software=habits.era,
        launch_blocking=record["family"].split("-")[0] in BLOCKING,
        lora=adapters(record),
        amax_over="stage" if DELAYED.match(f"{record['dtype']} {record['software']}") else None,
        gradient_dtype=None if record["dtype"] == "fp16" else habits.gradients,  # type: ignore[arg-type]
        master=habits.master,  # type: ignore[arg-type]
    )


def _stages(record: Mapping[str, str]) -> dict[str, Any]:
    """How DeepSpeed dealt bigscience's layers where stages do not divide them: stage by stage, later with
    embedding and head as layers.  Source: chronicles-prequel.md, "Re-do" and "Rebalancing layers"."""
    layers, stages = architecture_of(record).layers, _number(record, "pp")
    if not record["family"].startswith("bigscience") or layers % stages == 0:
        return {}
    if (layers + 2) % stages == 0:
        return {"ends_as_layers": "both"}
    most = -(-layers // stages)
    return {"layers_per_stage": tuple(min(most, max(0, layers - most * s)) for s in range(stages))}


def _sharding(record: Mapping[str, str], habits: Habits) -> dict[str, Any]:
    """ZeRO level and ranks that share one copy; a hybrid shard that names no size is one server."""
    if record["zero"] == "hsdp":
        return {"zero": 3, "shard": int(record["gpus_per_node"])}
    if record["fsdp"] not in ("", "False"):
        return {"zero": 3, "shard": int(record["fsdp"])}
    return {"zero": int(record["zero"]) if record["zero"] else habits.zero}


def recipe_of(record: Mapping[str, str]) -> Mapping[str, str]:
    """What Megatron-Bridge's recipe of a record's release says beyond its tables of results; {} for others.

    dispatcher  alltoall, deepep or hybridep
    hidden      'yes': expert all-to-alls run beside other microbatches' compute
    graphs      what is launched as CUDA graphs (`TrainingJob.cuda_graphs`)
    recompute   modules computed again
    fused       'yes': the MLP of the experts is one fused kernel
    tp to mbs   its layout, where the table of results says otherwise
    Source: scripts/performance/configs at the tag of the release (tools/carry_recipes.py).
    """
    return _recipes().get(tuple(record[k] for k in RECIPE_KEYS), {})


def _laid_out(record: Mapping[str, str]) -> dict[str, str]:
    """What a record's recipe says of its layout differently from the table: the recipe is what ran."""
    recipe = recipe_of(record)
    return {k: recipe[k] for k in ("tp", "pp", "vpp", "cp", "ep", "mbs") if recipe.get(k)}


RECIPE_KEYS = ("software", "kind", "model", "gpu", "dtype", "gbs")


@lru_cache(maxsize=1)
def _recipes() -> Mapping[tuple[str, ...], Mapping[str, str]]:
    text = resources.files("railwright.measure").joinpath("data/recipes.csv").read_text(encoding="utf-8")
    return {tuple(row[k] for k in RECIPE_KEYS): row for row in csv.DictReader(text.splitlines())}


def _experts(record: Mapping[str, str]) -> dict[str, Any]:
    """How experts exchange tokens and how layers are launched, by the record's recipe.

    DeepEP and HybridEP send one copy to each server: at most 4 in DeepSeek-V3's groups, else any number.
    Tables marked 'tokendrop' ran with a capacity of 1 (Megatron-Bridge, training/utils/moe_token_drop.py).
    """
    recipe = recipe_of(record)
    flexible = recipe.get("dispatcher") in ("deepep", "hybridep")
    nodes = 4 if record["model"] == "deepseek-v3" else int(record["gpus"])
    return {
        "expert_capacity": 1.0 if "tokendrop" in record["notes"] else None,
        "expert_nodes": nodes if flexible else None,
        "cuda_graphs": GRAPHED.get(
            (record["family"], record["software"]), tuple(recipe.get("graphs", "").split())
        ),
    }


GRAPHED = {("dgxc-nemotron4-340b-GB200", "NeMo 25.04.00"): ("attention", "mlp")}
"""Whole layers launched as CUDA graphs by scripts, by family and software.
Source: dgxc-benchmarking at v25.05 (NeMo 25.04.00), nemotron/launch.sh: "--cuda_graphs true" on GB200."""

OFFLOADED = {
    ("llama3-70b", "GB300", "bf16"): 30,
    ("llama3-70b", "GB300", "fp8"): 20,
    ("llama3-70b", "GB200", "bf16"): 20,
    ("llama3-70b", "GB200", "fp8"): 40,
    ("llama3-70b", "B200", "fp8"): 5,
}
"""Layers whose activations Megatron-Bridge's FSDP recipes send to the host, which its tables do not say.
Source: scripts/performance/configs/llama/llama3_workload_base_configs.py, cpu_offloading_num_layers."""


def _recompute(record: Mapping[str, str]) -> dict[str, Any]:
    """What is computed again: as the record says, else as its recipe does."""
    if record["family"].startswith("torchtitan") and record["recompute"] == "selective":
        return {"recompute": "selective", "recompute_modules": ("ops",)}
    if not record["recompute"] and record["software"].startswith("MaxText"):
        # dgxc-benchmarking, maxtext/configure.sh: remat_policy=save_qkv_proj keeps queries, keys and values
        # only; the output projection, computed again there, is left out: no module of Megatron's holds it
        return {"recompute": "selective", "recompute_modules": ("layernorm", "core_attn", "mlp")}
    if not record["recompute"] and record["software"].startswith("PaXML"):
        # dgxc-benchmarking v24.11.1, paxml/paxml_mod_configs.py: the 175B keeps SAVE_QKV_OUT_PROJ
        return {"recompute": "selective", "recompute_modules": ("layernorm", "core_attn", "mlp")}
    if record["recompute"] or not record["family"].startswith("mbridge"):
        return {"recompute": record["recompute"] or "none"}
    sent = OFFLOADED.get((record["model"], record["gpu"], DTYPES.get(record["dtype"], "")))
    if sent and record["fsdp"] not in ("", "0", "False"):
        return {"offload": ("activations",), "offload_layers": sent}
    modules = tuple(recipe_of(record).get("recompute", "").split())
    return {"recompute": "selective", "recompute_modules": modules} if modules else {"recompute": "none"}


SCRIPTS: dict[tuple[str, str], dict[str, str]] = {
    ("mlperf-gpt3-175b-NVIDIA-H100", "NVIDIA NeMo Framework Release 23.09"): {"mbs": "1", "vpp": "12"},
    ("dgxc-deepseek-v3-GB200", "NeMo 25.04.01"): {"recompute": "selective"},
    ("dgxc-gpt3-175b-H100", "PaXML 24.03.04 (JAX)"): {"fsdp": "128"},
}
"""What logs do not say but their scripts do, by family and software.
Sources: mlcommons/training_results_v3.1, NVIDIA gpt3 pytorch, config_DGXH100_*_mbs1.sh (every size logged)
and conf/custom.yaml (virtual_pipeline_model_parallel_size 12); dgxc-benchmarking at v25.05,
deepseek_v3/pretraining/launch.sh: "--recompute_modules core_attn" on GB200; there too, paxml/configure.sh:
weights sharded over 16 servers (FSDP=16 of the mesh between servers), copies beyond."""


def _check(record: Mapping[str, str]) -> None:
    """Refuse what this stage does not model, and records that do not say what they ran."""
    if record["dtype"] not in DTYPES:
        raise Unsupported(f"the record does not say which format it ran: '{record['dtype']}'")
    if not record["mbs"]:
        raise Unsupported("the record does not state the microbatch")
    if not (record["step_time_s"] or record["tokens_s_gpu"]):
        raise Unsupported("the record states neither step time nor tokens/s per GPU")


def _number(record: Mapping[str, str], column: str) -> int:
    return int(float(record[column])) if record[column] else 1


@lru_cache(maxsize=1)
def architectures() -> Mapping[str, Transformer]:
    """The architectures that the training records name."""
    text = (
        resources.files("railwright.measure")
        .joinpath("data/training_models.json")
        .read_text(encoding="utf-8")
    )
    return {name: _transformer(name, m) for name, m in json.loads(text).items() if not m.get("hybrid")}


def architecture_of(record: Mapping[str, str]) -> Transformer:
    """The record's architecture. Raises Unsupported for one that is not a plain transformer."""
    if record["model"] not in architectures():
        raise Unsupported("not a plain transformer (hybrid of Mamba and attention)")
    found = architectures()[record["model"]]
    if (
        found.name == "deepseek-v3"
        and record["family"].startswith("mbridge")
        and "w-o-mtp" not in record["id"]
    ):
        # Megatron-Bridge, recipes/deepseek/deepseek_v3.py: one multi-token-prediction layer by default
        return replace(found, mtp_layers=1)
    return found


LEARNED, LEARNED_POSITIONS = re.compile(r"gpt3?-\d|megatron-|mpt-"), 2048
"""Models without rotary positions, and rows of their table.  Sources: Megatron-LM before 2023 knew no other;
NeMo, collections/llm/gpt/model/base.py, GPTConfig.position_embedding_type; llm-foundry, configuration_mpt.py,
learned_pos_emb.  bigscience's ALiBi adds its bias to the scores inside their kernel: no kernel either."""


def _transformer(name: str, m: Mapping[str, Any]) -> Transformer:
    """One record's architecture under our names."""
    mla = m.get("mla") or {}
    return Transformer(
        name=name,
        layers=m["layers"],
        hidden=m["hidden"],
        vocab=m["vocab"],
        heads=m["heads"],
        kv_heads=m["kv_heads"],
        head_dim=mla.get("nope", m["head_dim"]),
        ffn=m["ffn"],
        gated=m["glu"],
        attention="mla" if mla else "gqa",
        q_lora=mla.get("q_lora", 0),
        kv_lora=mla.get("kv_lora", 0),
        rope_dim=mla.get("rope", 0),
        v_head_dim=mla.get("v", 0),
        experts=m.get("experts", 0),
        experts_per_token=m.get("topk", 0),
        expert_ffn=m.get("moe_ffn", 0),
        shared_experts=m.get("shared_experts", 0),
        shared_ffn=m.get("shared_experts", 0) * m.get("moe_ffn", 0),
        dense_layers=min(m.get("first_dense_layers", 0), m["layers"]),
        sliding_window=128 if "sliding window 128" in m["attn"] else 0,
        full_every=2 if "alternate" in m["attn"] else 0,
        mlp_bias=name.startswith("gpt-oss"),  # openai/gpt-oss, model.py: mlp1_bias, mlp2_bias
        position_embeddings=LEARNED_POSITIONS if LEARNED.match(name) else 0,
        source=m.get("source", ""),
    )
