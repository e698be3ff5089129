"""Failures, recovery and goodput of a training job."""

from __future__ import annotations

from railwright.reliability.basis import basis_of
from railwright.reliability.goodput import goodput
from railwright.reliability.rates import books, leave_one_out, part_rates
from railwright.reliability.replay import figures, read_trace, spares, stepfun
from railwright.reliability.result import Goodput

__all__ = [
    "Goodput",
    "basis_of",
    "books",
    "figures",
    "goodput",
    "leave_one_out",
    "part_rates",
    "read_trace",
    "spares",
    "stepfun",
]
