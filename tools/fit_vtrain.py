"""Fit the era of vTrain's single-server rows; `python tools/fit_training.py single` asks for it.

Every tenth row tells products, memory, host and the fixed time of a step, and their profiler's gap.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from railwright.measure.training.vtrain import (
    EVERY,
    single_job,
    single_machine,
    single_model,
    single_records,
)
from railwright.training import simulate
from railwright.training.software.eras import Pace

Floats = NDArray[np.float64]


def single_fit() -> tuple[Pace, Pace]:
    """The era of vTrain: products, memory, host and the fixed time of a step, on every tenth row.

    These are composed from profiles of one layer on one GPU (`measure.vtrain`): the gap that the profiler
    leaves between kernels is fitted beside the others, and is in the second pace only.
    """
    from scipy.optimize import least_squares

    rows = [r for i, r in enumerate(single_records()) if i % EVERY == 0]
    measured = np.array([float(r["iteration_ms"]) for r in rows]) / 1e3
    with ProcessPoolExecutor(3) as pool:

        def residual(x: Floats) -> Floats:
            pace = _pace(x)
            steps = list(pool.map(_step, [(r, pace) for r in rows], chunksize=8))
            return np.log(np.array(steps) / measured)

        fit = least_squares(
            residual,
            [0.08, 0.1, 3.0, 1.5, 5.0],
            bounds=(0.0, np.inf),  # no factor below one, no negative time
            diff_step=0.03,
            loss="soft_l1",
            f_scale=0.1,
            max_nfev=25,
        )
        off = residual(fit.x)
    pace = _pace(fit.x)
    mean = np.mean(np.abs(np.exp(off) - 1))
    print(f"single server: {pace}  fitted rows {len(rows)}, mean {mean:.1%}, bias {np.mean(off):+.1%}")
    source = f"{len(rows)} of vTrain's 1,440 single-server rows, mean error {mean:.1%} there"
    traced = replace(pace, records=len(rows), source=source)
    return replace(traced, gap=0.0), traced


def _pace(x: Floats) -> Pace:
    gemm, memory, host = (round(float(np.exp(v)), 3) for v in (x[0], x[1], x[3]))
    return Pace(
        gemm, gemm, memory, round(max(float(x[2]), 0.0) * 1e-5, 8), host, round(float(x[4]) * 1e-3, 5)
    )


def _step(task: tuple[dict[str, str], Pace]) -> float:
    record, pace = task
    return simulate(single_job(record), single_model(record), single_machine(record), pace=pace).step_time
