"""What DeepSpeed holds beside a job's tensors: gradients twice, what passes hand on, more groups."""

from __future__ import annotations

import pytest

from railwright.spec.training import TrainingJob
from railwright.training.deepspeed import BUCKET, SECOND_GRADIENTS, communicators, flattened
from railwright.training.kept import stage_activations
from railwright.training.memory import SYSTEM, peak_memory
from railwright.training.stages import stage_shapes
from railwright.training.states import COPY, state_parts
from training_cases import DENSE, job, machine


def under(software: str, **changes: object) -> TrainingJob:
    return job(batch=32, pipeline=4, **changes).model_copy(update={"software": software})


def test_sums_in_fp32_lie_beside_gradients_in_16_bits() -> None:
    """BF16_Optimizer: 2 + 2 + 4 bytes a parameter on every rank, 12 sharded; fp16 has one set, 2 + 2."""
    for dtype, whole in (("bf16", 8.0), ("fp16", 4.0)):
        wanted = under("megatron-2021", dtype=dtype, zero=1)
        shape = stage_shapes(DENSE, wanted.layout)[0]
        parts = state_parts(wanted, shape, 8)
        parts.pop(COPY, None)
        assert sum(parts.values()) / shape.dense_total == pytest.approx(whole + 12 / 8)
    assert SECOND_GRADIENTS not in state_parts(under("megatron-2025", zero=1), shape, 8)


def test_a_pass_keeps_what_it_received_and_what_it_sent() -> None:
    """One more hidden state at each end of the pipeline, two between; buffers to receive into likewise."""
    hidden = 2.0 * DENSE.hidden * 4096
    deep, plain = (under(name, sequence=4096) for name in ("megatron-2021", "megatron-2022"))
    shapes = stage_shapes(DENSE, deep.layout)
    for shape, states in zip(shapes, (1, 2, 2, 1), strict=True):
        ours, other = (stage_activations(one, DENSE, shape) for one in (deep, plain))
        assert (ours.chunks[0] - other.chunks[0]) / hidden == pytest.approx(states)
        assert (sum(ours.always.values()) - sum(other.always.values())) / hidden == pytest.approx(states)


def test_groups_of_two_ranks_and_more() -> None:
    """Beyond tensor, pipeline and data: all ranks, one copy's ranks, and two neighbours by pairs."""
    assert communicators(4, 12, 8) == (384, 48, 2, 2)
    assert communicators(4, 1, 8) == (32, 4)


def test_the_systems_part_by_hand() -> None:
    """nccl issue 964: 688 MB a communicator, 544 MB one of two ranks."""
    one = machine(2)
    plain = peak_memory(under("megatron-2025", tensor=2), DENSE, one.network.fabric, 80e9)
    # tensor 2, pipeline 4, replicas 2
    assert plain.parts[SYSTEM] == pytest.approx(1.06e9 + 0.688e9 + 2 * 0.544e9)
    deep = peak_memory(under("megatron-2021", tensor=2), DENSE, one.network.fabric, 80e9)
    assert deep.parts[SYSTEM] == pytest.approx(1.649e9 + 3 * 0.688e9 + 4 * 0.544e9)


def test_flat_tensors_of_the_step() -> None:
    assert flattened(1e9, 5e8, 2.0) == 5e8
    assert flattened(1e9, 0.0, 4.0) == 4.0 * BUCKET
    assert flattened(1e8, 0.0, 4.0) == 4e8
