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
from railwright.spec.training import Layout, Software, TrainingJob
from railwright.training import simulate
from railwright.training.checks.plan import check
from railwright.training.software.eras import attention_kernels
from training_cases import DENSE, changed, job, machine

GPUS = load_catalog().gpus


def asked(software: Software = "megatron-2025", backend: str | None = None) -> TrainingJob:
    return changed(job(gpus=8, sequence=4096), software=software, attention_backend=backend)


@pytest.mark.parametrize(
    ("software", "backend", "kernels"),
    [
        ("megatron-2025", None, ""),
        ("megatron-2025", "fused", ""),
        ("megatron-2025", "flash", "flash-2"),
        ("fsdp-2025", None, "flash-2"),
        ("fsdp-2025", "fused", ""),
        ("fsdp-2023", None, "triton flash-2"),
    ],
)
def test_a_job_s_choice_comes_before_its_software_s(
    software: Software, backend: str | None, kernels: str
) -> None:
    assert attention_kernels(asked(software, backend)) == kernels


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
    assert {"a100-sxm-80", "h100-sxm", "l40s", "rtx-pro-6000"} <= known
    assert not known & {"b200-sxm", "gb300", "mi300x", "vr200", "v100-sxm2-32"}
    for name, gpu in GPUS.items():
        differs = profile_of(gpu, "flash-2").attention != profile_of(gpu).attention
        assert differs == (gpu.generation == "hopper"), name


@pytest.mark.parametrize(
    ("one", "where", "says"),
    [
        (asked("xla-2025", "fused"), "H100", "attention_backend does nothing: software xla-2025 has one"),
        (asked("megatron-2022", "flash"), "A100", "attention_backend does nothing: software megatron-2022"),
        (asked(backend="flash"), "B200", "nothing published is known of FlashAttention 2 on blackwell"),
        (asked(backend="flash"), "H100", ""),
        (asked(backend="fused"), "B200", ""),
    ],
)
def test_a_choice_that_changes_nothing_is_told(one: TrainingJob, where: str, says: str) -> None:
    fabric = published_machine(where, 8, None).network.fabric
    told = [text for text in check(one, DENSE, fabric) if "attention_backend" in text]
    assert (says in told[0]) if says else not told


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
