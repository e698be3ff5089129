"""The compiled step is the interpreted one: lanes, pending data-parallel work, pipeline, ends."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.collectives import predict
from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.checks.plan import check
from railwright.training.lanes.contention import Uses
from railwright.training.lanes.tasks import LANES, Task, run
from railwright.training.layers.communication import Prices
from railwright.training.layout.pipeline import compose
from railwright.training.layout.placement import place
from railwright.training.layout.route import Route, Shape
from railwright.training.layout.schedule import schedule
from railwright.training.layout.sizes import job_gpus
from railwright.training.passes.offload import layer_copies
from railwright.training.passes.work import Work
from railwright.training.software.eras import Pace, attention_kernels, pace_of
from railwright.training.step.quick import KINDS, finish_times, pass_times, step_seconds
from railwright.training.step.simulating import kernel_timer
from railwright.training.step.stage import PassBook
from training_cases import DENSE, MOE, job, machine

LAYOUTS = [
    {"pipeline": 1, "zero": 0},
    {"pipeline": 1, "zero": 1, "tensor": 2},
    {"pipeline": 1, "zero": 2},
    {"pipeline": 1, "zero": 1, "shard": 4},
    {"pipeline": 2, "zero": 2, "shard": 2},
    {"pipeline": 1, "zero": 3},
    {"pipeline": 1, "zero": 3, "reshard": False},
    {"pipeline": 1, "zero": 3, "shard": 8},
    {"pipeline": 2, "zero": 2, "reduce_each": False},
    {"pipeline": 2, "zero": 3, "reduce_each": False},
    {"pipeline": 2, "zero": 3, "reshard": False, "virtual_pipeline": 2},
    {"pipeline": 4, "zero": 3, "reshard": False, "reduce_each": False},
    {"pipeline": 4, "zero": 1, "tensor": 2, "sequence_parallel": True},
    {"pipeline": 4, "zero": 1, "virtual_pipeline": 2},
    {"pipeline": 2, "zero": 2, "virtual_pipeline": 4},
    {"pipeline": 4, "zero": 1, "schedule": "zb-h1"},
    {"pipeline": 4, "zero": 0, "schedule": "gpipe"},
    {"pipeline": 4, "zero": 1, "schedule": "dualpipe"},
    {"pipeline": 4, "zero": 1, "schedule": "dualpipe-v"},
    {"pipeline": 4, "zero": 1, "schedule": "zb-v"},
    {"pipeline": 4, "zero": 1, "schedule": "zb-h1", "virtual_pipeline": 2},
    {"pipeline": 4, "zero": 1, "offload": ("optimizer",)},
    {"pipeline": 2, "zero": 1, "virtual_pipeline": 2, "recompute": "full", "recompute_layers": 1},
    {"pipeline": 1, "zero": 3, "recompute": "full", "recompute_layers": 3},
]
ON_HOST = [
    {"zero": 3},
    {"zero": 3, "reshard": False},
    {"zero": 3, "reduce_each": False},
    {"zero": 3, "shard": 4},
    {"zero": 3, "pipeline": 2},
    {"zero": 3, "pipeline": 2, "reshard": False},
    {"zero": 3, "tensor": 2, "sequence_parallel": True},
]
"""Weights that lie on the host."""


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "experts"])
def test_a_step_takes_what_the_simulation_says(layout: dict[str, object], arch: object) -> None:
    experts = {"expert": 2} if arch is MOE else {}
    ran = 0
    for overlap in (
        Overlap(),
        Overlap(dp=False, pp=False),
        Overlap(dp=True, tp=True, ep=True),
        Overlap(aligned=False),
    ):
        asked = job(batch=64, overlap=overlap, **layout, **experts)
        try:
            expected = simulate(asked, arch, machine(2)).step_time  # type: ignore[arg-type]
        except PlanError:
            continue
        assert _quick(asked, arch) == pytest.approx(expected, rel=1e-12)
        ran += 1
    assert ran


@pytest.mark.parametrize("layout", ON_HOST, ids=str)
@pytest.mark.parametrize("batch", [16, 64])
def test_so_does_one_with_weights_on_the_host(layout: dict[str, object], batch: int) -> None:
    for overlap in (Overlap(), Overlap(dp=False), Overlap(prefetch=2)):
        asked = job(batch=batch, overlap=overlap, offload=("weights",), **layout).model_copy(
            update={"software": "fsdp-2025"}
        )
        expected = simulate(asked, DENSE, machine(2)).step_time
        assert _quick(asked, DENSE) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("layout", [{}, {"pipeline": 2}, {"pipeline": 4, "virtual_pipeline": 2}], ids=str)
def test_so_does_one_with_apexs_buckets(layout: dict[str, object]) -> None:
    apex = {"software": "nemo-2024", "apex_bucket": 4 * 2.0**20, "gradient_dtype": "bf16"}
    for overlap in (Overlap(), Overlap(dp=False)):
        asked = job(batch=64, overlap=overlap, **layout).model_copy(update=apex)
        expected = simulate(asked, DENSE, machine(2)).step_time
        assert _quick(asked, DENSE) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", ["fp8", "fp8_block"])
def test_so_does_one_whose_first_passes_make_weights_narrow(layout: dict[str, object], dtype: str) -> None:
    ran = 0
    for arch, more in ((DENSE, {}), (MOE, {"expert": 2, "overlap": Overlap(ep=True)})):
        asked = job(batch=64, dtype=dtype, **layout, **more)
        try:
            expected = simulate(asked, arch, machine(2)).step_time
        except PlanError:
            continue
        assert _quick(asked, arch) == pytest.approx(expected, rel=1e-12)
        ran += 1
    assert ran


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_so_does_one_whose_passes_wait_for_launches(layout: dict[str, object]) -> None:
    """A host that is ahead after passes beside gathers and reductions shortens what it launches next."""
    ran = 0
    for overlap, host in ((Overlap(), 8.0), (Overlap(), 20.0), (Overlap(dp=False, pp=False), 8.0)):
        asked = job(batch=64, overlap=overlap, **layout)
        try:
            expected = simulate(asked, DENSE, machine(2), pace=Pace(host=host)).step_time
        except PlanError:
            continue
        assert _quick(asked, DENSE, Pace(host=host)) == pytest.approx(expected, rel=1e-12)
        ran += 1
    assert ran


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "experts"])
def test_so_does_one_whose_communications_meet_on_slots(layout: dict[str, object], arch: object) -> None:
    one, experts, ran = machine(2, server="server-8x-h100-pcie"), {"expert": 2} if arch is MOE else {}, 0
    for overlap in (Overlap(), Overlap(tp=True, ep=True)):
        asked = job(batch=64, sequence=4096, overlap=overlap, **layout, **experts)
        try:
            expected = simulate(asked, arch, one).step_time  # type: ignore[arg-type]
        except PlanError:
            continue
        assert _quick(asked, arch, one=one) == pytest.approx(expected, rel=1e-12)
        ran += 1
    assert ran


def _quick(asked: TrainingJob, arch: object, pace: Pace | None = None, one: Machine | None = None) -> float:
    one = one or machine(2)
    fabric = one.network.fabric
    check(asked, arch, fabric)  # type: ignore[arg-type]
    pace = pace or pace_of(asked, one.gpu, job_gpus(asked, fabric))
    prices = Prices(one, place(asked, fabric), predict)
    kernel = kernel_timer(one, pace, attention_kernels(asked, one.gpu))
    book = PassBook(Work(asked, arch, prices, kernel, pace, layer_copies(asked, arch, one)))  # type: ignore[arg-type]
    return step_seconds(asked, arch, prices, kernel, pace, book)  # type: ignore[arg-type]


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 40), slowdown=st.sampled_from([1.0, 1.1, 1.5]))
def test_lanes_of_a_pass(seed: int, count: int, slowdown: float) -> None:
    """Random tasks on all lanes: the same duration and the same end of compute."""
    rng = random.Random(seed)
    slots, tasks = rng.random() < 0.7, []
    for i in range(count):
        seconds = rng.choice([0.0, 1.0, 1.0, rng.random()])
        wire = rng.choice([0.0, seconds, seconds * rng.random()])
        after = tuple(sorted(rng.sample(range(i), rng.randint(0, min(i, 3)))))
        uses = Uses(rng.random() < 0.5, rng.choice([0.0, 0.5, 1.0, rng.random()]) if slots else 0.0)
        tasks.append(Task(rng.choice(LANES[:8]), "x", "x", seconds, after, wire=wire, uses=uses))
    expected = run(tasks, slowdown)
    last = max((s.end for s in expected.spans if s.task.lane == "compute"), default=0.0)
    ((duration, end),) = pass_times(tasks, slowdown)
    assert (duration, end) == pytest.approx((expected.duration, last), rel=1e-12, abs=1e-15)
    assert pass_times(tasks, slowdown, slowdown) == ((duration, end),) * 2


@pytest.mark.parametrize(
    ("name", "chunks", "shape"),
    [
        ("1f1b", 1, "loop"),
        ("interleaved", 2, "loop"),
        ("zb-h1", 1, "loop"),
        ("zb-h1", 3, "loop"),
        ("zb-v", 2, "fold"),
        ("dualpipe", 2, "mirror"),
        ("dualpipe-v", 2, "fold"),
        ("paired", 2, "loop"),
    ],
)
@pytest.mark.parametrize("blocking", [False, True])
def test_passes_of_known_length_are_placed_as_the_pipeline_places_them(
    name: str, chunks: int, shape: Shape, blocking: bool
) -> None:
    stages, count, send = 4, 12, 0.3
    rng = np.random.default_rng(5)
    seconds = rng.random((stages, chunks, len(KINDS)))
    route = Route(stages, chunks, shape)
    placed = compose(
        schedule(stages, chunks, count, name),
        chunks,
        count,
        lambda s, unit, start: float(seconds[s, unit.chunk, KINDS[unit.kind]]),
        send,
        blocking,
        route,
    )
    ends = [max(p.send_start + p.sent if blocking else p.end for p in one) for one in placed]
    assert finish_times(route, count, name, seconds, send, blocking) == pytest.approx(ends, rel=1e-12)
