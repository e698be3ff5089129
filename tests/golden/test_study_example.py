"""The main job: 30 servers with 8 H100, Mixtral 8x7B. What its answer must say, by mechanism."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import railwright as rw
from railwright.report.files.results import results, to_text
from railwright.report.files.trace import trace
from railwright.report.html import page
from railwright.spec import load_study_text, override, template
from railwright.spec.study import Variant
from railwright.study.bottleneck import bottleneck, exposed_between
from railwright.study.evaluate import Workshop
from railwright.study.published import PREDICTORS
from railwright.study.result import Result, VariantResult
from railwright.units import show_time

EXAMPLE = Path(__file__).parents[2] / "examples" / "mixtral-240-h100.yaml"


@pytest.fixture(scope="module")
def told() -> list[tuple[str, float]]:
    """What the run of `result` says of its progress."""
    return []


@pytest.fixture(scope="module")
def result(told: list[tuple[str, float]]) -> Result:
    return rw.run(rw.load_study(EXAMPLE), lambda what, fraction: told.append((what, fraction)))


def variant(result: Result, name: str) -> VariantResult:
    return next(v for v in result.variants if v.name == name)


def step_time(result: Result, name: str) -> float:
    step = variant(result, name).jobs[0].step
    assert step is not None
    return step.step_time


def busbw(result: Result, name: str, op: str, size: float) -> float:
    curve = next(c for c in variant(result, name).curves if c.op == op)
    return next(p.busbw for p in curve.points if p.size == size)


def test_the_variants_the_question_asks_for_are_side_by_side(result):
    assert [v.name for v in result.variants] == [
        "Rails with PXN",
        "Fat tree",
        "Rails without PXN",
        "Rail-only",
        "Rails with PXN, one leaf failed",
    ]
    assert all(v.counts is not None and v.jobs[0].step is not None for v in result.variants)


def test_30_servers_take_8_leaves_and_4_spines_by_hand(result):
    # 240 NICs over 8 rails: 30 ports down of 32; 32 up over 4 spines of 64 ports: 8 x 32 = 4 x 64
    counts = variant(result, "Rails with PXN").counts
    assert counts is not None
    assert (counts.leaves, counts.spines, counts.node_leaf, counts.leaf_spine) == (8, 4, 240, 256)


def test_the_answer_is_three_sentences_that_name_fabric_bottleneck_and_pxn(result):
    which, bottleneck, pxn = result.answer
    assert which.startswith("Build '")
    assert "bottleneck" in bottleneck
    assert "PXN" in pxn
    assert "+0 %" not in " ".join(result.answer)
    step = variant(result, which.split("'")[1]).jobs[0].step
    assert step is not None
    low, high = (show_time(step.step_time * factor) for factor in (step.error_low, step.error_high))
    assert f"a step (80 % of measurements: {low} to {high}), " in which


def test_exposed_between_servers_is_told_once_and_shown_beside_every_variant(result):
    """The table's column is the answer's 'between servers', and what is left stays inside."""
    base = result.variants[0]
    step = base.jobs[0].step
    between = exposed_between(base.fabric, step)
    exposed = step.exposed_share * step.step_time
    assert 0 < between < exposed
    inside = exposed - between
    percents = [f"{100 * part / step.step_time:.0f} %" for part in (between, inside)]
    assert f"({percents[0]} between servers, {percents[1]} inside)" in result.answer[1]
    assert f"{100 * between / step.step_time:.1f}\u00a0%" in page(result)


def test_the_page_says_why_launches_are_more_of_the_path_than_of_the_breakdown(result):
    assert "Kernel launches are on the path where" in page(result)
    quick = replace(result, variants=(replace(result.variants[0], jobs=()),), recommended=0)
    assert "Kernel launches are on the path where" not in page(quick)


def test_the_step_says_what_its_band_was_made_of(result):
    for one in result.variants:
        assert "steps of" in one.jobs[0].step.error_source


def test_pxn_helps_small_messages_by_aggregation_and_large_ones_not_under_adaptive_routing(result):
    def gain(size: float) -> float:
        with_pxn, without = "Rails with PXN", "Rails without PXN"
        return busbw(result, with_pxn, "all_to_all", size) / busbw(result, without, "all_to_all", size) - 1

    assert gain(1024.0) > 0.2
    assert abs(gain(2.0**30)) < 0.02


def test_pxn_is_worth_most_where_the_spine_layer_collides_or_is_thin(result):
    rows = {row.name: row.pxn_gain for row in result.sensitivity}
    assert rows["ECMP routing"] > rows["2:1 oversubscription"] > 0.01 > abs(rows["Static routing"])


def test_rail_only_carries_this_job_as_well_as_rails(result):
    assert step_time(result, "Rail-only") == pytest.approx(step_time(result, "Rails with PXN"), rel=1e-6)


def test_a_failed_leaf_halves_two_nics_and_slows_the_step(result):
    # two GPUs of every server share one NIC: the largest messages run at half speed, the step at more
    whole, broken = "Rails with PXN", "Rails with PXN, one leaf failed"
    loss = busbw(result, broken, "all_to_all", 2.0**30) / busbw(result, whole, "all_to_all", 2.0**30)
    assert loss == pytest.approx(0.5, abs=0.03)
    assert 1.0 < step_time(result, broken) / step_time(result, whole) < 2.0


def test_all_reduce_does_not_care_about_pxn(result):
    for size in (1024.0, 2.0**30):
        a, b = (busbw(result, name, "all_reduce", size) for name in ("Rails with PXN", "Rails without PXN"))
        assert a == pytest.approx(b, rel=1e-9)


def test_shares_add_up_to_the_step(result):
    for v in result.variants:
        step = v.jobs[0].step
        assert step is not None
        assert sum(s.exposed for s in step.shares) == pytest.approx(step.step_time, rel=1e-9)


def test_an_effect_published_of_mixtral_stands_beside_no_other_model():
    """A row named 'Mixtral 8x7B …' held the gain of whatever mixture of experts the study trains."""
    other = override(load_study_text(template("rail-240")), {"jobs.0.model": "qwen3-30b-a3b"})
    assert not PREDICTORS["pxn-mixtral"].applies(other, Workshop.of(other))


def test_published_effects_stand_beside_predictions_with_what_would_move_them(result):
    assert [p.published for p in result.published] == ["about +50 %", "about +50 %", "+14 %", "25-30 %"]
    for effect in result.published:
        assert effect.predicted
        assert len(effect.under) >= 5


def test_every_assumption_names_its_source(result):
    assert len(result.assumptions) > 10
    assert all(a.source for a in result.assumptions)


def test_expected_error_is_the_band_of_its_family(result):
    step = variant(result, "Rails with PXN").jobs[0].step
    assert step is not None
    assert step.error_low < step.error_high


def test_same_study_same_bytes(result):
    again = rw.run(rw.load_study(EXAMPLE))
    assert to_text(results(replace(result, seconds=0.0))) == to_text(results(replace(again, seconds=0.0)))


def test_progress_runs_from_nothing_to_everything(result, told):
    fractions = [fraction for _, fraction in told]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0
    assert fractions[-1] == 1


def test_what_ifs_are_the_first_job_simulated_again(result):
    rows = {row.name: row for row in result.what_ifs}
    base = step_time(result, "Rails with PXN")
    assert {"Network ×2", "Network ÷2", "No PXN", "Free communication", "Infinite compute"} <= set(rows)
    # The same change by hand, as the sensitivity of the study has it, is the same step.
    by_hand = next(row for row in result.sensitivity if row.name == "Expert all-to-all overlapped")
    assert rows["Expert all-to-all overlapped"].step_time == by_hand.step_time
    assert [name for name, row in rows.items() if row.step_time is None] == ["No PXN"], "rail-only needs it"
    for row in rows.values():
        if row.step_time is None:
            continue
        assert sum(s for _, s in row.changes) == pytest.approx(row.step_time - base, abs=1e-6 * base)
    text = page(result)
    assert "What if: one thing changed" in text
    assert "The critical path of the step is" in text


def test_an_impossible_variant_is_told_with_its_reason_and_the_rest_still_runs():
    impossible = Variant(name="too small", set={"cluster.compute.family": "single-switch"})
    changes = {"sweeps": (), "sensitivity": (), "variants": (impossible,)}
    study = rw.load_study(EXAMPLE).model_copy(update=changes)
    result = rw.run(study)
    assert "240" in result.variants[1].infeasible
    assert json.loads(to_text(results(result)))["variants"][1]["infeasible"]


def test_the_network_is_what_lies_between_servers(result):
    # tensor parallelism stays on NVLink and is told apart; compute is the largest part of the step
    told = result.answer[1]
    verdict = "the network (is not your bottleneck|slows you, but is not your main bottleneck)"
    assert re.match(f"With 'Rail-only', {verdict}", told)
    assert re.search(r"exposed communication [12]\d % \(1\d % between servers, [3-9] % inside\)", told)


def test_a_wait_that_is_longer_than_all_communication_is_told(result):
    step = result.variants[0].jobs[0].step
    split = {"compute": 0.4, "host": 0.45, "ep": 0.1}
    kept = tuple(s for s in step.shares if s.kind != "host")
    shares = tuple(replace(s, exposed=split.get(s.kind, 0.0) * step.step_time) for s in kept)
    host = replace(kept[0], kind="host", exposed=0.45 * step.step_time)
    job = replace(result.variants[0].jobs[0], step=replace(step, shares=(*shares, host)))
    told = bottleneck(replace(result.variants[0], jobs=(job,)), ())
    assert "compute is 40 % of the step, waiting for launches 45 % and exposed communication" in told
    assert "waiting" not in result.answer[1], "a wait that is shorter is left to the breakdown"


def test_a_single_machine_is_never_told_that_its_network_is_the_bottleneck():
    study = load_study_text(template("workstation")).model_copy(update={"variants": ()})
    which, verdict, *_ = rw.run(study).answer
    assert which.startswith("You have '")
    assert ": 1 switch and 1 cable, " in which
    assert verdict.startswith("Communication inside your servers is the bottleneck, rather than the network")


def test_one_gpu_alone_has_nothing_to_gain():
    # busbw is 0 on one rank, whatever PXN does
    study = rw.load_study(EXAMPLE).model_copy(update={"jobs": (), "sensitivity": ()})
    without = Variant(name="without PXN", set={"nccl.pxn": False})
    changes = {"cluster.servers": 1, "cluster.server": "gh200-1"}
    alone = rw.run(override(study.model_copy(update={"variants": ()}), changes))
    pair = rw.run(override(study.model_copy(update={"variants": (without,)}), changes))
    assert not alone.published
    assert "all-to-all" not in " ".join(pair.answer)
    assert to_text(results(pair))
    assert page(pair)


def test_a_warning_names_its_job_once():
    compute = "{family: rail-optimised, switch: qm9700}"
    study = load_study_text(
        f"""
railwright: 1
name: warned
cluster: {{servers: 2, server: dgx-h100, compute: {compute}}}
jobs:
  - name: q
    model: gpt2
    sequence: 64
    global_batch: 16
    tokens: 1e9
    layout: {{sequence_parallel: true, placement: spread}}
"""
    )
    warnings = rw.run(study).warnings
    assert "q: sequence_parallel does nothing while layout.tensor is 1." in warnings
    assert "q: all servers share one set of leaves, so placement spread is the same as packed." in warnings
    assert not [w for w in warnings if w.count("q: ") != 1]


def test_lanes_of_the_trace_add_up_to_the_breakdown(result):
    """One stage, whole step drawn: each lane's slices are that kind's busy time, the path's are the step."""
    step = result.variants[0].jobs[0].step
    events = [e for e in trace(result)["traceEvents"] if e["ph"] == "X"]
    for share in step.shares:
        lane = [e["dur"] for e in events if e["pid"] == 0 and e["cat"].split(",")[0] == share.kind]
        assert sum(lane) == pytest.approx(share.busy * 1e6, rel=1e-5), share.kind
    assert sum(e["dur"] for e in events if e["pid"] == 1) == pytest.approx(step.step_time * 1e6, rel=1e-6)
