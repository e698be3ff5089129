"""Losses that take the head's product in chunks of tokens: kernels, memory and advice, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from railwright.errors import PlanError
from railwright.model import head_operators, load_model
from railwright.model.operators.layer import LayerOperators
from railwright.model.operators.loss_chunks import ChunkedLoss, chunk_rows, in_chunks
from railwright.model.shape.architecture import Operator
from railwright.spec.lora import Lora
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.checks.fitting import check_memory
from railwright.training.memory.cached import cached
from railwright.training.memory.chunked_kept import chunk_gradient
from railwright.training.memory.end_activations import head_backward, head_waiting
from railwright.training.memory.peak import SYSTEM, peak_memory
from training_cases import DENSE, changed, job, machine

HOW: tuple[ChunkedLoss, ...] = ("torchtune", "torchtitan", "liger")
ROWS = 8192
HEAD = head_operators(DENSE, ROWS)


def flat(operators: LayerOperators) -> list[Operator]:
    return [*operators.forward, *operators.backward_input, *operators.backward_weight]


def products(operators: LayerOperators) -> list[Operator]:
    return [op for op in flat(operators) if op.kind == "gemm"]


def asked(how: str | None, software: str = "fsdp-2025", **more: Any) -> TrainingJob:
    fields = {"software": software, "chunked_loss": how} | more
    return changed(job(sequence=1024, zero=3), **fields)


def logits_of(how: str | None, software: str = "fsdp-2025", **more: Any) -> float:
    """Bytes of logits at the fullest moment of a frozen head, without the inputs of norm and head."""
    parts = head_backward(asked(how, software, lora=Lora(rank=8), **more), DENSE, 0.0)
    return parts["logits"] - 2 * 2 * 1024 * DENSE.hidden


def test_ligers_chunks_are_powers_of_two_that_take_as_much_as_hidden_states() -> None:
    # its source's example: 16,384 rows, 32,000 words, width 4,096: ceil(32000 / 4096) = 8 chunks of 2,048
    assert chunk_rows("liger", 16384, None, 32000, 4096) == (2048,) * 8
    # Llama 3 8B: ceil(128256 / 4096) = 32; ceil(10000 / 32) = 313, up to 512: 19 of them and 272
    assert chunk_rows("liger", 10000, None, 128256, 4096) == (512,) * 19 + (272,)


def test_others_are_as_even_as_can_be_and_eight() -> None:
    assert chunk_rows("torchtune", 1003, None, 1, 1) == (126, 126, 126, *(125,) * 5)
    assert chunk_rows("torchtitan", 1024, 4, 1, 1) == (256,) * 4
    assert chunk_rows("torchtune", 3, 8, 1, 1) == (1, 1, 1)


@pytest.mark.parametrize("how", HOW)
def test_chunks_multiply_as_much_as_the_whole(how: ChunkedLoss) -> None:
    """FLOPs and rows are conserved: forward, to the input and to the weight."""
    rows = chunk_rows(how, ROWS, 8, DENSE.vocab, DENSE.hidden)
    found = products(in_chunks(HEAD, how, rows))
    assert sum(op.flops for op in found) == pytest.approx(sum(op.flops for op in products(HEAD)))
    assert len(found) == 3 * len(rows)
    assert sorted({op.phase for op in found}) == ["backward_input", "backward_weight", "forward"]


@pytest.mark.parametrize("how", ["torchtune", "torchtitan"])
def test_one_chunk_is_the_whole(how: ChunkedLoss) -> None:
    def shapes(operators: LayerOperators) -> list[tuple[object, ...]]:
        return [(op.m, op.n, op.k, op.bytes, op.flops) for op in products(operators)]

    assert shapes(in_chunks(HEAD, how, (ROWS,))) == shapes(HEAD)


@pytest.mark.parametrize("how", HOW)
def test_the_loss_passes_over_as_many_logits(how: ChunkedLoss) -> None:
    """Liger's forward kernel writes the gradient, so that nothing passes over them backward."""

    def moved(operators: LayerOperators) -> float:
        return sum(op.bytes for op in flat(operators) if op.name.startswith("softmax and loss"))

    whole = HEAD if how != "liger" else replace(HEAD, backward_input=())
    rows = chunk_rows(how, ROWS, 8, DENSE.vocab, DENSE.hidden)
    assert moved(in_chunks(HEAD, how, rows)) == pytest.approx(moved(whole))


def test_every_further_chunk_adds_its_gradient_of_the_weight() -> None:
    """torchtune 6 bytes a weight by autograd beside the 2 that the product writes, torchtitan 10 by FSDP;
    Liger's product reads 2 and writes 2."""
    weights = DENSE.hidden * head_operators(DENSE, 1).forward[1].n
    for how, each in (("torchtune", 8.0), ("torchtitan", 12.0), ("liger", 4.0)):
        few, many = (
            sum(op.bytes for op in flat(in_chunks(HEAD, how, (ROWS // n,) * n)))  # type: ignore[arg-type]
            for n in (4, 8)
        )
        again = 2 * 2.0 * weights  # the head's weight is read once more forward, and for the input's gradient
        assert (many - few) / 4 == pytest.approx(each * weights + again)


@pytest.mark.parametrize(("how", "ahead"), [("torchtune", False), ("torchtitan", True), ("liger", True)])
def test_whose_gradients_are_made_in_the_forward_pass(how: ChunkedLoss, ahead: bool) -> None:
    found = in_chunks(HEAD, how, (ROWS // 8,) * 8)
    backward = [op for op in (*found.backward_input, *found.backward_weight) if op.kind == "gemm"]
    assert bool(backward) != ahead


@pytest.mark.parametrize("how", HOW)
def test_a_frozen_head_has_no_gradient(how: ChunkedLoss) -> None:
    frozen = replace(HEAD, backward_weight=())
    found = products(in_chunks(frozen, how, (ROWS // 8,) * 8))
    assert len(found) == 16
    assert {op.phase for op in found} == {"forward", "backward_input"}
    wanted = asked(how, lora=Lora(rank=8))
    assert sum(chunk_gradient(wanted, 8, 1e6, waits=False)) == 0


def test_what_is_held_of_the_logits() -> None:
    """1,024 tokens of 32,000 words, in eighths; Liger's in chunks of 32, of which two are there."""
    one = 1024 * 32000
    assert logits_of(None) == 4 * one
    # compiled: all logits in 16 bits, and a chunk's gradient; not: the log-softmax of all, and 8 of a chunk
    assert logits_of("torchtune") == (2 + 2 / 8) * one
    assert logits_of("torchtune", "fsdp-2024-eager") == (4 + 8 / 8) * one
    # one chunk's logits and gradient; not compiled 12 as the whole loss, and the logits, which have a name
    assert logits_of("torchtitan") == 4 / 8 * one
    assert logits_of("torchtitan", "fsdp-2024") == 14 / 8 * one
    assert logits_of("torchtitan", loss_chunks=32) == 4 / 32 * one
    assert logits_of("liger", "fsdp-2024-eager") == (2 + 2) / 32 * one


def test_one_chunk_holds_what_the_whole_loss_does() -> None:
    for software in ("fsdp-2025", "fsdp-2024-eager"):
        assert logits_of("torchtune", software, loss_chunks=1) == logits_of(None, software)
    assert logits_of("torchtitan", loss_chunks=1) == logits_of(None)


def test_between_the_passes_nothing_waits_where_a_chunk_has_run_backward() -> None:
    inputs = 2 * 2 * 1024 * DENSE.hidden
    assert head_waiting(asked("torchtune"), DENSE) == inputs + 2 * 1024 * 32000
    assert head_waiting(asked("torchtitan"), DENSE) == inputs
    assert head_waiting(asked("liger"), DENSE) == inputs


@pytest.mark.parametrize("how", [None, *HOW])
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("lora", [None, Lora(rank=8)])
def test_the_allocator_is_asked_for_what_the_sums_say(how: str | None, zero: int, lora: Lora | None) -> None:
    """Two walks that share no line: parts at the fullest moment, and requests chunk by chunk."""
    wanted = changed(
        job(sequence=4096, zero=zero, recompute="full"), software="fsdp-2025", chunked_loss=how, lora=lora
    )
    arch, fabric = replace(DENSE, vocab=128256), machine(4).network.fabric
    memory, held = peak_memory(wanted, arch, fabric, 80e9), cached(wanted, arch, fabric, 0)
    assert held is not None
    # a rank's own part of what is gathered is not counted
    assert held.allocated == pytest.approx(memory.total - memory.parts[SYSTEM], rel=0.015)


def test_steps_of_many_small_chunks_take_longer() -> None:
    """Compute only: the same products in pieces that read the head's weight again."""
    arch = load_model("llama3-8b")
    whole, eight, many = (
        simulate(
            changed(asked("torchtitan"), sequence=8192, loss_chunks=n), arch, machine(4), must_fit=False
        ).step_time
        for n in (1, 8, 256)
    )
    assert whole < eight < many
    assert eight < 1.05 * whole


def test_a_job_that_does_not_fit_is_told_of_its_softwares_chunks() -> None:
    wanted = changed(asked(None, "fsdp-2024"), sequence=65536, layout=asked(None).layout)
    one = machine(4)
    capacity = peak_memory(changed(wanted, chunked_loss="torchtitan"), DENSE, one.network.fabric, 1e12).total
    with pytest.raises(PlanError, match=r"With chunked_loss: torchtitan, under which never all logits"):
        check_memory(wanted, DENSE, one.network.fabric, 1.01 * capacity, one.server)
