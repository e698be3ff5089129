"""A quantity that is not one is refused in a sentence that says what to write."""

import pytest

from railwright.errors import RailwrightError, nearest
from railwright.units import parse, parse_test_size


def refusal(text, dimension):
    with pytest.raises(RailwrightError) as error:
        parse(text, dimension)
    return str(error.value)


def test_a_bare_number_is_told_to_write_its_unit():
    assert refusal("400", "bandwidth") == (
        "'400' has no unit; write a bandwidth with its unit, like '400 Gb/s' or '50 GB/s'"
    )


def test_an_unknown_unit_names_the_nearest():
    assert refusal("400 Gbs", "bandwidth").startswith("unknown unit 'Gbs' for a bandwidth; did you mean 'Gb")
    assert refusal("10 meters", "length").startswith("unknown unit 'meters' for a length; known are m, cm")


def test_units_that_differ_in_case_alone_are_both_offered():
    message = refusal("400 gb/s", "bandwidth")
    assert "'Gb/s'" in message
    assert "'GB/s'" in message


def test_bytes_per_second_in_the_short_form_are_not_taken_for_bits():
    assert "write 'GB/s' (B is a byte, b is a bit)" in refusal("50 GBps", "bandwidth")


def test_a_unit_of_something_else_is_called_so():
    assert "it measures power" in refusal("10 kW", "bandwidth")


@pytest.mark.parametrize("text", ["", "fast", "Gb/s", "nan m", "inf m", "0x10 m", "1,5 m", "1 2 m"])
def test_no_number_no_quantity(text):
    refusal(text, "length")


def test_negative_and_endless_are_refused():
    assert "negative" in refusal("-3 m", "length")
    assert "too large" in refusal("1e400 m", "length")


@pytest.mark.parametrize("text", ["", "x", "-8", "8Q", "8 Gb/s", "1e3"])
def test_test_sizes_say_how_they_are_written(text):
    with pytest.raises(RailwrightError, match="8, 1K, 512M, 8G or 1 MiB"):
        parse_test_size(text)


def test_nearest_is_empty_when_nothing_is_near():
    assert nearest("zebra", ["qm9700"]) == ""
