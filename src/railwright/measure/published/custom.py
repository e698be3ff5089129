"""Published times of inference engines' own all-reduce, replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from railwright.catalog import find, load_catalog
from railwright.collectives import custom_all_reduce
from railwright.measure.table import Row
from railwright.shipped import read_data

FAMILY = "custom all-reduce"
SOURCE = "aiconfigurator-core 0.12.0, tables of custom all-reduce"


@dataclass(frozen=True)
class Series:
    """One engine's kernel on one GPU and number of ranks: (size [byte], time [s]) pairs."""

    gpu: str
    engine: str
    version: str
    ranks: int
    times: tuple[tuple[float, float], ...]


def custom_rows() -> Iterator[Row]:
    """Every published time beside ours."""
    gpus = load_catalog().gpus
    for one in series():
        for size, measured in one.times:
            answer = custom_all_reduce(find(gpus, one.gpu), one.ranks, size, one.engine)
            what = f"{one.ranks} {one.gpu}, {size / 1024:,.0f} KiB, {answer.algorithm}"
            record = f"{one.engine}-{one.version}"
            yield Row(FAMILY, record, what, answer.time, measured, "s", SOURCE, "")


@cache
def series() -> tuple[Series, ...]:
    """All published series, as measure/data/custom_all_reduce.yaml has them."""
    return tuple(
        Series(
            raw["gpu"],
            raw["engine"],
            str(raw["version"]),
            int(raw["ranks"]),
            tuple((1024.0 * float(size), 1e-6 * float(time)) for size, time in raw["times"].items()),
        )
        for raw in read_data("measure", "custom_all_reduce.yaml")["records"]
    )
