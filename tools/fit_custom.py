"""Constants of engines' own all-reduce (collectives/data/custom.yaml), fitted to published times of all GPUs.

Four constants for each engine and generation: robust least squares of log(predicted / measured) over
measure/data/custom_all_reduce.yaml.  The bands are the 10th and 90th percentile of measured / predicted with
each series (a GPU and a number of ranks) left out of the fit.  Prints both.  Run: python tools/fit_custom.py
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares

from railwright.catalog import find, load_catalog
from railwright.collectives import custom
from railwright.collectives.group import generation_of
from railwright.measure.published.custom import Series, series

NAMES = ("launch", "barrier", "one_shot", "two_shot")
START = (4e-6, 3e-6, 0.5, 0.5)
FEW = 4
"""Times of a kind below which its constants are Hopper's."""


def generation(one: Series) -> str:
    """The row of the constants that a series belongs to."""
    return generation_of(find(load_catalog().gpus, one.gpu))


def ratios(known: Sequence[Series], x: Sequence[float]) -> dict[str, list[float]]:
    """Measured over predicted by kind, with these constants."""
    found: dict[str, list[float]] = {"one-shot": [], "two-shot": []}
    for one in known:
        gpu = find(load_catalog().gpus, one.gpu)
        for size, measured in one.times:
            kind = custom.kind_of(one.engine, generation(one), one.ranks, size)
            constants = dict(zip(NAMES, x, strict=True))
            terms = custom.terms(kind, one.ranks, size, gpu.scale_up_bandwidth, constants)
            found[kind].append(measured / sum(term.seconds for term in terms))
    return found


def fitted(known: Sequence[Series], other: Sequence[float] | None = None) -> tuple[float, ...]:
    """Constants of one engine and generation.

    other  whose two-shot constants stand in where too few times are known
    """
    few = other is not None and len(ratios(known, START)["two-shot"]) < FEW

    def all_of(x: np.ndarray) -> list[float]:
        return [np.exp(x[0]), other[1], np.exp(x[2]), other[3]] if few and other else list(np.exp(x))

    def residuals(x: np.ndarray) -> np.ndarray:
        found = ratios(known, all_of(x))
        logs: np.ndarray = np.log(np.array(found["one-shot"] + ([] if few else found["two-shot"])))
        return logs

    answer = least_squares(residuals, np.log(START), loss="soft_l1", f_scale=0.1)
    return tuple(float(f"{v:.3g}") for v in all_of(answer.x))


def of(engine: str) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Constants of an engine by generation, and its bands by kind."""
    own = [one for one in series() if one.engine == engine]
    hopper = fitted([one for one in own if generation(one) == "hopper"])
    constants: dict[str, dict[str, float]] = {}
    unseen: dict[str, list[float]] = {"one-shot": [], "two-shot": []}
    for name in ("ampere", "hopper", "blackwell"):
        here = [one for one in own if generation(one) == name]
        constants[name] = dict(zip(NAMES, fitted(here, hopper), strict=True))
        for one in here:
            rest = [each for each in here if each is not one]
            for kind, values in ratios([one], fitted(rest, hopper)).items():
                unseen[kind] += values
    quantiles = {kind: np.quantile(values, [0.1, 0.9]) for kind, values in unseen.items()}
    return constants, {kind: {"low": float(q[0]), "high": float(q[1])} for kind, q in quantiles.items()}


def main() -> None:
    """Print constants and bands."""
    for engine in ("vllm", "trtllm"):
        constants, bands = of(engine)
        for name, found in (constants | bands).items():
            print(engine, name, {key: float(f"{value:.3g}") for key, value in found.items()})


if __name__ == "__main__":
    main()
