"""torchao's casts against what its authors measured: four linear layers, and three runs of Llama 3 8B.

None of these is among the training records, and no factor was fitted to them.
"""

from __future__ import annotations

import pytest

from railwright.catalog import load_catalog
from railwright.compute.profile import profile_of
from railwright.compute.time import kernel_times
from railwright.measure.machines import published_machine
from railwright.measure.training_models import architectures
from railwright.model.kernels import linear
from railwright.model.operators import LayerOperators
from railwright.spec.training import Layout, TrainingJob
from railwright.training import simulate
from railwright.training.casts import with_casts

GPU = load_catalog().gpus["h100-sxm-96"]

LINEARS = {
    "output projection, qkv": ((16384, 8192, 1280), 1.757e-3),
    "output projection, out": ((16384, 1024, 8192), 1.193e-3),
    "output projection, up": ((16384, 8192, 7168), 5.707e-3),
    "output projection, down": ((16384, 3584, 8192), 3.034e-3),
}
"""Rows, inputs and outputs, and seconds of one linear layer forward and backward, fp8 with a scale per row.
Source: torchao pull request 2185, "tensorwise w/ rescale", fast accumulation (2025-05-08)."""

RUNS = {"bf16": 6150.0, "fp8": 7689.5, "fp8_rowwise": 6768.0}
"""Tokens/s and GPU of Llama 3 8B on 8 H100, FSDP2, one sequence of 8,192 tokens each, selective checkpoints.
Source: torchao documentation, workflows/training (torchao 0.10, PyTorch 2.7)."""


def run(dtype: str, **layout: object) -> TrainingJob:
    return TrainingJob(
        name="torchao",
        model="llama3-8b",
        gpus=8,
        sequence=8192,
        global_batch=8,
        tokens=1e9,
        dtype=dtype,  # type: ignore[arg-type]
        layout=Layout(zero=3, recompute="selective", recompute_modules=("ops",), **layout),  # type: ignore[arg-type]
        software="fsdp-2024",
    )


def seconds(dtype: str) -> float:
    result = simulate(
        run(dtype), architectures()["llama3-8b"], published_machine("H100-96", 8, None), must_fit=False
    )
    return result.step_time


@pytest.mark.parametrize("name", LINEARS)
def test_a_linear_layer_takes_what_was_measured(name: str) -> None:
    (rows, inputs, outputs), measured = LINEARS[name]
    block = linear("output projection", rows, outputs, inputs, "fp8_rowwise")
    bare = LayerOperators((block.forward,), block.backward_input, block.backward_weight, ())
    cast = with_casts(bare, run("fp8_rowwise"), gated=False)
    operators = (*cast.forward, *cast.backward_input, *cast.backward_weight)
    # the one that nothing but casts decides is 19 % too long: they reach 92 % of the memory's rate there,
    # and 80 % in our model, as the memory-bound products that it was fitted on
    assert kernel_times(operators, GPU, profile_of(GPU)) == pytest.approx(measured, rel=0.20)


@pytest.mark.parametrize("dtype", RUNS)
def test_whole_steps(dtype: str) -> None:
    assert seconds(dtype) == pytest.approx(8192 / RUNS[dtype], rel=0.10)


def test_recipes_stand_to_each_other_as_measured() -> None:
    plain, tensor, row = (seconds(dtype) for dtype in RUNS)
    assert plain / tensor == pytest.approx(7689.5 / 6150.0, rel=0.03)
    assert row / tensor == pytest.approx(7689.5 / 6768.0, rel=0.03)
