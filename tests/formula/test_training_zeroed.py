"""Megatron sets its sums of gradients to zero once a step (training.py, train_step: zero_grad_buffer)."""

from __future__ import annotations

import pytest

from railwright.model import count_parameters
from railwright.model.shape.architecture import Operator
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.software.eras import Pace
from training_cases import DENSE, changed, job, machine, priced

PARAMETERS = count_parameters(DENSE).total


def zeroed(wanted: TrainingJob) -> float:
    """Bytes that the kernel moves, read off a step that it makes longer by a second for 1e12 of them."""

    def step(seconds: float) -> float:
        def kernel(operator: Operator) -> float:
            return operator.bytes * seconds if operator.name == "gradients zeroed" else 1e-9

        free = {"predict": priced(0.0), "kernel": kernel, "pace": Pace(host=0.0)}
        return simulate(wanted, DENSE, machine(4), **free).step_time  # type: ignore[arg-type]

    return (step(1e-12) - step(0.0)) * 1e12


@pytest.mark.parametrize(
    ("wanted", "moved"),
    [
        (job(), 4 * PARAMETERS),
        (job(zero=0), 4 * PARAMETERS),
        (changed(job(), gradient_dtype="bf16"), 2 * PARAMETERS),
        (job(zero=2), 4 * PARAMETERS / 32),
        (job(zero=3), 4 * PARAMETERS / 32),
        (job(offload=("optimizer",)), 4 * PARAMETERS),
        (changed(job(zero=3), software="fsdp-2025"), 0),
        (changed(job(zero=3), software="xla-2025"), 0),
        (changed(job(zero=1), software="deepspeed-2024"), 0),
    ],
    ids=["fp32", "not sharded", "16 bits", "zero 2", "zero 3", "on the host", "FSDP", "JAX", "DeepSpeed"],
)
def test_megatron_clears_its_buffers(wanted: TrainingJob, moved: float) -> None:
    assert zeroed(wanted) == pytest.approx(moved, rel=1e-3, abs=1.0)


def test_later_stages_clear_theirs_while_they_wait() -> None:
    count = count_parameters(DENSE)
    layers = (count.total - count.embedding - count.head) / 2
    assert zeroed(job(pipeline=2)) == pytest.approx(4 * (layers + count.embedding), rel=1e-3)
