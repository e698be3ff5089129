"""DLRM-DCNv2 against MLPerf Training 3.0 to 5.1: 75 systems with HugeCTR, nothing fitted to them.

tests/data/dlrm_mlperf.csv, a row per system:
- round, results: the folder of its ten logs in mlcommons/training_results_v<round>, under .../dlrm_dcnv2;
- step_ms: median over all intervals of all ten logs between the end of one evaluation and the start of the
  next, over the steps between them (the difference of `epoch_num` times ceil(4,195,197,692 / batch), as
  mlperf_logger/callbacks.py counts); low_ms, high_ms the shortest and longest.  A log's first interval, in
  which CUDA graphs are captured, is left out.  `tracked_stats` counts evaluations as well, so its throughput
  is none of steps.
- batch, threshold_gb, plan, sharp: of the submission's config_*.sh or the arguments its logs echo: BATCHSIZE,
  DP_SHARDING_THRESHOLD, SHARDING_PLAN, and NCCL_COLLNET_ENABLE on InfiniBand.  HugeCTR's planner
  (sharding/planner.py) puts tables on every GPU whose rows with Adagrad's state take less than the threshold
  in units of 1e9 bytes: half of it in weights;
- sharding: what comes nearest to where that planner puts the others.  Run with these settings, it cuts tables
  with many lookups, as `auto` does, but for two nodes: there it leaves all whole, each on one node.
Left out: results resubmitted with the same logs, GPUs that the catalogue has not (A40, H200 NVL) or that
logs call otherwise than the submission (xFusion's L40S is an L40 there), Juniper's four H100 nodes (no logs
in the snapshot), CPUs.

The model has no cache, no host and no input pipeline, and uniform lookups; its sharding plan is ours, not
HugeCTR's.  docs/training/dlrm.md says what is off and why.
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from railwright.collectives.prediction import NcclSettings
from railwright.measure.machines import published_machine
from railwright.model.recommendation.dlrm import load_recommender
from railwright.model.recommendation.operators import distinct_rows
from railwright.spec.recommendation import RecommendationJob
from railwright.training import StepResult
from railwright.training.recommendation.dlrm import simulate_recommendation

SAMPLES = 4_195_197_692
MEAN_ERROR, MEAN_BIAS, KIND_ERROR = 0.102, -0.028, 0.133
"""Of all runs, and of their kinds: what docs/training/dlrm.md says."""

Row = dict[str, str]
Kind = tuple[str, int, bool]
"""GPU, number of GPUs, whether small tables are on every GPU."""

DATA = Path(__file__).parent.parent / "data" / "dlrm_mlperf.csv"
RUNS = list(csv.DictReader(DATA.read_text(encoding="utf-8").splitlines()))

MISSED = {
    ("H100-PCIE", 4, True): (-0.80, -0.60),
    ("H100-PCIE", 8, True): (-0.35, -0.20),
    ("GB200", 64, False): (-0.35, -0.20),
    ("H100", 128, False): (-0.30, -0.15),
    ("L40", 8, False): (0.20, 0.40),
}
"""Kinds that are off by more than a fifth, and the range they are off by."""


@cache
def predicted(
    gpu: str, gpus: int, node_gpus: int, batch: int, threshold: float, sharding: str, sharp: bool
) -> StepResult:
    """The step of one configuration.  Nodes of four that NVLink does not join are servers of four."""
    small = node_gpus if node_gpus < 8 and gpu != "GB200" else None
    machine = published_machine(
        gpu, gpus, None, NcclSettings(sharp=True) if sharp else None, server_gpus=small
    )
    job = RecommendationJob(
        name="mlperf",
        model="dlrm-dcnv2",
        gpus=gpus,
        global_batch=batch,
        samples=SAMPLES,
        dtype="fp16",
        sharding=sharding,  # type: ignore[arg-type]
        replicate_below=f"{threshold / 2 * 1e3:g} MB",  # type: ignore[arg-type]
    )
    return simulate_recommendation(job, load_recommender("dlrm-dcnv2"), machine)


def step_of(run: Row) -> StepResult:
    counts = (int(run["gpus"]), int(run["node_gpus"]), int(run["batch"]))
    return predicted(run["gpu"], *counts, float(run["threshold_gb"]), run["sharding"], run["sharp"] == "1")


def kinds() -> dict[Kind, list[float]]:
    """Predicted over measured time of every run, by kind."""
    found = defaultdict(list)
    for run in RUNS:
        ratio = step_of(run).step_time * 1e3 / float(run["step_ms"])
        found[run["gpu"], int(run["gpus"]), float(run["threshold_gb"]) > 0].append(ratio)
    return found


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['round']} {run['results'].replace('/', ' ')}")
def test_mlperf_steps(run: Row) -> None:
    """Within 30 %, but for the kinds that are known to be missed, which are off by as much as is said."""
    kind = (run["gpu"], int(run["gpus"]), float(run["threshold_gb"]) > 0)
    low, high = MISSED.get(kind, (-0.30, 0.30))
    assert low < step_of(run).step_time * 1e3 / float(run["step_ms"]) - 1.0 < high


def test_errors_are_those_the_docs_say() -> None:
    """Every run counts once; then every kind once, since half of the runs are eight H100 or eight B200."""
    found = kinds()
    errors = [ratio - 1.0 for ratios in found.values() for ratio in ratios]
    assert len(errors) == len(RUNS) == 75
    assert statistics.mean(map(abs, errors)) == pytest.approx(MEAN_ERROR, abs=0.002)
    assert statistics.mean(errors) == pytest.approx(MEAN_BIAS, abs=0.002)
    means = [statistics.mean(ratios) - 1.0 for ratios in found.values()]
    assert len(means) == 21
    assert statistics.mean(map(abs, means)) == pytest.approx(KIND_ERROR, abs=0.002)


def test_the_band_of_a_result_holds_four_kinds_of_five() -> None:
    """From the tenth to the ninetieth percentile of measured over predicted time, each kind once."""
    measured = sorted(1.0 / statistics.mean(ratios) for ratios in kinds().values())
    tenths = statistics.quantiles(measured, n=10, method="inclusive")
    step = step_of(RUNS[0])
    assert step.error_low == pytest.approx(tenths[0], abs=0.02)
    assert step.error_high == pytest.approx(tenths[-1], abs=0.02)


def test_runs_are_whole_and_evaluate_as_often_as_the_script_says() -> None:
    """The logs count epochs: 0.0499726 of the samples between two evaluations are 1,551 steps of 135,168."""
    assert pytest.approx(1551, abs=0.01) == 0.0499726137133 * SAMPLES / 135_168
    for run in RUNS:
        assert float(run["low_ms"]) <= float(run["step_ms"]) <= float(run["high_ms"]), run
        assert int(run["batch"]) % int(run["gpus"]) == 0, run


SEEN = {
    1: "227605432 39060 17295 7424 20265 3 7122 1543 63 130229467 3067956 405282 10 2209 11938 155 4 976 14 "
    "292775614 40790948 187188510 590152 12973 108 36",
    3: "45833188 36746 17245 7413 20243 3 7114 1441 62 29275261 1572176 345138 10 2209 11267 128 4 974 14 "
    "48937457 11316796 40094537 452104 12606 104 35",
    15: "7912889 33823 17139 7339 20046 3 7105 1382 62 5554114 582469 245828 10 2209 10667 104 4 968 14 "
    "8165896 2675940 7156453 302516 12022 97 35",
}
"""Ids of each of Criteo's features that occur at least so often.  Source: NVIDIA/DeepLearningExamples, DLRM,
the cardinalities of its variants T0, T3 and T15 (an id for all others, where it counts one, is left out)."""
CRITEO = SAMPLES + 2 * 89_137_319
"""Samples of all 24 days: the training's, and the last day, half of which is evaluated."""


def different_ids(least: tuple[float, ...], batch: int) -> float:
    """Different ids of one feature in a batch, where as many as `least` occur at least 1, 3 and 15 times.

    Power laws between these and beyond, until all samples have one; ids that are left are in every batch.
    """
    often = np.geomspace(1.0, CRITEO, 4000)
    bends, ids = np.log([1.0, 3.0, 15.0]), np.log(least)
    slope = (ids[2] - ids[1]) / (bends[2] - bends[1])
    beyond = ids[2] + slope * (np.log(often) - bends[2])
    reached = np.exp(np.where(often <= 15.0, np.interp(np.log(often), bends, ids), beyond))
    count, uses = reached[:-1] - reached[1:], np.sqrt(often[:-1] * often[1:])
    within = np.cumsum(count * uses) <= CRITEO
    met = np.sum((count * -np.expm1(-batch * uses / CRITEO))[within])
    return min(float(met) + least[0] - float(np.sum(count[within])), batch)


def test_a_fifth_of_the_lookups_meet_a_row_of_their_own() -> None:
    """Uniform lookups, as they are modelled: three quarters.  MLPerf's multi-hot data give each id one set of
    random rows (scripts/multi_hot.py), so that ids that repeat bring no new ones."""
    model, batch = load_recommender("dlrm-dcnv2"), 55_296
    least = zip(*([float(n) for n in SEEN[often].split()] for often in (1, 3, 15)), strict=True)
    lookups = batch * sum(model.lookups)
    real = uniform = 0.0
    for rows, hot, seen in zip(model.rows, model.lookups, least, strict=True):
        real += distinct_rows(rows, hot * different_ids(seen, batch))
        uniform += distinct_rows(rows, hot * batch)
    assert uniform / lookups == pytest.approx(0.74, abs=0.01)
    assert real / lookups == pytest.approx(0.19, abs=0.02)
