"""Tasks on lanes: in order per lane, interference, exposure, and the ways communication hides."""

from __future__ import annotations

import pytest

from railwright.training.chain import Chain, take_turns
from railwright.training.lanes import Task, run


def compute(seconds: float, *after: int, gate: int = -1) -> Task:
    return Task("compute", "work", "mlp", seconds, after, gate)


def test_blocking_communication_is_fully_exposed() -> None:
    done = run([compute(1.0), Task("tp", "tp all-reduce", "all_reduce", 0.5, (0,)), compute(1.0, 1)], 1.2)
    assert done.duration == pytest.approx(2.5)
    assert done.exposed == pytest.approx({"compute": 2.0, "tp": 0.5})


def test_compute_under_communication_takes_slowdown_times_as_long() -> None:
    # 1.0 s of communication beside 2.0 s of compute at slowdown 1.25: in the first second 0.8 s get done
    done = run([Task("dp", "dp gradients", "reduce_scatter", 1.0), compute(2.0)], 1.25)
    assert done.duration == pytest.approx(1.0 + 1.2)
    assert done.exposed == pytest.approx({"compute": 2.2})


def test_a_reduction_that_outlasts_the_pass_spills_over() -> None:
    done = run([compute(1.0), Task("dp", "dp gradients", "reduce_scatter", 3.0, (0,))], 1.2)
    assert done.duration == pytest.approx(1.0)
    assert done.dp_end == pytest.approx(4.0)


def test_a_lane_keeps_its_order() -> None:
    # the second dp task could start at once, but its stream is held by the first, which waits for compute
    tasks = [
        compute(2.0),
        Task("dp", "a", "reduce_scatter", 1.0, (0,)),
        Task("dp", "b", "reduce_scatter", 1.0),
    ]
    spans = {s.task.name: s for s in run(tasks).spans}
    assert spans["b"].start == pytest.approx(3.0)


def test_parameters_that_arrive_late_are_charged_to_dp() -> None:
    done = run([compute(1.0, gate=0), compute(1.0, 0, gate=1)], 1.5, gates=[0.5, 1.0], dp_until=1.0)
    # from 0.5 to 1.0 slowed: 1/3 done; 2/3 left
    assert done.duration == pytest.approx(1.0 + 2 / 3 + 1.0)
    assert done.exposed == pytest.approx({"dp": 0.5, "compute": 0.5 + 2 / 3 + 1.0})


def test_a_gather_in_t_shards_exposes_nothing_when_products_are_slower() -> None:
    # 4 shards, 3 transfers of 0.1 beside products of 0.25: all hidden
    chain = Chain()
    chain.gather_into(("tp all-gather", "all_gather", 0.3, 1.0), "attention", "attention", 1.0, 4)
    assert run(take_turns([chain])).duration == pytest.approx(1.0)


def test_a_gather_in_t_shards_is_bound_by_slower_transfers() -> None:
    # transfers of 0.5 each: three of them, then the last product of 0.25
    chain = Chain()
    chain.gather_into(("tp all-gather", "all_gather", 1.5, 1.0), "attention", "attention", 1.0, 4)
    assert run(take_turns([chain])).duration == pytest.approx(1.5 + 0.25)


def test_a_reduction_in_t_shards_exposes_its_last_shard() -> None:
    chain = Chain()
    chain.reduce_out_of(("tp reduce-scatter", "reduce_scatter", 0.4, 1.0), "mlp", "mlp", 1.0, 4)
    assert run(take_turns([chain])).duration == pytest.approx(1.1)


def half() -> Chain:
    """Half a microbatch: attention 0.5, dispatch 0.4, experts 0.5, combine 0.4, rest 0.1."""
    chain = Chain()
    chain.compute("attention", "attention", 0.5)
    chain.communicate("ep", "ep dispatch", "all_to_all", 0.4, 1.0)
    chain.cut()
    chain.compute("experts", "experts", 0.5)
    chain.communicate("ep", "ep combine", "all_to_all", 0.4, 1.0)
    chain.cut()
    chain.compute("rest", "experts", 0.1)
    chain.flush()
    return chain


def test_half_microbatches_hide_all_to_all_behind_each_other() -> None:
    # A: att 0-.5, B: att .5-1, A: experts 1-1.5, B: experts 1.5-2, A's combine ends 1.9, rest of A 2-2.1,
    # B's combine 2-2.4, rest of B 2.4-2.5
    done = run(take_turns([half(), half()]))
    assert done.duration == pytest.approx(2.5)
    assert done.exposed["ep"] == pytest.approx(0.3)


def test_one_whole_microbatch_exposes_every_all_to_all() -> None:
    assert run(take_turns([half()])).exposed["ep"] == pytest.approx(0.8)
