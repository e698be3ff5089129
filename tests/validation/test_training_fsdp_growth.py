"""What sharded parameters cost as a job grows: published beside predicted.

llm-foundry on H100 (mosaicml/llm-foundry, scripts/train/benchmarking/README.md, records of ours): the same
batch on every GPU, from 128 to 512 of them.  Llama 2 7B on H100, 128 to 2,048 (Fernandez et al., arXiv
2411.13055, abstract and section 4 as quoted there: 37.22 % fewer tokens a second of each GPU); how many
sequences a GPU had is not known to us, and decides it: gathering takes as long whatever the batch.
"""

from __future__ import annotations

from functools import cache

import pytest

from railwright.measure.machines import published_machine
from railwright.measure.training.replay import record_row, records
from railwright.model import load_model
from railwright.spec.training import Layout, TrainingJob
from railwright.training import simulate

GROWTH = {"mpt-3b": 8, "mpt-7b": 6, "mpt-30b": 8, "mpt-70b": 8}
"""Model -> sequences of 2,048 tokens on every GPU."""


def change(model: str) -> tuple[float, float]:
    """(predicted, measured) change of a GPU's rate from 128 to 512 GPUs."""
    steps = {
        int(record["gpus"]): record_row(record, "")
        for record in records()
        if record["family"] == f"llmfoundry-{model}-H100"
        and record["dtype"] == "bf16"
        and record["seq"] == "2048"
        and record["gbs"] == str(GROWTH[model] * int(record["gpus"]))
    }
    small, large = steps[128], steps[512]
    return small.predicted / large.predicted - 1, small.measured / large.measured - 1


@pytest.mark.parametrize("model", GROWTH)
def test_growth_is_predicted_too_small_by_seven_points_at_most(model: str) -> None:
    """Measured are 3.8 to 7.7 % from 128 to 512 GPUs, predicted 0.6 to 2.0 %; the 70B gathers a tenth of its
    time, so that what is missing there (4 points) is no collective."""
    predicted, measured = change(model)
    assert measured < predicted < 0.0
    assert predicted - measured < 0.065


@cache
def rate(gpus: int, sequences: int) -> float:
    """Predicted tokens a second of each GPU of Llama 2 7B under FSDP."""
    job = TrainingJob(
        name="fsdp",
        model="llama-2-7b",
        gpus=gpus,
        sequence=4096,
        global_batch=sequences * gpus,
        micro_batch=sequences,
        tokens=1e12,
        software="fsdp-2024",
        gradient_dtype="bf16",
        layout=Layout(zero=3),
    )
    machine = published_machine("H100", gpus, 400.0)
    step = simulate(job, load_model(job.model), machine, must_fit=False, most_events=0)
    return step.tokens_per_second_per_gpu


def test_a_7b_on_2048_gpus_gathers_longer_than_it_computes() -> None:
    """One sequence a GPU loses what was published, four a fifth of it: a larger batch hides the gathers."""
    lost = {sequences: 1 - rate(2048, sequences) / rate(128, sequences) for sequences in (1, 2, 4)}
    assert lost[1] == pytest.approx(0.3722, abs=0.05)
    assert lost[1] > 2 * lost[2] > 2 * lost[4] > 0.1
