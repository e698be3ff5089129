"""Published steps of one job in fp8 with a scale per tensor, and in MXFP8 (Megatron-Bridge)."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean

import pytest

from railwright.measure.training.replay import family_of, record_row, records

SAME = ("model", "gpu", "gpus", "software", "seq", "gbs", "tp", "pp", "vpp", "cp", "ep", "mbs")


def ratios(dense: bool) -> list[tuple[str, float, float]]:
    """Model, and the step in MXFP8 over the other: measured, predicted."""
    jobs: dict[tuple[str, ...], dict[str, dict[str, str]]] = defaultdict(dict)
    for record in records():
        if record["family"].startswith("mbridge") and record["model"].startswith("llama") == dense:
            jobs[tuple(record[k] for k in SAME)][record["dtype"]] = record
    found = []
    for key, by_format in jobs.items():
        if {"fp8-cs", "fp8-mx"} <= by_format.keys():
            one, other = (record_row(by_format[d], family_of(by_format[d])) for d in ("fp8-cs", "fp8-mx"))
            found.append((key[0], other.measured / one.measured, other.predicted / one.predicted))
    return found


def test_dense_models_take_as_much_longer_in_mxfp8_as_measured() -> None:
    found = ratios(dense=True)
    assert len(found) == 7
    assert mean(measured for _, measured, _ in found) == pytest.approx(1.047, abs=0.001)
    assert mean(predicted for *_, predicted in found) == pytest.approx(1.051, abs=0.002)
    assert all(abs(predicted / measured - 1) < 0.03 for _, measured, predicted in found)


def test_mixtures_of_experts_do_not_agree() -> None:
    found = {model: (measured, predicted) for model, measured, predicted in ratios(dense=False)}
    assert found == {
        "deepseek-v3": pytest.approx((1.049, 1.022), abs=0.002),
        "qwen3-30b-a3b": pytest.approx((0.960, 1.027), abs=0.002),
        "qwen3-235b-a22b": pytest.approx((0.960, 1.000), abs=0.002),
    }
