"""Published records as jobs: what the record says, and the habits of its software where it does not."""

from __future__ import annotations

import pytest

from railwright.errors import PlanError
from railwright.measure.machines import Unsupported
from railwright.measure.training.habits import habits_of
from railwright.measure.training.jobs import RACK, job_of, machine_for
from railwright.measure.training.models import architecture_of, architectures
from railwright.measure.training.recipes import recipe_of
from railwright.measure.training.replay import records
from railwright.training.layers.operators import unfused_of

RECORDS = {r["id"]: r for r in records()}


def first(prefix: str, **wanted: str) -> dict[str, str]:
    return next(
        r
        for r in RECORDS.values()
        if r["family"].startswith(prefix) and all(r[k] == v for k, v in wanted.items())
    )


NEMO = {"24.09": "nemo-2024", "24.12": "nemo-2024", "25.02.01": "megatron-2025"}
"""Releases of NeMo and the eras they belong to."""


def test_megatron_deepspeed_overlaps_nothing_and_has_no_sequence_parallelism() -> None:
    found = job_of(first("vtrain", tp="8"))
    assert found.software == "megatron-2021"
    hidden = found.overlap
    assert [found.layout.sequence_parallel, hidden.dp, hidden.pp, hidden.tp] == [False] * 4
    assert found.layout.zero == 0
    assert job_of(first("bigscience")).layout.zero == 1


def test_bigscience_blocked_its_launches_and_dealt_layers_as_its_chronicle_says() -> None:
    assert job_of(first("bigscience")).launch_blocking
    assert not job_of(first("vtrain")).launch_blocking
    plain, uneven, late = (first("bigscience", model=m) for m in ("gpt-181B-72l", "gpt-182B", "gpt-176B"))
    assert job_of(plain).layout.layers_per_stage is None
    assert job_of(uneven | {"pp": "12"}).layout.layers_per_stage == (7,) * 11 + (1,)
    assert (job_of(late).layout.ends_as_layers, late["dtype"]) == ("both", "bf16")


def test_heads_divide_the_width_as_megatron_demands() -> None:
    """Megatron-LM refuses others (arguments.py): a record that has them was read wrongly."""
    old = {name: arch for name, arch in architectures().items() if arch.position_embeddings}
    assert {"gpt3-175b", "gpt-39.1b", "mpt-7b"} < set(old)
    assert "gpt-oss-120b" not in old
    assert all(arch.hidden == arch.heads * arch.head_dim for arch in old.values())


def test_nemo_hides_tensor_parallel_communication_of_dense_models() -> None:
    assert job_of(first("dgxc-gpt3", dtype="bf16", software="NeMo 24.12")).overlap.tp
    assert not job_of(first("nemo-mixtral-8x22b", dtype="fp8")).overlap.tp
    assert not job_of(first("simumax-llama3-70b-std", tp="8")).overlap.tp


def test_scripts_hide_otherwise_than_their_software_does() -> None:
    """Grok-1's hides it around experts; Nemotron-H's has no callback that hides anything, and parameters are
    gathered behind the optimizer, as in MXFP8 of Megatron-Bridge 25.11."""
    for gpu in ("H100", "GB200"):
        assert job_of(first("dgxc-grok1", gpu=gpu, dtype="bf16", tp="4")).overlap.tp
    nemotron = job_of(first("dgxc-nemotronh-56b"))
    assert (nemotron.overlap.tp, nemotron.overlap.dp, nemotron.overlap.gather) == (False, True, False)
    assert nemotron.attention_backend == "flash"
    bridge = {"software": "Megatron-Bridge 25.11", "dtype": "fp8-mx"}
    assert not job_of(first("mbridge-qwen3-235b-a22b-B200", **bridge)).overlap.gather
    assert job_of(first("mbridge-qwen3-30b-a3b-B200", **bridge)).overlap.gather


def test_layouts_are_those_of_the_files_that_ran() -> None:
    assert job_of(first("dgxc-gpt3-175b-H100", software="NeMo 24.12")).layout.virtual_pipeline == 6
    assert job_of(first("dgxc-gpt3-175b-H100", software="NeMo 24.05")).layout.virtual_pipeline == 12
    assert job_of(first("dgxc-nemotron4-340b-H100", software="NeMo 24.09")).layout.recompute == "selective"
    assert job_of(first("dgxc-nemotron4-340b-H100", software="NeMo 25.02.01")).layout.recompute == "none"


def test_nvfp4_hides_no_tensor_parallel_communication() -> None:
    """Megatron-Bridge, scripts/performance/configs/llama/llama3_llm_pretrain.py: "tp_comm_overlap = False if
    precision == 'nvfp4'", from v0.2.1 on; user buffers gather no such tensor."""
    bridge = {"model": "llama3-70b", "gpu": "GB200", "tp": "2"}
    assert job_of(first("mbridge", dtype="mxfp8", **bridge)).overlap.tp
    narrow = job_of(first("mbridge", dtype="nvfp4", **bridge))
    assert (narrow.layout.sequence_parallel, narrow.overlap.tp) == (True, False)


def test_eras_follow_the_release() -> None:
    bridge = {r["software"]: habits_of(r).era for r in RECORDS.values() if r["model"] == "gpt-oss-120b"}
    assert bridge["Megatron-Bridge 26.04"] == "megatron-2025"
    assert bridge["Megatron-Bridge 26.08"] == "megatron-2026"
    assert bridge["Megatron-Bridge 26.06.01"] == "megatron-2026-06-01"
    before = first("mbridge", model="gpt-oss-120b") | {"software": "Megatron-Bridge 25.09"}
    assert habits_of(before).era == "megatron-2025-unfused"
    hopper = first("mbridge", model="qwen3-30b-a3b", gpu="H100", software="Megatron-Bridge 26.06")
    assert habits_of(hopper).era == "megatron-2025"
    assert habits_of(first("mbridge-llama3-70b", software="Megatron-Bridge 25.09")).era == "megatron-2025"
    uncompiled, compiled, today = (
        habits_of(first("torchtitan", id=f"torchtitan-{row}"))
        for row in ("t1-8b-8-fsdp", "t1-8b-8-fsdp+compile", "trainy-h200-8b-4n")
    )
    assert [one.era for one in (uncompiled, compiled, today)] == ["fsdp-2024-eager", "fsdp-2024", "fsdp-2025"]
    assert [one.unfused for one in (uncompiled, compiled)] == [("rotary", "norm", "activation"), ("rotary",)]
    nemo = {name: habits_of(first("dgxc-llama3-70b", software=f"NeMo {name}")).era for name in NEMO}
    assert nemo == NEMO


def test_what_scripts_leave_exposed() -> None:
    """SimuMax asks for no overlap at all; Korthikanti's Megatron-LM could not hide gradients yet."""
    for prefix in ("simumax-llama3-70b-std", "korthikanti"):
        assert not job_of(first(prefix)).overlap.dp
    assert not job_of(first("simumax-llama3-70b-std")).overlap.pp


def test_recipes_say_how_experts_exchange_and_what_is_graphed() -> None:
    latest = job_of(first("mbridge", model="qwen3-30b-a3b", gpu="GB200", software="Megatron-Bridge 26.06"))
    assert (latest.cuda_graphs, latest.overlap.ep, latest.expert_nodes) == (("step",), True, 8)
    plain = job_of(first("mbridge", model="gpt-oss-120b", gpu="GB300", software="Megatron-Bridge 26.02"))
    assert (set(plain.cuda_graphs), plain.overlap.ep) == ({"attention", "router"}, False)
    assert plain.expert_nodes is None
    assert not job_of(first("simumax")).cuda_graphs
    assert job_of(first("mbridge", kind="lora", gpu="GB300")).cuda_graphs == ("mlp",)


def test_who_learns_positions_and_who_turns_queries() -> None:
    known = {name: arch.position_embeddings for name, arch in architectures().items()}
    assert known["gpt3-175b"] == known["mpt-7b"] == known["gpt-39.1b"] == 2048
    assert known["gpt-oss-120b"] == known["llama3-8b"] == 0
    # Megatron turns YaRN's positions with kernels that are not fused
    turned = {
        r["model"] for r in RECORDS.values() if r["family"].startswith("mbridge") and "rotary" in _unfused(r)
    }
    assert turned == {"gpt-oss-120b"}


def _unfused(record: dict[str, str]) -> tuple[str, ...]:
    try:
        return unfused_of(job_of(record), architecture_of(record))
    except (Unsupported, PlanError):
        return ()


def test_nvidias_fine_tuning_packs_short_samples() -> None:
    # SQuAD 1.1 packed to 4096 tokens; MLPerf's government reports are long, and pre-training packs none
    assert job_of(first("nemo", kind="lora", model="llama2-7b")).sample_length == 274
    assert job_of(first("mbridge", kind="sft", model="llama3-70b")).sample_length == 221
    assert job_of(first("mbridge", kind="pretrain", model="llama3-70b")).sample_length is None


def test_a_recipe_says_how_many_layers_are_computed_again() -> None:
    """v0.2.0, configs/llama3/workload_base_configs.py: recompute_num_layers=5 for fp8 on H100; helpers.py,
    set_recompute_overrides: full, by block.  v0.1.0rc4 (25.09) has none there."""
    found = [
        job_of(first("mbridge-llama3-8b-H100", software=f"Megatron-Bridge {release}")).layout
        for release in ("25.11", "25.09")
    ]
    assert [(one.recompute, one.recompute_layers) for one in found] == [("full", 5), ("none", None)]
    counted = [name for name, r in RECORDS.items() if recipe_of(r).get("layers")]
    assert counted == ["mbridge-25-11-llama3-8b-h100-8-fp8-cs-pretrain-tp1pp1mbs1gbs128"]


def test_the_recipe_at_the_tag_decides_where_it_can_be_what_ran() -> None:
    # v0.3.1, qwen3_workload_base_configs.py, H100_FP8_CS_V1: EP 16, no pipeline; the table repeats 26.02
    moved = first("mbridge", model="qwen3-30b-a3b", gpu="H100", software="Megatron-Bridge 26.02.01")
    assert (moved["pp"], moved["vpp"], moved["ep"]) == ("2", "12", "8")
    ran = job_of(moved)
    assert (ran.layout.pipeline, ran.layout.virtual_pipeline, ran.layout.expert) == (1, 1, 16)
    assert (ran.overlap.ep, ran.expert_nodes) == (False, 16)
    # v0.3.1, B300: its function asks for all-to-alls, so that the backend of its table (DeepEP) is not used
    wide = job_of(first("mbridge", model="qwen3-235b-a22b", gpu="B300", software="Megatron-Bridge 26.02.01"))
    assert (wide.layout.virtual_pipeline, wide.overlap.ep, wide.expert_nodes) == (1, False, None)
    # v0.1.0rc4: the table's 8 stages of 64 experts' ranks do not fit into 256 GPUs
    first_release = first("mbridge-deepseek", gpu="GB200", dtype="fp8-mx", software="Megatron-Bridge 25.09")
    assert int(first_release["pp"]) * int(first_release["ep"]) > int(first_release["gpus"])
    assert (job_of(first_release).layout.pipeline, job_of(first_release).layout.virtual_pipeline) == (4, 4)
    # v0.2.0 has a batch of 512 for GB300: the published 1,280 is another run, so its table stands
    other = first("mbridge", model="gpt-oss-120b", gpu="GB300", software="Megatron-Bridge 25.11")
    assert job_of(other).micro_batch == int(other["mbs"]) == 2


def test_launch_scripts_say_what_tables_leave_out() -> None:
    # dgxc-benchmarking v25.05: nemotron/launch.sh (--cuda_graphs true on GB200 only), deepseek_v3/pretraining
    assert job_of(first("dgxc-nemotron4-340b-GB200")).cuda_graphs == ("attention", "mlp")
    assert not job_of(first("dgxc-nemotron4-15b-H100", software="NeMo 25.04.00")).cuda_graphs
    deep = job_of(first("dgxc-deepseek-v3-GB200")).layout
    assert (deep.recompute, deep.recompute_modules) == ("selective", ("core_attn",))
    # maxtext/configure.sh: save_qkv_proj; paxml/configure.sh: 16 servers hold one copy
    assert job_of(first("dgxc-llama3-70b", software="MaxText 25.01 (JAX)")).layout.recompute == "selective"
    wide = job_of(first("dgxc-gpt3-175b", software="PaXML 24.03.04 (JAX)", gpus="2048")).layout
    assert (wide.zero, wide.shard, wide.recompute) == (3, 128, "selective")


def test_sharding_is_as_the_record_says() -> None:
    part = next(r for r in RECORDS.values() if r["fsdp"] == "64")
    assert (job_of(part).layout.zero, job_of(part).layout.shard) == (3, 64)
    hybrid = next(r for r in RECORDS.values() if r["zero"] == "hsdp")
    assert (job_of(hybrid).layout.zero, job_of(hybrid).layout.shard) == (3, 8)


def test_adapters_and_context() -> None:
    lora = next(r for r in RECORDS.values() if r["kind"] == "lora" and r["family"].startswith("nemo"))
    found = job_of(lora).lora
    assert found is not None
    assert (found.rank, found.targets) == (32, ("qkv",))
    assert job_of(first("dgxc-llama3-70b", cp="2")).layout.context == 2


def test_a_format_that_the_log_leaves_open_is_refused() -> None:
    with pytest.raises(Unsupported, match="does not say in which format"):
        job_of(next(r for r in RECORDS.values() if r["dtype"].startswith("fp8 (")))


def test_jobs_over_several_racks_use_whole_trays() -> None:
    wide = next(r for r in RECORDS.values() if r["gpu"] == "GB300" and r["gpus"] == "256")
    small = next(r for r in RECORDS.values() if r["gpu"] == "GB200" and r["gpus"] == "8")
    assert machine_for(wide).network.fabric.gpus_per_server == RACK
    assert machine_for(small).network.fabric.gpus_per_server == 72


def test_from_26_06_on_recipes_in_mxfp8_narrow_attention_and_head() -> None:
    # v0.5.0: fp8_dot_product_attention in the bases of gpt-oss and Qwen3, fp8_output_proj in the functions of
    # DeepSeek-V3 and gpt-oss
    asked = {
        model: job_of(first("mbridge", model=model, gpu=gpu, software="Megatron-Bridge 26.06", dtype="mxfp8"))
        for model, gpu in (
            ("gpt-oss-120b", "GB200"),
            ("qwen3-30b-a3b", "B300"),
            ("deepseek-v3", "GB200"),
        )
    }
    assert {model: one.dtype_also for model, one in asked.items()} == {
        "gpt-oss-120b": ("attention", "head"),
        "qwen3-30b-a3b": ("attention",),
        "deepseek-v3": ("head",),
    }
    before = first(
        "mbridge", model="deepseek-v3", gpu="GB200", software="Megatron-Bridge 26.04", dtype="mxfp8"
    )
    assert (job_of(before).dtype, job_of(before).dtype_also) == ("mxfp8", ())


def test_fine_tuning_of_2024_ran_with_the_stages_and_the_overlap_of_its_scripts() -> None:
    """NeMo-Framework-Launcher, examples/peft/llama/h100: virtual stages with all weights; adapters without
    sequence parallelism, and so without user buffers."""
    whole, adapted = (first("nemo-llama2-70b", kind=kind) for kind in ("sft", "lora"))
    assert (job_of(whole).layout.virtual_pipeline, job_of(whole).overlap.tp) == (20, True)
    assert job_of(first("nemo-llama-2-13b", kind="sft")).layout.virtual_pipeline == 10
    assert job_of(adapted).layout.virtual_pipeline == 1
    assert not job_of(adapted).layout.sequence_parallel
    assert not job_of(adapted).overlap.tp


def test_fine_tuning_by_recipes_is_of_2025_and_its_adapters_hide_nothing() -> None:
    """NeMo v2.1.0, collections/llm/recipes/llama3_70b.py."""
    whole, adapted = (job_of(first("dgxc-llama3-70b-ft", kind=kind)) for kind in ("sft", "lora"))
    assert (whole.software, whole.overlap.tp, whole.unfused) == ("megatron-2025", True, ())
    assert (adapted.overlap.tp, adapted.layout.sequence_parallel) == (False, True)
    assert adapted.unfused == ("loss",)
    assert adapted.lora
    assert adapted.lora.rank == 16
    assert whole.sample_length == adapted.sample_length == 221


@pytest.mark.parametrize(
    ("family", "release", "eager"),
    [
        ("nemo-llama3-70b", "24.07", False),
        ("nemo-llama2-70b", "24.07", True),
        ("nemo-nemotron-8b", "24.03.01", True),
        ("nemo-nemotron-8b", "24.07", False),
        ("dgxc-nemotron4-340b-H100", "24.09", True),
        ("dgxc-nemotron4-15b", "24.09", False),
        ("dgxc-nemotron4-340b-H100", "25.02.01", False),
    ],
)
def test_the_loss_is_fused_where_a_release_s_files_ask_for_it(family: str, release: str, eager: bool) -> None:
    assert ("loss" in job_of(first(family, software=f"NeMo {release}")).unfused) is eager


def test_gpt_3_agrees_on_maxima_in_its_tensor_groups_alone() -> None:
    """NeMo v2.3.0, scripts/performance/llm/pretrain_gpt3_175b.py: tp_only_amax_red."""
    assert job_of(first("nemo-gpt3-175b-B200", software="NeMo 25.02")).amax_over == "tensor"
    assert job_of(first("nemo-llama3-70b-B200", software="NeMo 25.02")).amax_over == "stage"
    assert job_of(first("nemo-llama3-70b-GB200", software="NeMo 25.04")).amax_over is None


def test_whole_layers_as_graphs_where_scripts_say_so() -> None:
    assert job_of(first("nemo-nemotron4-15b-B200")).cuda_graphs == ("attention", "mlp")
    assert job_of(first("nemo-mixtral-8x7b-B200")).cuda_graphs == ("step",)
    assert job_of(first("nemo-llama3-70b-B200")).cuda_graphs == ()


def test_torchtitan_s_pipelines_gather_and_reduce_once_a_step() -> None:
    """parallelize_llama.py, apply_fsdp; torch.distributed.pipelining, stage.py."""
    staged = job_of(first("torchtitan-llama3.1-405b", vpp="2"))
    assert (staged.micro_batch, staged.layout.reshard, staged.layout.reduce_each) == (4, False, False)
    assert job_of(first("torchtitan-llama3-8b-long")).layout.reshard


def test_rows_that_we_read_ourselves_say_where_and_count_for_no_bar() -> None:
    own = [r for r in RECORDS.values() if r["quality"] == "R"]
    assert len(own) == 301
    assert all(r["source"] and r["software"] and r["mbs"] for r in own)
    assert all(bool(r["step_time_s"]) != bool(r["tokens_s_gpu"]) for r in own)
    assert {architecture_of(r).name for r in own} >= {"gpt3-20b", "nemotron-22b", "mixtral-8x22b"}
