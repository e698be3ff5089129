"""Layers that alternate: stages share them out without losing one, and a step costs what its layers cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.model import Cut, count_parameters, layer_parameters
from railwright.model.operators.layer import layer_operators
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import layer_kinds
from railwright.training import peak_memory, simulate
from railwright.training.layers.stages import stage_shapes
from training_cases import MOE, job, machine

ALTERNATING = replace(
    MOE, name="alternating-8", dense_layers=1, expert_every=2, shared_experts=1, shared_ffn=1024
)
"""Llama 4 Maverick's layers, small: dense ones between those with experts and a shared one."""


@settings(max_examples=80)
@given(
    layers=st.integers(4, 13),
    leading=st.integers(0, 3),
    every=st.integers(1, 4),
    extra=st.integers(0, 2),
    pipeline=st.sampled_from((1, 2, 4)),
    chunks=st.sampled_from((1, 2)),
    tensor=st.sampled_from((1, 2)),
    expert=st.sampled_from((1, 4)),
)
def test_stages_hold_the_models_layers_in_order(
    layers: int, leading: int, every: int, extra: int, pipeline: int, chunks: int, tensor: int, expert: int
) -> None:
    arch = replace(MOE, layers=layers, dense_layers=leading, expert_every=every, mtp_layers=extra)
    layout = job(
        tensor=tensor, pipeline=pipeline, virtual_pipeline=chunks if pipeline > 1 else 1, expert=expert
    ).layout
    shapes = stage_shapes(arch, layout)
    held = [
        (first, chunk.layers)
        for shape in shapes
        for first, chunk in zip(shape.first, shape.chunks, strict=True)
    ]
    # empty chunks (of a stage with an end alone) start where the next one does
    assert sum((kinds for _, kinds in sorted(held, key=lambda h: (h[0], len(h[1])))), ()) == layer_kinds(arch)
    # and every rank's parameters are those of its layers, experts over `expert` ranks
    count, kinds = count_parameters(arch), layer_kinds(arch)
    experts = sum(shape.expert_total for shape in shapes) * tensor * expert
    assert experts == pytest.approx(kinds.count("moe") * arch.experts * count.expert)
    whole = sum(layer_parameters(arch, kind, Cut(tp=tensor)).dense for kind in kinds)
    assert sum(sum(map(sum, shape.dense)) for shape in shapes) == pytest.approx(whole)


def test_stages_of_an_alternating_model_by_hand() -> None:
    """Nine layers d e d e d e d e d on two stages: the first has one more (the last holds the head)."""
    arch = replace(ALTERNATING, layers=9)
    first, last = stage_shapes(arch, job(pipeline=2).layout)
    assert first.chunks[0].layers == ("dense", "moe", "dense", "moe", "dense")
    assert last.chunks[0].layers == ("moe", "dense", "moe", "dense")
    attention = 1024 * (16 + 2 * 4) * 64 + 16 * 64 * 1024
    norms, one = 2 * 1024, 3 * 1024 * 4096
    router, shared = 8 * 1024, 3 * 1024 * 1024
    dense, moe = attention + norms + one, attention + norms + router + shared
    assert first.dense == ((dense, moe, dense, moe, dense),)
    assert first.expert_total == 2 * 8 * one
    assert last.expert_total == 2 * 8 * one
    ends = 32000 * 1024
    assert first.dense_total == 3 * dense + 2 * moe + ends
    assert last.dense_total == 2 * dense + 2 * moe + ends + 1024


ALL_DENSE = replace(ALTERNATING, dense_layers=8, expert_every=1)
ALL_EXPERTS = replace(ALTERNATING, dense_layers=0, expert_every=1)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_memory_of_an_alternating_model_lies_between_its_layers(recompute: str) -> None:
    """Four layers of each kind hold the mean of eight of the one and eight of the other; what is alive in one
    layer at a time is the widest's.  Microbatches of 4, or a job is fullest at its start."""
    wanted, fabric = job(recompute=recompute, gpus=8, micro_batch=4), machine(1).network.fabric
    dense, both, experts = (
        peak_memory(wanted, arch, fabric, 0.0) for arch in (ALL_DENSE, ALTERNATING, ALL_EXPERTS)
    )
    for part in ("weights", "gradients", "optimizer states", "activations"):
        assert both.parts[part] == pytest.approx((dense.parts[part] + experts.parts[part]) / 2), part
    assert dense.total < both.total < experts.total


def test_a_step_of_an_alternating_model_computes_what_its_layers_compute() -> None:
    """On one GPU nothing is sent, and the step is a sum over layers: half of either kind is half the way."""
    wanted = job(gpus=1, batch=4).model_copy(update={"gpus_per_server": 1})
    steps = {
        leading: simulate(
            wanted,
            replace(ALTERNATING, dense_layers=leading, expert_every=2 if leading == 1 else 1),
            machine(1),
        ).step_time
        for leading in (0, 1, 8)
    }
    assert steps[1] == pytest.approx((steps[0] + steps[8]) / 2, rel=1e-6)
    assert steps[8] < steps[1] < steps[0]


def test_the_order_of_layers_within_a_stage_does_not_change_what_it_computes() -> None:
    even = replace(ALTERNATING, dense_layers=0)
    assert layer_kinds(even) != layer_kinds(ALTERNATING)
    wanted = job(gpus=1, batch=4).model_copy(update={"gpus_per_server": 1})
    one, other = (simulate(wanted, arch, machine(1)).step_time for arch in (even, ALTERNATING))
    assert one == pytest.approx(other, rel=1e-6)


@settings(max_examples=30)
@given(st.sampled_from((0, 1, 2, 4)), st.sampled_from((0, 100, 256)), st.booleans(), st.sampled_from((2, 3)))
def test_windows_never_add_work(every: int, window: int, chunked: bool, other: int) -> None:
    """Fewer full layers, narrower windows and chunks instead of windows never mean more attention."""

    def work(arch: Transformer) -> float:
        return sum(
            op.flops for op in layer_operators(arch, "dense", 1024, 1024).forward if op.kind == "attention"
        )

    arch = replace(MOE, sliding_window=window, full_every=every, window_chunked=chunked)
    assert work(arch) <= work(replace(arch, sliding_window=0)) * (1 + 1e-12)
    if window:
        assert work(arch) <= work(replace(arch, sliding_window=2 * window)) * (1 + 1e-12)
        assert work(replace(arch, window_chunked=True)) <= work(replace(arch, window_chunked=False)) * (
            1 + 1e-12
        )
    if every:
        assert work(replace(arch, full_every=every * other)) <= work(arch) * (1 + 1e-12)


def test_a_norm_behind_the_embedding_is_held_and_run_by_the_first_stage() -> None:
    plain = replace(ALL_DENSE, experts=0, shared_ffn=0)
    bloom = replace(plain, embedding_norm=True)
    (one, *rest), (two, *others) = (stage_shapes(arch, job(pipeline=2).layout) for arch in (plain, bloom))
    assert two.dense_total - one.dense_total == bloom.hidden
    assert [s.dense_total for s in others] == [s.dense_total for s in rest]
    wanted = job(gpus=1, batch=4).model_copy(update={"gpus_per_server": 1})
    assert simulate(wanted, bloom, machine(1)).step_time > simulate(wanted, plain, machine(1)).step_time
