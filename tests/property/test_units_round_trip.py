"""Writing is exact; showing keeps three digits."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright import units

DIMENSIONS = get_args(units.Dimension)
finite = st.floats(min_value=0, max_value=1e300, allow_nan=False, allow_subnormal=False)


@given(finite, st.sampled_from(DIMENSIONS))
def test_what_was_written_is_read_back_to_the_last_bit(value, dimension):
    assert units.parse(units.write(value, dimension), dimension) == value


@given(st.integers(1, 10_000), st.sampled_from([(d, u) for d in DIMENSIONS for u in units.units_of(d)]))
def test_every_unit_of_the_table_is_read_and_written_back(number, unit):
    dimension, name = unit
    value = units.parse(f"{number} {name}", dimension)
    assert units.parse(units.write(value, dimension), dimension) == value


@pytest.mark.parametrize(
    ("show", "dimension", "least", "most"),
    [
        (units.show_size, "size", 1, 2.0**49),
        (units.show_rate, "bandwidth", 1, 9e17),
        (units.show_bit_rate, "bandwidth", 1, 1e17),
        (units.show_time, "time", 1e-9, 8e7),
        (units.show_power, "power", 1, 9e11),
        (units.show_length, "length", 0.01, 9e5),
        (units.show_flop_rate, "flop rate", 1e3, 9e20),
    ],
)
@given(data=st.data())
def test_what_is_shown_is_within_half_a_percent(show, dimension, least, most, data):
    value = data.draw(st.floats(least, most))
    assert units.parse(show(value), dimension) == pytest.approx(value, rel=5.1e-3)
