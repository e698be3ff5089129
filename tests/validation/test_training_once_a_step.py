"""What a step does once, and Apex's buckets: the figures of docs/training.md and docs/training/memory.md."""

from __future__ import annotations

import pytest

from railwright.measure.training.jobs import job_of, machine_for
from railwright.measure.training.models import architecture_of
from railwright.measure.training.replay import records
from railwright.training import StepResult, simulate
from railwright.training.step import simulating
from railwright.units import GIB

RECORDS = {record["id"]: record for record in records()}


def step(name: str, **changes: object) -> StepResult:
    record = RECORDS[name]
    job = job_of(record).model_copy(update=changes)
    return simulate(job, architecture_of(record), machine_for(record), must_fit=False, most_events=0)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("dgxc-v24-11-1-llama3-8b-h100-8-fp8-gbs128", 0.001),
        ("dgxc-v24-11-1-nemotron4-340b-h100-128-fp8-pretrain-gbs32", 0.012),
        ("mbridge-26-06-llama3-70b-gb200-32-mxfp8-sft-tp1pp8mbs1gbs32", 0.053),
        ("mbridge-26-06-llama3-70b-gb300-32-mxfp8-sft-tp1pp2mbs1gbs32", 0.07),
    ],
)
def test_weights_made_narrow_take_this_part_of_a_step(
    name: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = step(name).step_time
    monkeypatch.setattr(simulating, "made_seconds", lambda *_: {})
    assert whole / step(name).step_time - 1 == pytest.approx(share, abs=0.005 if share > 0.05 else 0.001)


@pytest.mark.parametrize(
    ("name", "longer"),
    [
        ("nemo-24.09-nemotron-8b-pretrain-64-gbs256", 0.013),
        ("dgxc-v24-11-1-nemotron4-15b-h100-16-fp8-gbs64", 0.008),
        ("dgxc-v24-11-1-nemotron4-15b-h100-2048-fp8-gbs8192", 0.021),
        ("dgxc-v24-11-1-llama3-8b-h100-128-fp8-gbs2048", 0.001),
        ("dgxc-v24-11-1-llama3-1-405b-h100-2304-fp8-gbs1008", 0.003),
    ],
)
def test_apexs_buckets_make_a_step_longer(name: str, longer: float) -> None:
    assert step(name).step_time / step(name, apex_bucket=None).step_time - 1 == pytest.approx(
        longer, abs=0.001
    )


@pytest.mark.parametrize(
    ("name", "shorter"),
    [
        ("dgxc-v25-05-nemotronh-56b-h100-256-fp8-gbs768", 0.0024),
        ("dgxc-v25-05-nemotronh-56b-h100-32-fp8-gbs96", 0.0007),
        ("dgxc-v25-05-grok1-314b-gb200-256-fp8-pretrain-gbs512", 0.0001),
    ],
)
def test_buckets_of_nemos_own_overlap_hardly_change_a_step(name: str, shorter: float) -> None:
    """MegatronCommOverlapCallback closes them at 128 Mi parameters where it is told nothing."""
    changed = step(name, ddp_bucket=128 * 2.0**20).step_time
    assert 1 - changed / step(name).step_time == pytest.approx(shorter, abs=0.0003)


def test_apexs_buckets_take_memory() -> None:
    name = "nemo-24.09-llama2-7b-pretrain-8-gbs128"
    more = step(name).memory.total - step(name, apex_bucket=None).memory.total
    assert more / GIB == pytest.approx(10, abs=0.5)
