"""vTrain's single-server times are sums of profiled parts: no constant of a step may rest on their gaps."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean

import numpy as np
import pytest

from railwright.measure.vtrain import profiled, single_job, single_records
from railwright.training.eras import era_of

KEYS = ("hidden", "tp", "dp", "pp", "gbs", "mbs", "layers")


def rows() -> list[dict[str, float]]:
    return [
        {**{k: int(r[k]) for k in KEYS}, "seconds": float(r["iteration_ms"]) / 1e3} for r in single_records()
    ]


def test_all_rows_are_one_time_a_layer_and_sums_of_constants() -> None:
    """T = (m + p - 1) (L/p layer + c_p) + s_p + L/p g_d for m microbatches, p stages and d replicas."""
    groups = defaultdict(list)
    for r in rows():
        groups[r["hidden"], r["tp"], r["mbs"]].append(r)
    off = []
    for group in groups.values():
        layers = np.array([r["layers"] / r["pp"] for r in group])
        passes = np.array([r["gbs"] / r["dp"] / r["mbs"] + r["pp"] - 1 for r in group])
        terms = [passes * layers]
        for stages in (1, 2, 4):
            here = np.array([float(r["pp"] == stages) for r in group])
            terms += [passes * here, here]
        terms += [layers * np.array([r["dp"] == replicas for r in group]) for replicas in (1, 2, 4, 8)]
        measured = np.array([r["seconds"] for r in group])
        scaled = np.stack(terms, 1) / measured[:, None]
        found, *_ = np.linalg.lstsq(scaled, np.ones(len(group)), rcond=None)
        off += list(np.abs(scaled @ found - 1))
    assert len(groups) == 32
    assert len(off) == 1440
    assert mean(off) < 0.001


def test_a_layer_more_takes_the_same_time_to_a_part_in_ten_thousand() -> None:
    # eight GPUs in one tensor group: nothing but layers changes from 12 to 24, which no host ever repeats so
    for hidden in (1024, 2048):
        seconds = {
            r["layers"]: r["seconds"]
            for r in rows()
            if (r["hidden"], r["tp"], r["mbs"], r["gbs"]) == (hidden, 8, 1, 16)
        }
        steps = [seconds[k + 4] - seconds[k] for k in (12, 16, 20)]
        assert max(steps) / min(steps) == pytest.approx(1.0, abs=1e-4)


def test_the_gap_of_the_profiler_is_in_no_step() -> None:
    job = single_job(single_records()[0])
    assert profiled(job).gap > 1e-5
    assert all(pace.gap == 0.0 for pace in era_of(job).pace.values())
