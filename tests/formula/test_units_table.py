"""A quantity is its number times the factor of its unit; what is printed is what people write."""

import pytest

from railwright import units


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("400 Gb/s", "bandwidth", 400e9 / 8),  # 400 gigabit per second are 50 gigabyte per second
        ("400Gbps", "bandwidth", 50e9),
        ("400 Gbit/s", "bandwidth", 50e9),
        ("50 GB/s", "bandwidth", 50e9),
        ("1 GiB/s", "bandwidth", 1073741824),
        ("1.6 Tb/s", "bandwidth", 200e9),
        ("3.35 TB/s", "bandwidth", 3.35e12),
        ("250 MB/s", "bandwidth", 250e6),
        ("8 b/s", "bandwidth", 1.0),
        ("80 GB", "size", 80e9),
        ("80 GiB", "size", 80 * 2**30),
        ("1 KiB", "size", 1024),
        ("1 KB", "size", 1000),
        ("1 kB", "size", 1000),
        ("1e3 B", "size", 1000),
        (".5 MiB", "size", 524288),
        ("  25   m ", "length", 25),
        ("30 cm", "length", 0.3),
        ("100 ft", "length", 30.48),
        ("10.2 kW", "power", 10200),
        ("700 W", "power", 700),
        ("1.5 MW", "power", 1.5e6),
        ("130 ns", "time", 130e-9),
        ("2.5 us", "time", 2.5e-6),
        ("2.5 \u00b5s", "time", 2.5e-6),  # micro sign
        ("2.5 \u03bcs", "time", 2.5e-6),  # Greek mu
        ("90 min", "time", 5400),
        ("2 h", "time", 7200),
        ("1 d", "time", 86400),
        ("989.4 TFLOP/s", "flop rate", 989.4e12),
        ("2 Pflop/s", "flop rate", 2e15),
    ],
)
def test_a_quantity_is_number_times_unit(text, dimension, value):
    assert units.parse(text, dimension) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("1K", 1024), ("1k", 1024), ("512M", 512 * 2**20), ("8G", 8 * 2**30), ("1T", 2**40)],
)
def test_short_sizes_are_binary_as_in_nccl_tests(text, value):
    assert units.parse_test_size(text) == value


def test_test_sizes_take_units_too_and_are_whole_bytes():
    assert units.parse_test_size("1.5K") == 1536
    assert units.parse_test_size("1 MiB") == 2**20
    assert units.parse_test_size("1 MB") == 1e6
    assert units.parse_test_size("0.3K") == 307  # 307.2 rounded down, as parsesize does


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.show_size(1024), "1 KiB"),
        (units.show_size(1023.9), "1 KiB"),  # not '1020 B'
        (units.show_size(1.5 * 2**20), "1.5 MiB"),
        (units.show_size(0), "0 B"),
        (units.show_rate(48.94e9), "48.9 GB/s"),
        (units.show_rate(999.6e6), "1 GB/s"),  # not '1000 MB/s'
        (units.show_stored(1.742e9), "1.74 GB"),
        (units.show_bit_rate(50e9), "400 Gb/s"),
        (units.show_time(12.34e-6), "12.3 µs"),
        (units.show_time(119), "119 s"),  # minutes begin where they say more than seconds
        (units.show_time(121), "2.02 min"),
        (units.show_time(3 * 86400), "3 d"),
        (units.show_time(1000 * 86400), "1000 d"),  # years from three on
        (units.show_time(113_398 * 86400), "310 years"),
        (units.number(1, "GPU"), "1 GPU"),
        (units.number(12_000, "GPU"), "12,000 GPUs"),
        (units.number(2, "switch", "switches"), "2 switches"),
        (units.show_power(10200), "10.2 kW"),
        (units.show_length(30), "30 m"),
        (units.show_flop_rate(989.4e12), "989 TFLOP/s"),
        (units.show_count(11520), "11,520"),
        (units.show_count(46.7e9), "46.7 billion"),
        (units.show_count(998e15), "998 quadrillion"),
        (units.show_count(1e300), "1e+300"),
        (units.show_time(1e300), "3.17e+292 years"),
        (units.show_share(0.253), "25.3 %"),
        (units.show_change(0.14), "+14.0 %"),
        (units.show_change(-0.062), "-6.2 %"),
        (units.show_change(-0.0001), "0.0 %"),
        (units.show_change(-0.004, 0), "0 %"),
        (units.show_change(-0.14, 0), "-14 %"),
        (units.show_energy(12.7e3 * 3.6e6), "12.7 MWh"),
        (units.show_energy(352 * 3.6e6), "352 kWh"),
    ],
)
def test_what_is_printed(shown, text):
    assert shown == text


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (50e9, "bandwidth", "400 Gb/s"),
        (2.0**30, "size", "1 GiB"),
        (1e9, "size", "1 GB"),
        (10.0, "length", "10 m"),
        (0.0, "length", "0 m"),
    ],
)
def test_written_quantities_are_the_ones_people_write(value, dimension, text):
    assert units.write(value, dimension) == text
