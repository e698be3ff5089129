"""A published training record as our job: its layout, and the habits of the software it ran on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from railwright.collectives.machine import Machine
from railwright.measure.machines import Unsupported, published_machine
from railwright.measure.training.habits import DELAYED, Habits, habits_of, is_nemo_2
from railwright.measure.training.models import HYBRIDS, architecture_of
from railwright.measure.training.recipes import recipe_of
from railwright.measure.training.scripts import (
    OFFLOADED,
    apex_of,
    attention_of,
    drops,
    gathers_behind,
    gathers_wide,
    graphs_of,
    has_narrow_states,
    loss_is_eager,
    script_of,
    sums_in_fp32,
)
from railwright.measure.training.tuning import adapters, sample_length
from railwright.model.operators.eager import Part
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training.layers.costs import ContextKind
from railwright.training.layers.unhidden import UNBUFFERED
from railwright.training.software.constants import width_of

DTYPES = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "mxfp8": "mxfp8",
    "fp8-cs": "fp8",
    "fp8-mx": "mxfp8",
    "fp8-tensorwise": "fp8",
    "fp8-rowwise": "fp8_rowwise",
    "fp8-sc": "fp8_block",
    "fp8-blockwise": "fp8_block",
    "nvfp4": "nvfp4",
}
"""Our names of the records' formats; fp8 is one with a scale per tensor, delayed or current."""


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

NICS = {"bigscience": 4, "vtrain": 4}
"""NICs of a server, where fewer than its GPUs.  NCCL opens one channel for each, so that over two servers it
takes a ring with four and a tree with eight of half the rate (nccl-tests issues 152 and 175 beside NCCL issue
812).  Jean Zay: as above.  vTrain's 800 Gb/s of InfiniBand are taken for four HDR adapters (inferred: its
article does not count them in what we read; 200 Gb/s is the generation's, and eight would be 1,600)."""

BY_MODULE = (("nemotron-3-super-120b-a12b", "nvfp4"),)
"""Models and formats that stand for another format in each module, which a job cannot say."""

VARIANTS = {("torchtitan", "H100"): "H100-96"}
"""GPUs that are not their name's usual ones: Meta's H100 with HBM2e (torchtitan, benchmarks/)."""


def machine_for(record: Mapping[str, str]) -> Machine:
    """The machine a record ran on. Raises Unsupported for a GPU without a usual server."""
    nic = float(record["nic_gbps"]) if record["nic_gbps"] else None
    publisher = record["family"].split("-")[0]
    nic = MEASURED_NICS.get(publisher, nic)
    gpu = VARIANTS.get((publisher, record["gpu"]), record["gpu"])
    return published_machine(gpu, int(record["gpus"]), nic, rack=RACK, nics=NICS.get(publisher))


def job_of(record: Mapping[str, str]) -> TrainingJob:
    """The record's job. Raises Unsupported for what is not modelled."""
    record = {**record, **script_of(record), **_laid_out(record)}
    _check(record)
    habits = habits_of(record)
    tensor = _number(record, "tp")
    parallel = habits.sequence_parallel if record["sp"] == "" else record["sp"] == "True"
    parallel = parallel and tensor > 1
    moe = architecture_of(record).is_moe
    dropout = 0.1 if drops(record, habits.era) else None
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
        dtype_also=tuple(recipe_of(record).get("also", "").split()),  # type: ignore[arg-type]
        layout=Layout(
            tensor=tensor,
            pipeline=_number(record, "pp"),
            virtual_pipeline=_number(record, "vpp"),
            context=_number(record, "cp"),
            context_kind=_context_kind(record),
            expert=_number(record, "ep"),
            expert_tensor=int(record["etp"]) if record["etp"] and moe else None,
            sequence_parallel=parallel,
            **_stages(record),
            **_sharding(record, habits),
            **_recompute(record),
        ),
        overlap=Overlap(
            tp=(habits.tp and parallel and _takes_buffers(record)) or _is_asynchronous(record),
            dp=habits.dp,
            gather=not gathers_behind(record),
            pp=habits.pp,
            ep=recipe_of(record).get("hidden") == "yes",
            shared=_hides_behind_shared(record),
        ),
        **_experts(record, habits),
        unfused=_unfused(record, habits),
        hidden_dropout=dropout,
        attention_dropout=dropout,
        attention_backend=attention_of(record, habits.era),
        software=habits.era,
        launch_blocking=record["family"].split("-")[0] in BLOCKING,
        lora=adapters(record),
        amax_over=_maxima(record),
        ddp_bucket=_number(record, "bucket") if "bucket" in record else None,
        gradient_dtype=_gradients(record, habits),
        **_optimizer(record, habits),
    )


def _optimizer(record: Mapping[str, str], habits: Habits) -> dict[str, Any]:
    """Whose distributed optimizer it was, and in which types weights and states are kept.

    Apex's has fp32 masters of weights that are kept in fp8 alone, else what a bf16 weight lacks (NeMo,
    megatron_base_model.py, setup_optimization: store_params where fp8_params).
    """
    bucket, wide = apex_of(record, habits.era), gathers_wide(record, habits.era)
    found: dict[str, Any] = {"fp8_param_gather": False} if wide else {}
    if bucket is None:
        return found | {"master": habits.master}
    found["apex_bucket"] = f"{bucket} MiB"
    if has_narrow_states(record, habits.era):
        return found | {"master": "remainder", "moment_dtype": "bf16"}
    narrow = record["dtype"] == "fp8" and not wide
    return found | {"master": "fp32" if narrow else "remainder"}


def _gradients(record: Mapping[str, str], habits: Habits) -> Literal["fp32", "bf16", "fp16"] | None:
    if record["dtype"] == "fp16":
        return None
    return "fp32" if sums_in_fp32(record) else habits.gradients  # type: ignore[return-value]


def _is_asynchronous(record: Mapping[str, str]) -> bool:
    """Whether a record of torchtitan's ran with asynchronous tensor parallelism, as its name says."""
    return record["family"].startswith("torchtitan") and record["id"].endswith(("-async", "+asynctp"))


def _takes_buffers(record: Mapping[str, str]) -> bool:
    """Whether a record's products may hide what tensor-parallel ranks exchange: those of dense models unless
    its script says no, those around experts where it says yes."""
    dense = "no" if architecture_of(record).is_moe else "yes"
    return (record.get("tp_overlap") or dense) == "yes" and DTYPES[record["dtype"]] not in UNBUFFERED


def _maxima(record: Mapping[str, str]) -> Literal["stage", "tensor", "none"] | None:
    """Ranks that agree on the maxima of fp8 tensors, where its configuration says so or software beyond its
    era's habit scales by earlier ones: all of a stage, with GPT-3 175B only the tensor ranks (NeMo v2.3.0,
    scripts/performance/llm/pretrain_gpt3_175b.py: tp_only_amax_red)."""
    if "amax" in record:
        return record["amax"]  # type: ignore[return-value]
    if not DELAYED.match(f"{record['dtype']} {record['software']}"):
        return None
    return "tensor" if record["model"] == "gpt3-175b" else "stage"


def _context_kind(record: Mapping[str, str]) -> ContextKind:
    """What a configuration says; SimuMax, docs/b200/b200_real_repro_guide.md, section 7: cp_comm_type a2a;
    Megatron's own is p2p."""
    if "context_kind" in record:
        return record["context_kind"]  # type: ignore[return-value]
    asked = record["family"].startswith("simumax") and _number(record, "cp") > 1
    return "all-to-all" if asked else "ring"


def _hides_behind_shared(record: Mapping[str, str]) -> bool:
    """Whether shared experts run beside NCCL's all-to-alls: NVIDIA's DeepSeek-V3 unless passes take turns.

    Sources: NeMo, collections/llm/gpt/model/deepseek.py, and Megatron-Bridge, models/deepseek/
    deepseek_provider.py: moe_shared_expert_overlap = True; its scripts turn it off with moe_a2a_overlap.
    """
    hidden = recipe_of(record).get("hidden") == "yes"
    return record["model"] == "deepseek-v3" and not _flexible(record) and not hidden


def _flexible(record: Mapping[str, str]) -> bool:
    """Whether tokens go through Megatron's flex dispatcher (DeepEP, HybridEP), not NCCL's all-to-all."""
    return recipe_of(record).get("dispatcher") in ("deepep", "hybridep")


def _stages(record: Mapping[str, str]) -> dict[str, Any]:
    """Layers of stages that do not divide them, or whose ends count as layers by the record's configuration.

    DeepSpeed dealt bigscience's stage by stage, later with embedding and head as layers (chronicles-
    prequel.md, "Re-do" and "Rebalancing layers"); NeMo deals a round number of which the embedding is one and
    head and multi-token prediction are two (`dealt`).
    """
    layers, stages = architecture_of(record).layers, _number(record, "pp")
    if "ends" in record:
        return {"ends_as_layers": record["ends"]}
    if "dealt" in record:
        most = int(record["dealt"]) // stages
        return {"layers_per_stage": (most - 1, *[most] * (stages - 2), most - 2)}
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
    if record["family"].startswith("torchtitan") and _number(record, "pp") > 1:
        # parallelize_llama.py, apply_fsdp: no reshard_after_forward; torch.distributed.pipelining, stage.py,
        # backward_maybe_with_nosync: gradients are reduced after the last microbatch
        return {"zero": 3, "reshard": False, "reduce_each": False}
    return {"zero": int(record["zero"]) if record["zero"] else habits.zero}


def _laid_out(record: Mapping[str, str]) -> dict[str, str]:
    """What a record's recipe says of its layout differently from the table: the recipe is what ran."""
    recipe = recipe_of(record)
    return {k: recipe[k] for k in ("tp", "pp", "vpp", "cp", "ep", "mbs") if recipe.get(k)}


def _experts(record: Mapping[str, str], habits: Habits) -> dict[str, Any]:
    """How experts exchange tokens and how layers are launched, by the record's recipe.

    DeepEP and HybridEP send one copy to each server: at most 4 in DeepSeek-V3's groups, else any number.
    Tables marked 'tokendrop' ran with a capacity of 1 (Megatron-Bridge, training/utils/moe_token_drop.py).
    """
    recipe = recipe_of(record)
    dropping = "tokendrop" in record["notes"] or record.get("tokendrop") == "yes"
    capacity = 1.0 if dropping else habits.capacity
    nodes = 4 if record["model"] == "deepseek-v3" else int(record["gpus"])
    return {
        "expert_capacity": capacity if architecture_of(record).is_moe else None,
        "expert_nodes": nodes if _flexible(record) else None,
        "cuda_graphs": graphs_of(record) or tuple(recipe.get("graphs", "").split()),
    }


def _unfused(record: Mapping[str, str], habits: Habits) -> tuple[Part, ...]:
    """What layers run without fused kernels: as its script says, else as its software does."""
    found = habits.unfused
    arch = architecture_of(record)
    if record["model"] in HYBRIDS:
        # Megatron-Bridge v0.3.1 to v0.5.1, recipes/nemotronh: nemotron_3_nano.py sets moe_router_fusion =
        # False, nemotron_3_super.py and its provider leave it at that default
        found = (*found, "router")
    if arch.details.activation == "relu2" and is_nemo_2(record):
        # NeMo 8cfedd7, collections/llm/fn/activation.py, squared_relu ('remove until we have serialization'
        # before its commented torch.jit.script), and gpt/model/ssm.py, NemotronHConfigBase (a lambda); NeMo
        # 1's is compiled (collections/nlp/modules/common/megatron/utils.py), Megatron-core's too
        found = (*found, "activation")
    if record.get("unfused_rotary") == "yes":
        found = (*found, "rotary")
    if loss_is_eager(record, habits.era):
        found = (*found, "loss")
    return found if arch.is_moe else tuple(part for part in found if part != "router")


def _recompute(record: Mapping[str, str]) -> dict[str, Any]:
    """What is computed again: as the record says, else as its recipe does."""
    if record["family"].startswith("torchtitan") and record["recompute"] == "selective":
        return {"recompute": "selective", "recompute_modules": ("ops",)}
    if not record["recompute"] and record["software"].startswith("MaxText"):
        # dgxc-benchmarking, maxtext/configure.sh: remat_policy=save_qkv_proj keeps queries, keys and values
        # only; the output projection, computed again there, is left out: no module of Megatron's holds it
        return {"recompute": "selective", "recompute_modules": ("layernorm", "core_attn", "mlp")}
    if not record["recompute"] and record["software"].startswith("PaXML"):
        # dgxc-benchmarking v24.11.1, paxml/paxml_mod_configs.py: the 175B keeps SAVE_QKV_OUT_PROJ;
        # google/paxml, contrib/gpu/scripts_gpu/configs.py: GPT5B keeps all linear layers' outputs
        # (SAVE_DOT_WITH_NO_BATCH_DIM)
        mlp = () if record["model"] == "gpt3-5b" else ("mlp",)
        return {"recompute": "selective", "recompute_modules": ("layernorm", "core_attn", *mlp)}
    if record["recompute"].startswith("full "):  # of so many layers of each stage
        return {"recompute": "full", "recompute_layers": int(record["recompute"].split()[1])}
    if record["recompute"] or not record["family"].startswith("mbridge"):
        return {"recompute": record["recompute"] or "none"}
    sent = OFFLOADED.get((record["model"], record["gpu"], width_of(DTYPES[record["dtype"]])))
    if sent and record["fsdp"] not in ("", "0", "False"):
        return {"offload": ("activations",), "offload_layers": sent}
    if layers := recipe_of(record).get("layers"):
        return {"recompute": "full", "recompute_layers": int(layers)}
    modules = tuple(recipe_of(record).get("recompute", "").split())
    return {"recompute": "selective", "recompute_modules": modules} if modules else {"recompute": "none"}


def _check(record: Mapping[str, str]) -> None:
    """Refuse what this stage does not model, and records that do not say what they ran."""
    if (record["model"], record["dtype"]) in BY_MODULE:
        raise Unsupported("a format for each module, which a job cannot say")
    if record.get("te_ops"):
        raise Unsupported("layers of Transformer Engine's fused operations (USE_TE_OPS), which no era has")
    if record["dtype"] not in DTYPES:
        raise Unsupported(f"the record does not say in which format it ran ({record['dtype']})")
    if not record["mbs"]:
        raise Unsupported("the record does not state the microbatch")
    if not (record["step_time_s"] or record["tokens_s_gpu"]):
        raise Unsupported("the record states neither step time nor tokens/s per GPU")


def _number(record: Mapping[str, str], column: str) -> int:
    return int(float(record[column])) if record[column] else 1
