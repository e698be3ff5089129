"""The screening never loses the optimum: bounds never exceed the exact figures, and the search finds what
trying every layout finds."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.model.architecture import Transformer
from railwright.search import Space, search
from railwright.search.blocks import blocks
from railwright.search.footprint import Footprint, held_first
from railwright.search.pricing import PASSING, Pricer
from railwright.search.screen import Screen, unit_counts
from railwright.search.space import Block, apply
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import peak_memory, schedule, simulate
from railwright.training.held import held_sets
from railwright.training.quick import KINDS
from railwright.training.result import StepResult
from railwright.training.route import Route, Shape
from training_cases import DENSE, MOE, job, machine

PACKED = job(batch=16, sequence=8192).model_copy(update={"sample_length": 512})
TORCHAO = job(batch=32, dtype="fp8").model_copy(update={"software": "fsdp-2024"})
DELAYED = job(batch=32, dtype="fp8").model_copy(update={"amax_over": "stage"})
"""Every pass ends with all ranks of its stage, so jobs that differ in data parallelism share no pass."""

ALTERNATING = replace(
    MOE, layers=6, dense_layers=1, expert_every=2, shared_experts=1, shared_ffn=1024, mtp_layers=1
)
"""d e d e d e and an extra layer: stages of one, two and four hold different mixes."""

AGAIN = job(batch=32, recompute="selective", recompute_modules=("mlp", "moe"))

LATENT = replace(
    ALTERNATING, attention="mla", kv_heads=16, q_lora=384, kv_lora=128, rope_dim=32, v_head_dim=64
)

WINDOWED = replace(DENSE, sliding_window=256, full_every=3, window_chunked=True)

CASES = {
    "dense": (DENSE, job(batch=32), {}),
    "all axes": (
        DENSE,
        job(batch=32),
        {"zero": (0, 1, 2, 3), "offload": ((), ("activations",), ("optimizer",))},
    ),
    "under DeepSpeed": (
        DENSE,
        job(batch=32).model_copy(update={"software": "megatron-2021"}),
        {"pipeline": (1, 2, 4), "zero": (0, 1), "tensor": (1, 2)},
    ),
    "under DeepSpeed, gradients in 16 bits": (
        DENSE,
        job(batch=32, dtype="fp16").model_copy(update={"software": "megatron-2021"}),
        {"pipeline": (1, 2, 4), "zero": (0, 1), "tensor": (1, 2)},
    ),
    "schedules": (DENSE, job(batch=32), {"schedule": ("zb-h1", "dualpipe", "gpipe"), "pipeline": (2, 4)}),
    "folded": (DENSE, job(batch=32), {"schedule": ("zb-v", "dualpipe-v"), "pipeline": (2, 4)}),
    "split, with virtual stages": (
        DENSE,
        job(batch=32),
        {"schedule": ("zb-h1",), "pipeline": (2, 4), "virtual_pipeline": (2, 4), "zero": (0, 1, 2)},
    ),
    "experts folded": (MOE, job(batch=64), {"schedule": ("zb-v", "dualpipe-v"), "pipeline": (2, 4)}),
    "alternating experts folded": (
        ALTERNATING,
        job(batch=64),
        {"schedule": ("zb-v", "dualpipe-v"), "pipeline": (2,), "recompute": ("none", "selective", "full")},
    ),
    "context": (DENSE, job(batch=16, sequence=8192), {"context": (2, 4)}),
    "packed": (DENSE, PACKED, {"context": (1, 2), "context_kind": ("ring", "all-to-all")}),
    "torchao, scale per tensor": (DENSE, TORCHAO, {"zero": (1, 3)}),
    "torchao, scale per row": (MOE, TORCHAO.model_copy(update={"dtype": "fp8_rowwise"}), {"zero": (1, 3)}),
    "sharded in groups": (DENSE, job(batch=32, zero=3, shard=4), {}),
    "experts": (MOE, job(batch=32), {}),
    "experts, sharded": (MOE, job(batch=32, imbalance=1.2), {"zero": (2, 3)}),
    "experts of fixed capacity": (MOE, job(batch=32).model_copy(update={"expert_capacity": 1.0}), {}),
    "behind shared experts": (
        ALTERNATING,
        job(batch=32, overlap=Overlap(shared=True)).model_copy(
            update={"unfused": ("rotary", "router", "loss")}
        ),
        {"tensor": (1, 2), "expert": (1, 2, 8), "schedule": ("auto", "dualpipe")},
    ),
    "experts both ways": (MOE, job(batch=64), {"schedule": ("dualpipe",), "pipeline": (2, 4)}),
    "alternating experts both ways": (
        ALTERNATING,
        job(batch=64),
        {"schedule": ("dualpipe",), "pipeline": (2, 4), "recompute": ("none", "selective", "full")},
    ),
    "experts of fixed capacity both ways": (
        MOE,
        job(batch=64).model_copy(update={"expert_capacity": 1.0}),
        {"schedule": ("dualpipe",), "pipeline": (2, 4)},
    ),
    "experts paired": (
        MOE,
        job(batch=64),
        {"expert": (2, 4, 8), "pipeline": (1, 2), "virtual_pipeline": (1, 2, 4), "zero": (0, 1, 2, 3)},
    ),
    "alternating experts paired": (
        ALTERNATING,
        job(batch=64),
        {"expert": (2, 8), "pipeline": (1, 2), "virtual_pipeline": (1, 3), "overlap_ep": (True,)},
    ),
    "experts of fixed capacity paired": (
        MOE,
        job(batch=64).model_copy(update={"expert_capacity": 1.0}),
        {"expert": (2, 8), "pipeline": (1, 4), "virtual_pipeline": (1, 2), "overlap_ep": (True,)},
    ),
    "alternating experts": (ALTERNATING, job(batch=32), {"pipeline": (1, 2, 4), "zero": (1, 3)}),
    "parts computed again": (ALTERNATING, AGAIN, {"expert": (1, 2, 8), "recompute": ("none", "selective")}),
    "parts computed again both ways": (
        ALTERNATING,
        AGAIN,
        {"schedule": ("dualpipe", "zb-v"), "pipeline": (2,), "recompute": ("selective",)},
    ),
    "blocks side by side": (
        replace(DENSE, parallel_blocks=True, norms_per_layer=1),
        job(batch=32),
        {"schedule": ("auto", "zb-h1"), "tensor": (2, 4)},
    ),
    "latent attention": (
        LATENT,
        job(batch=32, recompute="selective", recompute_modules=("mla_up_proj",)),
        {"schedule": ("auto", "zb-h1"), "tensor": (2, 4), "recompute": ("none", "selective")},
    ),
    "windows": (WINDOWED, job(batch=32), {"recompute": ("none", "selective")}),
    "maxima agreed on": (DENSE, DELAYED, {"zero": (1, 3), "virtual_pipeline": (1, 2)}),
}


@pytest.mark.parametrize("case", CASES)
def test_no_bound_exceeds_the_exact_figure(case: str) -> None:
    """On random layouts of every family: time and memory bounds, and the closer bound of one layout."""
    arch, base, axes = CASES[case]
    screen, layouts = _drawn(arch, base, Space(axes), random.Random(case), 24)
    for block, index, step in layouts:
        x, rest = _class(block, index)
        asked = np.arange(prod(block.shape[: len(PASSING)])) == x
        bounds = [
            screen.compute(block)[x],
            screen.passes(block, asked)[x, *rest],
            screen.priced(block, asked)[x, *rest],
        ]
        assert max(bounds) <= step.step_time, (block.at(index), bounds, step.step_time)
        assert screen.closer(block, index) <= step.step_time, block.at(index)
        memory = np.broadcast_to(screen.memory(block), block.shape)[index]
        assert memory <= step.memory.total, (block.at(index), memory, step.memory.total)
    assert len(layouts) >= 8


def test_a_last_stage_that_ends_last_does_not_wait_for_the_first_ones_gradients() -> None:
    """ZB-H1 on two stages, the second with an extra layer and a shorter reduction: to its end the bound had
    added the first one's reduction."""
    base = job(
        batch=64, tensor=4, pipeline=2, expert=2, micro_batch=16, sequence_parallel=True, schedule="zb-h1",
        recompute="selective", zero=0, overlap=Overlap(dp=False, pp=False, ep=True),
    )  # fmt: skip
    axes = {name: (getattr(base.layout, name),) for name in ("tensor", "pipeline", "expert", "schedule")}
    screen, layouts = _drawn(ALTERNATING, base, Space({**axes, "overlap_dp": (False,)}), random.Random(3), 60)
    assert len(layouts) >= 30
    for block, index, step in layouts:
        assert screen.closer(block, index) <= step.step_time, block.at(index)


def test_a_tied_embedding_does_not_wait_for_the_stages_between() -> None:
    """ZB-H1 with virtual stages, a first stage of little but the embedding: one in the middle ends last, and
    the bound had added the all-reduce of the first and the last to its end."""
    axes = {"tensor": (2,), "pipeline": (4,), "virtual_pipeline": (2,), "schedule": ("zb-h1",)}
    more = {"recompute": ("none",), "overlap_dp": (True, False)}
    screen, layouts = _drawn(LATENT, job(batch=32), Space({**axes, **more}), random.Random(5), 30)
    assert len(layouts) >= 20
    for block, index, step in layouts:
        assert screen.closer(block, index) <= step.step_time, block.at(index)


@pytest.mark.parametrize("schedules", [("auto",), ("zb-h1",), ("zb-v",), ("dualpipe",), ("dualpipe-v",)])
def test_bounds_are_close_where_launches_bind(schedules: tuple[str, ...]) -> None:
    """Else a search simulates thousands: bounds of layouts with dropless experts of small kernels, by the
    share of the exact time, priced by class and each by its own passes."""
    space = Space({"schedule": schedules, "pipeline": (2, 4)})
    screen, layouts = _drawn(MOE, job(batch=64), space, random.Random(7), 20)
    priced, closer = [], []
    for block, index, step in layouts:
        x, rest = _class(block, index)
        asked = np.arange(prod(block.shape[: len(PASSING)])) == x
        priced.append(screen.priced(block, asked)[x, *rest] / step.step_time)
        closer.append(screen.closer(block, index) / step.step_time)
    assert len(layouts) >= 10
    assert np.mean(priced) >= 0.95
    assert np.mean(closer) >= 0.98


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arch=st.sampled_from([DENSE, MOE]),
    servers=st.sampled_from([1, 2]),
    batch=st.sampled_from([16, 24, 32]),
    tp=st.sampled_from([(1, 2), (2, 4)]),
    overlap=st.sampled_from(
        [("overlap_tp", "overlap_dp"), ("overlap_pp", "overlap_dp"), ("overlap_ep", "zero")]
    ),
)
def test_the_search_finds_what_brute_force_finds(
    arch: object, servers: int, batch: int, tp: tuple[int, ...], overlap: tuple[str, ...]
) -> None:
    axes = {"tensor": tp, "micro_batch": (2,), "placement": ("packed",), "expert_tensor": (None,)}
    fixed = {
        "recompute": ("none",),
        "sequence_parallel": (True,),
        "zero": (1,),
        "overlap_tp": (False,),
        "overlap_ep": (False,),
        "overlap_dp": (True,),
        "overlap_pp": (True,),
        "schedule": ("auto",),
    }
    for axis in overlap:
        fixed[axis] = (0, 1, 3) if axis == "zero" else (True, False)
    space = Space({**axes, **fixed})
    _compare(job(batch=batch), arch, servers, space)


@pytest.mark.parametrize(
    "schedules",
    [("auto", "zb-h1"), ("dualpipe", "gpipe"), ("zb-v", "dualpipe-v"), ("1f1b", "interleaved")],
)
def test_brute_force_over_schedules(schedules: tuple[str, ...]) -> None:
    space = Space(
        {
            "tensor": (1, 2),
            "schedule": schedules,
            "pipeline": (2, 4),
            "virtual_pipeline": (1, 2) if {"auto", "interleaved"} & {*schedules} else (1,),
            "micro_batch": (1, 2),
            "recompute": ("none",),
            "zero": (1,),
            "sequence_parallel": (True,),
            "overlap_pp": (True,),
        }
    )
    _compare(job(batch=32), DENSE, 2, space)


@pytest.mark.parametrize(("leading", "every"), [(1, 2), (0, 3)])
def test_brute_force_where_experts_alternate_with_dense_layers(leading: int, every: int) -> None:
    arch = replace(ALTERNATING, dense_layers=leading, expert_every=every)
    axes = {"tensor": (1, 2), "pipeline": (1, 2, 4), "virtual_pipeline": (1, 2), "expert_tensor": (None,)}
    fixed = {"recompute": ("none",), "sequence_parallel": (True,), "zero": (1,), "overlap_tp": (False,)}
    more = {"expert": (1, 4), "overlap_ep": (False,), "overlap_pp": (True,), "placement": ("packed",)}
    _compare(job(batch=32), arch, 1, Space({**axes, **fixed, **more, "micro_batch": (1, 2)}))


def test_brute_force_where_parts_are_computed_again() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 4), "recompute": ("selective",), "zero": (1,)}
    fixed = {
        "expert_tensor": (None,),
        "overlap_tp": (False,),
        "overlap_pp": (True,),
        "placement": ("packed",),
    }
    _compare(AGAIN, ALTERNATING, 1, Space({**axes, **fixed, "micro_batch": (1, 2)}))


def test_brute_force_where_every_pass_ends_together() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2, 4), "zero": (1, 3), "recompute": ("none",)}
    _compare(DELAYED, DENSE, 2, Space({**axes, "sequence_parallel": (True,), "micro_batch": (1, 2)}))


def test_brute_force_with_casts_and_packed_samples() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "zero": (1, 3), "recompute": ("none", "selective")}
    packed = TORCHAO.model_copy(update={"sample_length": 128})
    _compare(packed, DENSE, 1, Space({**axes, "micro_batch": (1, 2), "sequence_parallel": (True,)}))


def test_brute_force_where_launches_block() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2, 4), "recompute": ("none", "full"), "micro_batch": (1, 2)}
    off = {f"overlap_{kind}": (False,) for kind in ("dp", "tp", "pp", "ep")}
    base = job(batch=32).model_copy(update={"launch_blocking": True})
    _compare(base, DENSE, 2, Space({**axes, **off, "zero": (1,), "sequence_parallel": (True,)}))


def test_brute_force_where_only_experts_have_copies() -> None:
    """Tensor parallelism over all GPUs, experts uncut: `zero` shares and `overlap.dp` hides theirs."""
    axes = {"tensor": (4, 8), "pipeline": (1, 2), "expert": (1, 2), "recompute": ("none",)}
    fixed = {
        "overlap_ep": (False,),
        "placement": ("packed",),
        "sequence_parallel": (True,),
        "schedule": ("auto",),
    }
    space = Space({**axes, **fixed, "zero": (0, 1, 3), "overlap_dp": (True, False), "micro_batch": (1, 2)})
    _compare(job(batch=16), MOE, 1, space)
    screen, layouts = _drawn(MOE, job(batch=16), space, random.Random(1), 30)
    for block, index, step in layouts:
        assert screen.closer(block, index) <= step.step_time, block.at(index)


def test_brute_force_where_a_copy_is_shared_by_few() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none", "full"), "micro_batch": (1, 2)}
    base = job(batch=32, zero=3, shard=4)
    _compare(base, DENSE, 2, Space({**axes, "overlap_dp": (True, False), "sequence_parallel": (True,)}))


def test_brute_force_where_memory_is_short() -> None:
    """With GPUs that hold little more than the leanest layout, the best that fits is found."""
    base = job(batch=32, sequence=4096)
    space = Space({"tensor": (1, 2), "pipeline": (1, 2), "zero": (0, 1), "recompute": ("none",),
                   "offload": ((), ("optimizer",)), "overlap_dp": (True,),
                   "overlap_tp": (False,), "overlap_pp": (True,), "schedule": ("auto",)})  # fmt: skip
    one = machine(1)
    found, _ = blocks(space, base, DENSE, one.network.fabric)
    needs = [
        peak_memory(apply(base, b.at(i)), DENSE, one.network.fabric, 0.0).total
        for b in found
        for i in np.ndindex(*b.shape)
    ]
    limit = sorted(needs)[len(needs) // 4]
    short = replace(one, gpu=replace(one.gpu, hbm_bytes=limit))
    result = search(base, DENSE, short, space, top=1, steps=0)
    best = min(t for t, m in _brute(base, DENSE, short, space) if m <= limit)
    assert result.best[0].time == pytest.approx(best, rel=1e-9)
    assert result.best[0].memory <= limit


@pytest.mark.parametrize(
    ("name", "stages", "chunks", "count"),
    [("1f1b", 4, 1, 2), ("1f1b", 4, 1, 16), ("gpipe", 4, 1, 6), ("zb-h1", 4, 1, 12), ("interleaved", 4, 2, 4),
     ("interleaved", 4, 3, 16), ("dualpipe", 4, 2, 16), ("dualpipe", 8, 2, 20), ("zb-h1", 4, 3, 8),
     ("zb-v", 4, 2, 12), ("zb-v", 4, 2, 3), ("zb-v", 8, 2, 10), ("dualpipe-v", 4, 2, 9)],
)  # fmt: skip
def test_passes_held_when_backward_begins(name: str, stages: int, chunks: int, count: int) -> None:
    """The closed form is one of the fullest moments of the schedule itself, or below one."""
    asked = {"1f1b": "auto", "interleaved": "auto"}.get(name, name)
    for stage, order in enumerate(schedule(stages, chunks, count, name)):
        held = held_first(asked, stages, chunks, stage, count)
        moments = held_sets(order, chunks)
        assert any(all(a <= b for a, b in zip(held, m, strict=True)) for m in moments), (stage, held, moments)


def _drawn(
    arch: Transformer, base: TrainingJob, space: Space, rng: random.Random, draws: int
) -> tuple[Screen, list[tuple[Block, tuple[int, ...], StepResult]]]:
    """Random layouts of a space on two servers that can run, and their steps."""
    one = machine(2)
    found, _ = blocks(space, base, arch, one.network.fabric)
    layouts = []
    for _ in range(draws):
        block = rng.choice(found)
        index = tuple(rng.randrange(n) for n in block.shape)
        try:
            step = simulate(apply(base, block.at(index)), arch, one, most_events=0)
        except PlanError:
            continue
        layouts.append((block, index, step))
    return Screen(Pricer(base, arch, one), Footprint(base, arch, one.network.fabric)), layouts


def _class(block: Block, index: tuple[int, ...]) -> tuple[int, tuple[int, int, int]]:
    """Which class of a block a layout is in, and where in what a class's bounds are for."""
    x = int(np.ravel_multi_index(index[: len(PASSING)], block.shape[: len(PASSING)]))
    zero, _, overlap_dp, overlap_pp = index[len(PASSING) :]
    return x, (zero, overlap_dp, overlap_pp)


@pytest.mark.parametrize(
    ("name", "chunks", "shape"),
    [("dualpipe", 2, "mirror"), ("dualpipe-v", 2, "fold"), ("zb-v", 2, "fold"), ("zb-h1", 3, "loop")],
)
@pytest.mark.parametrize(("stages", "count"), [(2, 4), (2, 18), (4, 8), (4, 32), (8, 16), (8, 40)])
def test_units_are_counted_without_making_the_schedule(
    name: str, chunks: int, shape: Shape, stages: int, count: int
) -> None:
    found = unit_counts(name, Route(stages, chunks, shape), count)
    for s, order in enumerate(schedule(stages, chunks, count, name)):
        for chunk in range(chunks):
            own = [sum(u.kind == kind and u.chunk == chunk for u in order) for kind in KINDS]
            assert found[s, chunk].tolist() == own


def _compare(base: TrainingJob, arch: object, servers: int, space: Space) -> None:
    one = machine(servers)
    result = search(base, arch, one, space, top=3, steps=0)  # type: ignore[arg-type]
    exact = sorted(t for t, _ in _brute(base, arch, one, space))
    assert result.best[0].time == pytest.approx(exact[0], rel=1e-9)
    assert result.effort.layouts >= len(exact)
    assert all(c.bound <= c.time for c in result.best)


def _brute(base: TrainingJob, arch: object, one: object, space: Space) -> list[tuple[float, float]]:
    """(time, memory) of every layout of the space that can run."""
    found, _ = blocks(space, base, arch, one.network.fabric)  # type: ignore[arg-type,attr-defined]
    times = []
    for block in found:
        for index in np.ndindex(*block.shape):
            try:
                step = simulate(apply(base, block.at(index)), arch, one, most_events=0)  # type: ignore[arg-type]
            except PlanError:
                continue
            times.append((step.step_time, step.memory.total))
    return times
