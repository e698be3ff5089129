"""Pairs of published layouts of one job, and what a search says of a gain by them."""

from __future__ import annotations

from collections import Counter

import pytest

from railwright.measure.bands import weighted
from railwright.measure.training.choices import Pair, Step, pairs
from railwright.search.training.claims import FIFTH, trusted
from railwright.training.software.choices import choice, choices

STEPS = [
    Step("a", "job", "fast", 1.0, 2.0),
    Step("a", "job", "slow", 1.1, 2.4),
    # measured twice: the geometric mean of 1.8 and 3.2 is 2.4
    Step("a", "job", "wrong", 1.2, 1.8),
    Step("a", "job", "wrong", 1.2, 3.2),
    Step("a", "another", "fast", 9.0, 9.0),
    # predicted alike: nothing is chosen between them
    Step("c", "job", "one", 5.0, 5.0),
    Step("c", "job", "other", 5.0, 6.0),
    Step("b", "job", "first", 1.0, 3.0),
    Step("b", "job", "second", 2.0, 2.0),
]


def test_pairs_are_layouts_of_one_job() -> None:
    made, layouts = pairs(STEPS)
    assert layouts == Counter(a=3, b=2, c=2)  # the other job of a has one layout
    gains = {(p.family, round(p.predicted, 3)): round(p.measured, 3) for p in made}
    # steps of 1.1 and 2.4 s against 1.0 and 2.0: 10 % more steps predicted, 20 % measured
    assert gains == {("a", 0.1): 0.2, ("a", 0.2): 0.2, ("a", 0.091): 0.0, ("b", 1.0): -0.333}
    assert Pair("a", 0.1, -0.05).off == pytest.approx(0.15)


def test_a_share_of_the_weight() -> None:
    assert weighted([3.0, 1.0, 2.0], [1.0, 1.0, 1.0], 0.5) == 2.0
    assert weighted([3.0, 1.0, 2.0], [8.0, 1.0, 1.0], 0.5) == 3.0


def test_every_gain_has_its_pairs() -> None:
    found = choices()
    assert [one.low for one in found] == [0.0, 0.03, 0.1, 0.2, 0.5]
    assert sum(one.pairs for one in found) > 1000
    assert all(0.5 < one.right <= 1.0 and 0.0 < one.half < one.most for one in found)
    assert choice(0.0) == found[0]
    assert choice(0.1) == found[2]
    assert choice(9.0) == found[-1]


@pytest.mark.parametrize(("gain", "apart"), [(0.001, "0% to 3%"), (0.04, "3% to 10%"), (0.6, "50% and more")])
def test_what_is_said_of_a_gain(gain: float, apart: str) -> None:
    words = trusted(gain)
    assert f"{choice(gain).pairs} published pairs of layouts of one job predicted {apart} apart" in words
    assert ("the choice of the best among many" in words) == (gain <= FIFTH)
