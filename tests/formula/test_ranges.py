"""A range: its ends keep their order, whatever is made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.ranges import Range

positive = st.floats(1e-6, 1e6)


@given(st.lists(positive, min_size=3, max_size=3).map(sorted), positive)
def test_a_need_is_largest_at_the_slowest_pace(ends: list[float], whole: float) -> None:
    need = Range(*ends).under(whole)
    assert need.ends == (whole / ends[2], whole / ends[1], whole / ends[0])
    assert need.low <= need.middle <= need.high


@given(rate=positive, low=st.floats(0.5, 1.0), high=st.floats(1.0, 2.0))
def test_a_rate_is_as_far_off_as_its_times(rate: float, low: float, high: float) -> None:
    """Measured times of 0.8 to 1.25 times the predicted ones are rates of 1.25 to 0.8 times it."""
    times = Range.of_rate(rate, low, high).under(1.0)
    assert times.ends == pytest.approx((low / rate, 1.0 / rate, high / rate))


def test_ranges_add_end_by_end() -> None:
    assert Range(1.0, 2.0, 4.0).plus(Range(1.0, 1.0, 1.0)).times(2.0) == Range(4.0, 6.0, 10.0)
