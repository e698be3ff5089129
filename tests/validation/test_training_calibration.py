"""Calibrated steps beside published ones, on a sample; `railwright validate training` replays them all.

Bands are those of docs/training/calibration.md with a margin: a record may be 15 % off where its slice's mean
is half of that.
"""

from __future__ import annotations

import json
from importlib import resources
from statistics import mean

import pytest

from railwright.measure.table import Row
from railwright.measure.training.replay import family_of, record_row, records
from railwright.measure.training.vtrain import (
    EVERY,
    profiled,
    single_job,
    single_machine,
    single_model,
    single_records,
)
from railwright.training import simulate

RECORDS = {r["id"]: r for r in records()}
FAMILIES = (
    "dgxc-nemotron4-15b-H100",
    "dgxc-llama3-70b-H100",
    "nemo-llama2-70b-H100",
    "mbridge-llama3-8b-GB200",
    "korthikanti-megatron-175B-A100",
    "simumax-llama3-70b-std",
)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_record_of_a_family_is_predicted_within_15_per_cent(family: str) -> None:
    chosen = [r for r in RECORDS.values() if r["family"] == family and r["gpus"]]
    record = min(chosen, key=lambda r: (int(r["gpus"]), r["id"]))
    row = record_row(record, f"training {family_of(record)}")
    assert isinstance(row, Row)
    assert abs(row.error) < 0.15
    assert row.error_left_out is not None
    assert abs(row.error_left_out) < 0.20


def test_rows_of_single_servers_that_no_fit_has_seen() -> None:
    # every 97th row that is not a tenth one: mean error at most 10 %, bar 8 % over all of them
    errors = []
    for number in range(1, len(single_records()), 97):
        if number % EVERY:
            row = single_records()[number]
            job = single_job(row)
            step = simulate(job, single_model(row), single_machine(row), must_fit=False, pace=profiled())
            errors.append(abs(step.step_time / (float(row["iteration_ms"]) / 1e3) - 1))
    assert len(errors) == 14
    assert mean(errors) < 0.10


def test_every_fitted_family_was_left_out_once() -> None:
    text = resources.files("railwright.measure").joinpath("data/training_left_out.json")
    known = json.loads(text.read_text(encoding="utf-8"))
    assert known.keys() <= {r["family"] for r in RECORDS.values()}
    assert not any(family.startswith(("vtrain", "bigscience")) for family in known)
    assert len(known) > 40
