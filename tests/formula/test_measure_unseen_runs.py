"""How runs that other people published are read from our files (measure/data/unseen_runs.yaml and tables)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.measure.table import Row
from railwright.measure.training import unseen_runs
from railwright.measure.training.bars import ranged
from railwright.model import load_model


def test_a_row_says_fields_of_nested_maps() -> None:
    row = {"micro_batch": "2", "layout.tensor": "4", "layout.layers_per_stage": "[21, 19]", "unfused": ""}
    layout = {"tensor": 4, "layers_per_stage": [21, 19]}
    assert unseen_runs.nested(row) == {"micro_batch": 2, "layout": layout}


def test_a_map_of_which_a_row_says_nothing_is_not_there() -> None:
    assert unseen_runs.nested({"measured": "53.8", "layout.pipeline": ""}) == {"measured": 53.8}


def test_a_model_may_be_another_one_but_for_some_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"models": {"with-mtp": {"base": "deepseek-v3", "mtp_layers": 1}}, "groups": {}}
    monkeypatch.setattr(unseen_runs, "sources", lambda: told)
    expected = replace(load_model("deepseek-v3"), name="with-mtp", mtp_layers=1)
    assert unseen_runs.architecture.__wrapped__("with-mtp") == expected


def test_runs_in_a_mode_that_no_job_can_say_widen_no_range() -> None:
    """Megatron-LM's own test runs in deterministic mode."""
    groups = unseen_runs.groups_of_runs()
    rows = [Row("runs dense", name, "", 1.0, 1.0, "s/step", "") for name in groups]
    outside = set(groups) - {row.record for row in ranged(rows, {})}
    assert outside == {name for name, group in groups.items() if group == "megatron-ci"}
