"""Kernels that take longer never make a step shorter, wherever launches begin or end to be what a pass waits
for: layers of every kind, compiled and not, with what is gathered ahead of the host, and
weights that lie there."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.software.eras import Pace
from search_cases import ALTERNATING, LATENT
from training_cases import BLOCKS, DELTA, DENSE, MIXED, MOE, changed, job, machine, priced

SOFTWARE = ("megatron-2025", "megatron-2022", "deepspeed-2024", "fsdp-2024-eager", "fsdp-2025")
SCALES = (1.0, 4.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0, 32.0, 64.0)
"""Microseconds that a kernel takes: the host launches one in 9 to 47 of them."""


@st.composite
def jobs(draw: st.DrawFn) -> tuple[TrainingJob, Transformer]:
    """Jobs on 8 GPUs."""
    arch = draw(st.sampled_from([DENSE, MOE, ALTERNATING, LATENT, BLOCKS, DELTA, MIXED]))
    pipeline = draw(st.sampled_from([1, 2]))
    expert = draw(st.sampled_from([1, 2])) if arch.is_moe else 1
    looped = arch.is_moe and expert == 1 and draw(st.booleans())
    zero = draw(st.sampled_from([0, 1, 3]))
    software = draw(st.sampled_from(SOFTWARE))
    held = zero == 3 and not software.startswith("megatron") and draw(st.booleans())
    one = job(
        gpus=8,
        batch=draw(st.sampled_from([1, 4])) * 8,
        pipeline=pipeline,
        virtual_pipeline=draw(st.sampled_from([1, 2])) if pipeline > 1 else 1,
        expert=expert,
        zero=zero,
        offload=("weights",) if held else (),
        recompute=draw(st.sampled_from(["none", "full"])),
        overlap=Overlap(dp=draw(st.booleans()), prefetch=draw(st.integers(0, 3)) if zero == 3 else 1),
    )
    return changed(one, software=software, unfused=("experts",) if looped else ()), arch


@settings(max_examples=60)
@given(jobs(), st.sampled_from([0.0, 50e9]))
def test_longer_kernels_never_make_a_step_shorter(
    drawn: tuple[TrainingJob, Transformer], bandwidth: float
) -> None:
    wanted, arch = drawn

    def step(each: float) -> float:
        def kernel(operator: Operator) -> float:
            return each * 1e-6 * max(operator.launches, 1)

        on = {"predict": priced(bandwidth), "pace": Pace(), "must_fit": False, "most_events": 0}
        return simulate(wanted, arch, machine(1), kernel=kernel, **on).step_time  # type: ignore[arg-type]

    try:
        takes = [step(each) for each in SCALES]
    except PlanError:
        assume(False)
    # what ends earlier may have run beside compute, which it slows, instead of beside a wait
    assert all(later >= sooner * (1 - 1e-3) for sooner, later in pairwise(takes))
    # no more is waited for at once than launches and kernels take one after the other
    assert all(
        later <= sooner * longer / shorter * (1 + 1e-3)
        for (sooner, later), (shorter, longer) in zip(pairwise(takes), pairwise(SCALES), strict=True)
    )
