"""Weighted least squares on log error: launch, ramp and usable bandwidth of one family, with uncertainty.

    time = launch + steps + messages + b + ramp_seconds(ramp, filling, b),   b = bandwidth / usable

(of rings across nodes steps are what b does not hide of their latency)

is `collectives.cost` with three constants free; steps, posting and bandwidth come from the prediction.
Arrays: P points of one curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from railwright.collectives.family import Family, ramp_seconds

Floats = NDArray[np.float64]
Values = Mapping[str, float]

PARAMETERS = ("launch", "ramp", "usable")
LIMITS = {"launch": (0.0, 1.0), "ramp": (0.0, 4.0), "usable": (0.02, 1.2)}
"""Launch [s]; ramp, to the bound of the shipped fit (tools/fit_collectives.py); usable over NCCL's own."""


@dataclass(frozen=True, eq=False)
class Part:
    """The points of one curve that one family prices.

    log, line, op, ranks, nodes  which curve
    size       (P,) [byte]
    measured   (P,) [s]
    steps      (P,) latency terms without launch [s]
    filling    (P,) latency of the pipeline that a message fills (`collectives.algorithm`) [s]
    hidden     (P,) latency that the bandwidth term hides at most at usable 1 [s]; 0: steps stay as they are
    posting    (P,) what the proxies take to post the messages where that is beyond the wire, else 0 [s]
    bandwidth  (P,) bandwidth term at usable 1 [s]
    family     as shipped, for the form of its ramp
    """

    log: str
    line: int
    op: str
    ranks: int
    nodes: int
    size: Floats
    measured: Floats
    steps: Floats
    filling: Floats
    hidden: Floats
    posting: Floats
    bandwidth: Floats
    family: Family

    def only(self, keep: NDArray[np.bool_]) -> Part:
        """The same curve with some of its points."""
        names = ("size", "measured", "steps", "filling", "hidden", "posting", "bandwidth")
        return replace(self, **{name: getattr(self, name)[keep] for name in names})


@dataclass(frozen=True)
class Fit:
    """Constants of least squared log error.

    values     all three; those not free are as given
    errors     standard errors of the free ones
    free       which were fitted
    freedom    points less free constants
    sigma      standard deviation of ln(measured / predicted) per point
    condition  of the Jacobian with columns of unit length (1: independent)
    alike      the two free constants that the worst-determined direction mixes most; () below two
    """

    values: dict[str, float]
    errors: dict[str, float]
    free: tuple[str, ...]
    freedom: int
    sigma: float
    condition: float
    alike: tuple[str, ...]


def fit(parts: Sequence[Part], start: Values, free: Sequence[str]) -> Fit:
    """Fit the free constants; every curve weighs the same whatever its number of points.

    start  all three constants; those not free stay
    Standard errors: (J'WJ)^-1 J'WWJ (J'WJ)^-1 times the residual variance on n - p degrees of freedom.
    Condition: columns scaled to unit length (Belsley, Kuh and Welsch, Regression Diagnostics, 1980, ch. 3).
    """
    from scipy.optimize import least_squares

    names = tuple(n for n in PARAMETERS if n in free)
    count = sum(len(p.size) for p in parts)
    weights = np.concatenate([np.full(len(p.size), count / len(parts) / len(p.size)) for p in parts])
    values = dict(start)
    if names:
        unit = {"launch": float(min(p.measured.min() for p in parts)), "ramp": 1.0, "usable": 1.0}
        scale = np.array([unit[n] for n in names])
        low, high = (np.array([LIMITS[n][i] for n in names]) / scale for i in (0, 1))

        def spread(x: Floats) -> dict[str, float]:
            return {**start, **dict(zip(names, (x * scale).tolist(), strict=True))}

        def residuals(x: Floats) -> Floats:
            found: Floats = np.sqrt(weights) * np.concatenate([log_errors(p, spread(x)) for p in parts])
            return found

        def slopes(x: Floats) -> Floats:
            rows = np.concatenate([_slopes(p, spread(x), names) for p in parts])
            found: Floats = np.sqrt(weights)[:, None] * rows * scale
            return found

        first = np.clip([start[n] for n in names] / scale, low + 1e-3, high - 1e-3)
        answer = least_squares(residuals, first, slopes, bounds=(low, high), x_scale="jac", xtol=1e-12)
        values = spread(np.where(answer.x - low < 1e-6, low, answer.x))
    errors = np.concatenate([log_errors(p, values) for p in parts])
    freedom = count - len(names)
    variance = float(np.sum(weights * errors**2)) / max(1, freedom)
    result = Fit(
        values=values, errors={}, free=names, freedom=freedom, sigma=sqrt(variance), condition=1.0, alike=()
    )
    if not names:
        return result
    jacobian = np.concatenate([_slopes(p, values, names) for p in parts])
    inverse = np.linalg.pinv(jacobian.T @ (weights[:, None] * jacobian))
    middle = jacobian.T @ (weights[:, None] ** 2 * jacobian)
    standard = np.sqrt(np.maximum(0.0, np.diag(inverse @ middle @ inverse)) * variance)
    condition, alike = _collinearity(np.sqrt(weights)[:, None] * jacobian, names)
    stated = dict(zip(names, standard.tolist(), strict=True))
    return replace(result, errors=stated, condition=condition, alike=alike)


def times(part: Part, values: Values) -> Floats:
    """Predicted times of a curve's points. [s]"""
    wire = part.bandwidth / values["usable"]
    family, across = replace(part.family, ramp=values["ramp"]), part.nodes > 1
    pairs = zip(part.filling.tolist(), wire.tolist(), strict=True)
    ramp = np.array([ramp_seconds(family, filling, bandwidth, across) for filling, bandwidth in pairs])
    beyond = np.maximum(0.0, part.filling - part.hidden / values["usable"])
    steps = np.where(part.hidden > 0, beyond, part.steps)
    found: Floats = values["launch"] + steps + np.maximum(0.0, part.posting - wire) + wire + ramp
    return found


def log_errors(part: Part, values: Values) -> Floats:
    """ln(predicted / measured) of a curve's points."""
    found: Floats = np.log(times(part, values) / part.measured)
    return found


@dataclass(frozen=True)
class LeftOut:
    """What a fit says of points it did not see.

    how      'curve' or 'size': what was left out in turn
    errors   ln(predicted / measured) of every point when it was left out, in the order of the parts
    moved    constant -> (largest change, what was left out then)
    jackknife  standard errors over curves; empty with fewer than two curves
    """

    how: str
    errors: Floats
    moved: dict[str, tuple[float, str]]
    jackknife: dict[str, float]


def leave_out(parts: Sequence[Part], found: Fit, kept: Values) -> LeftOut:
    """Fit again without each curve in turn, or without each size where there is one curve.

    kept  constants that predictions use whatever the fit says (held, or fitted only on the way)
    """
    trials: list[tuple[str, list[Part], list[Part]]] = []
    if len(parts) > 1:
        for i, part in enumerate(parts):
            name = f"{part.log}:{part.line}"
            trials.append((name, [*parts[:i], *parts[i + 1 :]], [part]))
    else:
        whole = parts[0]
        for i in range(len(whole.size)):
            here = np.arange(len(whole.size)) == i
            trials.append((f"{whole.size[i]:.0f} B", [whole.only(~here)], [whole.only(here)]))
    errors, all_values = [], []
    moved: dict[str, tuple[float, str]] = dict.fromkeys(found.free, (0.0, ""))
    for name, rest, out in trials:
        if not rest or not len(rest[0].size):
            continue
        again = fit(rest, found.values, found.free).values
        all_values.append(again)
        errors += [log_errors(part, {**again, **kept}) for part in out]
        for n in found.free:
            change = again[n] - found.values[n]
            if abs(change) > abs(moved[n][0]):
                moved[n] = (change, name)
    jackknife = {}
    if len(parts) > 1:
        m = len(parts)
        for n in found.free:
            over = np.array([v[n] for v in all_values])
            jackknife[n] = sqrt((m - 1) / m * float(np.sum((over - over.mean()) ** 2)))
    return LeftOut("curve" if len(parts) > 1 else "size", np.concatenate(errors), moved, jackknife)


def quantile_t(freedom: int, level: float = 0.8) -> float:
    """Half width of the central interval of Student's t, in standard errors."""
    from scipy.stats import t

    return float(t.ppf(0.5 + level / 2, max(1, freedom)))


def _slopes(part: Part, values: Values, names: Sequence[str]) -> Floats:
    """d ln(time) / d constant, (P, constants), by central differences."""
    columns = []
    for n in names:
        step = 1e-5 * (float(part.measured.min()) if n == "launch" else 1.0)
        up, down = {**values, n: values[n] + step}, {**values, n: values[n] - step}
        columns.append((times(part, up) - times(part, down)) / (2 * step))
    found: Floats = np.stack(columns, axis=1) / times(part, values)[:, None]
    return found


def _collinearity(jacobian: Floats, names: tuple[str, ...]) -> tuple[float, tuple[str, ...]]:
    """Condition number of the scaled Jacobian, and the pair that its weakest direction mixes."""
    lengths = np.linalg.norm(jacobian, axis=0)
    if np.any(lengths == 0) or len(names) < 2:
        return (float("inf") if np.any(lengths == 0) else 1.0), ()
    _, singular, rows = np.linalg.svd(jacobian / lengths, full_matrices=False)
    order = np.argsort(-np.abs(rows[-1]), kind="stable")[:2]
    alike = tuple(names[i] for i in sorted(order.tolist()))
    return (float(singular[0] / singular[-1]) if singular[-1] > 0 else float("inf")), alike
