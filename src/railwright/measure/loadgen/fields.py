"""Numbers out of a tool's JSON, with errors that name file and field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from railwright.errors import RailwrightError
from railwright.measure.loadgen.result import Summary

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
"""Key of most tools -> percentile."""


def number(entry: Mapping[str, Any], key: str, file: str) -> float | None:
    """A finite number, None where the key is missing, null or 'inf'.

    Raises RailwrightError for what is no number, or negative: no quantity here can be.
    """
    value = entry.get(key)
    if value is None or value == "inf":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RailwrightError(f"{file}: {key}: {value!r} is no number")
    if math.isnan(value) or math.isinf(value):
        return None
    if value < 0:
        raise RailwrightError(f"{file}: {key}: {value} is negative")
    return float(value)


def whole(entry: Mapping[str, Any], key: str, file: str) -> int | None:
    """A whole number, None where it is not stated."""
    value = number(entry, key, file)
    return None if value is None else int(value)


def section(entry: Mapping[str, Any], key: str, file: str) -> Mapping[str, Any]:
    """An object within an object, empty where it is missing. Raises RailwrightError for another thing."""
    value = entry.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RailwrightError(f"{file}: {key}: an object is expected, not {value!r:.40}")
    return value


def summary(
    entry: Mapping[str, Any], file: str, unit: float, mean: str, percentiles: Mapping[str, float]
) -> Summary:
    """The statistics of one quantity under the tool's keys.

    unit         seconds of the tool's unit
    mean         key of the mean
    percentiles  key -> percentile
    """
    stated = ((p, number(entry, key, file)) for key, p in percentiles.items())
    found = {p: value * unit for p, value in stated if value is not None}
    middle = number(entry, mean, file)
    return Summary(None if middle is None else middle * unit, found)
