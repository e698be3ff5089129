"""Layers that are not attention: what a job or an engine cannot do with them is refused, with what works."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.errors import PlanError
from railwright.model import load_model
from railwright.serving.engine.step import check_layout
from railwright.spec.serving import ServingLayout
from railwright.training import simulate
from railwright.training.checks.plan import check
from serving_jobs import job as serving_job
from training_cases import BLOCKS, DELTA, DENSE, KIMI, LIGHTNING, changed, job, machine
from training_laws import adds_up

FABRIC = machine(2).network.fabric


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (job(context=16), r"layout.context 16 swaps tokens for the 24 heads.*1, 2, 3, 4, 6, 8, 12, 24 work"),
        (job(context=4), r"context 4 cannot share the 6 heads of keys.*1, 2, 3, 6, 12, 24 work"),
        (job(tensor=4), r"case: layout.tensor 4 does not divide the 6 heads of keys.*: 1, 2, 3, 6\."),
        (changed(job(), software="xla-2025"), "xla-2025 has no kernels for the linear layers"),
        (changed(job(), software="megatron-2021"), "megatron-2021 has no kernels"),
        (changed(job(), software="fsdp-2023"), "fsdp-2023 has no kernels"),
        (job(recompute="selective", recompute_modules=("ops",)), "'ops' is torchtitan's"),
    ],
)
def test_what_linear_layers_cannot_do(wanted: object, says: str) -> None:
    assert BLOCKS.linear is not None
    arch = replace(BLOCKS, linear=replace(BLOCKS.linear, heads=24, key_heads=6))
    with pytest.raises(PlanError, match=says):
        check(wanted, arch, FABRIC)  # type: ignore[arg-type]


@pytest.mark.parametrize("arch", [KIMI, LIGHTNING])
def test_linear_attention_is_split_over_data_and_stages_alone(arch: object) -> None:
    with pytest.raises(PlanError, match=r"case: layout.tensor 2 cannot cut the linear layers.*; use 1, with"):
        check(job(tensor=2), arch, FABRIC)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"no framework that is known here splits.*use context 1"):
        check(job(context=2), arch, FABRIC)  # type: ignore[arg-type]
    check(job(pipeline=2, expert=4), arch, FABRIC)  # type: ignore[arg-type]


@pytest.mark.parametrize("arch", [BLOCKS, DELTA])
def test_what_they_can(arch: object) -> None:
    """However they are cut, a step computes the same."""
    whole = simulate(job(), arch, machine(1), must_fit=False)  # type: ignore[arg-type]
    for layout in (
        {"context": 2, "tensor": 2},
        {"tensor": 2, "sequence_parallel": True, "pipeline": 2},
        {"zero": 3},
        {"recompute": "full"},
    ):
        step = simulate(job(**layout), arch, machine(1), must_fit=False)  # type: ignore[arg-type]
        adds_up(step)
        assert step.model_flops == whole.model_flops


def test_serving_them_is_refused_in_one_place() -> None:
    with pytest.raises(PlanError, match=r"nemotron-h-56b has layers without attention.*its training is"):
        check_layout(serving_job(), load_model("nemotron-h-56b"), ServingLayout())
    with pytest.raises(PlanError, match="how engines serve"):
        check_layout(serving_job(), load_model("qwen3-next-80b"), ServingLayout())
    check_layout(serving_job(), DENSE, ServingLayout())
