"""Measured rows as points around their fit, and how far points are wrong about what was left out of them.

Only tables of kernels are read here: how far a configuration speaks for others is chosen by configurations
left out of the points, never by an end-to-end row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from railwright.measure.optables.fitting import FOLDS, Floats, Measured
from railwright.serving.kernels.measured import points_of
from railwright.serving.kernels.points import Points

SCALES = (0.25, 0.5, 1.0, 2.0)
"""Octaves over which a configuration speaks for others: one of these, by kernel."""

TRIED = 150
"""Configurations whose grids are halved at most."""

DIGITS = 5
"""Of a measured time in a file."""


@dataclass(frozen=True)
class Judged:
    """Mean errors of one kernel at its points [%], of `points` measured in `configs` configurations.

    fit    of the constants alone
    near   with points, at configurations left out of them (five folds)
    between  with points, at every second size of a configuration, left out of its grid
    scale  chosen by `near` [octave]
    """

    configs: int
    points: int
    fit: float
    near: float
    between: float
    scale: float


def grid(measured: Measured) -> dict[str, Any]:
    """Points as a file holds them; of a shape that was measured more than once, the geometric mean."""
    configs, of = np.unique(measured.configs, axis=0, return_inverse=True)
    first, row = np.unique(measured.first, return_inverse=True)
    second, column = np.unique(measured.second, return_inverse=True)
    shape = (len(configs), len(first), len(second))
    at = np.ravel_multi_index((of.ravel(), row.ravel(), column.ravel()), shape)
    size = int(np.prod(shape))
    counts = np.bincount(at, minlength=size)
    logs = np.bincount(at, weights=np.log(measured.seconds * 1e6), minlength=size)
    times = np.where(counts > 0, np.exp(logs / np.maximum(counts, 1)), np.nan).reshape(shape)
    return {
        "configs": [_plain(c) for c in configs],
        "first": _plain(first),
        "second": _plain(second),
        "microseconds": [[[_rounded(v) for v in line] for line in one] for one in times],
    }


def judged(raw: Mapping[str, Any], fit: Callable[..., Floats]) -> Judged:
    """Errors of points around their fit, and the scale with the least of them beside measured ones."""
    points = points_of({**raw, "scale": 1.0}, fit)
    logs = [points.ratios(number) for number in range(len(points.configs))]
    there = np.isfinite(np.array(logs))
    off = {scale: _beside(points, logs, scale) for scale in SCALES}
    scale = min(SCALES, key=lambda one: off[one])
    alone = float(np.abs(np.expm1(-np.array(logs)[there])).mean())
    between = _between(points, logs)
    return Judged(len(logs), int(there.sum()), 100 * alone, 100 * off[scale], 100 * between, scale)


def _beside(points: Points, logs: list[Floats], scale: float) -> float:
    """Mean error at configurations left out."""
    fold = np.random.default_rng(0).permutation(len(logs)) % FOLDS
    found: list[Floats] = []
    for number in range(FOLDS):
        out = np.flatnonzero(fold == number)
        rest = np.flatnonzero(fold != number)
        if not len(rest):
            # there is no other configuration: the fit stands
            return float(np.abs(np.expm1(-logs[0][np.isfinite(logs[0])])).mean())
        known = {i: logs[j] for i, j in enumerate(rest)}
        left = replace(
            points, configs=points.configs[rest], seconds=points.seconds[rest], scale=scale, known=known
        )
        for one in out:
            found.append(_wrong(left, points.configs[one], points.first, points.second, logs[one]))
    return float(np.concatenate(found).mean())


def _between(points: Points, logs: list[Floats]) -> float:
    """Mean error at every second size of either kind, left out of the grids."""
    found: list[Floats] = []
    for axis in (0, 1):
        sizes = (points.first, points.second)
        number = len(sizes[axis])
        if number < 3:
            continue
        kept, out = np.arange(0, number, 2), np.arange(1, number - 1, 2)
        first, second = (s[kept] if i == axis else s for i, s in enumerate(sizes))
        asked = [s[out] if i == axis else s for i, s in enumerate(sizes)]
        half = replace(
            points,
            first=first,
            second=second,
            seconds=points.seconds.take(kept, axis + 1),
            known={i: log.take(kept, axis) for i, log in enumerate(logs)},
        )
        for one in range(0, len(logs), max(1, len(logs) // TRIED)):
            found.append(_wrong(half, points.configs[one], asked[0], asked[1], logs[one].take(out, axis)))
    return float(np.concatenate(found).mean()) if found else 0.0


def _wrong(points: Points, config: Floats, first: Floats, second: Floats, wanted: Floats) -> Floats:
    """Errors of one configuration where it was measured."""
    there = np.isfinite(wanted)
    told = points.log_ratio(tuple(config), first[:, None], second[None, :])
    return np.abs(np.expm1(told[there] - wanted[there]))


def _plain(sizes: Floats) -> list[float]:
    return [int(v) if float(v).is_integer() else float(v) for v in sizes]


def _rounded(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
