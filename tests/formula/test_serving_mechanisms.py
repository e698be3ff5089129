"""Mechanisms of single engines and cards, each against its own arithmetic."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.compute.gemm import Shape
from railwright.measure.machines import published_machine
from railwright.model import load_model
from railwright.serving.engine.attention import ONE_BLOCK
from railwright.serving.engine.exchange import Place, nccl_seconds
from railwright.serving.engine.memory import engine_memory
from railwright.serving.engine.pace import prompt_bus
from railwright.serving.engine.profiles import engines
from railwright.serving.engine.step import step_parts, tabulate
from railwright.serving.kernels.constants import kernels_of
from railwright.serving.kernels.masked import masked_seconds, xqa_runs
from railwright.serving.kernels.times import gemm_seconds
from railwright.serving.simulator.simulate import simulate
from railwright.spec.serving import Client, ServingJob, ServingLayout
from serving_cases import flat_table, one_replica, requests


def job(engine: str, tensor: int = 1, model: str = "llama-3.1-8b") -> ServingJob:
    client = Client(kind="closed-loop", concurrency=8, input=1024, output=128)
    return ServingJob(
        name="x", model=model, engine=engine, layout=ServingLayout(tensor=tensor), client=client
    )


def slope(engine: str, model: str, tensor: int, requests: int) -> float:
    """Seconds that 8,000 more tokens of context take in a decode step."""
    arch, machine = load_model(model), published_machine("H100", 8, None)
    seen = [
        step_parts(job(engine, tensor, model), arch, machine, decoding=requests, context=c)
        for c in (4000, 12000)
    ]
    return seen[1].parts["decode attention"] - seen[0].parts["decode attention"]


def test_blocks_of_the_masked_kernel_come_in_waves_over_the_multiprocessors():
    # Llama 3 8B, 32 query heads and layers: 3 requests are 96 blocks on 132 multiprocessors, 5 are 160
    token = 8.1e-9
    for batch, waves in ((1, 1), (3, 1), (5, 2)):
        assert slope("trtllm-2024", "llama-3.1-8b", 1, batch) == pytest.approx(
            8000 * token * waves * 32, rel=1e-6
        )
    # 64 are 2048 blocks, 16 waves, but draw 512 bytes a token each through the level-2 cache, at 6.2 TB/s
    crowded = 2048 * 512 / 6.2e12
    assert crowded > 16 * token
    assert slope("trtllm-2024", "llama-3.1-8b", 1, 64) == pytest.approx(8000 * crowded * 32, rel=1e-6)
    # heads of 64 take half the time a token: data/masked.yaml was measured on 128
    wide, narrow = (masked_seconds(1, 1000, 8, w, 4.0 * w, 132, "hopper", "bf16") for w in (128, 64))
    assert narrow == pytest.approx(wide / 2)


def test_xqa_takes_over_from_a_quarter_of_the_multiprocessors_on_and_in_groups_of_eight():
    # Llama 3 70B over 8 GPUs: one key/value head and eight query heads each; 33 x 4 = 132
    assert [bool(xqa_runs(n, 8, 1, 132)) for n in (1, 32, 33, 250)] == [False, False, True, True]
    assert not xqa_runs(250, 32, 8, 132)  # Llama 3 8B: groups of four
    waves = ceil(20 * 8 / 132)
    assert slope("trtllm-2024", "llama-3.1-70b", 8, 20) == pytest.approx(8000 * 8.1e-9 * waves * 80)
    # then one block streams a request's only head of keys and values
    assert slope("trtllm-2024", "llama-3.1-70b", 8, 33) == pytest.approx(
        8000 * 512 / ONE_BLOCK * 80, rel=1e-6
    )


def test_prompts_of_a_step_share_the_launches_of_their_attention():
    arch, machine = load_model("llama-3.1-8b"), published_machine("H100", 1, None)
    one, four = (
        step_parts(job("vllm-2026"), arch, machine, decoding=0, context=0, prefill=((512, 0),) * n)
        for n in (1, 4)
    )
    fixed = 32 * kernels_of(machine.gpu, "vllm").attention("prefill", "bf16").fixed
    alone, together = one.parts["prefill attention"], four.parts["prefill attention"]
    assert together == pytest.approx(4 * alone - 3 * fixed)
    table = tabulate(job("vllm-2026"), arch, machine)
    row = list(table.chunks).index(512.0)
    assert table.prefill[row, 0] == pytest.approx(alone - fixed)


def test_blocks_in_parallel_meet_once_a_layer():
    falcon = load_model("falcon-180b")
    machine = published_machine("H100", 8, None)
    asked = job("trtllm-2024-static", 8, "falcon-180b")
    once, twice = (
        step_parts(asked, replace(falcon, parallel_blocks=p), machine, decoding=8, context=512)
        for p in (True, False)
    )
    # and one more sums the parts of a split embedding
    assert once.parts["collectives"] / twice.parts["collectives"] == pytest.approx(81 / 161)


def test_known_scales_save_the_search_for_them():
    gpu = load_catalog().gpus["h100-sxm"]
    rows = kernels_of(gpu, "trtllm")
    shape = Shape(np.array([64.0, 4096.0]), np.array([8192.0] * 2), np.array([8192.0] * 2))
    known, found = (
        gemm_seconds(shape, rows.gemm("fp8", **how)[0], rows.speeds, 2.0, 1.0, quantise=True)
        for how in ({"static": True}, {"apart": True})
    )
    assert (known < found).all()
    assert rows.gemm("bf16", static=True) == rows.gemm("bf16")


def test_requests_pass_the_frontend_one_by_one():
    table = flat_table(step=0.01, request=0.004, intake=0.002)
    run = simulate(requests(np.zeros(5), 10, 3), one_replica(table), "interpreted")
    assert run.queued == pytest.approx(0.004 + 0.002 * np.arange(5))


def test_a_request_that_comes_during_a_step_misses_the_next_one_too():
    # steps of 10 ms; the second request comes in the middle of the third
    work = requests([0.0, 0.025], 10, 10)
    first = {
        ahead: simulate(work, one_replica(flat_table(step=0.01), ahead=ahead), "interpreted").first[1]
        for ahead in (False, True)
    }
    assert first[False] == pytest.approx(0.04)
    assert first[True] == pytest.approx(0.05)
    # an engine with nothing to do begins at once
    late = requests([0.0, 1.005], 10, 10)
    assert simulate(late, one_replica(flat_table(step=0.01), ahead=True), "interpreted").first[
        1
    ] == pytest.approx(1.015)


def test_a_card_with_rows_of_its_own_takes_the_others_of_its_kin():
    gpus = load_catalog().gpus
    own, kin = kernels_of(gpus["rtx-4090"], "vllm"), kernels_of(gpus["l40s"], "vllm")
    assert own.exact
    assert own.gemm("bf16")[0] != kin.gemm("bf16")[0]
    reached = {name: getattr(own.gemm("fp8")[0], name) for name in ("compute", "depth", "square", "small")}
    assert replace(kin.gemm("fp8")[0], **reached) == own.gemm("fp8")[0]  # of tensor cores that are cut
    assert own.attention("decode", "bf16") != kin.attention("decode", "bf16")
    assert replace(kin.experts("bf16")[0], compute=own.experts("bf16")[0].compute) == own.experts("bf16")[0]


def test_gpus_of_pcie_4_do_not_meet_faster_than_it():
    from railwright.collectives.predict import sweep
    from railwright.traffic.demand import Communicator

    eight = [Communicator(np.arange(8, dtype=np.int32), "tp")]
    size = 2.0**28
    seconds = sweep(published_machine("L40S", 8, None), "all_reduce", (size,), eight)[0].time
    busbw = size / seconds * 2 * 7 / 8
    assert 0.5 * 31.5e9 < busbw < 31.5e9


def test_vllm_keeps_what_one_gpu_needs_free_and_more_for_groups():
    gpu, arch = load_catalog().gpus["rtx-4090"], load_model("llama-3.1-8b")
    engine = engines()["vllm-2026"]
    asked = job("vllm-2026").model_copy(update={"max_requests": 256, "max_batched_tokens": 2048})
    found = engine_memory(asked, arch, engine, gpu)
    # 0.9 of the memory, less 8.03 billion weights in bf16, 256 rows of 128,256 logits, and the reserve
    room = 0.9 * gpu.hbm_bytes - found.weights - 256 * 128256 * 26 - 0.3e9
    assert found.kv == pytest.approx(room)
    none = replace(engine, reserve_group=0.0)
    two = ServingLayout(tensor=2)
    assert engine_memory(asked, arch, none, gpu, two).kv - engine_memory(
        asked, arch, engine, gpu, two
    ).kv == (pytest.approx(1.2e9))


def test_a_collective_between_two_tabulated_sizes_takes_its_share():
    # at hundreds of MB an all-reduce takes as long as its bytes: between 128 and 512 MiB, too
    machine = published_machine("H100", 8, None)
    place = Place(machine, engines()["vllm-2023"], kernels_of(machine.gpu, "vllm"), 0)
    sizes = np.array([2.0**27, 2.0**28, 2.0**29, 2.0**30])
    times = nccl_seconds(place, "all_reduce", 8, sizes)
    assert times / sizes == pytest.approx(times[-1] / sizes[-1], rel=0.05)
    assert nccl_seconds(place, "all_reduce", 1, sizes) == pytest.approx(0.0)


def test_prompts_of_a_plan_meet_over_pcie_at_its_bus_bandwidth():
    machine, arch = published_machine("L40S", 8, None), load_model("llama-2-70b")
    client = Client(kind="closed-loop", concurrency=8, input=2048, output=128)
    asked = ServingJob(
        name="x",
        model="llama-2-70b",
        weights="fp8",
        kv="fp8",
        engine="trtllm-2024-static",
        layout=ServingLayout(tensor=8),
        client=client,
    )
    bus = prompt_bus(engines()["trtllm-2024-static"], machine.gpu)
    assert bus > 0 == prompt_bus(engines()["trtllm-2025"], machine.gpu)
    one, eight = (
        step_parts(asked, arch, machine, decoding=0, context=0, prefill=((2048, 0),) * n) for n in (1, 8)
    )
    # 161 all-reduces of 8,192 bf16 values a token; what they take for no bytes does not grow
    more = 161 * 7 * 2048 * 8192 * 2 * (2 * 7 / 8) / bus
    assert eight.parts["collectives"] - one.parts["collectives"] == pytest.approx(more, rel=1e-9)
