"""vTrain's single-server times are sums of profiled parts: no constant of a step may rest on their gaps."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean

import numpy as np
import pytest

from railwright.measure.training.habits import HABITS
from railwright.measure.training.vtrain import WORDS, profiled, single_model, single_records
from railwright.training.software.eras import eras

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


def test_the_profiled_head_is_not_padded() -> None:
    # 50,257 words on one GPU, an odd number; 25,128 on two, a multiple of 8: a quarter of the time, not half
    ends = {tp: _beyond_layers(tp) for tp in (1, 2, 4)}
    assert ends[1] / ends[2] > 4.0
    assert ends[2] / ends[4] < 1.2
    assert [WORDS // tp % 8 for tp in (1, 2, 4)] == [1, 0, 4]
    assert single_model({**single_records()[0], "tp": "2"}).vocab == 2 * 25128


def _beyond_layers(tp: int) -> float:
    """Time of embedding, head and loss for one microbatch of 4 at hidden size 2,048 on one stage. [s]"""
    here = [r for r in rows() if (r["hidden"], r["tp"], r["mbs"], r["pp"], r["dp"]) == (2048, tp, 4, 1, 2)]
    layers = np.array([r["layers"] for r in here])
    passes = np.array([r["gbs"] / 2 / 4 for r in here])
    terms = np.stack([passes * layers, passes, layers, np.ones(len(here))], 1)
    found, _, rank, _ = np.linalg.lstsq(terms, np.array([r["seconds"] for r in here]), rcond=None)
    assert rank == 4
    return float(found[1])


def test_the_gap_of_the_profiler_is_in_no_step() -> None:
    assert profiled().gap > 1e-5
    assert all(pace.gap == 0.0 for pace in eras()[HABITS["vtrain"].era].pace.values())
