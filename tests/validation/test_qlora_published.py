"""Fine-tuning with frozen weights in 4 bits and in 16, against published runs (rules: qlora_published)."""

from __future__ import annotations

import pytest

from qlora_published import ANSWER, FMS, Run, job_of
from railwright.catalog import load_catalog
from railwright.model import count_parameters, load_model

PEAKS = {
    "dgx-a100": "a100-sxm-80",
    "dgx-a100-40": "a100-sxm-40",
    "dgx-h100": "h100-sxm",
    "2x-rtx-4090": "rtx-4090",
}


@pytest.mark.parametrize("run", [*FMS, *ANSWER], ids=lambda run: run.name)
def test_rates_are_possible(run: Run) -> None:
    """Forward, again and the gradient of the input: 6 FLOPs a weight that a token meets."""
    weights = count_parameters(load_model(run.model)).active
    peak = load_catalog().gpus[PEAKS[run.server]].peak_flops["bf16"]
    assert 0.2 < 6 * weights * run.tokens_s / peak < 0.75
    assert job_of(run).lora is not None
