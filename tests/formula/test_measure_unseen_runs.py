"""How runs that other people published are read from our files (measure/data/unseen_runs.yaml and tables)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.measure.training import unseen_runs
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
