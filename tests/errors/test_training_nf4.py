"""Frozen weights in 4 bits where no software has them: refused, with what would work."""

from __future__ import annotations

import pytest

from railwright.errors import PlanError
from railwright.model import load_model
from railwright.spec.lora import Lora
from railwright.spec.training import TrainingJob
from railwright.training.checks.fitting import check_memory
from railwright.training.checks.plan import check
from training_cases import DENSE, MOE, changed, job, machine, refusal

LORA = Lora(rank=16, frozen_dtype="nf4")


def tuned(software: str = "fsdp-2025", dtype: str = "bf16", **layout: object) -> TrainingJob:
    return changed(job(gpus=32, dtype=dtype, **layout), software=software, lora=LORA)  # type: ignore[arg-type]


@pytest.mark.parametrize("software", ["megatron-2025", "nemo-2024", "xla-2025", "megatron-2022"])
def test_software_without_weights_in_4_bits(software: str) -> None:
    said = refusal(tuned(software))
    assert f"software {software} keeps no weights in 4 bits" in said
    assert "fsdp-2026-eager" in said


@pytest.mark.parametrize(
    ("layout", "asked", "set_to"),
    [
        ({"tensor": 4}, "layout.tensor 4", "set tensor to 1"),
        ({"pipeline": 2}, "layout.pipeline 2", "set pipeline to 1"),
        (
            {"tensor": 2, "pipeline": 4},
            "layout.tensor 2 and layout.pipeline 4",
            "set tensor and pipeline to 1",
        ),
    ],
)
def test_layers_cut_otherwise_than_by_fsdp(layout: dict[str, int], asked: str, set_to: str) -> None:
    said = refusal(tuned(**layout))
    assert asked in said
    assert set_to in said


def test_experts_spread_over_gpus() -> None:
    said = refusal(tuned(expert=8, zero=3), MOE)
    assert "layout.expert 8" in said
    check(tuned(zero=3), MOE, machine(4).network.fabric)


@pytest.mark.parametrize("dtype", ["fp8", "fp8_rowwise", "mxfp8"])
def test_products_in_8_bits(dtype: str) -> None:
    assert f"dtype is {dtype}; set it to bf16 or fp16" in refusal(tuned(dtype=dtype))
    check(tuned(dtype="fp16"), DENSE, machine(4).network.fabric)


def test_a_model_that_fits_in_4_bits_alone_is_told_so() -> None:
    """Llama 3.1 70B on one server of 24 GB: shards of 2 bytes are too many on four GPUs."""
    one = machine(1)
    arch = load_model("llama-3.1-70b")
    asked = job(gpus=8, sequence=2048, batch=8, zero=3, recompute="full")
    asked = changed(asked, software="fsdp-2025", lora=Lora(rank=16))
    with pytest.raises(PlanError) as caught:
        check_memory(asked, arch, one.network.fabric, 18 * 2**30, one.server)
    assert "lora.frozen_dtype: nf4 (QLoRA)" in str(caught.value)
    # not where software has none
    with pytest.raises(PlanError) as caught:
        check_memory(changed(asked, software="megatron-2025"), arch, one.network.fabric, 18e9, one.server)
    assert "nf4" not in str(caught.value)
