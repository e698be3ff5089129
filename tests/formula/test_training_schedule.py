"""Pipeline schedules meet their closed forms (Narayanan et al., SC'21; Korthikanti et al. 2022)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from railwright.model.shape.architecture import Operator
from railwright.training.layout.pipeline import compose
from railwright.training.layout.route import Route, Unit
from railwright.training.layout.schedule import (
    finishing,
    interleaved,
    one_f_one_b,
    paired,
    route_under,
    schedule,
)
from railwright.training.step.simulating import simulate
from training_cases import DENSE, MOE, changed, in_flight, job, machine, priced, roofline

F, B = 1.0, 2.0


def step(stages: int, chunks: int, microbatches: int, send: float = 0.0, blocking: bool = False) -> float:
    """Length of a step whose stages need F + B per microbatch, spread evenly over their chunks."""
    placed = compose(
        schedule(stages, chunks, microbatches),
        chunks,
        microbatches,
        lambda stage, unit, start: (F if unit.kind == "F" else B) / chunks,
        send,
        blocking,
    )
    return max(p[-1].end for p in placed)


@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 2), (4, 8), (4, 32), (8, 16), (4, 2)])
def test_1f1b_wastes_p_minus_1_of_m_plus_p_minus_1(p: int, m: int) -> None:
    # m (F+B) of work, (p-1)(F+B) of bubble
    assert step(p, 1, m) == pytest.approx((m + p - 1) * (F + B))


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (4, 2, 8), (4, 4, 16), (8, 3, 64), (8, 2, 8)])
def test_interleaving_divides_the_bubble_by_v(p: int, v: int, m: int) -> None:
    assert step(p, v, m) == pytest.approx((m + (p - 1) / v) * (F + B))


@pytest.mark.parametrize("p", [2, 4, 8])
def test_1f1b_stage_s_holds_p_minus_s_microbatches(p: int) -> None:
    assert [in_flight(order) for order in one_f_one_b(p, 1, 4 * p)] == [p - s for s in range(p)]


@pytest.mark.parametrize(("p", "v"), [(2, 2), (8, 3), (4, 5)])
def test_interleaving_holds_p_times_1_plus_p_minus_1_over_pv(p: int, v: int) -> None:
    # Korthikanti et al. 2022, section 4.2.3, for the first stage, in chunks of 1/v of a stage
    assert in_flight(interleaved(p, v, 4 * p)[0]) / v == pytest.approx(p * (1 + (p - 1) / (p * v)))


def test_each_stage_runs_every_pass_once_and_forward_first() -> None:
    for order in interleaved(4, 3, 8):
        assert len(set(order)) == len(order) == 2 * 3 * 8
        for chunk in range(3):
            for i in range(8):
                assert order.index(Unit("F", chunk, i)) < order.index(Unit("B", chunk, i))


def test_first_stage_of_four_warms_up_with_three() -> None:
    kinds = "".join(u.kind for u in one_f_one_b(4, 1, 6)[0])
    assert kinds == "FFF" + "FB" * 3 + "BBB"


def test_a_send_delays_only_the_fill_and_drain_when_overlapped() -> None:
    # two stages, sends of 0.1: the last stage starts 0.1 late, its last gradient comes back 0.1 late, and
    # each 1F1B round trip waits for a send both ways.
    assert step(2, 1, 1, send=0.1) == pytest.approx(2 * (F + B) + 0.2)
    assert step(2, 1, 8, send=0.1, blocking=True) > step(2, 1, 8, send=0.1)


def test_sends_of_one_stage_do_not_overlap() -> None:
    placed = compose(schedule(4, 2, 8), 2, 8, lambda *_: 0.1, 0.5, False)
    for stage in placed:
        sends = sorted((p.send_start, p.send_start + p.sent) for p in stage if p.sent)
        assert all(a[1] <= b[0] + 1e-12 for a, b in pairwise(sends))


def timed(name: str, p: int, m: int, f: float, i: float, w: float, both: float, chunks: int = 1) -> float:
    """Length of a step: forward f, input gradients i, weight gradients w, F and B run together."""
    seconds = {"F": f, "I": i, "W": w, "B": i + w, "FB": both}
    route = route_under(name, p, chunks)
    orders = schedule(p, route.chunks, m, name)
    # a stage's seconds are of one copy of the model, cut in its chunks
    cut = route.model_pieces / p
    run = compose(orders, route.chunks, m, lambda _, u, start: seconds[u.kind] / cut, 0.0, False, route)
    return max(stage[-1].end for stage in run)


@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 8), (8, 8), (8, 32)])
def test_gpipe_wastes_as_much_as_1f1b_and_holds_every_microbatch(p: int, m: int) -> None:
    assert timed("gpipe", p, m, 1.0, 1.0, 1.0, 0.0) == pytest.approx((m + p - 1) * 3.0)
    assert in_flight(schedule(p, 1, m, "gpipe")[0]) == m


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 16), (8, 32)])
@pytest.mark.parametrize(("f", "i", "w"), [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (1.0, 1.3, 0.9)])
def test_zb_h1_fills_the_drain_with_weight_gradients(p: int, m: int, f: float, i: float, w: float) -> None:
    # (p-1)(F+B-2W) with B the whole backward pass: (p-1)(f+i-w); a third of 1F1B's where f = i = w
    assert timed("zb-h1", p, m, f, i, w, 0.0) - m * (f + i + w) == pytest.approx((p - 1) * (f + i - w))
    assert [in_flight(order) for order in schedule(p, 1, m, "zb-h1")] == [p] * p


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (4, 2, 8), (4, 3, 16), (8, 4, 32)])
@pytest.mark.parametrize(("f", "i", "w"), [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8)])
def test_virtual_stages_divide_what_zb_h1_leaves(
    p: int, v: int, m: int, f: float, i: float, w: float
) -> None:
    bubble = timed("zb-h1", p, m, f, i, w, 0.0, v) - m * (f + i + w)
    assert bubble == pytest.approx((p - 1) * (f + i - w) / v)
    assert [in_flight(order) for order in schedule(p, v, m, "zb-h1")] == [p * v] * p


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 16), (8, 32)])
@pytest.mark.parametrize(("f", "i", "w"), [(1.0, 1.0, 1.0), (1.0, 1.1, 0.9), (1.0, 1.3, 0.7)])
def test_zb_v_waits_on_the_way_alone(p: int, m: int, f: float, i: float, w: float) -> None:
    # (p-1) I/2 of a whole stage's input gradients, which are no shorter than its forward pass: where passes
    # are equal a sixth of 1F1B's bubble
    assert timed("zb-v", p, m, f, i, w, 0.0) - m * (f + i + w) == pytest.approx((p - 1) * i / 2)
    assert [in_flight(order) for order in schedule(p, 2, m, "zb-v")] == [2 * p] * p


@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (2, 7), (4, 8), (4, 15), (8, 32)])
def test_dualpipe_v_wastes_what_dualpipe_of_twice_the_stages_does(p: int, m: int) -> None:
    halves = timed("dualpipe", 2 * p, 2 * m, 0.5, 0.5, 0.5, 1.5)
    assert timed("dualpipe-v", p, m, 1.0, 1.0, 1.0, 3.0) == pytest.approx(halves)
    assert halves - m * 3.0 == pytest.approx((p - 1) * (3.0 + 2.0 - 3 * 1.0) / 2)
    assert {in_flight(order) for order in schedule(p, 2, m, "dualpipe-v")} == {2 * p + 1}


@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 8), (4, 16), (8, 16), (8, 32), (16, 64)])
def test_dualpipe_wastes_half_of_p_minus_1(p: int, m: int) -> None:
    # (p/2-1)(FB+B-3W) with FB = F+B, B = 2, W = 1: (p/2-1) x 2
    bubble = timed("dualpipe", p, m, 1.0, 1.0, 1.0, 3.0) - m * 3.0
    assert bubble == pytest.approx((p / 2 - 1) * (3.0 + 2.0 - 3 * 1.0))
    assert {in_flight(order) for order in schedule(p, 2, m, "dualpipe")} == {p + 1}


@pytest.mark.parametrize(
    ("name", "chunks", "times"),
    [
        ("gpipe", 1, 1),
        ("zb-h1", 1, 1),
        ("zb-h1", 3, 3),
        ("dualpipe", 2, 1),
        ("zb-v", 2, 2),
        ("dualpipe-v", 2, 2),
    ],
)
@pytest.mark.parametrize("m", [8, 16])
def test_every_microbatch_meets_every_chunk_once_each_way(name: str, chunks: int, times: int, m: int) -> None:
    p = 4
    for order in schedule(p, chunks, m, name):
        ahead = [u.microbatch for u in order if u.kind in ("F", "FB")]
        back = [u.other if u.kind == "FB" else u.microbatch for u in order if u.kind in ("B", "I", "FB")]
        assert sorted(ahead) == sorted(back) == sorted([*range(m)] * times)
        split = sorted(u for u in order if u.kind == "I")
        assert [u[1:] for u in split] == [u[1:] for u in sorted(u for u in order if u.kind == "W")]
        for c, i in (u[1:3] for u in split):
            assert order.index(Unit("I", c, i)) < order.index(Unit("W", c, i))


def together(p: int, v: int, m: int, both: float, send: float = 0.0, early: float = 0.0) -> float:
    """Length of a step of paired passes: F and B alone, `both` at once, whose backward pass has its result
    `early` before the end, and the forward one, sent first, twice as early."""
    seconds = {"F": F / v, "B": B / v, "FB": both / v}
    placed = compose(
        paired(p, v, m),
        v,
        m,
        lambda stage, unit, start: seconds[unit.kind],
        send,
        False,
        early=lambda stage, unit: (2 * early, early) if unit.kind == "FB" else (0.0, 0.0),
    )
    return max(stage[-1].end for stage in placed)


def test_without_stages_the_first_forward_and_the_last_backward_stand_alone() -> None:
    # Megatron-LM, combined_1f1b_schedule_for_no_pipelining: F1, B1 with F2, B2 with F3, …, Bm
    (order,) = paired(1, 1, 4)
    assert order == (
        Unit("F", 0, 0),
        *(Unit("FB", 0, i + 1, i, 0) for i in range(3)),
        Unit("B", 0, 3),
    )
    assert together(1, 1, 4, both=2.5) == pytest.approx(F + 3 * 2.5 + B)
    assert paired(1, 1, 1) == ((Unit("F", 0, 0), Unit("B", 0, 0)),)


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (4, 2, 8), (4, 4, 16), (8, 3, 64)])
def test_pairing_costs_no_bubble_and_one_more_pass_in_flight(p: int, v: int, m: int) -> None:
    assert together(p, v, m, both=F + B) == pytest.approx((m + (p - 1) / v) * (F + B))
    plain, merged = interleaved(p, v, m), paired(p, v, m)
    for one, other in zip(plain, merged, strict=True):
        assert in_flight(other) == in_flight(one) + (in_flight(one) < m * v)
        passes = [each for unit in other for each in unit.passes]
        assert sorted(passes) == sorted(one)
        # warm-up of one pass more (get_pp_rank_microbatches), and as many alone at the end
        kinds = [unit.kind for unit in other]
        ahead = min([u.kind for u in one].index("B"), m * v)
        assert kinds[:ahead] == ["F"] * ahead
        assert kinds[len(kinds) - ahead :] == ["B"] * ahead
        assert [unit.kind for unit in finishing(other, v)] == ["B"] * v


def test_pairs_wait_for_sends_unless_results_are_early() -> None:
    """In the steady state a stage needs what its neighbours made a pass ago, so a send is seen in every pair
    but for the time by which its result is there before the end."""
    longer = {
        early: together(4, 2, 32, 3.0, 0.2, early) - together(4, 2, 16, 3.0, 0.2, early) for early in (0, 0.2)
    }
    assert longer[0.2] == pytest.approx(16 * 3.0)
    assert longer[0] > 16 * 3.0 + 1.0


def test_mirrored_stages_hold_the_same_piece_of_the_model() -> None:
    route = Route(4, 2, "mirror")
    assert [[route.model_piece(s, c) for c in (0, 1)] for s in range(4)] == [[0, 3], [1, 2], [2, 1], [3, 0]]
    assert [route.stage(route.piece(s, c)) for s in range(4) for c in (0, 1)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [p for p in range(8) if route.first(p)] == [0, 4]
    assert [p for p in range(8) if route.last(p)] == [3, 7]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["gpipe", "zb-h1"])
def test_one_stage_runs_microbatch_after_microbatch_under_any_schedule_of_several(
    name: str, zero: int
) -> None:
    """No framework builds a pipeline of one stage: `gpipe` held all microbatches there, up to 8 times the
    memory, and `zb-h1` split what is one pass, up to 7 % longer."""
    for arch in (DENSE, MOE):
        plain, asked = (
            simulate(
                job(batch=128, tensor=2, zero=zero, schedule=schedule),  # type: ignore[arg-type]
                arch,
                machine(2),
                predict=priced(50e9),
                kernel=roofline,
            )
            for schedule in ("auto", name)
        )
        assert asked.step_time == plain.step_time
        assert asked.memory.parts == plain.memory.parts


def test_all_stages_of_an_even_pipeline_wait_alike_and_the_first_is_told() -> None:
    # layers of 1 ms forward and 2 ms backward, ends that take nothing: p - 1 passes of 3 ms for two layers,
    # the last stage at the beginning and until the first one is ready, the first one in between
    def layered(operator: Operator) -> float:
        return 1e-3 if operator.name.startswith("mlp up") else 0.0

    wanted = changed(job(gpus=8, pipeline=4, batch=16, zero=0), cuda_graphs=("step",))
    steps = [
        simulate(wanted, DENSE, machine(1), predict=priced(0.0), kernel=layered, stage=s, must_fit=False)
        for s in (None, *range(4))
    ]
    assert steps[0].stage == 0
    for one in steps:
        bubble = one.exposed("bubble")
        assert bubble == pytest.approx((4 - 1) * 2 * (1e-3 + 2e-3), rel=1e-6)
