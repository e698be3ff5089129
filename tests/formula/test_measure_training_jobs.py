"""Published records as jobs: what the record says, and the habits of its software where it does not."""

from __future__ import annotations

import pytest

from railwright.measure.machines import Unsupported
from railwright.measure.training import records
from railwright.measure.training_jobs import RACK, habits_of, job_of, machine_for

RECORDS = {r["id"]: r for r in records()}


def first(prefix: str, **wanted: str) -> dict[str, str]:
    return next(
        r
        for r in RECORDS.values()
        if r["family"].startswith(prefix) and all(r[k] == v for k, v in wanted.items())
    )


def test_megatron_deepspeed_overlaps_nothing_and_has_no_sequence_parallelism() -> None:
    found = job_of(first("vtrain", tp="8"))
    assert found.software == "megatron-2021"
    hidden = found.overlap
    assert [found.layout.sequence_parallel, hidden.dp, hidden.pp, hidden.tp] == [False] * 4
    assert found.layout.zero == 0
    assert job_of(first("bigscience")).layout.zero == 1


def test_nemo_hides_tensor_parallel_communication_of_dense_models() -> None:
    assert job_of(first("dgxc-gpt3", dtype="bf16", software="NeMo 24.12")).overlap.tp
    assert not job_of(first("dgxc-grok1", dtype="bf16", cp="1")).overlap.tp
    assert not job_of(first("simumax-llama3-70b-std", tp="8")).overlap.tp


def test_eras_follow_the_release() -> None:
    bridge = {r["software"]: habits_of(r).era for r in RECORDS.values() if r["model"] == "gpt-oss-120b"}
    assert bridge["Megatron-Bridge 26.04"] == "megatron-2025"
    assert bridge["Megatron-Bridge 26.08"] == "megatron-2026"
    before = first("mbridge", model="gpt-oss-120b") | {"software": "Megatron-Bridge 25.09"}
    assert habits_of(before).era == "megatron-2025-unfused"
    hopper = first("mbridge", model="qwen3-30b-a3b", gpu="H100", software="Megatron-Bridge 26.06")
    assert habits_of(hopper).era == "megatron-2025"
    assert habits_of(first("mbridge-llama3-70b", software="Megatron-Bridge 25.09")).era == "megatron-2025"
    assert habits_of(first("dgxc-llama3-70b", software="NeMo 24.09")).era == "nemo-2024"


def test_recipes_say_how_experts_exchange_and_what_is_graphed() -> None:
    latest = job_of(first("mbridge", model="qwen3-30b-a3b", gpu="GB200", software="Megatron-Bridge 26.06"))
    assert (latest.cuda_graphs, latest.overlap.ep, latest.expert_nodes) == (("step",), True, 8)
    plain = job_of(first("mbridge", model="gpt-oss-120b", gpu="GB300", software="Megatron-Bridge 26.02"))
    assert (set(plain.cuda_graphs), plain.overlap.ep) == ({"attention", "router"}, False)
    assert plain.expert_nodes is None
    # a table whose layout is that of the release before counts as that release's
    older = first("mbridge", model="qwen3-235b-a22b", gpu="B300", software="Megatron-Bridge 26.02.01")
    assert job_of(older).overlap.ep
    assert not job_of(first("simumax")).cuda_graphs
    assert job_of(first("mbridge", kind="lora", gpu="GB300")).cuda_graphs == ("mlp",)


def test_launch_scripts_say_what_tables_leave_out() -> None:
    # dgxc-benchmarking v25.05: nemotron/launch.sh (--cuda_graphs true on GB200 only), deepseek_v3/pretraining
    assert job_of(first("dgxc-nemotron4-340b-GB200")).cuda_graphs == ("attention", "mlp")
    assert not job_of(first("dgxc-nemotron4-15b-H100", software="NeMo 25.04.00")).cuda_graphs
    deep = job_of(first("dgxc-deepseek-v3-GB200")).layout
    assert (deep.recompute, deep.recompute_modules) == ("selective", ("core_attn",))
    # maxtext/configure.sh: save_qkv_proj; paxml/configure.sh: 16 servers hold one copy
    assert job_of(first("dgxc-llama3-70b", software="MaxText 25.01 (JAX)")).layout.recompute == "selective"
    wide = job_of(first("dgxc-gpt3-175b", software="PaXML 24.03.04 (JAX)", gpus="2048")).layout
    assert (wide.zero, wide.shard, wide.recompute) == (3, 128, "full")


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
    with pytest.raises(Unsupported, match="does not say which format"):
        job_of(next(r for r in RECORDS.values() if r["dtype"].startswith("fp8 (")))


def test_jobs_over_several_racks_use_whole_trays() -> None:
    wide = next(r for r in RECORDS.values() if r["gpu"] == "GB300" and r["gpus"] == "256")
    small = next(r for r in RECORDS.values() if r["gpu"] == "GB200" and r["gpus"] == "8")
    assert machine_for(wide).network.fabric.gpus_per_server == RACK
    assert machine_for(small).network.fabric.gpus_per_server == 72
