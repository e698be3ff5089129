"""Losses in chunks where no software has them: refused, with what would work."""

from __future__ import annotations

import pytest

from railwright.spec.training import TrainingJob
from railwright.training.checks.doubts import doubts
from railwright.training.checks.plan import check
from training_cases import DENSE, changed, job, machine, refusal


def chunked(how: str, software: str, chunks: int | None = None, **layout: object) -> TrainingJob:
    wanted = job(gpus=32, **layout)  # type: ignore[arg-type]
    return changed(wanted, software=software, chunked_loss=how, loss_chunks=chunks)


@pytest.mark.parametrize(
    ("how", "software", "instead"),
    [
        ("torchtitan", "megatron-2025", "fsdp-2026"),
        ("torchtitan", "fsdp-2024-eager", "fsdp-2026"),
        ("torchtune", "deepspeed-2024", "fsdp-2026-eager"),
        ("torchtune", "xla-2025", "fsdp-2026-eager"),
        ("liger", "megatron-2026", "deepspeed-2026"),
        ("liger", "fsdp-2023", "deepspeed-2026"),
    ],
)
def test_software_without_such_a_loss(how: str, software: str, instead: str) -> None:
    said = refusal(chunked(how, software))
    assert f"software {software} has no chunked_loss {how}" in said
    assert instead in said


def test_liger_over_tensor_ranks() -> None:
    said = refusal(chunked("liger", "fsdp-2025", tensor=2))
    assert "multiplies the whole vocabulary on one GPU, and the job has layout.tensor 2" in said
    assert "set tensor to 1" in said


@pytest.mark.parametrize("how", ["liger", "torchtune"])
def test_pipelines(how: str) -> None:
    assert "layout.pipeline 2; set pipeline to 1" in refusal(chunked(how, "fsdp-2025", pipeline=2))


def test_torchtitans_has_equal_chunks() -> None:
    said = refusal(chunked("torchtitan", "fsdp-2025", 7, sequence=1024))
    assert "loss_chunks 7 equal parts" in said
    assert "choose a divisor of 1,024" in said


@pytest.mark.parametrize(
    ("how", "layout"),
    [("torchtitan", {"tensor": 4, "pipeline": 2, "sequence_parallel": True}), ("torchtune", {"tensor": 4})],
)
def test_what_runs_over_ranks(how: str, layout: dict[str, object]) -> None:
    check(chunked(how, "fsdp-2025", **layout), DENSE, machine(4).network.fabric)


def test_chunks_that_nobody_counts() -> None:
    for wanted, why in (
        (changed(job(), loss_chunks=4), "chunked_loss is not set"),
        (chunked("liger", "fsdp-2025", 4), "Liger's follow from vocabulary and hidden size"),
    ):
        assert f"loss_chunks does nothing: {why}." in doubts(wanted, DENSE, 4)
