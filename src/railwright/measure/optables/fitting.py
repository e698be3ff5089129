"""Constants of a kernel fitted to its table: robust least squares on the logarithm of fitted over measured.

Kernel measurements only: no end-to-end row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from railwright.measure.optables.package import Columns, Package
from railwright.serving.kernels.times import Speeds

Floats = NDArray[np.float64]

FOLDS = 5
SAMPLE = 2500
"""Rows of a table that its fit sees."""


@dataclass(frozen=True)
class Subject:
    """The GPU whose tables are read.

    system  its folder;  cache  level-2 [byte]
    peaks   by the tables' name of a type: peak over that of bf16;  widths  bytes of a weight with its scales
    """

    system: str
    speeds: Speeds
    cache: float
    peaks: Mapping[str, float]
    widths: Mapping[str, float]


@dataclass(frozen=True)
class Tables:
    """Where tables are read from.

    versions  of each engine;  filled  an older one stands for a kind that the version lacks
    """

    package: Package
    versions: Mapping[str, str]
    filled: bool = True

    def of(
        self,
        subject: Subject,
        kind: str,
        engine: str | None,
        file: str,
        wanted: tuple[str, ...],
        optional: tuple[str, ...] = (),
    ) -> tuple[Columns, str] | None:
        """A table with its name, 'vllm/0.24.0'; None where there is none."""
        version = self.versions.get(engine or "")
        if engine is None or version is None:
            return None
        if self.filled:
            version = self.package.nearest(subject.system, kind, engine, version, file) or version
        table = f"{engine}/{version}"
        read = self.package.read(f"{subject.system}/{kind}/{table}/{file}.parquet", wanted, optional)
        return None if read is None else (read, table)

    def upto(
        self, subject: Subject, kind: str, engine: str, file: str, wanted: tuple[str, ...]
    ) -> Iterator[tuple[Columns, str]]:
        """The tables of an engine's version and of those before it, newest first, as `of` has each."""
        last = self.versions.get(engine)
        while last and (last := self.package.nearest(subject.system, kind, engine, last, file)):
            found = replace(self, versions={engine: last}).of(subject, kind, engine, file, wanted)
            assert found is not None
            yield found
            last = self.package.before(subject.system, kind, engine, last, file)


@dataclass(frozen=True)
class Fit:
    """Constants, mean error, that on what was left out of the fit (five folds over shapes) [%], rows."""

    values: Floats
    error: float
    left_out: float
    rows: int


@dataclass(frozen=True)
class Measured:
    """All rows of one kernel: configurations (R, D), the one or two sizes that run (R,), seconds (R,)."""

    configs: Floats
    first: Floats
    second: Floats
    seconds: Floats


@dataclass(frozen=True)
class Found:
    """One kernel of a table.

    path      in serving's tables, e.g. ('attention', 'vllm', 'decode_bf16');  constants  by name
    table     its engine and version
    """

    path: tuple[str, ...]
    constants: Mapping[str, float]
    fit: Fit
    table: str
    measured: Measured


@dataclass(frozen=True)
class Reduced:
    """An engine's all-reduce by number of GPUs: median times [s] at sizes [byte], rising."""

    engine: str
    ranks: int
    sizes: Floats
    seconds: Floats
    table: str


def fitted(
    model: Callable[..., Floats],
    columns: tuple[Floats, ...],
    seconds: Floats,
    start: Floats,
    groups: NDArray[np.intp],
    limits: tuple[Floats, Floats],
) -> Fit:
    """The constants of `model(constants, *columns)`, all of them positive, sought by their logarithms.

    groups  number of each row's shape, which is in or out of the fit as a whole
    """
    from scipy.optimize import least_squares

    def solve(at: NDArray[np.bool_], begin: Floats, most: int) -> Floats:
        own, wanted = tuple(c[at] for c in columns), seconds[at]

        def off(x: Floats) -> Floats:
            return np.asarray(np.log(model(np.exp(x), *own) / wanted))

        inside = np.clip(begin, limits[0] + 1e-6, limits[1] - 1e-6)
        found = least_squares(
            off, inside, bounds=limits, loss="soft_l1", f_scale=0.1, x_scale=0.3, max_nfev=most
        )
        return np.asarray(found.x)

    everything = np.ones(len(seconds), bool)
    best = solve(everything, start, 80)
    error = np.abs(model(np.exp(best), *columns) / seconds - 1).mean()
    left: list[Floats] = []
    for fold in range(FOLDS):
        out = groups % FOLDS == fold
        if out.any() and not out.all():
            x = solve(~out, best, 15)
            left.append(np.abs(model(np.exp(x), *(c[out] for c in columns)) / seconds[out] - 1))
    beyond = float(np.concatenate(left).mean()) if left else float(error)
    return Fit(np.exp(best), 100 * float(error), 100 * beyond, len(seconds))


def limits(low: list[float], high: list[float]) -> tuple[Floats, Floats]:
    """What constants can be on any machine, as their logarithms."""
    return np.log(low), np.log(high)


def groups_of(*columns: Floats) -> NDArray[np.intp]:
    """A number for every combination of the columns' values."""
    return np.asarray(np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel())


def sample(found: NDArray[np.intp], size: Floats) -> NDArray[np.intp]:
    """At most SAMPLE rows, as many from every octave pair of `size`: small batches weigh as much as large."""
    if len(found) <= SAMPLE:
        return found
    rng = np.random.default_rng(0)
    octaves = np.floor(np.log2(np.maximum(size[found], 1)) / 2)
    share = SAMPLE // len(set(octaves))
    return np.concatenate([rng.permutation(found[octaves == d])[:share] for d in sorted(set(octaves))])
