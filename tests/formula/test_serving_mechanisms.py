"""Mechanisms of single engines and cards, each against its own arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.measure.machines import machine_of
from railwright.model import load_model
from railwright.serving.constants import kernels_of
from railwright.serving.memory import engine_memory
from railwright.serving.operators import ONE_BLOCK
from railwright.serving.profiles import engines
from railwright.serving.step import step_parts
from railwright.spec.serving import Client, ServingJob, ServingLayout


def job(engine: str, tensor: int = 1, model: str = "llama-3.1-8b") -> ServingJob:
    client = Client(kind="closed-loop", concurrency=8, input=1024, output=128)
    return ServingJob(
        name="x", model=model, engine=engine, layout=ServingLayout(tensor=tensor), client=client
    )


def test_a_context_that_is_not_split_is_streamed_by_one_block():
    # Llama 3 70B over 8 GPUs: one head of keys and values, 512 bytes a token, 80 layers;
    # so 8,000 more tokens of one request take 8000 * 512 / 50e9 * 80 layers
    arch, machine = load_model("llama-3.1-70b"), machine_of("H100", 8, None)
    asked = job("trtllm-2024", 8, "llama-3.1-70b")
    seen = [
        step_parts(asked, arch, machine, decoding=1, context=c).parts["decode attention"]
        for c in (4000, 12000)
    ]
    assert seen[1] - seen[0] == pytest.approx(8000 * 512 / ONE_BLOCK * 80, rel=1e-9)
    # a batch that fills the GPU is bound by memory, whichever way contexts are dealt
    full = [
        step_parts(job(e, 1, "llama-3.1-8b"), load_model("llama-3.1-8b"), machine, decoding=256, context=4000)
        for e in ("trtllm-2024", "trtllm-2025")
    ]
    split, whole = (f.parts["decode attention"] for f in full)
    assert whole == pytest.approx(split, rel=0.35)


def test_a_card_with_rows_of_its_own_takes_the_others_of_its_kin():
    gpus = load_catalog().gpus
    own, kin = kernels_of(gpus["rtx-4090"], "vllm"), kernels_of(gpus["l40s"], "vllm")
    assert own.exact
    assert own.gemm("bf16")[0] != kin.gemm("bf16")[0]
    assert own.gemm("fp8")[0] == kin.gemm("fp8")[0]
    assert own.attention("decode", "bf16") != kin.attention("decode", "bf16")
    assert own.experts("bf16")[0] == kin.experts("bf16")[0]


def test_gpus_of_pcie_4_do_not_meet_faster_than_it():
    from railwright.collectives.predict import sweep
    from railwright.traffic.demand import Communicator

    eight = [Communicator(np.arange(8, dtype=np.int32), "tp")]
    size = 2.0**28
    seconds = sweep(machine_of("L40S", 8, None), "all_reduce", (size,), eight)[0].time
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
