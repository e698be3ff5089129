"""Software eras: which factors a job gets, and what each of them does to a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from railwright.catalog import load_catalog
from railwright.compute import profile_of
from railwright.errors import SpecError
from railwright.shipped import read_data
from railwright.spec import load_study_text, override, template
from railwright.spec.training import Overlap, Software
from railwright.training import simulate
from railwright.training.layers.communication import stage_size
from railwright.training.software.eras import Pace, era_of, eras, pace_keys, pace_of, paced
from training_cases import DENSE, job, machine, priced

GPUS = load_catalog().gpus
ALONE = Pace(host=0.0)
"""Isolated kernels, launched for nothing."""


def step(pace: Pace, **changes: object) -> float:
    wanted = job(gpus=1, batch=2, micro_batch=2).model_copy(update=changes)
    return simulate(wanted, DENSE, machine(1), predict=priced(50e9), pace=pace).step_time


def test_the_study_file_knows_every_era_and_no_other() -> None:
    """The spec imports nothing of this room: its names are written there once more."""
    assert get_args(Software) == tuple(eras())
    for name in eras():
        assert era_of(job().model_copy(update={"software": name})).name == name


def test_an_unknown_era_names_the_known_ones() -> None:
    with pytest.raises(SpecError) as caught:
        override(load_study_text(template("server")), {"jobs.0.software": "megatron2025"})
    text = str(caught.value)
    assert all(f"'{name}'" in text for name in eras())
    assert "did you mean 'megatron-2025'" in text


def test_an_era_says_how_many_published_steps_are_behind_it() -> None:
    for era in eras().values():
        for pace in era.pace.values():
            assert pace.source.startswith(f"{pace.records} " if pace.records else "no record: ")


def test_a_gpu_has_its_own_factors_or_its_generations() -> None:
    wanted = job().model_copy(update={"software": "nemo-2024"})
    known = eras()["nemo-2024"].pace
    assert pace_keys(GPUS["h100-sxm"], "bf16") == ("h100 16-bit", "hopper 16-bit")
    assert pace_keys(GPUS["b300-sxm"], "mxfp8") == ("b300 fp8", "blackwell fp8")
    assert pace_of(wanted, GPUS["h100-sxm"]) == known["h100 16-bit"]
    assert pace_keys(GPUS["h100-sxm-96"], "bf16") == ("h100-sxm-96 16-bit", "hopper 16-bit"), "of 500 W"
    assert pace_of(wanted, GPUS["h100-pcie"]) == known["h100 16-bit"]
    assert pace_of(wanted, GPUS["h20"]) == known["hopper 16-bit"]
    # products of Hopper, launched by Grace
    assert pace_of(wanted, GPUS["gh200"]).gemm == known["hopper 16-bit"].gemm
    assert 1 < pace_of(wanted, GPUS["gh200"]).host < 0.7 * known["hopper 16-bit"].host


def test_a_gpu_of_a_generation_without_records_has_what_all_gpus_say() -> None:
    """It ran isolated kernels, faster than any step, and RTX Blackwell had the factors of B200."""
    wanted = job().model_copy(update={"software": "nemo-2024"})
    known = eras()["nemo-2024"].pace
    new = replace(GPUS["h100-sxm"], name="x-1", generation="y")
    assert pace_keys(GPUS["rtx-5090"], "fp8") == ("rtx-5090 fp8", "blackwell-rtx fp8")
    for gpu in (new, *map(GPUS.__getitem__, ("l40s", "rtx-pro-6000", "v100-sxm2-32"))):
        assert pace_of(wanted.model_copy(update={"dtype": "fp16"}), gpu) == known["any 16-bit"]
    assert known["any 16-bit"].gemm == known["any fp8"].gemm > known["a100 16-bit"].gemm
    traced = wanted.model_copy(update={"software": "megatron-2021-traced"})
    assert pace_of(traced, new) == Pace(), "an era of one GPU says nothing of others"


def test_kernels_measured_at_the_clock_that_a_gpu_holds_are_no_slower_in_a_step() -> None:
    pace = replace(ALONE, gemm=1.3, attention=1.4, memory=1.1)
    for name, slower in (("rtx-4090", 1.0), ("rtx-5090", 1.0), ("rtx-pro-6000", 1.3)):
        alone = profile_of(GPUS[name])
        found = paced(alone, pace)
        assert alone.gemm["bf16"].compute / found.gemm["bf16"].compute == pytest.approx(slower)
        assert alone.attention["forward"].steady == (slower == 1.0)
        assert alone.memory.memory / found.memory.memory == pytest.approx(1.1)


def test_twice_as_slow_kernels_make_a_step_of_kernels_twice_as_long() -> None:
    # but for the few products that HBM bounds (test_training_paced.py)
    slow = step(replace(ALONE, gemm=2.0, attention=2.0, memory=2.0))
    assert 1.97 * step(ALONE) < slow < 2 * step(ALONE)


def test_each_factor_is_the_part_of_its_kernels() -> None:
    # the three parts add up to the whole step, again but for products that HBM bounds
    whole = step(ALONE)
    parts = [step(replace(ALONE, **{name: 2.0})) - whole for name in ("gemm", "attention", "memory")]
    assert 0.97 * whole < sum(parts) < whole
    assert min(parts) > 0
    assert parts[1] < min(parts[0], parts[2])


def test_a_step_has_its_own_fixed_time() -> None:
    assert step(replace(ALONE, step=0.25)) - step(ALONE) == pytest.approx(0.25)


def test_gaps_count_kernels() -> None:
    # two microbatches as one or as two: the second has all kernels of the passes twice, the optimizer's three
    # once
    one = step(replace(ALONE, gap=1e-3)) - step(ALONE)
    two = step(replace(ALONE, gap=1e-3), micro_batch=1) - step(ALONE, micro_batch=1)
    assert two == pytest.approx(2 * one - 3e-3)


def test_attention_that_writes_its_scores_is_slower() -> None:
    assert step(ALONE, software="megatron-2022") > 1.05 * step(ALONE, software="nemo-2024")


def test_early_pipeline_sends_are_cut_over_tensor_ranks() -> None:
    wanted = job(tensor=4, pipeline=2)
    early = wanted.model_copy(update={"software": "megatron-2021"})
    assert stage_size(wanted, DENSE) == 4 * stage_size(early, DENSE)


def test_linear_layers_hide_what_their_backward_pass_sends() -> None:
    """Whatever `overlap.tp` says: half of the all-reduces, two calls of five under sequence parallelism."""
    cut = {"gpus": 8, "tensor": 8, "batch": 8}

    def exposed(software: str, **layout: Any) -> float:
        wanted = job(**cut, **layout).model_copy(update={"software": software})
        found = simulate(wanted, DENSE, machine(1), predict=priced(20e12, 1e-7), pace=ALONE)
        return next(s.exposed / s.busy for s in found.shares if s.kind == "tp")

    assert exposed("megatron-2021") == pytest.approx(1.0)
    assert exposed("megatron-2022") == pytest.approx(1 / 2, abs=0.01)
    assert exposed("megatron-2022", sequence_parallel=True) == pytest.approx(3 / 5, abs=0.01)
    assert exposed("megatron-2022", recompute="full") == pytest.approx(2 / 3, abs=0.01)


@pytest.mark.parametrize(
    ("software", "chunks", "hidden"),
    [
        ("megatron-2022", 2, False),
        ("megatron-2025", 1, False),
        ("megatron-2025", 2, True),
        ("fsdp-2024", 1, True),
    ],
)
def test_pipeline_sends_are_hidden_where_the_framework_can(software: str, chunks: int, hidden: bool) -> None:
    def took(pp: bool) -> float:
        wanted = job(pipeline=4, virtual_pipeline=chunks, overlap=Overlap(pp=pp))
        wanted = wanted.model_copy(update={"software": software})
        return simulate(wanted, DENSE, machine(4), predict=priced(5e9), pace=ALONE).step_time

    assert (took(True) < took(False)) is hidden


@pytest.mark.parametrize("name", sorted(eras()))
def test_no_era_is_faster_than_the_hardware(name: str) -> None:
    for gpu in GPUS.values():
        profile = profile_of(gpu)
        for dtype, row in profile.gemm.items():
            pace = eras()[name].pace.get(pace_keys(gpu, dtype)[0])
            if pace is not None:
                assert row.compute / pace.gemm < 1.0, (gpu.name, dtype)
                assert row.memory / pace.memory < 1.0, (gpu.name, dtype)


def test_every_factor_has_a_source() -> None:
    for era in eras().values():
        for pace in era.pace.values():
            assert "record" in pace.source or "rows" in pace.source


FUSED_LOSS = ("nemo-2024", "megatron-2025", "megatron-2026", "megatron-2026-06-01", "megatron-2025-unfused")


def test_transformer_engine_keeps_empty_gradients_in_every_era_that_has_it() -> None:
    """Linear layers and the fused MLP of experts alike (pytorch/module/base.py and ops, get_dummy_wgrad)."""
    assert {name for name, era in eras().items() if era.placeholders} == set(FUSED_LOSS)


@pytest.mark.parametrize("software", eras())
@pytest.mark.parametrize("zero", [1, 3])
def test_only_a_fused_loss_can_be_left_out(software: str, zero: int) -> None:
    # never less memory for more time: compiled FSDP's loss is PyTorch's, which the setting does not touch
    plain = job(gpus=8, batch=8, zero=zero).model_copy(update={"software": software})
    asked = plain.model_copy(update={"unfused": ("loss",)})
    one, other = (simulate(x, DENSE, machine(1), predict=priced(50e9), pace=ALONE) for x in (plain, asked))
    told = [w for w in other.warnings if f"unfused loss does nothing with software {software}" in w]
    if software in (*FUSED_LOSS, "fsdp-2023"):
        assert other.step_time > one.step_time
        assert other.memory.total >= one.memory.total
        assert not told
    else:
        assert (other.step_time, other.memory) == (one.step_time, one.memory)
        assert len(told) == 1


def test_the_attention_kernels_that_an_era_names_are_measured_ones() -> None:
    """`compute.profile_of` takes the usual kernel where it has no row, as it does for other GPUs: of a name
    that no row has, nobody would hear."""
    measured = {row.get("kernel") for row in read_data("compute", "attention.yaml")["rows"]}
    assert all(set(era.flash.split()) <= measured for era in eras().values())


def test_gpus_with_fewer_nvlinks_have_the_pace_of_their_silicon() -> None:
    gpus = load_catalog().gpus
    for cut, whole in (("a800-sxm-80", "a100-sxm-80"), ("h800", "h100-sxm")):
        assert pace_keys(gpus[cut], "bf16") == pace_keys(gpus[whole], "bf16")
