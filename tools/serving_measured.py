"""Published serving cases with measured kernels beside the shipped fits, slice by slice.

python tools/serving_measured.py FOLDER [PART OF A CASE'S NAME]
FOLDER holds files of `railwright kernels GPU --engine E --out FOLDER/GPU-E.kernels.json`; cases without one
are left out.  No part of the measured source was chosen by these rows (docs/serving/kernels.md).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

from railwright.errors import RailwrightError
from railwright.measure.machines import Unsupported
from railwright.measure.serving.cases import Case, cases, machine_for
from railwright.measure.serving.jobs import Posed, pose
from railwright.measure.serving.replay import answer, rows_of
from railwright.measure.table import Row
from railwright.serving.engine.profiles import engine_of


def main(folder: Path, part: str = "") -> None:
    """Print a line for every slice: cases, mean absolute error and bias of either."""
    both = [pair for case in cases() if part in case["id"] for pair in _pairs(case, folder)]
    print(f"{'slice':62} cases   shipped   bias  measured   bias")
    for family in sorted({shipped.family for shipped, _ in both}):
        mine = [pair for pair in both if pair[0].family == family]
        shipped, measured = ([row.error for row in column] for column in zip(*mine, strict=True))
        print(
            f"{family.removeprefix('serving '):62} {len(mine):5} {_size(shipped):8.1%} {mean(shipped):+7.1%} "
            f"{_size(measured):8.1%} {mean(measured):+7.1%}",
            flush=True,
        )


def _size(errors: list[float]) -> float:
    return mean(abs(error) for error in errors)


def _pairs(case: Case, folder: Path) -> Iterator[tuple[Row, Row]]:
    """Rows of a case by shipped and by measured kernels."""
    try:
        posed = pose(case)
        gpu, family = machine_for(case, posed.gpus).gpu.name, engine_of(posed.job).kernels
        file = folder / f"{gpu}-{family}.kernels.json"
        if not file.exists():
            return
        own = replace(posed, job=posed.job.model_copy(update={"kernels": str(file)}))
        yield from zip(_rows(case, posed), _rows(case, own), strict=True)
    except (Unsupported, RailwrightError) as no:
        print(f"# {case['id']}: {str(no).splitlines()[0]}", file=sys.stderr)


def _rows(case: Case, posed: Posed) -> list[Row]:
    return list(rows_of(case, posed, answer(case, posed)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
