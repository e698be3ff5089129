"""DLRM-DCNv2 against MLPerf Training: three runs of NVIDIA's HugeCTR, nothing fitted to them.

mlcommons/training_results_v3.1, NVIDIA/results/eos_n8_… and eos_n16_ngc23.09_merlin_hugectr/dlrm_dcnv2/
result_0.txt: the time between the end of one evaluation and the start of the next is 1,551 steps of 135,168
samples; mean of 16 such intervals 3.860 s on 64 H100, of 11 (all but the first) 3.010 s on 128 H100.
Tables up to 0.0125 GiB are replicated (config_DGXH100_8x8x2112.sh, DP_SHARDING_THRESHOLD).
mlcommons/training_results_v5.1, GigaComputing, G894-AD1 (entry 5.1-0040): 23.02 M samples/s on 8 B200 with
steps of 55,296, replicated up to 0.008 GiB; read in a third party's comparison (chriscai-amd/
training_results_v5.1, README of the B200 runs), not in the log itself.

The band: predicted within 30 % of measured.  The model has no cache, no host and no input pipeline, and
uniform lookups; its sharding plan is ours, not HugeCTR's.
"""

from __future__ import annotations

import pytest

from railwright.measure.machines import machine_of
from railwright.model.dlrm import load_recommender
from railwright.spec.recommendation import RecommendationJob
from railwright.training.dlrm import simulate_recommendation

STEPS = 1551
RUNS = [
    ("H100", 64, 135_168, "0.0125 GiB", 3.860 / STEPS),
    ("H100", 128, 135_168, "0.0125 GiB", 3.010 / STEPS),
    ("B200", 8, 55_296, "0.008 GiB", 55_296 / 23.02e6),
]


@pytest.mark.parametrize(("gpu", "gpus", "batch", "replicated", "measured"), RUNS)
def test_mlperf_steps(gpu: str, gpus: int, batch: int, replicated: str, measured: float) -> None:
    job = RecommendationJob(
        name="mlperf",
        model="dlrm-dcnv2",
        gpus=gpus,
        global_batch=batch,
        samples=4_195_197_692,
        dtype="fp16",
        replicate_below=replicated,  # type: ignore[arg-type]
    )
    step = simulate_recommendation(job, load_recommender("dlrm-dcnv2"), machine_of(gpu, gpus, None))
    assert step.step_time == pytest.approx(measured, rel=0.30)
    assert step.error_low < measured / step.step_time < step.error_high


def test_there_are_1551_steps_between_evaluations() -> None:
    """The logs count epochs: 0.0499726 of 4,195,197,692 samples between two evaluations."""
    assert pytest.approx(STEPS, abs=0.01) == 0.0499726137133 * 4_195_197_692 / 135_168
