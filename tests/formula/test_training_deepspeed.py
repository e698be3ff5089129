"""What DeepSpeed holds beside a job's tensors: gradients twice, what passes hand on, more groups."""

from __future__ import annotations

import pytest

from railwright.spec.training import TrainingJob
from railwright.training.activations import stage_activations
from railwright.training.cached import cached
from railwright.training.deepspeed import BUCKET, BUCKETS, SECOND_GRADIENTS, communicators, copied
from railwright.training.memory import SYSTEM, peak_memory
from railwright.training.stages import stage_shapes
from railwright.training.states import AT_STEP, state_parts
from training_cases import DENSE, job, machine


def under(software: str, **changes: object) -> TrainingJob:
    return job(batch=32, pipeline=4, **changes).model_copy(update={"software": software})


def test_sums_in_fp32_lie_beside_gradients_in_16_bits() -> None:
    """BF16_Optimizer: 2 + 2 + 4 bytes a parameter on every rank, 12 sharded; fp16 has one set, 2 + 2."""
    for dtype, whole in (("bf16", 8.0), ("fp16", 4.0)):
        wanted = under("megatron-2021", dtype=dtype, zero=1)
        shape = stage_shapes(DENSE, wanted.layout)[0]
        parts = state_parts(wanted, DENSE, shape, 8)
        always = sum(size for name, size in parts.items() if name not in AT_STEP)
        assert always / shape.dense_total == pytest.approx(whole + 12 / 8)
    assert SECOND_GRADIENTS not in state_parts(under("megatron-2025", zero=1), DENSE, shape, 8)


@pytest.mark.parametrize(
    ("tensor", "kept", "buffers"),
    [(1, (1, 2, 2, 1), (1, 2, 2, 1)), (2, (0.5, 0.5, 0.5, 0), (0.5, 1, 1, 0.5))],
)
def test_a_pass_keeps_what_it_received_and_what_it_sent(
    tensor: int, kept: tuple[float, ...], buffers: tuple[float, ...]
) -> None:
    """Without tensor ranks an output, an input's second copy, and buffers to receive into; with them, parts
    of outputs and buffers, and no second copy (PipelineEngine, is_pipe_partitioned)."""
    hidden = 2.0 * DENSE.hidden * 4096
    deep, plain = (under(name, sequence=4096, tensor=tensor) for name in ("megatron-2021", "megatron-2022"))
    shapes = stage_shapes(DENSE, deep.layout)
    for shape, states, received in zip(shapes, kept, buffers, strict=True):
        ours, other = (stage_activations(one, DENSE, shape) for one in (deep, plain))
        assert (ours.chunks[0] - other.chunks[0]) / hidden == pytest.approx(states)
        assert (sum(ours.always.values()) - sum(other.always.values())) / hidden == pytest.approx(received)


def test_groups_of_two_ranks_and_more() -> None:
    """Beyond tensor, pipeline and data: all ranks, one copy's ranks, and two neighbours by pairs."""
    assert communicators(4, 12, 8) == (384, 48, 2, 2, 4)
    assert communicators(4, 1, 8) == (32, 4)


def test_the_systems_part_by_hand() -> None:
    """nccl issue 964: 688 MB a communicator, 544 MB one of two ranks."""
    one = machine(2)
    plain = peak_memory(under("megatron-2025", tensor=2), DENSE, one.network.fabric, 80e9)
    # tensor 2, pipeline 4, replicas 2
    assert plain.parts[SYSTEM] == pytest.approx(1.06e9 + 0.688e9 + 2 * 0.544e9)
    deep = peak_memory(under("megatron-2021", tensor=2), DENSE, one.network.fabric, 80e9)
    assert deep.parts[SYSTEM] == pytest.approx(1.649e9 + 3 * 0.688e9 + 5 * 0.544e9)


def test_copies_at_the_step() -> None:
    """A bucket of 5e8 gradients and this rank's share, both in 16 bits; what ZeRO does not shard is
    flattened in fp32 instead; what goes to the host leaves the bucket alone."""
    assert copied(1e8, 1, offload=False) == {BUCKETS: 2.0 * (BUCKET + 1e8)}
    shape = stage_shapes(DENSE, under("megatron-2021").layout)[0]
    whole = shape.dense_total
    cases = [(1, (), 2.0 * (BUCKET + whole / 8)), (0, (), 4.0 * whole), (1, ("optimizer",), 2.0 * BUCKET)]
    for zero, offload, size in cases:
        parts = state_parts(under("megatron-2021", dtype="fp16", zero=zero, offload=offload), DENSE, shape, 8)
        assert sum(parts.get(name, 0.0) for name in AT_STEP) == pytest.approx(size)


def test_zero_offload_adds_a_gradient_in_a_buffer_as_large_as_the_largest() -> None:
    wanted = under("megatron-2021", dtype="fp16", zero=1, offload=("optimizer",))
    ends, middle = (stage_shapes(DENSE, wanted.layout)[stage] for stage in (0, 1))
    sizes = [
        stage_activations(wanted, DENSE, shape).always["gradient on its way to the host"]
        for shape in (ends, middle)
    ]
    # the embedding; gate and up projection are one weight
    assert sizes == [2.0 * 32000 * 1024, 2.0 * 2 * 4096 * 1024]


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("offload", [(), ("optimizer",)])
def test_tensors_at_their_most_are_what_memory_adds_up(
    dtype: str, zero: int, offload: tuple[str, ...]
) -> None:
    wanted = job(batch=128, tensor=2, dtype=dtype, zero=zero, offload=offload)
    wanted = wanted.model_copy(update={"software": "megatron-2021"})
    fabric = machine(4).network.fabric
    total = peak_memory(wanted, DENSE, fabric, 80e9)
    found = cached(wanted, DENSE, fabric, 0)
    assert found is not None
    assert found.allocated == pytest.approx(total.total - total.parts[SYSTEM], rel=0.02)


@pytest.mark.parametrize("schedule", ["dualpipe", "dualpipe-v"])
@pytest.mark.parametrize("offload", [(), ("activations",)])
def test_two_passes_together_can_be_replayed(schedule: str, offload: tuple[str, ...]) -> None:
    """Chunks of one or two layers: the engine frees the gradient that a pass begins with once."""
    wanted = job(gpus=32, batch=64, sequence=4096, pipeline=4, zero=0, schedule=schedule, offload=offload)
    wanted = wanted.model_copy(update={"software": "megatron-2021"})
    fabric = machine(4).network.fabric
    for stage in peak_memory(wanted, DENSE, fabric, 80e9).stages:
        found = cached(wanted, DENSE, fabric, stage.stage)
        assert found is not None
        assert found.allocated == pytest.approx(stage.total - stage.parts[SYSTEM], rel=0.02)
