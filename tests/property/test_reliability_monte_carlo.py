"""The simulated run agrees with the closed forms where they hold, and both obey what must always hold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright.reliability.closed import Figures, ettr, goodput, longest_recovery, losses
from railwright.reliability.formulas import best_interval, daly, ettr_renewal, young
from railwright.reliability.montecarlo import Fault, Process, Runs, simulate
from railwright.reliability.protection import Checkpoints, Elastic

HOUR = 3600.0
mttis = st.floats(0.2 * HOUR, 500 * HOUR)
blocks = st.floats(0.05, 600.0)


@settings(max_examples=12)
@given(
    mtti=st.floats(HOUR, 20 * HOUR),
    recovery=st.floats(0.0, 1800.0),
    block=st.floats(0.0, 120.0),
    interval=st.floats(60.0, 3600.0),
    seed=st.integers(0, 2**20),
)
def test_simulated_ratio_is_dalys(
    mtti: float, recovery: float, block: float, interval: float, seed: int
) -> None:
    process = Process(mtti, (Fault(1.0, recovery),), Checkpoints(block, interval))
    found = simulate(process, 600 * mtti, samples=400, seed=seed).ettr
    error = found.std() / math.sqrt(len(found))
    # 4.5 standard errors, and the bias of a ratio over 600 cycles.
    assert found.mean() == pytest.approx(
        ettr_renewal(mtti, recovery, block, interval), abs=4.5 * error + 4e-4
    )


def test_simulated_wall_time_is_the_work_over_the_ratio() -> None:
    mtti, recovery, block, interval, work = 3 * HOUR, 600.0, 20.0, 900.0, 3000 * HOUR
    process = Process(mtti, (Fault(1.0, recovery),), Checkpoints(block, interval))
    runs = simulate(process, math.inf, work, samples=400, seed=1)
    expected = work / ettr_renewal(mtti, recovery, block, interval)
    assert not np.isnan(runs.finished).any()
    assert runs.finished.mean() == pytest.approx(expected, rel=0.002)
    assert runs.interruptions.mean() == pytest.approx(expected / mtti, rel=0.01)


def test_without_failures_only_checkpoints_cost() -> None:
    process = Process(1e15, (Fault(1.0, 600.0),), Checkpoints(10.0, 990.0))
    runs = simulate(process, math.inf, 99_000.0, samples=10)
    # 100 intervals, and a checkpoint between each two.
    assert runs.finished == pytest.approx(np.full(10, 99_000.0 + 99 * 10.0))


def test_bursts_cost_less_than_evenly_spread_failures() -> None:
    even = Process(2 * HOUR, (Fault(1.0, 600.0),), Checkpoints(10.0, 900.0))
    bursts = replace(even, shape=0.714)
    one, other = (simulate(p, 3000 * HOUR, samples=400, seed=2).ettr.mean() for p in (even, bursts))
    assert other > one


def test_two_levels_agree_with_the_first_order_form() -> None:
    # One failure in ten leaves only storage, which every eighth interval reaches.
    fault = (Fault(0.9, 600.0), Fault(0.1, 600.0, survives=0.0))
    saving = Checkpoints(1.0, 300.0, stored=8 * 300.0, reload=100.0)
    found = simulate(Process(20 * HOUR, fault, saving), 4000 * HOUR, samples=400, seed=3).ettr
    figures = Figures(20 * HOUR, 600.0, saving, severe=0.1)
    assert found.mean() == pytest.approx(ettr(figures), abs=5e-4)


def test_a_slow_checkpoint_costs_its_lag() -> None:
    saving = Checkpoints(1.0, 600.0, lag=400.0)
    found = simulate(Process(5 * HOUR, (Fault(1.0, 300.0),), saving), 3000 * HOUR, samples=400, seed=4).ettr
    assert found.mean() == pytest.approx(ettr(Figures(5 * HOUR, 300.0, saving)), abs=1.5e-3)


def test_an_elastic_job_agrees_with_its_closed_form() -> None:
    saving, elastic = Checkpoints(1.0, 600.0), Elastic(1 / 16, 1500.0)
    process = Process(4 * HOUR, (Fault(1.0, 120.0),), saving, elastic=elastic)
    found = simulate(process, 3000 * HOUR, samples=400, seed=5).ettr
    figures = Figures(4 * HOUR, 120.0, saving, elastic=elastic)
    assert found.mean() == pytest.approx(ettr(figures), abs=1e-3)


def test_an_elastic_job_that_fails_often_agrees_too() -> None:
    """A replica counts as out once the others train; from its failure on it would be 0.750."""
    saving, elastic = Checkpoints(1.0, 100.0), Elastic(1 / 4, 900.0)
    process = Process(1800.0, (Fault(1.0, 260.0),), saving, elastic=elastic)
    found = simulate(process, 3000 * 1800.0, samples=400, seed=5).ettr
    figures = Figures(1800.0, 260.0, saving, elastic=elastic)
    assert found.mean() == pytest.approx(ettr(figures), abs=2e-3)
    longest = longest_recovery(figures, 0.7)
    assert ettr(replace(figures, recovery=longest)) == pytest.approx(0.7)


def test_reading_from_storage_is_recovery_where_no_memory_survives() -> None:
    """The same runs, instant by instant, whether 600 s are told as part of the one or of the other."""

    def runs(recovery: float, reload: float) -> Runs:
        saving = Checkpoints(1.0, 300.0, stored=300.0, reload=reload)
        return simulate(Process(HOUR, (Fault(1.0, recovery, survives=0.0),), saving), 99 * HOUR)

    read, recovered = runs(10.0, 600.0), runs(610.0, 0.0)
    assert np.array_equal(read.useful, recovered.useful)
    assert np.array_equal(read.time, recovered.time)
    assert read.ettr.mean() < 0.9


def test_same_seed_same_runs() -> None:
    faults = Fault(0.5, 60.0), Fault(0.5, 600.0, spoiled=30.0)
    process = Process(HOUR, faults, Checkpoints(1.0, 300.0), spread=0.5, varies=0.4)
    one, other = (simulate(process, 100 * HOUR, samples=20, seed=9) for _ in range(2))
    assert np.array_equal(one.useful, other.useful)


@given(mtti=mttis, block=blocks, move=st.floats(0.5, 2.0))
def test_no_interval_beats_the_best(mtti: float, block: float, move: float) -> None:
    assume(block < mtti / 4)
    best = best_interval(mtti, block)
    assert ettr_renewal(mtti, 300.0, block, best) >= ettr_renewal(mtti, 300.0, block, best * move) - 1e-12


@given(mtti=mttis, block=blocks)
def test_estimates_of_the_best_interval_agree_where_checkpoints_are_cheap(mtti: float, block: float) -> None:
    assume(block < mtti / 500)
    best = best_interval(mtti, block)
    assert daly(mtti, block) == pytest.approx(best, rel=1e-4)
    assert young(mtti, block) == pytest.approx(best, rel=0.05)


@given(mtti=mttis, block=blocks, wanted=st.floats(0.3, 0.99))
def test_the_recovery_found_gives_the_ratio_wanted(mtti: float, block: float, wanted: float) -> None:
    assume(block < mtti / 4)
    best = best_interval(mtti, block)
    recovery = longest_recovery(Figures(mtti, 0.0, Checkpoints(block, best)), wanted)
    assume(recovery > 0)
    assert ettr_renewal(mtti, recovery, block, best) == pytest.approx(wanted)


@given(
    mtti=mttis,
    recovery=st.floats(0, 3600.0),
    block=blocks,
    lag=st.floats(0, 300.0),
    degraded=st.floats(0, 0.2),
    stalled=st.floats(0, 0.2),
    waiting=st.floats(0, 0.5),
    share=st.one_of(st.none(), st.floats(0.001, 0.5)),
)
def test_every_second_of_the_wall_time_is_accounted_for(
    mtti: float, recovery: float, block: float, lag: float, degraded: float, stalled: float, waiting: float,
    share: float | None,
) -> None:  # fmt: skip
    figures = Figures(
        mtti, recovery, Checkpoints(block, 900.0, lag, stored=1800.0), spoiled=10.0, severe=0.1,
        elastic=None if share is None else Elastic(share, 600.0),
        degraded=degraded, stalled=stalled, waiting=waiting,
    )  # fmt: skip
    assume(ettr(figures) > 0.01)
    found = losses(figures)
    assert all(share > 0 for _, share in found)
    assert goodput(figures) + sum(share for _, share in found) == pytest.approx(1.0)


@given(mtti=mttis, recovery=st.floats(0, 3600.0), block=blocks)
def test_fewer_failures_and_quicker_recoveries_never_hurt(mtti: float, recovery: float, block: float) -> None:
    base = ettr_renewal(mtti, recovery, block, 900.0)
    assert ettr_renewal(2 * mtti, recovery, block, 900.0) >= base
    assert ettr_renewal(mtti, recovery / 2, block, 900.0) >= base
    assert 0 <= base <= 1


def test_a_checkpoint_that_is_long_in_writing_costs_what_is_simulated() -> None:
    """To first order it would be 0.614."""
    saving = Checkpoints(17.0, 1015.0, lag=990.0)
    found = simulate(Process(HOUR, (Fault(1.0, 10.0),), saving), 3000 * HOUR, samples=400, seed=6).ettr
    assert ettr(Figures(HOUR, 10.0, saving)) == pytest.approx(found.mean(), abs=1.5e-3)


@given(
    mtti=mttis,
    block=blocks,
    interval=st.floats(60.0, 3600.0),
    lag=st.floats(0.0, 1.0),
    wanted=st.floats(0.3, 0.99),
)
def test_the_longest_recovery_gives_the_ratio_wanted_with_these_checkpoints(
    mtti: float, block: float, interval: float, lag: float, wanted: float
) -> None:
    """With the lag, and the interval that the study asks for."""
    figures = Figures(mtti, 600.0, Checkpoints(block, interval, lag * interval), spoiled=20.0)
    recovery = longest_recovery(figures, wanted)
    assert ettr(replace(figures, recovery=recovery)) == pytest.approx(wanted)


@pytest.mark.parametrize("interval", [600.0, 1e6])
def test_failures_beyond_what_a_float_holds_leave_no_time_to_train(interval: float) -> None:
    assert ettr_renewal(0.5, 900.0, 500.0, interval) == 0.0
    assert best_interval(0.5, 500.0) == 0.5
    assert longest_recovery(Figures(0.5, 900.0, Checkpoints(500.0, interval)), 0.9) == -math.inf
