"""What published training runs were started with, where neither their table nor a recipe's table says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from railwright.measure.training.mlperf import configuration_of
from railwright.spec.training import Graph

SCRIPTS: dict[tuple[str, str], dict[str, str]] = {
    ("mlperf-gpt3-175b-NVIDIA-H100", "NVIDIA NeMo Framework"): {"mbs": "1", "vpp": "12", "eager_loss": "yes"},
    ("mlperf-gpt3-175b-NVIDIA-H100", "NVIDIA NeMo Framework Release 23.09"): {"mbs": "1", "vpp": "12"},
    ("dgxc-deepseek-v3-GB200", "NeMo 25.04.01"): {
        "recompute": "selective",
        "tokendrop": "yes",
        "unfused_rotary": "yes",
        "dealt": "64",
    },
    ("dgxc-gpt3-175b-H100", "PaXML 24.03.04 (JAX)"): {"fsdp": "128"},
    ("dgxc-gpt3-175b-H100", "NeMo 24.12"): {"vpp": "6"},
    ("dgxc-grok1-314b-GB200", "NeMo 25.04.00"): {"tp_overlap": "yes"},
    ("dgxc-grok1-314b-H100", "NeMo 24.09"): {"tp_overlap": "yes"},
    ("dgxc-grok1-314b-H100", "NeMo 24.12"): {"tp_overlap": "yes"},
    ("dgxc-nemotron4-340b-H100", "NeMo 24.09"): {"recompute": "selective"},
    ("nemo-nemotron4-340b-H100", "NeMo 24.07"): {"recompute": "selective"},
    ("dgxc-nemotronh-56b-H100", "NeMo 25.04.01"): {"tp_overlap": "no", "gather": "no", "attention": "flash"},
}
"""By family and software.
Sources: mlcommons/training_results_v3.0, NVIDIA gpt3 pytorch, config_DGXH100_*_mbs1.sh and config_common.sh,
no cross_entropy_loss_fusion in conf; training_results_v3.1, the same (every size logged) and conf/custom.yaml
(virtual_pipeline_model_parallel_size 12); dgxc-benchmarking at v25.05,
deepseek_v3/pretraining/launch.sh: "--recompute_modules core_attn" on GB200, and NeMo at the commit pinned
there (7a8f1cc7), scripts/performance/llm/pretrain_deepseek_v3.py: MegatronTokenDropCallback, 64 layers dealt
to the stages, collections/llm/gpt/model/deepseek.py: apply_rope_fusion = False; paxml/configure.sh of that
tag: weights sharded over 16 servers (FSDP=16 of the mesh between servers), copies beyond; nemo_megatron/
gpt3_175b_hydra.yaml at v25.02: 6 virtual stages where its README says the 12 of the tag before; nemotron/
nemotron4-340b-synth.yaml at v24.11.1, and NeMo-Framework-Launcher 24.07, conf/training/nemotron/
nemotron_340b.yaml: activations_checkpoint_granularity selective; grok1/configure.sh at v24.11.1 and v25.02
(model.ub_tp_comm_overlap=true), NeMo 7a8f1cc7, scripts/performance/llm/
pretrain_grok1_314b.py (tp_comm_overlap=True) and pretrain_nemotronh_56b.py: its pretrain_recipe without
performance_mode has no MegatronCommOverlapCallback and overlap_param_gather=False (collections/llm/recipes/
nemotronh_56b.py), and NVTE_FUSED_ATTN is 0."""

FINE_TUNED: dict[tuple[str, str], dict[str, str]] = {
    ("sft", "llama-2-13b"): {"vpp": "10"},
    ("sft", "llama2-70b"): {"vpp": "20"},
    ("lora", "llama2-70b"): {"sp": "False"},
}
"""Fine-tuning in NeMo's tables of 2024, by kind and model; adapters run without user buffers then, which need
sequence parallelism.
Source: NeMo-Framework-Launcher 24.03.01 to 24.07, examples/peft/llama/h100/{13b_1node,70b_2node,
70b_1node_lora}.sh on launcher_scripts/conf/peft/llama/sft.yaml (sequence_parallel: False)."""

RECIPES = "NeMo 24.12 (recipes)"
"""NeMo 24.12 by its recipes in Python, which enable_vboost (dgxc-benchmarking v25.02, llama3/finetuning/
llama3_finetune.py), beside the launcher's YAML files."""

ADAPTED = {"tp_overlap": "no", "eager_loss": "yes"}
"""Adapters by NeMo's recipes: MegatronCommOverlapCallback is for all weights only, and the loss is not fused
with LoRA (cross_entropy_loss_fusion = False).
Source: NeMo v2.1.0, collections/llm/recipes/llama3_{8b,70b}.py, finetune_recipe."""

LAYERS: tuple[Graph, ...] = ("attention", "mlp")
EXPERTS: tuple[Graph, ...] = ("step",)
"""Whole layers; with experts, of which `TrainingJob.cuda_graphs` names no part but the router, all of it."""

GRAPHED: dict[tuple[str, str], tuple[Graph, ...]] = {
    ("dgxc-grok1-314b-GB200", "NeMo 25.04.00"): EXPERTS,
    ("dgxc-nemotron4-340b-GB200", "NeMo 25.04.00"): LAYERS,
    ("nemo-gpt3-175b-GB200", "NeMo 25.04"): LAYERS,
    ("nemo-llama-4-scout-GB200", "NeMo 25.07"): EXPERTS,
    ("nemo-llama3-8b-GB200", "NeMo 25.04"): LAYERS,
    ("nemo-llama3-8b-GB200", "NeMo 25.07"): LAYERS,
    ("nemo-mixtral-8x7b-B200", "NeMo 25.02"): EXPERTS,
    ("nemo-mixtral-8x7b-GB200", "NeMo 25.04"): EXPERTS,
    ("nemo-nemotron4-15b-B200", "NeMo 25.02"): LAYERS,
    ("nemo-nemotron4-15b-GB200", "NeMo 25.04"): LAYERS,
    ("nemo-nemotron4-340b-GB200", "NeMo 25.04"): LAYERS,
}
"""Whole layers launched as CUDA graphs, by family and software.
Sources: dgxc-benchmarking v25.05, nemotron/launch.sh and grok1/launch.sh: "--cuda_graphs true" on GB200; NeMo
v2.2.0 (25.02), scripts/llm/performance/pretrain_*.py: enable_cuda_graph for B200; v2.3.0 (25.04) and v2.4.0
(25.07), scripts/performance/recommended_model_configs/model_configs_gb200.csv."""

OFFLOADED = {
    ("llama3-70b", "GB300", "16-bit"): 30,
    ("llama3-70b", "GB300", "fp8"): 20,
    ("llama3-70b", "GB200", "16-bit"): 20,
    ("llama3-70b", "GB200", "fp8"): 40,
    ("llama3-70b", "B200", "fp8"): 5,
}
"""Layers whose activations Megatron-Bridge's FSDP recipes send to the host, which its tables do not say, by
width of the products.
Source: scripts/performance/configs/llama/llama3_workload_base_configs.py, cpu_offloading_num_layers."""

EAGER_MODELS = ("gpt3-", "grok1-")
EAGER_FAMILIES = ("nemo-llama2-", "nemo-llama-2-", "dgxc-nemotron4-340b-")
EAGER_RELEASES = ("NeMo 24.03.01", "NeMo 24.05")
"""What of NeMo's runs of 2024 does not ask for cross_entropy_loss_fusion: models, models of one publisher,
and releases in which nothing does (its own tables' of 24.09 are those of 24.07 unchanged).
Sources: NeMo-Framework-Launcher 24.03.01 to 24.12, launcher_scripts/conf/training; dgxc-benchmarking
v24.11.1, nemo_megatron/gpt3_175b_hydra.yaml, grok1/grok1_314b.yaml, nemotron/nemotron4-340b-synth.yaml."""


def script_of(record: Mapping[str, str]) -> dict[str, str]:
    """Columns of a record that its scripts say, and beside them 'tokendrop', 'unfused_rotary', 'dealt',
    'tp_overlap', 'gather', 'attention', 'eager_loss' and what MLPerf's configurations say; {} for most."""
    if found := configuration_of(record):
        return dict(found)
    if record["kind"] == "lora" and record["software"] == RECIPES:
        return ADAPTED
    if record["family"].startswith("nemo-") and (record["kind"], record["model"]) in FINE_TUNED:
        return FINE_TUNED[record["kind"], record["model"]]
    return SCRIPTS.get((record["family"], record["software"]), {})


def graphs_of(record: Mapping[str, str]) -> tuple[Graph, ...]:
    """What a record's script launches as CUDA graphs; () for most."""
    if "graphs" in record:
        return tuple(record["graphs"].split())  # type: ignore[arg-type]
    return GRAPHED.get((record["family"], record["software"]), ())


def drops(record: Mapping[str, str], era: str) -> bool:
    """Whether a record was trained with dropout, 0.1 of hidden states and of attention's scores: NeMo's GPT-3
    of 2024, but for MLPerf's 175B, in its tables too; none of its other models.

    Sources: NeMo-Framework-Launcher 24.03.01 to 24.12, launcher_scripts/conf/training/gpt3/{5b,20b,175b}.yaml
    (hidden_dropout, attention_dropout: 0.1), 175b_mlperf.yaml (0.0); dgxc-benchmarking v24.11.1 to v25.02,
    nemo_megatron/gpt3_175b_hydra.yaml (0.1); NeMo v2.0.0 to v2.3.0, collections/llm/gpt/model/base.py,
    GPTConfig175B (0.0); mlcommons/training_results_v3.0 and v3.1, NVIDIA gpt3, conf (0.0).
    """
    return era == "nemo-2024" and record["model"].startswith("gpt3-") and not is_of_mlperf(record)


MLPERF_BATCH = "2048"
"""Sequences of a batch of MLPerf's GPT-3 175B on 512 GPUs, for which NeMo's tables link to MLPerf.
Source: NeMo-Framework-Launcher 24.03.01 to 24.12, examples/README.md."""

FLASH_RELEASES = ("NeMo 24.03.01", "NeMo 24.05", "NeMo 24.07", "NeMo 24.09", "NeMo 2.0.0")
FLASH_MODELS = (("gpt3-", "NeMo 24.05"), ("grok1-", "NeMo 24"), ("nemotron4-340b", "NeMo 24"))
"""Releases of NeMo's tables, and models and releases of dgxc-benchmarking's (`attention_of`)."""


def attention_of(record: Mapping[str, str], era: str) -> Literal["flash"] | None:
    """Whose kernel runs a record's attention, where its script does not leave that to Transformer Engine: in
    NeMo's tables of 2024 and some of dgxc-benchmarking's FlashAttention's.

    Sources: NeMo-Framework-Launcher up to 24.07, launcher_scripts/conf/config.yaml: NVTE_FUSED_ATTN: 0
    ("Disable cudnn FA until we've tested it more"; its table of 24.09 has 24.07's rows, NeMo 2.0's is of the
    same container); dgxc-benchmarking v24.11.1 and v25.02, nemo_megatron/launch.sh and configure.sh (0, then
    1), grok1/configure.sh (0), nemotron/configure.sh (0 of 340B, 1 of 15B), llama3.1/configure.sh (1).
    MLPerf's rows in NeMo's tables are none of these.
    """
    if "attention" in record:
        return record["attention"]  # type: ignore[return-value]
    if era != "nemo-2024" or is_of_mlperf(record):
        return None
    if record["family"].startswith("nemo-"):
        return "flash" if record["software"] in FLASH_RELEASES else None
    told = (record["model"].startswith(m) and record["software"].startswith(s) for m, s in FLASH_MODELS)
    return "flash" if record["family"].startswith("dgxc-") and any(told) else None


GATHERED_BEHIND = ("deepseek-v3-GB200", "llama3.1-405b-B200", "qwen3-235b-a22b-B200")
"""Families of Megatron-Bridge 25.11 whose weights in MXFP8 are gathered behind the optimizer."""


def gathers_behind(record: Mapping[str, str]) -> bool:
    """Whether a record's script keeps weights from being gathered beside the next step.

    Source, beside that of SCRIPTS: Megatron-Bridge v0.2.0, scripts/performance/configs/*/*_llm_pretrain.py
    (fp8_mx: overlap_param_gather = False, for norms of gradients that were no numbers; other tags have none
    for published steps).
    """
    family = record["family"].removeprefix("mbridge-")
    narrow = record["software"] == "Megatron-Bridge 25.11" and record["dtype"] == "fp8-mx"
    return record.get("gather") == "no" or (narrow and family in GATHERED_BEHIND)


def sums_in_fp32(record: Mapping[str, str]) -> bool:
    """Whether gradients are reduced in fp32, where NeMo's scripts of 2024 have 16 bits.

    Sources: NeMo-Framework-Launcher 24.03.01 to 24.07, examples/training/nemotron/h100/*.sh and
    conf/training/nemotron/nemotron_{8b,22b}.yaml (no grad_sync_dtype, as all others have);
    dgxc-benchmarking v25.02, nemotron/nemotron4-15b-synth.yaml (none, as v24.11.1 had).
    """
    launcher = record["family"].startswith(("nemo-nemotron-8b", "nemo-nemotron-22b"))
    return launcher or (record["family"], record["software"]) == ("dgxc-nemotron4-15b-H100", "NeMo 24.12")


APEX_LAUNCHED = {"gpt3-5b": 400, "gpt3-": 220, "llama": 125, "nemotron4-340b": 50, "nemotron": 100}
APEX_RECIPES = {"gpt3-": 220, "llama3.1-405b": 125, "llama3": 75, "nemotron4-340b": 50, "nemotron4-15b": 100}
"""bucket_cap_mb of Apex's optimizer in NeMo's tables of 2024 and in dgxc-benchmarking's, by the first letters
of a model that fit."""

APEX_TUNED, APEX_MLPERF, APEX_MLPERF_LAUNCHED = 50, 100, 200
"""The same of fine-tuning, and of MLPerf's GPT-3: as submitted, and in NeMo's tables."""

MEGATRONS = ("dgxc-nemotron4-15b-H100", "NeMo 24.12")
"""Family and software of those records of dense models in which NeMo of 2024 ran Megatron's optimizer."""


def apex_of(record: Mapping[str, str], era: str) -> int | None:
    """Size of the buckets of Apex's optimizer, which NeMo's launcher of 2024 ran for dense models; None for
    other software, mixtures of experts and adapters. [MiB]

    Sources (optim.name distributed_fused_adam, bucket_cap_mb): NeMo-Framework-Launcher 24.03.01 to 24.09,
    launcher_scripts/conf/training/{gpt3,llama,nemotron}/*.yaml, conf/peft/llama/sft.yaml; dgxc-benchmarking
    v24.11.1 and v25.02, llama3.1/*.yaml, nemo_megatron/gpt3_175b_hydra.yaml, nemotron/*.yaml (15B of v25.02:
    mcore_distributed_optim, as grok1/grok1_314b.yaml has); mlcommons/training_results_v3.0 and v4.0, NVIDIA
    gpt3, conf/megatron_gpt_config.yaml and conf/optim/distributed_fused_adam.yaml (others inferred).
    """
    nemo = "NeMo" in record["software"] and record["model"].startswith(tuple(APEX_LAUNCHED))
    if era != "nemo-2024" or not nemo or record["kind"] == "lora":
        return None
    if is_of_mlperf(record):
        return APEX_MLPERF if record["family"].startswith("mlperf") else APEX_MLPERF_LAUNCHED
    if (record["family"], record["software"]) == MEGATRONS:
        return None
    if record["kind"] == "sft":
        return APEX_TUNED
    sizes = APEX_RECIPES if record["family"].startswith("dgxc-") else APEX_LAUNCHED
    return next((size for name, size in sizes.items() if record["model"].startswith(name)), None)


WIDE_MLPERF = ("NVIDIA NeMo Framework", "NVIDIA NeMo Framework Release 23.09")
"""Software of MLPerf's GPT-3 whose configurations know no fp8_params."""


def gathers_wide(record: Mapping[str, str], era: str) -> bool:
    """Whether weights of a step in fp8 had 16 bits, and were gathered so: NeMo's launcher of 2024 asks for
    fp8_params in fine-tuning and MLPerf's GPT-3 alone.

    Sources: NeMo-Framework-Launcher 24.03.01 to 24.09, conf/training and examples (no fp8_params but in
    gpt3/mlperf.yaml and peft/*/h100/*.sh); dgxc-benchmarking v24.11.1 and v25.02 (fp8_params wherever fp8);
    mlcommons/training_results_v3.0 and v3.1, NVIDIA gpt3, conf (none).
    """
    if era != "nemo-2024" or record["dtype"] != "fp8" or "NeMo" not in record["software"]:
        return False
    if is_of_mlperf(record):
        return record["software"] in WIDE_MLPERF
    return record["family"].startswith("nemo-") and record["kind"] == "pretrain"


def has_narrow_states(record: Mapping[str, str], era: str) -> bool:
    """Whether Adam's moments, and masters where there are any, have 16 bits: in NeMo's fine-tuning
    and its Nemotron-4 340B (optim.dtype).

    Sources: as of `apex_of` (conf/peft/llama/sft.yaml, conf/training/nemotron/nemotron_340b.yaml;
    nemotron/nemotron4-340b-synth.yaml).
    """
    narrow = record["kind"] == "sft" or record["model"].startswith("nemotron4-340b")
    return narrow and apex_of(record, era) is not None


def is_of_mlperf(record: Mapping[str, str]) -> bool:
    """Whether a record is MLPerf's, in NeMo's tables too."""
    if record["family"].startswith("mlperf"):
        return True
    return record["model"] == "gpt3-175b" and record["gbs"] == MLPERF_BATCH and "nemo-" in record["family"]


def loss_is_eager(record: Mapping[str, str], era: str) -> bool:
    """Whether a record's loss is not fused."""
    if "eager_loss" in record:
        return record["eager_loss"] == "yes"
    eager = record["model"].startswith(EAGER_MODELS) or record["family"].startswith(EAGER_FAMILIES)
    return era == "nemo-2024" and (eager or record["software"].startswith(EAGER_RELEASES))
