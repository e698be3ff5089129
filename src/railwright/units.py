"""Units at the edges: text with a unit becomes one float in SI base units; printed once on the way out.

Inside Railwright every quantity is a plain float [byte, s, byte/s, m, W, flop/s].  This is the only module
that knows that 400 Gb/s is 5e10 byte/s.  The table is closed: a unit that is not in it is an error, and units
are case-sensitive, because Gb/s and GB/s differ by a factor of eight.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from railwright.errors import RailwrightError, nearest

Dimension = Literal["bandwidth", "size", "length", "power", "time", "flop rate"]

GIGABIT = 1e9 / 8
"""One Gb/s [byte/s]."""
HOUR, DAY = 3600.0, 86400.0
"""[s]"""
HOURS_OF_YEAR = 8766.0
"""Of 365.25 days [h]."""
JOULES_PER_KWH = 3.6e6
YEAR = HOURS_OF_YEAR * HOUR
"""[s]"""
GIB = 2.0**30
"""One GiB [byte]."""

_SI = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def _prefixed(stem: str, prefixes: dict[str, float], factor: float = 1.0) -> dict[str, float]:
    return {f"{prefix}{stem}": scale * factor for prefix, scale in prefixes.items()}


# Factors to the base unit: SI Brochure 9th ed. tables 2, 7 and 8; IEC 80000-13 (binary prefixes);
# international foot and inch of 1959 (0.3048 m, 25.4 mm).
_UNITS: dict[Dimension, dict[str, float]] = {
    "bandwidth": {
        **_prefixed("b/s", _SI, 1 / 8),
        **_prefixed("bps", _SI, 1 / 8),
        **_prefixed("bit/s", _SI, 1 / 8),
        **_prefixed("B/s", _SI),
        **_prefixed("B/s", _BINARY),
    },
    "size": {**_prefixed("B", _SI), **_prefixed("B", _BINARY), "byte": 1.0, "bytes": 1.0},
    "length": {"m": 1.0, "mm": 1e-3, "cm": 1e-2, "km": 1e3, "ft": 0.3048, "in": 0.0254},
    "power": {"W": 1.0, "kW": 1e3, "MW": 1e6, "GW": 1e9},
    "time": {
        "s": 1.0,
        "ms": 1e-3,
        "us": 1e-6,
        "µs": 1e-6,
        "μs": 1e-6,
        "ns": 1e-9,
        "min": 60.0,
        "h": 3600.0,
        "d": 86400.0,
    },
    "flop rate": {
        f"{prefix}{stem}": scale
        for prefix, scale in {**_SI, "E": 1e18}.items()
        for stem in ("flop/s", "FLOP/s", "FLOPS")
    },
}
EXAMPLES: dict[Dimension, tuple[str, ...]] = {
    "bandwidth": ("400 Gb/s", "50 GB/s"),
    "size": ("1 KiB", "80 GB"),
    "length": ("25 m", "30 cm"),
    "power": ("10.2 kW", "700 W"),
    "time": ("130 ns", "2 h"),
    "flop rate": ("989.4 TFLOP/s", "2 PFLOP/s"),
}
"""What a quantity of each dimension looks like; error messages and the JSON Schema quote it."""

# The units `write` may use, in order of preference: what people of this trade write.
_WRITTEN: dict[Dimension, tuple[str, ...]] = {
    "bandwidth": ("Tb/s", "Gb/s", "Mb/s", "B/s"),
    "size": ("TiB", "GiB", "MiB", "KiB", "GB", "MB", "B"),
    "length": ("m", "cm", "mm", "km", "ft"),
    "power": ("MW", "kW", "W"),
    "time": ("d", "h", "min", "s", "ms", "us", "ns"),
    "flop rate": ("PFLOP/s", "TFLOP/s", "GFLOP/s", "FLOP/s"),
}
_BASE: dict[Dimension, str] = {
    "bandwidth": "B/s",
    "size": "B",
    "length": "m",
    "power": "W",
    "time": "s",
    "flop rate": "FLOP/s",
}
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*(.*?)\s*")


def parse(text: str, dimension: Dimension) -> float:
    """A quantity such as '400 Gb/s' in its base unit [byte/s, byte, m, W, s or flop/s].

    Raises RailwrightError: no unit, unknown unit (with the nearest known ones), no number, negative.
    """
    examples = " or ".join(f"'{e}'" for e in EXAMPLES[dimension])
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise RailwrightError(f"'{text}' is not a {dimension}; write a number and a unit, like {examples}")
    number, unit = match.groups()
    if not unit:
        raise RailwrightError(
            f"'{text.strip()}' has no unit; write a {dimension} with its unit, like {examples}"
        )
    factors = _UNITS[dimension]
    if unit not in factors:
        raise RailwrightError(f"unknown unit '{unit}' for a {dimension}{_known(unit, dimension)}")
    value = float(number) * factors[unit]
    if value < 0:
        raise RailwrightError(f"'{text.strip()}' is negative; a {dimension} is zero or more")
    if value == float("inf"):
        raise RailwrightError(f"'{text.strip()}' is too large for a number")
    return value


def parse_test_size(text: str) -> float:
    """A message size as nccl-tests takes it, '8', '1K', '8G' (binary), or with a unit, '1 MiB'. [byte]

    Source: nccl-tests, src/common.cu, parsesize (K, M and G stand for powers of 1024).
    Raises RailwrightError when it is neither.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([KMGTkmgt]?)\s*", text)
    if match is None:
        try:
            return float(int(parse(text, "size")))
        except RailwrightError:
            raise RailwrightError(
                f"'{text}' is not a message size; write it like 8, 1K, 512M, 8G or 1 MiB"
            ) from None
    number, suffix = match.groups()
    return float(int(float(number) * (_BINARY[suffix.upper() + "i"] if suffix else 1.0)))


def write(value: float, dimension: Dimension) -> str:
    """`value` with the handiest unit that keeps it exact: parse(write(v, d), d) == v."""
    exact: list[str] = []
    for unit in _WRITTEN[dimension]:
        factor = _UNITS[dimension][unit]
        number = f"{value / factor:.10g}"
        if value >= factor and "e" not in number and float(number) * factor == value:
            exact.append(f"{number} {unit}")
    if exact:
        return min(exact, key=lambda text: len(text.partition(" ")[0]))
    return f"{value!r} {_BASE[dimension]}" if value else f"0 {_BASE[dimension]}"


def units_of(dimension: Dimension) -> tuple[str, ...]:
    """Every unit the table knows for a dimension, in table order."""
    return tuple(_UNITS[dimension])


def show_size(value: float) -> str:
    """A size in binary units, '1.5 MiB'. [byte]"""
    return _show(value, (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40)))


def show_rate(value: float) -> str:
    """A bandwidth in bytes, '48.9 GB/s'. [byte/s]"""
    return _show(
        value, (("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("TB/s", 1e12), ("PB/s", 1e15))
    )


def show_stored(value: float) -> str:
    """A size in decimal units, as storage is sold, '5.7 TB'. [byte]"""
    return show_rate(value).removesuffix("/s")


def show_bit_rate(value: float) -> str:
    """A bandwidth in bits, as links are sold, '400 Gb/s'. [byte/s]"""
    steps = (("b/s", 1.0), ("kb/s", 1e3), ("Mb/s", 1e6), ("Gb/s", 1e9), ("Tb/s", 1e12), ("Pb/s", 1e15))
    return _show(value, tuple((unit, factor / 8) for unit, factor in steps))


def show_time(value: float) -> str:
    """A duration, '12.3 µs', '1.84 s', '3.2 h', '41 d', '310 years' (of 365.25 days, from three on). [s]"""
    steps = (
        ("ns", 1e-9),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("min", 60.0),
        ("h", 3600.0),
        ("d", 86400.0),
        ("years", 365.25 * 86400.0),
    )
    first = {"min": 120.0, "h": 7200.0, "d": 2 * 86400.0, "years": 3 * 365.25 * 86400.0}
    return _show(value, steps, first=first)


def trace_time(value: float) -> float:
    """A moment in microseconds, to the whole nanoseconds that trace viewers keep: an event's end is then the
    next one's start, and not after it. [s]"""
    return round(float(value) * 1e6, 3)


def show_power(value: float) -> str:
    """A power, '10.2 kW'. [W]"""
    return _show(value, (("W", 1.0), ("kW", 1e3), ("MW", 1e6), ("GW", 1e9)))


def show_energy(value: float) -> str:
    """An energy, '6.37 kWh', '13.2 MWh'. [J]"""
    return _show(value, (("kWh", JOULES_PER_KWH), ("MWh", 3.6e9), ("GWh", 3.6e12), ("TWh", 3.6e15)))


def show_length(value: float) -> str:
    """A length, '30 m'. [m]"""
    return _show(value, (("cm", 1e-2), ("m", 1.0), ("km", 1e3)))


def show_flop_rate(value: float) -> str:
    """An arithmetic rate, '989 TFLOP/s'. [flop/s]"""
    steps = (("FLOP/s", 1.0), ("GFLOP/s", 1e9), ("TFLOP/s", 1e12), ("PFLOP/s", 1e15), ("EFLOP/s", 1e18))
    return _show(value, steps)


def show_flops(value: float) -> str:
    """An amount of arithmetic, '679 TFLOP'. [flop]"""
    return show_flop_rate(value).removesuffix("/s")


def show_count(value: float) -> str:
    """A number of things: exact with thousands separators below a million ('11,520'), then '46.7 billion',
    and from where words end '3.2e+18'."""
    if abs(value) < 1e6:
        return f"{value:,.0f}"
    if abs(value) >= 999.5e15:
        return f"{value:.3g}"
    return _show(value, (("million", 1e6), ("billion", 1e9), ("trillion", 1e12), ("quadrillion", 1e15)))


def show_amount(value: float) -> str:
    """So much of what does not come in pieces: '4.5' and '0.082' below a thousand, then as a count."""
    return f"{value:.3g}" if abs(value) < 999.5 else show_count(value)


def number(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun, '1 switch', '12,000 cables'."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(words: Sequence[str]) -> str:
    """Words in a row: 'a', 'a and b', 'a, b and c'."""
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def show_share(value: float, digits: int = 1) -> str:
    """A part of a whole, 0.253 as '25.3 %'."""
    return f"{100 * value:.{digits}f} %"


def show_change(value: float, digits: int = 1) -> str:
    """A relative change with its sign, 0.14 as '+14.0 %'; one that rounds to nothing has none."""
    percent = f"{100 * value:+.{digits}f}"
    return f"{percent if float(percent) else percent[1:]} %"


def _show(value: float, steps: tuple[tuple[str, float], ...], first: dict[str, float] | None = None) -> str:
    """Three significant digits in the largest unit that is not above the value.

    first  value from which a unit is used, where that is not the unit itself
    """
    unit, factor = steps[0]
    for candidate, scale in steps:
        # 999.6 is '1000' at three digits, so it belongs to the next unit already.
        if abs(value) >= (first or {}).get(candidate, scale) * (1 - 0.5e-3):
            unit, factor = candidate, scale
    number = value / factor
    # Beyond 15 digits a figure is not read but counted: as a power of ten.
    digits = f"{number:.0f}" if 100 <= abs(number) < 1e15 else f"{number:.3g}"
    return f"{digits} {unit}" if value else f"0 {unit}"


def _known(unit: str, dimension: Dimension) -> str:
    """Nearest units of this dimension, or that the unit measures something else, or the usual ones."""
    if (spelt := re.sub("ps$", "/s", unit)) != unit and spelt in _UNITS[dimension]:
        return f"; write '{spelt}' (B is a byte, b is a bit)"
    hint = nearest(unit, _UNITS[dimension])
    if hint:
        return hint
    for other, factors in _UNITS.items():
        if unit in factors:
            return f", it measures {other}; write it like {' or '.join(repr(e) for e in EXAMPLES[dimension])}"
    return f"; known are {', '.join(_WRITTEN[dimension])} and their kin"
