"""Whose kernel runs attention: a job's choice, its software's, and what is told where it does nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from railwright.catalog import load_catalog
from railwright.compute.profile import flash_is_known, profile_of
from railwright.measure.machines import Unsupported, published_machine
from railwright.measure.training.jobs import job_of
from railwright.measure.training.replay import records
from railwright.model import load_model
from railwright.model.shape.architecture import Phase
from railwright.spec.training import Layout, Software, TrainingJob
from railwright.training import simulate
from railwright.training.checks.plan import check
from railwright.training.software.eras import attention_kernels
from training_cases import DENSE, changed, job, machine

GPUS = load_catalog().gpus


def asked(software: Software = "megatron-2025", backend: str | None = None) -> TrainingJob:
    return changed(job(gpus=8, sequence=4096), software=software, attention_backend=backend)


@pytest.mark.parametrize(
    ("software", "backend", "gpu", "kernels"),
    [
        ("megatron-2025", None, "h100-sxm", ""),
        ("megatron-2025", "fused", "h100-sxm", ""),
        ("megatron-2025", "flash", "h100-sxm", "flash-2"),
        ("fsdp-2025", None, "h100-sxm", "flash-2"),
        ("fsdp-2025", None, "b200-sxm", ""),  # torchtitan's choice since May 2025
        ("fsdp-2025", None, "gb300", ""),
        ("fsdp-2025", "flash", "b200-sxm", "flash-2"),
        ("fsdp-2025", "fused", "h100-sxm", ""),
        ("fsdp-2024-eager", None, "b200-sxm", "flash-2"),
        ("fsdp-2026-eager", None, "b200-sxm", ""),
        ("fsdp-2023", None, "h100-sxm", "triton flash-2"),
    ],
)
def test_a_job_s_choice_comes_before_its_software_s(
    software: Software, backend: str | None, gpu: str, kernels: str
) -> None:
    assert attention_kernels(asked(software, backend), GPUS[gpu]) == kernels


@pytest.mark.parametrize(("gpu", "longer"), [("H100", True), ("A100", False)])
def test_flash_attention_2_makes_a_step_longer_on_hopper_alone(gpu: str, longer: bool) -> None:
    """Its rate on H100 is 335 TFLOP/s, cuDNN's 617 (arXiv 2407.08608, figures 5 and 6); on A100 the row is
    its own.  Attention is a tenth of a step of Llama 3 8B with 8,192 tokens."""
    there, arch = published_machine(gpu, 8, None), load_model("llama-3-8b")
    wanted = [changed(asked(backend=b), sequence=8192) for b in ("fused", "flash")]
    wanted = [changed(one, layout=Layout(tensor=4, sequence_parallel=True)) for one in wanted]
    times = [simulate(one, arch, there).step_time for one in wanted]
    assert (1.05 < times[1] / times[0] < 1.2) if longer else times[1] == pytest.approx(times[0])


def test_rates_of_flash_attention_2_are_known_where_a_row_has_them() -> None:
    known = {name for name, gpu in GPUS.items() if flash_is_known(gpu.generation)}
    assert {"a100-sxm-80", "h100-sxm", "b200-sxm", "gb300", "l40s", "rtx-pro-6000"} <= known
    assert not known & {"mi300x", "vr200", "v100-sxm2-32"}
    for name, gpu in GPUS.items():
        differs = profile_of(gpu, "flash-2").attention != profile_of(gpu).attention
        assert differs == (gpu.generation in ("hopper", "blackwell", "blackwell-ultra")), name


@pytest.mark.parametrize(
    ("phase", "width", "lengths", "published"),
    [
        ("forward", 128, (1024, 2048, 4096, 8192), (315, 352, 354, 362)),
        ("backward_input", 64, (512, 1024, 2048, 4096, 8192, 16384), (243, 281, 302, 315, 329, 334)),
    ],
)
def test_flash_attention_2_on_b200(
    phase: Phase, width: int, lengths: tuple[int, ...], published: tuple[float, ...]
) -> None:
    """Without a mask, TFLOP/s: meta-pytorch/tritonbench pull request 171 (8 x 16 heads), Dao-AILab/
    flash-attention issue 1589 (16,384 tokens of 32 heads)."""
    row = profile_of(GPUS["b200-sxm"], "flash-2").attention_row(phase)
    rates = [row.compute * 2500 / row.slowed(tokens, masked=False) for tokens in lengths]
    assert rates == pytest.approx(published, rel=0.05)
    assert row.softmax * 128 / width <= 1  # width 64 is as fast


@pytest.mark.parametrize(
    ("one", "where", "says"),
    [
        (asked("xla-2025", "fused"), "H100", "attention_backend does nothing: software xla-2025 has one"),
        (asked("megatron-2022", "flash"), "A100", "attention_backend does nothing: software megatron-2022"),
        (asked(backend="flash"), "MI300X", "nothing published is known of FlashAttention 2 on cdna3"),
        (asked(backend="flash"), "B200", ""),
        (asked(backend="flash"), "H100", ""),
        (asked(backend="fused"), "B200", ""),
    ],
)
def test_a_choice_that_changes_nothing_is_told(one: TrainingJob, where: str, says: str) -> None:
    fabric = published_machine(where, 8, None).network.fabric
    told = [text for text in check(one, DENSE, fabric) if "attention_backend" in text]
    assert (says in told[0]) if says else not told


@pytest.mark.parametrize("software", ["xla-2024", "xla-2025", "megatron-2022", "megatron-2025-unfused"])
@pytest.mark.parametrize("backend", ["fused", "flash"])
def test_and_changes_nothing(software: str, backend: str) -> None:
    steps = [
        simulate(asked(software, one), DENSE, machine(1)).step_time  # type: ignore[arg-type]
        for one in (None, backend)
    ]
    assert steps[0] == steps[1]


def test_no_choice_is_no_news() -> None:
    assert not [text for text in check(job(), DENSE, machine(4).network.fabric) if "backend" in text]


@pytest.mark.parametrize(
    ("belongs", "backend"),
    [
        (lambda r: r["family"].startswith("nemo-") and r["software"] == "NeMo 24.07", "flash"),
        (lambda r: r["family"] == "dgxc-gpt3-175b-H100" and r["software"] == "NeMo 24.05", "flash"),
        (lambda r: r["family"] == "dgxc-gpt3-175b-H100" and r["software"] == "NeMo 24.12", None),
        (lambda r: r["family"] == "dgxc-nemotron4-15b-H100", None),
        (lambda r: r["family"].startswith(("mlperf", "mbridge")), None),
    ],
)
def test_records_have_the_kernel_of_their_scripts(
    belongs: Callable[[dict[str, str]], bool], backend: str | None
) -> None:
    """measure/training/scripts.py, attention_of; MLPerf's row in NeMo's table is none of NeMo's."""
    found = []
    for record in records():
        if belongs(record) and record["mbs"] and (record["step_time_s"] or record["tokens_s_gpu"]):
            try:
                found.append(job_of(record))
            except Unsupported:
                continue
    assert found
    of_mlperf = [one for one in found if one.name.startswith("nemo-") and one.global_batch == 2048]
    of_mlperf = [one for one in of_mlperf if one.model == "gpt3-175b"]
    assert {one.attention_backend for one in found if one not in of_mlperf} == {backend}
    assert {one.attention_backend for one in of_mlperf} <= {None}
