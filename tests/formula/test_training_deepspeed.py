"""What DeepSpeed holds beside a job's tensors: gradients twice, what passes hand on, more groups."""

from __future__ import annotations

import pytest

from railwright.spec.training import TrainingJob
from railwright.training.layers.stages import stage_shapes
from railwright.training.layout.sizes import Sizes
from railwright.training.memory.activations import stage_activations
from railwright.training.memory.allocator import Requests
from railwright.training.memory.cached import _stage_plans, cached
from railwright.training.memory.peak import SYSTEM, peak_memory, system_bytes
from railwright.training.memory.replay_deepspeed import DeepSpeedReplay, _buckets, _groups, _reached
from railwright.training.memory.states import AT_STEP, state_parts
from railwright.training.software.deepspeed import (
    BUCKET,
    BUCKETS,
    SECOND_GRADIENTS,
    averaged,
    communicators,
    copied,
    outputs_kept,
)
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
    of outputs and buffers, and no second copy (PipelineEngine, is_pipe_partitioned).  The first stage keeps a
    byte per pair of tokens beside."""
    hidden = 2.0 * DENSE.hidden * 4096
    deep, plain = (under(name, sequence=4096, tensor=tensor) for name in ("megatron-2021", "megatron-2022"))
    shapes = stage_shapes(DENSE, deep.layout)
    for shape, states, received in zip(shapes, kept, buffers, strict=True):
        ours, other = (stage_activations(one, DENSE, shape) for one in (deep, plain))
        mask = 4096.0**2 if shape is shapes[0] else 0.0
        assert (ours.chunks[0] - other.chunks[0] - mask) / hidden == pytest.approx(states)
        stay = sum(ours.always.values()) - ours.always["logits of passes before"]
        assert (stay - sum(other.always.values())) / hidden == pytest.approx(received)


def test_the_last_stage_names_the_logits_of_two_passes_that_are_over() -> None:
    """4,096 tokens, 32,000 words over 2 tensor ranks, 4 bytes, twice."""
    wanted = under("megatron-2021", sequence=4096, tensor=2)
    found = [
        stage_activations(wanted, DENSE, shape).always["logits of passes before"]
        for shape in stage_shapes(DENSE, wanted.layout)
    ]
    assert found == [0.0, 0.0, 0.0, 2 * 4096 * 16000 * 4.0]
    assert not outputs_kept(under("megatron-2022", sequence=4096, tensor=2), DENSE)


def test_groups_of_two_ranks_and_more() -> None:
    """Beyond tensor, pipeline and data: all ranks, one copy's ranks, DeepSpeed's own pipelines, replicas and
    tensor ranks, and two neighbours by pairs, 33 ranks from one to the other."""
    assert communicators(4, 12, 8) == (
        (384, 384), (48, 384), (12, 384), (8, 32), (2, 33), (2, 33), (4, 4)
    )  # fmt: skip
    assert communicators(4, 1, 8) == ((32, 32), (4, 4), (1, 32), (8, 32))


def test_the_systems_part_by_hand() -> None:
    """nccl issue 964: 688 MB a communicator, 544 MB one of two ranks."""
    one = machine(2)
    plain = peak_memory(under("megatron-2025", tensor=2), DENSE, one.network.fabric, 80e9)
    # tensor 2, pipeline 4, replicas 2
    assert plain.parts[SYSTEM] == pytest.approx(1.06e9 + 0.688e9 + 2 * 0.544e9)
    deep = peak_memory(under("megatron-2021", tensor=2), DENSE, one.network.fabric, 80e9)
    # 16 ranks, 8 of a copy, pipelines twice; tensor and replicas twice, and two neighbours
    assert deep.parts[SYSTEM] == pytest.approx(1.649e9 + 4 * 0.688e9 + 6 * 0.544e9)
    # without GPUDirect those over more than one server of 8 have their buffers on the host
    sizes = Sizes.of(under("megatron-2021", tensor=2), one.network.fabric)
    staged = system_bytes(under("megatron-2021", tensor=2), sizes, staged=8)
    assert staged == pytest.approx(1.649e9 + 6 * 0.544e9)


def test_copies_at_the_step() -> None:
    """A bucket of up to 5e8 gradients in 16 bits, or all where they are fewer; what ZeRO does not shard is
    flattened in fp32 instead; what goes to the host lies in a bucket; sums in fp32 are cast, half at once."""
    assert copied(1e9, 1, offload=False) == {BUCKETS: 2.0 * BUCKET}
    assert averaged(1e9, 4.0) == {BUCKETS: 1e9}
    assert averaged(1e9, 2.0) == {}
    shape = stage_shapes(DENSE, under("megatron-2021").layout)[0]
    whole = shape.dense_total
    cases = [(1, (), 2.0 * whole), (0, (), 4.0 * whole), (1, ("optimizer",), 2.0 * BUCKET)]
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


def test_the_optimizers_groups_and_the_first_ranks_share_of_them() -> None:
    """Halves by count; the last stage's tied table comes first, and the first of 4 ranks has 30 of 120."""
    assert _groups(5, last_first=False) == [[0, 1, 2], [3, 4]]
    assert _groups(4, last_first=True) == [[3, 0], [1, 2]]
    assert _reached([40.0, 80.0], [3, 0], 4) == {3: 30.0}
    assert _reached([20.0, 100.0], [1, 2], 4) == {1: 20.0, 2: 10.0}
    assert _reached([60.0, 40.0], [0, 1], 1) == {0: 60.0, 1: 40.0}


def test_gradients_are_joined_into_buckets_but_a_single_one_is_not() -> None:
    assert _buckets([0.4 * BUCKET, 0.5 * BUCKET, 0.3 * BUCKET, 0.9 * BUCKET, 0.1 * BUCKET]) == [
        pytest.approx(0.9 * BUCKET),
        pytest.approx(BUCKET),
    ]
    assert _buckets([2.0 * BUCKET, 0.5 * BUCKET]) == []


def replayed(dtype: str) -> tuple[DeepSpeedReplay, list[int]]:
    """A stage with an embedding after its first step, and the sizes that this one asked for. [byte]"""
    wanted = under("megatron-2021", dtype=dtype, zero=1)
    shape, asked = stage_shapes(DENSE, wanted.layout)[0], Requests()
    replay = DeepSpeedReplay(wanted, DENSE, shape, 8, False, _stage_plans(wanted, DENSE, shape), asked)
    replay.start()
    before = len(asked.sizes)
    replay.live = [replay.take(2 * weight) for weight in reversed(replay.weights)]
    replay.update(0)
    return replay, asked.sizes[before + len(replay.weights) :]


def test_a_step_of_zero_1_by_hand() -> None:
    """All gradients fit into one bucket.  Each half's share is an eighth of it, which lies in its first
    weights: 32 bits of them all, then by group 64 bits, the share in 16 where it is of several weights, and
    in 32; then both groups of weights are gathered."""
    replay, asked = replayed("fp16")
    groups = [[replay.weights[w] for w in group] for group in replay.groups]
    shares = [sum(group) / 8 for group in groups]
    reached = [_reached(group, list(range(len(group))), 8) for group in groups]
    wanted = [2 * sum(replay.weights), *(4 * part for r in reached for part in r.values())]
    for r, share in zip(reached, shares, strict=True):
        wanted += [*(8 * part for part in r.values()), *([2 * share] * (len(r) > 1)), 4 * share]
    assert asked == pytest.approx([*wanted, *(2 * sum(group) for group in groups)], rel=0.01)
    # the embedding is more than its half's share, so that its norm alone is taken there
    assert list(reached[0]) == [0]


def test_a_step_of_bf16_casts_the_sums_of_one_group_after_the_other() -> None:
    replay, asked = replayed("bf16")
    halves = [2 * sum(replay.weights[w] for w in group) for group in replay.groups]
    assert asked == pytest.approx([*halves, *halves], rel=0.01)


def test_every_microbatch_that_is_read_leaves_a_causal_mask() -> None:
    """4,096 x 4,096 pairs of tokens, a byte each, of which 32 bits were made first."""
    replay, _ = replayed("fp16")
    before, asked = len(replay.memory.sizes), len(replay.memory.asked)
    replay.loaded()
    pairs = replay.job.sequence**2
    assert replay.memory.sizes[before:] == [4 * pairs, 4 * pairs, pairs, pairs]
    assert sum(one < 0 for one in replay.memory.asked[asked:]) == 3
