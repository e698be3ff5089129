"""Electricity in formulas: apparent power of circuits, line currents of unbalanced loads.

Loads behind active power-factor correction are taken to draw sinusoidal currents of one power factor, so that
phasors of different phases stand 120 degrees apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

LEGS = ("A", "B", "C", "AB", "BC", "CA")


def three_phase(volts: float, amps: float, derate: float = 1.0) -> float:
    """Apparent power of a balanced three-phase circuit. [VA]

    volts  line to line [V]; amps  of each line [A]; derate  share of it that may flow

    sqrt(3) V I.  Source: IEC 60050-131; AP8966: 208 V x 48 A (60 A derated to 80 %) gives 17.29 kVA.
    """
    return math.sqrt(3) * volts * amps * derate


def single_phase(volts: float, amps: float, derate: float = 1.0) -> float:
    """Apparent power of a single-phase circuit between two conductors at `volts`. [VA]"""
    return volts * amps * derate


def leg_voltage(legs: str, volts: float) -> float:
    """Voltage a load sees: line to line on two legs, line to neutral (V / sqrt 3) on one. [V]"""
    return volts if len(legs) == 2 else volts / math.sqrt(3)


def line_currents(amps: Mapping[str, float]) -> tuple[float, float, float]:
    """Currents of lines A, B and C, from what flows on each leg. [A]

    amps  leg -> sum of its loads' currents: 'A', 'B', 'C' to neutral; 'AB', 'BC', 'CA' line to line

    A line carries the phasor sum of its own loads and of the two pairs it belongs to.  Balanced pairs of I
    give sqrt(3) I.
    """
    a, b, c, ab, bc, ca = (amps.get(leg, 0.0) for leg in LEGS)
    return (_line(a, ab, ca), _line(b, bc, ab), _line(c, ca, bc))


def imbalance(lines: tuple[float, ...]) -> float:
    """Largest departure of a line's current from their mean, over the mean; 0 without current.

    Source: NEMA MG 1, definition of voltage unbalance, applied to currents.
    """
    mean = sum(lines) / len(lines)
    return max(abs(line - mean) for line in lines) / mean if mean else 0.0


def bank_limited(volts: float, banks: int, breaker: float, derate: float) -> float:
    """Apparent power of `banks` equal groups of outlets at `volts`, each behind a breaker. [VA]

    Source: Schneider FAQ FA156194 (AP8868: 3 x 208 V x 16 A = 9.98 kVA, although sqrt(3) x 208 V x 50 A x 0.8
    is 14.4 kVA).
    """
    return banks * volts * breaker * derate


def _line(own: float, leads: float, lags: float) -> float:
    """Magnitude of a line's current: `own` to neutral, the pair it starts, minus the pair that ends in it.

    With the line's neutral voltage at angle 0, the pair it starts stands at +30 degrees, and the pair that
    ends in it, reversed, at -30 degrees.
    """
    real = own + (leads + lags) * math.cos(math.pi / 6)
    imaginary = (leads - lags) * math.sin(math.pi / 6)
    return math.hypot(real, imaginary)
