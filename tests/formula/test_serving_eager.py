"""Prompts in eager PyTorch of 2023: who waits for launches, and what collectives' buffers hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from railwright.measure.machines import published_machine
from railwright.model import load_model
from railwright.serving.engine import profiles
from railwright.serving.engine.held import CONTEXT, emptying_seconds, held_bytes, room_bytes
from railwright.serving.engine.memory import engine_memory
from railwright.serving.engine.pace import eager_row, prompt_pace
from railwright.serving.engine.step import StepParts, stage_of, step_parts, sum_of, tabulate
from railwright.spec.serving import Client, ServingJob, ServingLayout

ARCH = load_model("llama-2-70b")
LAYERS, HIDDEN, RANKS = 80, 8192, 8


def job(tensor: int = RANKS, engine: str = "vllm-2023", tokens: int = 8192) -> ServingJob:
    client = Client(kind="closed-loop", concurrency=16, input=512, output=128)
    layout = ServingLayout(tensor=tensor)
    settings = {"max_batched_tokens": tokens, "max_requests": 16}
    return ServingJob(name="x", model="llama-2-70b", engine=engine, layout=layout, client=client, **settings)


def prompts(count: int, tensor: int = RANKS, engine: str = "vllm-2023") -> StepParts:
    """A step of so many prompts of 512 tokens."""
    machine = published_machine("H100", RANKS, None)
    return step_parts(job(tensor, engine), ARCH, machine, decoding=0, context=0, prefill=((512, 0),) * count)


def test_buffers_are_held_until_their_collective_has_run() -> None:
    machine = published_machine("H100", RANKS, None)
    stage = stage_of(job(), ARCH, machine, None)
    # 13 launches of 15 us, attention's 120 us and two collectives of 40 us a layer
    host = LAYERS * (13 * 15e-6 + 120e-6 + 2 * 40e-6)
    every = (2 * LAYERS + 1) * 4096 * HIDDEN * 2
    for times in (1.0, 2.0, 10.0):
        held = held_bytes(stage, np.array([4096.0]), np.array([times * host]))
        assert held == pytest.approx(every * (1 - 1 / times))
    memory = engine_memory(job(), ARCH, profiles.engines()["vllm-2023"], machine.gpu)
    left = 0.1 * machine.gpu.hbm_bytes - CONTEXT
    assert room_bytes(stage, memory) == pytest.approx(left + memory.working)
    # nothing is counted twice: weights, cache, activations, context and what is left fill the GPU
    filled = memory.weights + memory.kv + room_bytes(stage, memory) + CONTEXT
    assert filled == pytest.approx(memory.capacity)


def test_memory_is_emptied_where_the_buffers_outgrow_it() -> None:
    machine = published_machine("H100", RANKS, None)
    # 161 buffers of 33.5 MB fit beside an 80 GB card's other tenants, of 67 MB they do not
    assert prompts(4).parts["memory"] == 0.0
    step = prompts(8)
    kernels = sum(v for k, v in step.parts.items() if k not in ("launches", "memory", "prefill attention"))
    stage = stage_of(job(), ARCH, machine, None)
    held = float(held_bytes(stage, np.array([4096.0]), np.array([kernels]))[0])
    assert step.parts["memory"] == pytest.approx(RANKS * eager_row(machine.gpu)["emptying"] * held)
    # fewer ranks hold as much and empty it less often; one has no collectives, later engines hold nothing
    assert prompts(8, tensor=4).parts["memory"] == pytest.approx(step.parts["memory"] / 2, rel=0.1)
    assert "memory" not in prompts(8, engine="vllm-2024").parts
    memory = engine_memory(job(), ARCH, profiles.engines()["vllm-2023"], machine.gpu)
    alone = replace(stage, layout=ServingLayout(tensor=1))
    assert not emptying_seconds(alone, memory, np.array([1e6]), np.array([1e3])).any()


def test_the_table_holds_the_same_step() -> None:
    machine = published_machine("H100", RANKS, None)
    table = tabulate(job(), ARCH, machine)
    step = prompts(16)
    rows = sum(v for k, v in step.parts.items() if k != "prefill attention")
    at = int(np.searchsorted(table.tokens, 8192))
    attention = step.parts["prefill attention"] - 16 * np.interp(512, table.chunks, table.prefill[:, 0])
    assert table.mixed_rows[at] == pytest.approx(rows + attention, rel=2e-3)


def test_collectives_of_long_prompts_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = {count: prompts(count) for count in (1, 4)}
    known = profiles.engines()
    monkeypatch.setitem(known, "vllm-2023", replace(known["vllm-2023"], collective_wait=0.0))
    # kernels of 2,048 tokens outlast their launches, those of 512 do not: 161 x 43 us x (1/2 + ... + 1/8)
    assert prompts(4).total == pytest.approx(waiting[4].total)
    late = (2 * LAYERS + 1) * 43e-6 * sum(1 / n for n in range(2, RANKS + 1))
    kernels = sum_of({k: np.array(v) for k, v in prompts(1).parts.items() if k != "launches"})
    assert waiting[1].parts["launches"] > 0
    gained = waiting[1].total - prompts(1).total
    assert 0 < gained <= late + 1e-9
    assert kernels == pytest.approx(waiting[1].total - waiting[1].parts["launches"] - waiting[1].host)


def test_the_pace_is_the_generations() -> None:
    eager = profiles.engines()["vllm-2023"]
    gpus = {name: published_machine(name, 1, None).gpu for name in ("H100", "H200", "A100", "L40S")}
    paces = {name: prompt_pace(eager, gpu, "bf16") for name, gpu in gpus.items()}
    assert paces["H100"] == paces["H200"] > paces["A100"] > 1.0 == paces["L40S"]
    assert prompt_pace(profiles.engines()["vllm-2025"], gpus["H100"], "bf16") == 1.0
