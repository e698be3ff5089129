"""The mixed model of `fit_training`: every factor's logarithm is a sum of effects, each drawn towards zero.

Effects are of all steps, GPU generation, GPU and width, attention's kernels on a generation, the host's kind
of CPU, era, and the combination of era, GPU and width; a combination without records gets the sum of what is
known about its parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from railwright.spec.training import Software
from railwright.training.software.eras import eras
from railwright.training.software.host import GRACE

PARAMETERS = ("load", "attention", "memory", "gap", "host")
"""What is fitted: products and attention together (clocks under load), attention beyond that (its kernels
change from release to release), kernels bound by memory, the gap between kernels, and launch times."""
EFFECTS = {
    "all": {"load": 0.20, "attention": 0.10, "memory": 0.10, "gap": 2e-6, "host": 1.0},
    "generation": {"load": 0.10, "attention": 0.0, "memory": 0.10, "gap": 0.0, "host": 0.0},
    "kernels": {"load": 0.0, "attention": 0.10, "memory": 0.0, "gap": 0.0, "host": 0.0},
    "gpu": {"load": 0.10, "attention": 0.0, "memory": 0.0, "gap": 0.0, "host": 0.0},
    "cpu": {"load": 0.0, "attention": 0.0, "memory": 0.0, "gap": 0.0, "host": 0.3},
    "era": {"load": 0.10, "attention": 0.10, "memory": 0.05, "gap": 2e-6, "host": 0.3},
    "cell": {"load": 0.05, "attention": 0.0, "memory": 0.0, "gap": 0.0, "host": 0.0},
}
"""Standard deviation of each effect's prior.

What attention takes beyond the load is its kernels': Triton's on A100 says nothing about Transformer Engine's
on B200, so they share no effect but that of all steps."""
NOISE = 0.05
"""Standard deviation of one record about its family's mean, and scale of the robust loss."""
GUESTS = ("amd-",)
"""Families whose records say nothing about other vendors' GPUs: kernels, compiler and driver are others, and
the era's software is a port.  They get what the others say of their era, and effects of their own GPUs."""

GENERATIONS: dict[str, str] = {}
"""GPU -> generation, of the GPUs that the records name."""

Values = Mapping[str, float]


@dataclass(frozen=True)
class Sample:
    """One record: what it belongs to, and its step time under some factors."""

    number: int
    family: str
    era: str
    key: str

    @property
    def cell(self) -> tuple[str, str]:
        return self.era, self.key


def _names(cell: tuple[str, str]) -> dict[str, str]:
    """Effect -> name; a generation's own cell has no GPU and no combination.

    The kernels of attention are those that an era prefers (`Era.flash`), or Transformer Engine's choice.
    """
    era, key = cell
    gpu, width = key.split(" ")
    kin = GENERATIONS.get(gpu, gpu)
    cpu = "grace" if gpu.startswith(tuple(GRACE)) or kin.startswith(tuple(GRACE)) else "x86"
    flash = eras()[cast(Software, era)].flash
    named = {"all": "", "generation": f"{kin} {width}", "kernels": f"{flash} {kin}", "cpu": cpu, "era": era}
    return named if gpu == kin else {**named, "gpu": key, "cell": f"{era} {key}"}


def mixed(
    samples: list[Sample],
    found: list[tuple[float, list[float]]],
    at: Mapping[tuple[str, str], Values],
    wanted: set[tuple[str, str]] | None = None,
) -> dict[tuple[str, str], Values]:
    """Values of every cell by the mixed model; `found` was linearised at `at`.

    GUESTS are fitted after all others and move none of the effects that they share with them.
    """
    effects: dict[Column, float] = {}
    for guests in (False, True):
        chosen = [i for i, s in enumerate(samples) if s.family.startswith(GUESTS) == guests]
        effects |= _solved([samples[i] for i in chosen], [found[i] for i in chosen], at, effects)
    return {
        cell: {
            p: float(sum(effects.get((e, name, p), 0.0) for e, name in _names(cell).items()))
            for p in PARAMETERS
        }
        for cell in sorted({s.cell for s in samples} | (wanted or set()))
    }


Column = tuple[str, str, str]
"""Effect, its name, parameter."""


def _solved(
    samples: list[Sample],
    found: list[tuple[float, list[float]]],
    at: Mapping[tuple[str, str], Values],
    known: Mapping[Column, float],
) -> dict[Column, float]:
    """Effects of some samples beside those already known."""
    columns: dict[Column, int] = {}
    for cell in sorted({s.cell for s in samples}):
        for column in _columns(cell):
            if column not in known:
                columns.setdefault(column, len(columns))
    if not columns:
        return {}
    sizes = Counter(s.family for s in samples)
    rows, target = [], []
    for s, (base, slopes) in zip(samples, found, strict=True):
        slope = dict(zip(PARAMETERS, slopes, strict=True))
        row = np.zeros(len(columns))
        here = sum(k * at[s.cell][p] for p, k in slope.items())
        for effect, name, parameter in _columns(s.cell):
            if (place := columns.get((effect, name, parameter))) is not None:
                row[place] = slope[parameter] * EFFECTS[effect][parameter]
            else:
                here -= slope[parameter] * known[effect, name, parameter]
        weight = sizes[s.family] ** -0.5
        rows.append(row * weight / NOISE)
        target.append((here - base) * weight / NOISE)
    matrix, wanted = np.array(rows), np.array(target)
    robust = np.ones(len(target))
    solved: np.ndarray = np.zeros(len(columns))
    for _ in range(20):
        a = matrix * robust[:, None]
        solved = np.linalg.solve(a.T @ a + np.eye(len(columns)), a.T @ (wanted * robust))
        off = np.abs(matrix @ solved - wanted)
        robust = (1.0 + off**2) ** -0.25
    return {column: solved[place] * EFFECTS[column[0]][column[2]] for column, place in columns.items()}


def _columns(cell: tuple[str, str]) -> Iterator[Column]:
    for effect, name in _names(cell).items():
        for parameter in PARAMETERS:
            if EFFECTS[effect][parameter]:
                yield effect, name, parameter
