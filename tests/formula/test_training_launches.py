"""Passes and what launches them: a host that runs ahead, two passes at once, and nothing faster that makes a
step longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.collectives.machine import Machine
from railwright.collectives.prediction import CollectivePrediction, Op
from railwright.model import Cut, layer_operators, load_model
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Overlap
from railwright.traffic.demand import Communicator
from railwright.training import simulate
from railwright.training.lanes.tasks import Task, run
from railwright.training.passes.host_queue import behind_launches
from railwright.training.software.constants import constant
from railwright.training.software.eras import Pace
from railwright.training.software.host import launch_times, shared_out
from training_cases import DELTA, DENSE, MIXED, MOE, changed, job, machine, priced, roofline

H100 = machine().gpu


@pytest.mark.parametrize(
    ("launched", "run", "takes"),
    [
        ((3.0, 6.0), (1.0, 2.0), (3.0, 6.0)),  # both are launched more slowly than they run
        ((3.0, 6.0), (4.0, 2.0), (4.0, 5.0)),  # while the forward pass runs the host gets one ahead
        ((3.0, 6.0), (1.0, 7.0), (2.0, 7.0)),  # the host is one ahead behind the backward pass
        ((3.0, 6.0), (1.0, 7.9), (1.1, 7.9)),
        ((3.0, 0.0), (1.0, 1.5), (1.5, 1.5)),  # a backward pass that a graph holds
        ((3.0, 3.0, 3.0), (1.0, 1.0, 1.0), (3.0, 3.0, 3.0)),  # a split one waits for its own launches alone
        ((3.0, 3.0, 3.0), (1.0, 4.0, 1.0), (3.0, 4.0, 2.0)),
        ((3.0, 3.0, 3.0), (1.0, 1.0, 6.0), (1.0, 2.0, 6.0)),  # three ahead, of which one is left
    ],
)
def test_passes_share_out_their_launches(
    launched: tuple[float, ...], run: tuple[float, ...], takes: tuple[float, ...]
) -> None:
    assert shared_out(launched, run) == pytest.approx(takes)
    assert sum(takes) == pytest.approx(sum(launched))


@given(st.lists(st.tuples(st.floats(0.0, 9.0), st.floats(0.0, 9.0)), min_size=1, max_size=4))
def test_shares_are_those_of_a_host_that_runs_ahead_microbatch_after_microbatch(
    passes: list[tuple[float, float]],
) -> None:
    launched, run = zip(*passes, strict=True)
    host = gpu = 0.0
    for _microbatch in range(30):
        ends = []
        for needs, lasts in passes:
            host += needs
            ends.append((gpu, gpu := max(host, gpu + lasts)))
    takes = shared_out(launched, run)
    assert takes == pytest.approx([end - begin for begin, end in ends], abs=1e-9)
    assert sum(takes) == pytest.approx(max(sum(launched), sum(run)), abs=1e-9)


@pytest.mark.parametrize(
    ("virtual", "schedule"), [(1, "1f1b"), (3, "interleaved"), (4, "interleaved"), (1, "zb-h1")]
)
@pytest.mark.parametrize("batch", [32, 128])
def test_faster_kernels_never_make_a_launched_pipeline_longer(
    virtual: int, schedule: str, batch: int
) -> None:
    """Stages of 32 layers in twelve pieces are uneven; launches bind from the second on."""
    arch = replace(DENSE, layers=32)
    wanted = job(batch=batch, tensor=2, pipeline=4, virtual_pipeline=virtual, schedule=schedule)

    def step(kernel: float) -> float:
        return simulate(
            wanted, arch, machine(4), predict=priced(50e9), kernel=lambda _: kernel, pace=Pace(host=4.0)
        ).step_time

    times = [step(kernel) for kernel in (0.0, 1e-6, 1e-5, 3e-5, 1e-4, 3e-4)]
    assert times == sorted(times)
    assert times[0] == pytest.approx(times[1], rel=1e-3)
    assert times[-1] > 1.2 * times[0]


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(
    "arch", [MOE, DELTA, MIXED, replace(MOE, dense_layers=3)], ids=lambda arch: arch.name
)
def test_every_launch_counts_once_whether_passes_take_turns_or_not(arch: Transformer, recompute: str) -> None:
    """Kernels take no time, so that the host decides; layers without experts lie between those with them."""
    cut = {"recompute": recompute, "expert": 8, "batch": 128}
    free = {"predict": priced(0.0), "kernel": lambda _: 0.0, "pace": Pace(host=4.0)}
    steps = [
        simulate(job(**cut, overlap=Overlap(ep=ep)), arch, machine(4), **free)  # type: ignore[arg-type]
        for ep in (False, True)
    ]
    alone, paired = (sum(s.busy for s in step.shares if s.kind == "host") for step in steps)
    # a forward pass whose layers wait for the host begins no layer before the host is there
    assert paired == pytest.approx(alone)
    assert steps[1].step_time == pytest.approx(steps[0].step_time, rel=0.01)


def test_experts_that_take_longer_never_make_passes_in_pairs_shorter() -> None:
    """Not where a long head makes the compute of a whole pass longer than its launches, either."""
    arch = replace(MOE, vocab=800_000)
    wanted = job(expert=4, batch=128, sequence=4096, overlap=Overlap(ep=True))

    def step(seconds: float) -> float:
        slow = {
            "kernel": lambda op: roofline(op) + seconds * (op.kind == "grouped_gemm"),
            "pace": Pace(host=8.0),
        }
        return simulate(wanted, arch, machine(4), predict=priced(50e9), **slow).step_time  # type: ignore[arg-type]

    times = [step(i * 2e-5) for i in range(12)]
    assert times == sorted(times)
    assert max(b / a for a, b in pairwise(times)) < 1.02


def sent(name: str, seconds: float, after: tuple[int, ...], layer: int = 0) -> Task:
    return Task("ep", name, "all_to_all", seconds, after, layer, size=1.0)


def computed(name: str, seconds: float, after: tuple[int, ...] = (), layer: int = 0) -> Task:
    return Task("compute", name, "", seconds, after, layer)


TURNS = [
    computed("forward", 1.0),
    sent("dispatch", 1.0, (0,)),
    computed("backward", 3.0),
    computed("experts", 1.0, (1,)),
]
"""A forward pass of 2 s with an all-to-all, beside a backward one of 3 s."""


@pytest.mark.parametrize(
    ("tasks", "stretch", "seconds", "takes"),
    [
        (TURNS, [0] * 4, [0.0], 5.0),  # compute alone
        (TURNS, [0] * 4, [5.0 + 1e-9], 5.0),
        (TURNS, [0] * 4, [10.0], 10.0),
        (TURNS[:2], [0] * 2, [1.5], 2.5),  # the all-to-all is launched behind what it sends
        ([*TURNS[:2], TURNS[3]], [0] * 3, [2.5], 3.25),  # while the GPU waits for it the host runs ahead
        ([*TURNS[:2], TURNS[3]], [0, 0, 1], [0.0, 2.5], 3.5),  # but not over the counts of tokens
        (TURNS[:2], [0, 0], [0.0], 2.0),
        ([sent("dispatch", 1.0, ())], [0], [3.0], 3.0),  # nothing computes
        ([], [], [3.0], 3.0),
    ],
)
def test_two_passes_wait_for_their_launches(
    tasks: list[Task], stretch: list[int | None], seconds: list[float], takes: float
) -> None:
    assert run(behind_launches(tasks, stretch, seconds)).duration == pytest.approx(takes, rel=1e-6)


STRETCHES = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, None]), st.floats(0.1, 9.0), st.floats(0.1, 9.0)),
    min_size=1,
    max_size=8,
)


@given(STRETCHES, STRETCHES, st.lists(st.floats(1.0, 3.0), min_size=3, max_size=3))
def test_no_task_of_two_passes_waits_much_for_few_launches(
    one: list[tuple[int | None, float, float]],
    other: list[tuple[int | None, float, float]],
    ratio: list[float],
) -> None:
    """All launches are there; longer ones make passes no shorter, slightly longer ones not much longer."""
    tasks: list[Task] = []
    stretch: list[int | None] = []
    last: dict[int, int] = {}
    both = [(i, which, *part) for which, chain in enumerate((one, other)) for i, part in enumerate(chain)]
    for _i, which, where, seconds, wait in sorted(both, key=lambda part: part[:2]):
        before = (last[which],) if which in last else ()
        tasks += [computed("", seconds, before), sent("", wait, (len(tasks),))]
        stretch += [where, where]
        last[which] = len(tasks) - 1
    compute = [
        sum(t.duration for t, s in zip(tasks, stretch, strict=True) if s == n and t.lane == "compute")
        for n in range(3)
    ]

    def duration(*ratio: float) -> float:
        launched = [a * b * (a > 1.0) for a, b in zip(ratio, compute, strict=True)]
        found = behind_launches(tasks, stretch, launched)
        assert sum(t.duration for t in found if t.lane == "host") == pytest.approx(sum(launched))
        return run(found).duration

    alone = duration(1.0, 1.0, 1.0)
    assert alone == pytest.approx(run(tasks).duration)
    for n in range(3):
        assert duration(*[1.0 + 1e-9 * (i == n) for i in range(3)]) == pytest.approx(alone, rel=1e-6)
    assert duration(*ratio) >= alone * (1 - 1e-9)
    assert duration(*[2.0 * r for r in ratio]) >= duration(*ratio) * (1 - 1e-9)
    assert duration(*ratio) <= alone + sum((r - 1.0) * c for r, c in zip(ratio, compute, strict=True)) + 1e-9


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_faster_gpu_never_makes_passes_in_pairs_longer(recompute: str) -> None:
    """Nemotron 3 Nano took 6 % longer on one that was 2 % faster: its layers differ in what they launch."""
    arch = load_model("nemotron-3-nano")
    wanted = job(expert=8, batch=32, sequence=8192, recompute=recompute, overlap=Overlap(ep=True))
    here = machine(1)

    def step(speed: float) -> float:
        gpu = here.gpu
        flops = {dtype: rate * speed for dtype, rate in gpu.peak_flops.items()}
        faster = replace(gpu, peak_flops=flops, hbm_bandwidth=gpu.hbm_bandwidth * speed)
        return simulate(
            wanted, arch, replace(here, gpu=faster), predict=priced(200e9), must_fit=False
        ).step_time

    times = [step(0.8 * 1.04**i) for i in range(24)]
    assert times == sorted(times, reverse=True)


def test_a_faster_network_never_makes_exchanges_over_few_nodes_longer() -> None:
    """What an exchange passes on inside servers behind the network is launched with it."""
    arch, wanted = replace(MOE, experts=32), changed(job(expert=16, batch=128), expert_nodes=2)

    def step(speed: float) -> float:
        def predict(
            machine: Machine, op: Op, size: float, groups: Sequence[Communicator]
        ) -> CollectivePrediction:
            crosses = groups[0].num_servers(machine.network.fabric) > 1
            return priced(speed * 25e9 if crosses else 200e9)(machine, op, size, groups)

        return simulate(wanted, arch, machine(4), predict=predict, pace=Pace(host=8.0)).step_time

    times = [step(speed) for speed in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_faster_network_never_makes_a_launched_step_longer(zero: int) -> None:
    """What runs beside a ring is slower for it, and the host as much further ahead: it was counted as if
    alone, so that a step got longer as the ring got shorter."""
    wanted = job(context=4, zero=zero, reduce_each=False, batch=16, gpus=8)
    times = [
        simulate(wanted, DENSE, machine(1), predict=priced(400e9, late), pace=Pace(host=20.0)).step_time
        for late in (1e-4, 5e-5, 2e-5, 1e-5, 5e-6, 2e-6)
    ]
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(times))


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_events_of_a_whole_pass_are_of_no_layer(schedule: str) -> None:
    """They had been called after one that the model does not have."""
    wanted = job(pipeline=2, batch=128, schedule=schedule)
    found = simulate(wanted, DENSE, machine(4), predict=priced(50e9), pace=Pace(host=20.0))
    names = {event.name for event in found.timeline.events if event.lane == "host"}
    assert any(name.startswith("launching the pass, microbatch") for name in names)
    assert not any(name.startswith("layer") for name in names)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("batch", [32, 64, 256])
def test_launches_are_all_that_a_step_waits_for_while_others_exchange(zero: int, batch: int) -> None:
    """The first forward pass waits for parameters and every pass may for shards, while the host launches on:
    kernels that take no time, or a little, make no difference."""
    wanted = job(batch=batch, tensor=2, zero=zero)

    def passes(kernel: float) -> float:
        found = simulate(
            wanted, DENSE, machine(4), predict=priced(50e9), kernel=lambda _: kernel, pace=Pace(host=20.0)
        )
        return max(event.end for event in found.timeline.events if event.unit)

    times = [passes(kernel) for kernel in (0.0, 1e-6, 1e-5, 3e-5, 1e-4)]
    # under zero 3 every pass ends with the slowest rank's, which is later the longer kernels run
    assert times == pytest.approx([times[0]] * 5, rel=0.01 if zero == 3 else 1e-9)
    per = launch_times(layer_operators(DENSE, "dense", 1024, 1024, Cut(tp=2)), H100, 20.0)
    calls = 4 * 20.0 * constant("host_operation_seconds")  # two reductions forward, two backward
    count = batch // 16
    assert times[0] == pytest.approx(count * DENSE.layers * (per.forward + per.backward + calls), rel=0.01)
