"""Casts of torch.compile: bytes per element as torchao's roofline counts them, and what travels in fp8."""

from __future__ import annotations

import pytest

from railwright.model import layer_operators
from railwright.model.operators.kernels import linear
from railwright.model.operators.layer import LayerOperators
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.layers.casts import ROWWISE_PRODUCT, compiled_casts, narrow_gathers, with_casts
from railwright.training.software.formats import amax_over
from training_cases import DENSE, MOE, job, machine

ROWS, INPUTS, OUTPUTS = 1000, 300, 70


def torchao(dtype: str, **layout: object) -> TrainingJob:
    return job(dtype=dtype, **layout).model_copy(update={"software": "fsdp-2024"})


def moved(dtype: str, name: str = "output projection", **layout: object) -> float:
    """Bytes that the casts of one linear layer move, forward and backward."""
    block = linear(name, ROWS, OUTPUTS, INPUTS, dtype)
    bare = LayerOperators((block.forward,), block.backward_input, block.backward_weight, ())
    cast = with_casts(bare, torchao(dtype, **layout), gated=False)
    operators = (*cast.forward, *cast.backward_input, *cast.backward_weight)
    return sum(op.bytes for op in operators if op.kind == "memory")


def test_bytes_of_a_linear_layer() -> None:
    x, y, w = ROWS * INPUTS, ROWS * OUTPUTS, INPUTS * OUTPUTS
    # roofline_utils.py: rowwise 8, 8 and 10 bytes per element of input, gradient and weight; addmm: 4 to
    # scale each result of the backward pass
    assert moved("fp8_rowwise") == 8 * x + 8 * y + 10 * w + 4 * (x + w)
    # the weight is cast before FSDP gathers it: only its other layout is made
    assert moved("fp8") == 6 * x + 6 * y + 2 * w


def test_parts_that_are_gathered_in_fp8_are_cast_before() -> None:
    x, y, w = ROWS * INPUTS, ROWS * OUTPUTS, INPUTS * OUTPUTS
    over = {"tensor": 4, "sequence_parallel": True}
    assert moved("fp8", "qkv projection", **over) == pytest.approx(4 * x / 4 + 2 * x + 6 * y + 2 * w)
    assert moved("fp8", **over) == pytest.approx(6 * x + 5 * y / 4 + 2 * y + 2 * w)
    assert moved("fp8_rowwise", **over) == moved("fp8_rowwise")


@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "experts"])
@pytest.mark.parametrize("dtype", ["fp8", "fp8_rowwise"])
def test_products_stay_and_every_gradient_keeps_its_operator(arch: object, dtype: str) -> None:
    layer = "moe" if arch is MOE else "dense"
    before = layer_operators(arch, layer, 1024, 1024, dtype=dtype, modules=("mlp",))  # type: ignore[arg-type]
    after = with_casts(before, torchao(dtype), gated=True)
    names = {op.name for op in after.forward}
    for op in (*after.backward_input, *after.backward_weight):
        assert op.name.rsplit(", ", 1)[0] in names
    for one, other in (
        (before.backward_input, after.backward_input),
        (before.backward_weight, after.backward_weight),
    ):
        assert [op for op in one if op.kind != "memory"] == [op for op in other if op.kind != "memory"]
    longer = ROWWISE_PRODUCT if dtype == "fp8_rowwise" else 1.0
    flops = [
        [op.flops for op in side.forward if op.kind == "gemm" and op.dtype == dtype]
        for side in (before, after)
    ]
    assert flops[1] == pytest.approx([longer * f for f in flops[0]])


def test_who_casts_and_what_travels_narrow() -> None:
    assert compiled_casts(torchao("fp8"))
    assert compiled_casts(job(dtype="fp8_rowwise"))  # no other software has it
    assert not compiled_casts(job(dtype="fp8"))
    assert not compiled_casts(torchao("bf16"))
    assert narrow_gathers(torchao("fp8")) == 0.5
    assert narrow_gathers(torchao("fp8_rowwise")) == narrow_gathers(job(dtype="fp8")) == 1.0


def test_gathered_volumes() -> None:
    def gathered(dtype: str) -> float:
        wanted = torchao(dtype, tensor=4, sequence_parallel=True)
        used = simulate(wanted, DENSE, machine(1)).collectives
        return next(c.prediction.size for c in used if c.purpose == "tp all-gather")

    assert gathered("fp8") == gathered("bf16") / 2
    assert gathered("fp8_rowwise") == gathered("bf16")


def test_a_scale_per_row_takes_longer_and_agrees_on_nothing() -> None:
    long = {"sequence": 4096, "micro_batch": 4}
    times = [
        simulate(
            torchao(d).model_copy(update={**long, "cuda_graphs": ("step",)}), DENSE, machine(1)
        ).step_time
        for d in ("fp8", "fp8_rowwise")
    ]
    assert times[0] < times[1]
    assert amax_over(job(dtype="fp8_rowwise").model_copy(update={"amax_over": "stage"})) == "none"
