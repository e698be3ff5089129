"""More layers computed again never make a step shorter, and never need more than one more hidden state."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.model.operators.kernels import ELEMENT
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import peak_memory, simulate
from railwright.training.checks.plan import check
from railwright.training.lanes.result import StepResult
from search_cases import ALTERNATING
from training_cases import DENSE, MOE, job, machine

ONE = machine(2)


def of(layers: int, wanted: TrainingJob) -> TrainingJob:
    """The job with so many layers of every piece computed again; 0 is none."""
    return wanted.model_copy(
        update={"layout": wanted.layout.model_copy(update={"recompute_layers": layers, "recompute": "full"})}
    )


@settings(max_examples=40)
@given(
    arch=st.sampled_from([DENSE, MOE, ALTERNATING]),
    tensor=st.sampled_from([1, 2]),
    pipeline=st.sampled_from([1, 2, 4]),
    chunks=st.sampled_from([1, 2]),
    schedule=st.sampled_from(["auto", "gpipe", "zb-h1", "zb-v"]),
    zero=st.sampled_from([0, 1, 3]),
    hidden=st.booleans(),
)
def test_time_grows_and_memory_falls_with_the_layers_that_run_again(
    arch: Transformer, tensor: int, pipeline: int, chunks: int, schedule: str, zero: int, hidden: bool
) -> None:
    wanted = job(
        batch=32,
        tensor=tensor,
        sequence_parallel=tensor > 1,
        pipeline=pipeline,
        virtual_pipeline=chunks,
        schedule=schedule,
        zero=zero,
        expert=2 if arch.is_moe else 1,
        overlap=Overlap(tp=hidden and tensor > 1, dp=hidden),
    )
    steps: list[StepResult] = []
    sizes: list[float] = []
    for layers in range(9):
        try:
            if layers:
                check(of(layers, wanted), arch, ONE.network.fabric)
            steps.append(simulate(of(layers, wanted), arch, ONE, most_events=0) if layers else
                         simulate(wanted, arch, ONE, most_events=0))  # fmt: skip
        except PlanError:
            break
        again = of(layers, wanted) if layers else wanted
        sizes.append(peak_memory(again, arch, ONE.network.fabric, 80e9).total)
    assume(len(steps) > 1)
    times = [step.step_time for step in steps]
    assert all(b >= a * (1 - 1e-9) for a, b in pairwise(times)), times
    entry = ELEMENT * 1024 * arch.hidden
    assert all(b <= a + entry for a, b in pairwise(sizes)), sizes
    assert sizes[-1] == pytest.approx(min(sizes), abs=entry)
