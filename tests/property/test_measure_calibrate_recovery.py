"""Constants that made a curve are found again, as often as the stated intervals promise."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate_cases import FULL, TREE, log_text, machine
from railwright.collectives import sweep
from railwright.collectives.profile import Overrides
from railwright.measure.calibrate.curves import sort_points
from railwright.measure.fitting.fit import PARAMETERS, fit, log_errors, quantile_t, times
from railwright.measure.fitting.identify import identify
from railwright.measure.logs import read_log
from railwright.traffic.demand import Communicator

TRUE = {"launch": 2e-5, "ramp": 1.2, "usable": 0.9}
SHIPPED = {"launch": 0.0, "ramp": 1.0, "usable": 1.0}
TRIALS = 250


@cache
def part(algorithm="nvlstree", op="all_reduce", ranks=64):
    """The terms of a curve of known machine; the measured times are set by each test."""
    family = {"nvlstree": TREE, "auto": "hopper ib p2p"}[algorithm]
    text = log_text(op=op, ranks=ranks, algorithm=algorithm, family=family, noise=0, launch=2e-5)
    return sort_points(read_log(text), machine(algorithm)).parts[family][0]


def noisy(whole, rng, noise, true=TRUE):
    return replace(whole, measured=times(whole, true) * np.exp(rng.normal(0, noise, len(whole.size))))


@settings(max_examples=3, derandomize=True)
@given(seed=st.integers(0, 2**31), noise=st.sampled_from([0.01, 0.03, 0.06]))
def test_four_of_five_intervals_hold_the_truth(seed, noise):
    rng = np.random.default_rng(seed)
    inside = dict.fromkeys(PARAMETERS, 0)
    for _ in range(TRIALS):
        found = fit([noisy(part(), rng, noise)], SHIPPED, PARAMETERS)
        half = quantile_t(found.freedom)
        for name in PARAMETERS:
            inside[name] += abs(found.values[name] - TRUE[name]) <= half * found.errors[name]
    # One standard deviation of 250 trials at 80 % is 2.5 %, so that 70-90 % is four either way.
    for name in PARAMETERS:
        assert 0.70 <= inside[name] / TRIALS <= 0.90, inside


@settings(max_examples=10)
@given(
    launch=st.floats(0, 1e-3), ramp=st.floats(0, 4), usable=st.floats(0.3, 1.0), seed=st.integers(0, 2**31)
)
def test_without_noise_the_truth_is_met(launch, ramp, usable, seed):
    true = {"launch": launch, "ramp": ramp, "usable": usable}
    found = fit([noisy(part(), np.random.default_rng(seed), 0.0, true)], SHIPPED, PARAMETERS)
    assert found.sigma < 1e-4
    assert found.values["usable"] == pytest.approx(usable, rel=0.01)
    assert found.values["ramp"] == pytest.approx(ramp, abs=0.05)
    assert found.values["launch"] == pytest.approx(launch, abs=2e-7, rel=0.01)


@pytest.mark.parametrize(
    ("algorithm", "op", "family"),
    [("nvlstree", "all_reduce", TREE), ("auto", "all_to_all", "hopper ib p2p")],
)
def test_the_fit_s_formula_is_the_prediction_s(algorithm, op, family):
    """`fit.times` is the prediction with three constants free; a new term of it shows here."""
    own = Overrides(3e-5, 0.7, 0.8)
    whole = part(algorithm, op)
    changed = replace(machine(algorithm), profile={family: own})
    predicted = sweep(changed, op, FULL, (Communicator(np.arange(64, dtype=np.int32)),))
    mine = times(whole, {"launch": 3e-5, "ramp": 0.7, "usable": 0.8})
    assert mine == pytest.approx([p.time for p in predicted], rel=1e-6)


def test_a_curve_twice_as_long_weighs_the_same():
    rng = np.random.default_rng(3)
    whole = noisy(part(), rng, 0.03)
    half = whole.only(np.arange(len(whole.size)) % 2 == 0)
    slow = replace(half, measured=half.measured * 1.2)
    found = fit([whole, slow], SHIPPED, PARAMETERS)
    middle = np.mean(log_errors(whole, found.values)) + np.mean(log_errors(slow, found.values))
    assert abs(middle) < 0.02


def test_more_noise_means_larger_errors():
    errors = [
        fit([noisy(part(), np.random.default_rng(1), n)], SHIPPED, PARAMETERS).errors["usable"]
        for n in (0.01, 0.02, 0.04)
    ]
    assert errors[0] * 1.5 < errors[1] < errors[2] / 1.5


def test_curves_that_differ_more_than_their_points_widen_the_error():
    """Two machines' curves, each smooth: the scatter between curves is the error, not that within them."""
    rng = np.random.default_rng(5)
    one = noisy(part(), rng, 0.005)
    other = noisy(part(), rng, 0.005, {**TRUE, "usable": 0.8})
    lone = identify(TREE, [one], SHIPPED).fit.errors["usable"]
    both = identify(TREE, [one, other], SHIPPED).fit.errors["usable"]
    assert both > 2 * lone
