"""What-ifs of jobs that run parts of their layers kernel by kernel (`unfused`)."""

from __future__ import annotations

import pytest

from railwright.training import simulate
from railwright.training.whatif.changes import what_ifs
from training_cases import MOE, job, machine


def test_fused_kernels_are_a_job_without_unfused_but_for_experts() -> None:
    parts = ("rotary", "norm", "activation", "experts")
    plan = job(gpus=8, zero=3).model_copy(update={"software": "fsdp-2024-eager", "unfused": parts})
    steps = {one.name: one.step for one in what_ifs(plan, MOE, machine()) if one.step is not None}
    looped = plan.model_copy(update={"unfused": ("experts",)})
    grouped = plan.model_copy(update={"unfused": parts[:3]})
    assert steps["Kernels fused"].step_time == simulate(looped, MOE, machine()).step_time
    assert steps["Experts grouped"].step_time == simulate(grouped, MOE, machine()).step_time
    assert steps["Kernels fused"].step_time < simulate(plan, MOE, machine()).step_time


@pytest.mark.parametrize(
    ("software", "unfused"),
    [
        ("fsdp-2024-eager", ()),
        ("fsdp-2024-eager", ("experts",)),
        ("fsdp-2024-eager", ("loss",)),  # an eager era has no fused one
        ("fsdp-2025", ("norm", "activation")),  # torch.compile fuses them anyway
    ],
)
def test_what_is_fused_anyway_is_not_asked_of(software: str, unfused: tuple[str, ...]) -> None:
    plan = job(gpus=8, zero=3).model_copy(update={"software": software, "unfused": unfused})
    assert "Kernels fused" not in {one.name for one in what_ifs(plan, MOE, machine())}
