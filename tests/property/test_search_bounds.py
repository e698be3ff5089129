"""The screening never loses the optimum: bounds never exceed the exact figures."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from railwright.search import Space
from railwright.search.bounds.footprint import held_first
from railwright.search.bounds.pricing import PASSING
from railwright.search.bounds.timed import unit_counts
from railwright.search.space.axes import Block
from railwright.spec.training import Overlap
from railwright.training import schedule
from railwright.training.layout.in_flight import held_sets
from railwright.training.layout.route import Route, Shape
from railwright.training.layout.schedule import SHARED
from railwright.training.step.quick import KINDS
from search_bound_cases import CASES, SLOW
from search_cases import (
    ALTERNATING,
    LATENT,
    drawn,
)
from training_cases import MOE, job


@pytest.mark.parametrize("case", [*CASES, *SLOW])
def test_no_bound_exceeds_the_exact_figure(case: str) -> None:
    """On random layouts of every family: bounds of its class, of its memory, and the closer one."""
    arch, base, axes = (CASES | SLOW)[case]
    server = "server-8x-a100-pcie" if case in SLOW else "dgx-h100"
    screen, layouts = drawn(arch, base, Space(axes), random.Random(case), 16, server)
    for block, index, step in layouts:
        x, rest = _class(block, index)
        asked = np.arange(prod(block.shape[: len(PASSING)])) == x
        bounds = [
            screen.compute(block, asked)[x],
            screen.passes(block, asked)[x, *rest],
            screen.priced(block, asked)[x, *rest],
            screen.staged(block, asked)[x, *rest],
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
    screen, layouts = drawn(ALTERNATING, base, Space({**axes, "overlap_dp": (False,)}), random.Random(3), 60)
    assert len(layouts) >= 30
    for block, index, step in layouts:
        assert screen.closer(block, index) <= step.step_time, block.at(index)


def test_a_tied_embedding_does_not_wait_for_the_stages_between() -> None:
    """ZB-H1 with virtual stages, a first stage of little but the embedding: one in the middle ends last, and
    the bound had added the all-reduce of the first and the last to its end."""
    axes = {"tensor": (2,), "pipeline": (4,), "virtual_pipeline": (2,), "schedule": ("zb-h1",)}
    more = {"recompute": ("none",), "overlap_dp": (True, False)}
    screen, layouts = drawn(LATENT, job(batch=32), Space({**axes, **more}), random.Random(5), 30)
    assert len(layouts) >= 20
    for block, index, step in layouts:
        assert screen.closer(block, index) <= step.step_time, block.at(index)


@pytest.mark.parametrize("schedules", [("auto",), ("zb-h1",), ("zb-v",), ("dualpipe",), ("dualpipe-v",)])
def test_bounds_are_close_where_launches_bind(schedules: tuple[str, ...]) -> None:
    """Else a search simulates thousands: bounds of layouts with dropless experts of small kernels, by the
    share of the exact time, priced by class and each by its own passes."""
    space = Space({"schedule": schedules, "pipeline": (2, 4)})
    screen, layouts = drawn(MOE, job(batch=64), space, random.Random(7), 20)
    priced, closer = [], []
    for block, index, step in layouts:
        x, rest = _class(block, index)
        asked = np.arange(prod(block.shape[: len(PASSING)])) == x
        priced.append(screen.priced(block, asked)[x, *rest] / step.step_time)
        closer.append(screen.closer(block, index) / step.step_time)
    assert len(layouts) >= 10
    assert np.mean(priced) >= 0.95
    assert np.mean(closer) >= 0.98


def test_the_commonest_stage_says_more_of_passes_at_once_than_laws() -> None:
    """It is asked only where two passes run at once and nothing is copied to the host."""
    schedules = {"schedule": ("auto", "dualpipe", "dualpipe-v"), "virtual_pipeline": (1, 2)}
    offloads = {"offload": ((), ("optimizer",)), "overlap_ep": (True, False), "zero": (0, 1)}
    space = Space({**schedules, **offloads, "pipeline": (2, 4), "expert": (2, 4)})
    screen, layouts = drawn(MOE, job(batch=64), space, random.Random(11), 40)
    nearer = []
    for block, index, step in layouts:
        x, rest = _class(block, index)
        asked = np.arange(prod(block.shape[: len(PASSING)])) == x
        priced, staged = (bound(block, asked)[x, *rest] for bound in (screen.priced, screen.staged))
        if block.structure["schedule"] in SHARED or screen.pricer.pairs(block)[x]:
            assert priced <= staged <= step.step_time
            nearer.append(staged / priced)
        else:
            assert staged == 0.0
        choices = {**dict(block.choices), "offload": ((), ("activations",))}
        copied = Block(block.structure, tuple(choices.items()), block.data)
        assert not screen.staged(copied, asked).any()
    assert len(nearer) >= 10
    assert max(nearer) > 1.01


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
