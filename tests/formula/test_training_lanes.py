"""Tasks on lanes: in order per lane, interference, exposure, and the ways communication hides."""

from __future__ import annotations

from math import inf

import pytest

from railwright.training.lanes.contention import Uses
from railwright.training.lanes.tasks import Begun, Task, drain, run
from railwright.training.lanes.timeline import Lane
from railwright.training.layers.communication import Comm
from railwright.training.passes.chain import Chain, take_turns, woven


def compute(seconds: float, *after: int) -> Task:
    return Task("compute", "work", "mlp", seconds, after)


def test_blocking_communication_is_fully_exposed() -> None:
    done = run([compute(1.0), Task("tp", "tp all-reduce", "all_reduce", 0.5, (0,)), compute(1.0, 1)], 1.2)
    assert done.duration == pytest.approx(2.5)
    assert done.exposed == pytest.approx({"compute": 2.0, "tp": 0.5})


def test_compute_under_communication_takes_slowdown_times_as_long() -> None:
    # 1.0 s of communication beside 2.0 s of compute at slowdown 1.25: in the first second 0.8 s get done
    done = run([Task("dp", "dp gradients", "reduce_scatter", 1.0), compute(2.0)], 1.25)
    assert done.duration == pytest.approx(1.0 + 1.2)
    assert done.exposed == pytest.approx({"compute": 2.2})


def test_a_reduction_that_outlasts_the_pass_is_handed_on() -> None:
    done = run([compute(1.0), Task("dp", "dp gradients", "reduce_scatter", 3.0, (0,)), compute(1.2, 0)], 1.2)
    assert done.duration == pytest.approx(1.0 + 1.2 * 1.2)
    (rest,) = done.left
    assert rest.fixed == pytest.approx(3.0 - 1.44)
    assert rest.start == pytest.approx(1.0)


def test_dp_work_goes_on_alone_between_passes() -> None:
    two = [Begun.new(Task("dp", name, "reduce_scatter", 1.0, wire=0.5)) for name in "ab"]
    spans, left = drain(two, 1.75)
    assert [(s.task.name, s.start, s.end) for s in spans] == [("a", 0.0, 1.0)]
    assert [(one.start, one.fixed, one.wire) for one in left] == [(-0.75, 0.0, 0.25)]
    spans, left = drain(left, inf)
    assert (spans[0].start, spans[0].end, left) == (-0.75, 0.25, ())


def test_two_communications_over_the_nics_get_half_each() -> None:
    # both need the NIC for 1 s alone; from 0.2 (after its start-up) the exchange shares with the reduction
    tasks = [
        Task("dp", "dp gradients", "reduce_scatter", 1.0, wire=1.0),
        Task("ep", "ep dispatch", "all_to_all", 1.2, wire=1.0),
    ]
    done = run(tasks)
    # alone until 0.2, then 0.8 of the reduction takes 1.6 s while 0.8 of the exchange is done; 0.2 is left
    assert {s.task.lane: s.end for s in done.spans} == pytest.approx({"dp": 1.8, "ep": 2.0})


def test_communication_inside_servers_shares_nothing_where_gpus_have_scale_up_links() -> None:
    tasks = [
        Task("dp", "dp gradients", "reduce_scatter", 1.0, wire=1.0),
        Task("ep", "ep dispatch", "all_to_all", 1.2),
    ]
    assert run(tasks).duration == pytest.approx(1.2)


def test_a_lane_keeps_its_order() -> None:
    # the second tp task could start at once, but its stream is held by the first, which waits for compute
    tasks = [compute(2.0), Task("tp", "a", "all_reduce", 1.0, (0,)), Task("tp", "b", "all_reduce", 1.0)]
    spans = {s.task.name: s for s in run(tasks).spans}
    assert spans["b"].start == pytest.approx(3.0)


def test_parameters_that_arrive_late_are_charged_to_dp() -> None:
    # the first bucket arrives at 0.5, the second at 1.0; compute between is slowed: 1/3 done, 2/3 left
    gathers = [Begun.new(Task("dp", name, "all_gather", 0.5)) for name in "ab"]
    layers = [compute(1.0)._replace(layer=0), compute(1.0, 0)._replace(layer=1)]
    done = run(layers, 1.5, gathers, {0: 0, 1: 1})
    assert done.duration == pytest.approx(1.0 + 2 / 3 + 1.0)
    assert done.exposed == pytest.approx({"dp": 0.5, "compute": 0.5 + 2 / 3 + 1.0})


def test_a_gather_in_t_shards_exposes_nothing_when_products_are_slower() -> None:
    # 4 shards, 3 transfers of 0.1 beside products of 0.25: all hidden
    chain = Chain()
    chain.gather_into(Comm("tp", "tp all-gather", "all_gather", 0.3, 1.0), "attention", "attention", 1.0, 4)
    assert run(take_turns([chain])).duration == pytest.approx(1.0)


def test_a_gather_in_t_shards_is_bound_by_slower_transfers() -> None:
    # transfers of 0.5 each: three of them, then the last product of 0.25
    chain = Chain()
    chain.gather_into(Comm("tp", "tp all-gather", "all_gather", 1.5, 1.0), "attention", "attention", 1.0, 4)
    assert run(take_turns([chain])).duration == pytest.approx(1.5 + 0.25)


def test_a_reduction_in_t_shards_exposes_its_last_shard() -> None:
    chain = Chain()
    chain.reduce_out_of(Comm("tp", "tp reduce-scatter", "reduce_scatter", 0.4, 1.0), "mlp", "mlp", 1.0, 4)
    assert run(take_turns([chain])).duration == pytest.approx(1.1)


def half() -> Chain:
    """Half a microbatch: attention 0.5, dispatch 0.4, experts 0.5, combine 0.4, rest 0.1."""
    chain = Chain()
    chain.compute("attention", "attention", 0.5)
    chain.communicate(Comm("ep", "ep dispatch", "all_to_all", 0.4, 1.0))
    chain.cut()
    chain.compute("experts", "experts", 0.5)
    chain.communicate(Comm("ep", "ep combine", "all_to_all", 0.4, 1.0))
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


def layered(layers: range, all_to_alls: int) -> Chain:
    """Layers with some all-to-alls each, behind compute of 1 that no other waits for."""
    chain = Chain()
    for layer in layers:
        chain.at_layer(layer)
        for i in range(all_to_alls):
            chain.compute(f"{layer}.{i}", "experts", 1.0)
            chain.communicate(Comm("ep", "ep dispatch", "all_to_all", 0.5, 1.0))
            chain.cut()
    return chain


def test_a_pass_with_twice_the_all_to_alls_goes_on_layer_beside_layer() -> None:
    # as a backward pass that computes its layers again beside a forward one
    tasks = take_turns([layered(range(1, -1, -1), 4), layered(range(10, 12), 2)])
    names = [task.name for task in tasks if task.lane == "compute"]
    assert names == ["1.0", "10.0", "1.1", "10.1", "1.2", "1.3", "0.0", "11.0", "0.1", "11.1", "0.2", "0.3"]
    same = take_turns([layered(range(2), 2), layered(range(10, 12), 2)])
    assert [task.name for task in same if task.lane == "compute"] == (
        ["0.0", "10.0", "0.1", "10.1", "1.0", "11.0", "1.1", "11.1"]
    )
    longer = take_turns([layered(range(2), 1), layered(range(10, 13), 1)])
    assert [task.name for task in longer if task.lane == "compute"] == ["0.0", "10.0", "1.0", "11.0", "12.0"]


def test_one_whole_microbatch_exposes_every_all_to_all() -> None:
    assert run(take_turns([half()])).exposed["ep"] == pytest.approx(0.8)


def test_a_unit_is_over_when_it_is_computed_and_launched_and_does_not_wait_for_its_copy() -> None:
    # 2 s computed, launched in 1 s, copied until the third: its gradients go from 2 to 3 s, the next unit's
    # parameters come from 3 to 4 s, and that computes from 4 to 5 s
    tasks = [
        Task("compute", "work", "mlp", 2.0, (), 0),
        Task("host", "launching", "launch", 1.0, (), 0),
        Task("copy", "activations to host", "copy", 1.5, (0,), 0),
        Task("compute", "work", "mlp", 1.0, (0, 1), 1),
    ]
    gather = Task("dp", "dp parameters", "all_gather", 1.0, (), 1)
    reduce = Task("dp", "dp gradients", "reduce_scatter", 1.0, (), 0)
    found = woven(tasks, (0, 1), {1: (gather,)}, {0: (reduce,)}, 0)
    assert [task.name for task in found[4:]] == ["dp gradients", "dp parameters"]
    assert all(set(task.after) == {0, 1} for task in found[4:])
    assert run(found).duration == pytest.approx(5.0)


def crossing(seconds: float, slot: float) -> Task:
    return Task("dp", "dp gradients", "reduce_scatter", seconds, wire=seconds, uses=Uses(True, slot))


def inside(seconds: float, slot: float, lane: Lane = "tp") -> Task:
    return Task(lane, "inside", "all_reduce", seconds, wire=seconds, uses=Uses(False, slot))


def ends(*tasks: Task) -> dict[str, float]:
    waits = Task("compute", "end", "wait", 0.0, tuple(range(len(tasks))))
    return {s.task.lane: s.end for s in run([*tasks, waits]).spans if s.task.lane != "compute"}


def test_two_communications_that_fill_a_pcie_slot_get_half_each() -> None:
    # one through NICs, one inside its server: 1 s of each at half the pace, then the other 1 s alone
    assert ends(crossing(1.0, 1.0), inside(2.0, 1.0)) == pytest.approx({"dp": 2.0, "tp": 3.0})
    # and two inside
    assert ends(inside(1.0, 1.0), inside(2.0, 1.0, "ep")) == pytest.approx({"tp": 2.0, "ep": 3.0})


def test_what_needs_less_than_half_of_a_slot_keeps_its_pace() -> None:
    # the NIC fills a quarter of the slot for 2 s; meanwhile the other has three quarters of it
    assert ends(crossing(2.0, 0.25), inside(2.0, 1.0)) == pytest.approx({"dp": 2.0, "tp": 2.5})


def test_a_slot_that_is_not_full_slows_nobody() -> None:
    assert ends(crossing(2.0, 0.4), inside(2.0, 0.6)) == pytest.approx({"dp": 2.0, "tp": 2.0})


def test_start_up_shares_no_slot() -> None:
    # 0.5 s of start-up beside 0.5 s of the reduction, then 1 s each at half the pace
    late = inside(1.5, 1.0)._replace(wire=1.0)
    assert ends(crossing(1.5, 1.0), late) == pytest.approx({"dp": 2.5, "tp": 2.5})


def test_two_through_nics_leave_room_in_the_slot_for_one_inside() -> None:
    # each of the two has half of the NIC and so wants a quarter of the slot; the third has the other half
    found = ends(crossing(1.0, 0.5), crossing(1.0, 0.5)._replace(lane="ep"), inside(1.0, 1.0))
    assert found == pytest.approx({"dp": 2.0, "ep": 2.0, "tp": 2.0})
