"""Forwards and backwards that run together: what they hide, what they need, what stands alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import hypot

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.tasks import Task, ahead_of, is_ahead, run
from railwright.training.layers.communication import Prices
from railwright.training.layout.placement import place
from railwright.training.layout.route import Chunk
from railwright.training.layout.schedule import order_name
from railwright.training.passes.lockstep import WAIT, Lockstep, without_waits
from railwright.training.passes.weights import LAST_WEIGHTS
from railwright.training.passes.work import Work
from railwright.training.software.constants import constant
from railwright.training.software.eras import Pace
from railwright.training.software.stragglers import pass_wait
from railwright.training.step.stage import PassBook
from training_cases import DENSE, MOE, job, machine, priced, roofline

SLOWDOWN = 1.189
HIDDEN = Overlap(ep=True)
GRAPHS = {"cuda_graphs": ("step",)}
"""Nothing is launched, so that kernels and messages alone count."""

LAYER = Chunk(("moe",) * 2, False, False)


def asked(graphs: bool = True, **what: object) -> TrainingJob:
    found = job(gpus=8, expert=8, overlap=HIDDEN, **what)  # type: ignore[arg-type]
    return found.model_copy(update=GRAPHS) if graphs else found


def work_of(one: TrainingJob, arch: Transformer = MOE, bandwidth: float = 50e9, host: float = 1.0) -> Work:
    where = machine(1)
    prices = Prices(where, place(one, where.network.fabric), priced(bandwidth))
    return Work(one, arch, prices, roofline, Pace(host=host))


def seconds(tasks: list[Task], lane: str) -> float:
    return sum(task.duration for task in tasks if task.lane == lane)


@pytest.mark.parametrize(
    ("layout", "paired"),
    [
        ({}, True),
        ({"zero": 2}, True),
        ({"pipeline": 2, "virtual_pipeline": 2}, True),
        # Megatron-LM pairs nothing in the pipelines, nor is it modelled where parameters are sharded
        ({"pipeline": 2}, False),
        ({"pipeline": 2, "schedule": "gpipe"}, False),
        ({"zero": 3}, False),
        ({"expert": 1}, False),
    ],
)
def test_what_is_paired(layout: dict[str, object], paired: bool) -> None:
    one = job(**{"expert": 4, "overlap": HIDDEN, **layout})  # type: ignore[arg-type]
    assert (order_name(one) == "paired") == paired
    assert order_name(one.model_copy(update={"overlap": Overlap()})) != "paired"


@pytest.mark.parametrize("layout", [{"pipeline": 2}, {"pipeline": 2, "schedule": "gpipe"}, {"zero": 3}])
def test_nothing_hides_where_nothing_is_paired(layout: dict[str, object]) -> None:
    """No framework cuts a microbatch so that its parts take turns."""
    one = job(**{"expert": 4, "overlap": HIDDEN, **layout})  # type: ignore[arg-type]
    exposed = one.model_copy(update={"overlap": Overlap()})
    times = [simulate(each, MOE, machine(1), predict=priced(50e9)).step_time for each in (one, exposed)]
    assert times[0] == times[1]


def test_one_microbatch_has_nothing_to_hide_behind() -> None:
    one = asked(batch=8)
    alone = one.model_copy(update={"overlap": Overlap()})
    times = [simulate(each, MOE, machine(1), predict=priced(50e9)).step_time for each in (one, alone)]
    assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_all_to_alls_run_beside_the_other_pass() -> None:
    """Two passes at once take their compute, slowed while messages last, and what neither can hide: the first
    combine's gradients, when nothing of the forward pass has begun, and the last combine."""
    work = work_of(asked())
    forward, backward = without_waits(work.forward(LAYER)), without_waits(work.backward(LAYER))
    both = without_waits(work.both(LAYER, LAYER))
    for lane in ("compute", "ep"):
        assert seconds(both, lane) == pytest.approx(seconds(forward, lane) + seconds(backward, lane))
    compute, sent = seconds(both, "compute"), seconds(both, "ep")
    one = run(both, SLOWDOWN)
    alone = run(forward, SLOWDOWN).duration + run(backward, SLOWDOWN).duration
    assert alone == pytest.approx(compute + sent)
    assert compute + (1 - 1 / SLOWDOWN) * sent <= one.duration * (1 + 1e-12)
    assert one.duration < alone
    assert one.exposed.get("ep", 0.0) < 0.3 * sent


def test_messages_longer_than_compute_bound_the_pair() -> None:
    work = work_of(asked(), bandwidth=1e9)
    both = without_waits(work.both(LAYER, LAYER))
    assert run(both, SLOWDOWN).duration >= seconds(both, "ep") > seconds(both, "compute")


def test_the_pair_ends_with_weight_gradients_behind_its_result() -> None:
    """The forward result is there with its last combine, the backward one before its last weight gradients:
    both while the pass still computes."""
    one = asked()
    work = work_of(one)
    both = work.both(LAYER, LAYER)
    (weights,) = [task for task in both if task.name == LAST_WEIGHTS]
    spans = run(both, SLOWDOWN).spans
    book = PassBook(work)
    early_f, early_b = book.early((LAYER, LAYER))
    duration = run(both, book.slowdown).duration
    combined = max(s.end for s in spans if s.task.lane == "ep" and is_ahead(s.task.layer))
    assert early_f == pytest.approx(duration - combined, rel=1e-6)
    assert early_b >= weights.duration > 0
    # whole passes alone compute them in one piece
    assert not [task for task in work.backward(LAYER) if task.name == LAST_WEIGHTS]
    plain = asked().model_copy(
        update={"overlap": Overlap(), "layout": Layout(schedule="dualpipe", pipeline=2)}
    )
    assert PassBook(work_of(plain.model_copy(update={"gpus": None}), DENSE)).early((LAYER, LAYER)) == (0, 0)


@pytest.mark.parametrize("host", [0.01, 0.1, 0.3, 1.0, 3.0, 30.0])
def test_the_host_launches_both(host: float) -> None:
    """The pair takes all its launches where they are longer than all its compute; else none is seen, though
    one of the two passes alone might wait for its own."""
    one = asked(graphs=False)

    def apart(factor: float) -> float:
        slow = work_of(one, host=factor)
        return sum(seconds(tasks, "host") for tasks in (slow.forward(LAYER), slow.backward(LAYER)))

    # what follows the first of a row of PyTorch's operations is no call that the factor multiplies
    each = (apart(200.0) - apart(100.0)) / 100.0
    launches = apart(100.0) + (host - 100.0) * each
    both = without_waits(work_of(one, host=host).both(LAYER, LAYER))
    longer = launches > seconds(both, "compute")
    assert seconds(both, "host") == pytest.approx(launches if longer else 0.0)
    assert run(both, 1.0).duration >= launches * (1 - 1e-9)


def test_ranks_wait_once_for_what_varies_in_both() -> None:
    where = machine(1)
    one = asked()
    step = Lockstep(one, Prices(where, place(one, where.network.fabric), priced(0.0)))
    tasks = [Task("compute", "a", "a", 3.0, (), ahead_of(0)), Task("compute", "b", "b", 4.0, (), 0)]
    (wait,) = step.after_both(tasks, 1, 1)
    assert wait.name == WAIT
    # what the two take varies apart, and detours come in either
    varies = constant("pass_spread") * hypot(3.0, 4.0)
    assert wait.duration == pytest.approx(pass_wait(step.groups, step.gpus, 7.0, varies))
    apart = step.after(tasks[:1], 1, "forward")[0].duration + step.after(tasks[1:], 1, "backward")[0].duration
    assert wait.duration < apart


def test_a_pass_fills_up_as_the_other_empties() -> None:
    """Layer by layer, so that one layer more is held and no whole microbatch."""
    plain = asked(batch=64).model_copy(update={"overlap": Overlap()})
    kept = [
        simulate(each, MOE, machine(1), predict=priced(0.0)).memory.stages[0]
        for each in (plain, asked(batch=64))
    ]
    assert [stage.passes for stage in kept] == [1, 1]
    assert kept[1].parts["activations"] == kept[0].parts["activations"]


def test_both_passes_are_drawn_under_their_own_names() -> None:
    one = job(batch=32, expert=4, pipeline=2, virtual_pipeline=2, overlap=HIDDEN)
    step = simulate(one, MOE, machine(1))
    drawn = {event.unit for event in step.timeline.events if event.unit is not None and event.rank == 0}
    assert {unit[0] for unit in drawn} == {"F", "B"}
    count = 32 // 4
    assert len(drawn) == 2 * 2 * count
    named = [event for event in step.timeline.events if event.unit is not None and event.lane == "compute"]
    assert all(f"microbatch {event.unit[2] + 1}" in event.name for event in named if event.unit)
    layers = {event.name.split(" attention")[0] for event in named if " attention, " in event.name}
    assert layers == {f"layer {n}" for n in range(1, 9)}
    assert sum(share.exposed for share in step.shares) == pytest.approx(step.step_time)
    sends = [event for event in step.timeline.events if event.kind == "send" and event.rank == 0]
    # of stage 0 all forwards leave, and all backwards but those of the first piece
    assert len(sends) == 2 * count + count
    assert all(a.end <= b.start + 1e-12 for a, b in pairwise(sends))


def test_activations_of_both_passes_are_copied() -> None:
    one = asked(batch=64, offload=("activations",))
    step = simulate(one, replace(MOE, layers=4), machine(1))
    copies = [event for event in step.timeline.events if event.lane == "copy"]
    assert {event.unit[0] for event in copies if event.unit} == {"F", "B"}
    assert len(copies) == 2 * 3 * 8


def test_numbers_of_layers_ahead_are_their_own_inverse() -> None:
    for layer in range(-1, 5):
        assert is_ahead(ahead_of(layer))
        assert not is_ahead(layer)
        assert ahead_of(ahead_of(layer)) == layer
