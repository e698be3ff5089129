"""A job that a framework trains in no layout is refused, and an export of it does not pass for the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from export_cases import exported
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.search import Space, search
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.spec.lora import Lora
from railwright.spec.training import Layout
from training_cases import DENSE, MOE, changed, job, machine

SMALL = {"tensor": (1,), "pipeline": (1,), "context": (1,), "micro_batch": (1,), "recompute": ("none",)}
PREDICTING = replace(DENSE, mtp_layers=1)
TUNED, QUARTERED = {"lora": Lora(rank=8)}, {"lora": Lora(rank=8, frozen_dtype="nf4")}
ROWS = {"dtype": "fp8_rowwise"}
NARROW = {"software": "fsdp-2025", "master": "none", "layout": Layout(zero=3)}
UNRUN: list[tuple[str, Transformer, dict[str, Any], str]] = [
    ("torchtitan", DENSE, TUNED, "adapters"),
    ("torchtitan", DENSE, {"dtype": "fp16"}, "training in fp16"),
    ("torchtitan", DENSE, {"dtype": "nvfp4"}, "training in nvfp4"),
    ("torchtitan", DENSE, {"dtype": "fp8_block"}, "training in fp8_block"),
    ("torchtitan", PREDICTING, {}, "multi-token prediction"),
    ("torchtitan", DENSE, {"optimizer": "muon"}, "optimizer muon"),
    ("megatron", DENSE, TUNED, "adapters"),
    ("megatron", DENSE, ROWS, "fp8 with a scale per row"),
    ("megatron", DENSE, NARROW, "weights without master weights"),
    ("nemo", DENSE, NARROW, "weights without master weights"),
    ("nemo", DENSE, ROWS, "fp8 with a scale per row"),
    ("nemo", DENSE, {**QUARTERED, "software": "fsdp-2025"}, "frozen weights in 4 bits"),
]


@pytest.mark.parametrize(
    ("name", "arch", "asked", "lack"), UNRUN, ids=lambda x: x if isinstance(x, str) else ""
)
def test_what_a_framework_trains_in_no_layout_is_refused_at_once(
    name: str, arch: Transformer, asked: dict[str, Any], lack: str
) -> None:
    wanted, title = changed(job(batch=64), **asked), FRAMEWORKS[name].title
    assert FRAMEWORKS[name].lacks_always(wanted, arch) == [lack]
    with pytest.raises(PlanError) as no:
        search(wanted, arch, machine(1), Space(SMALL), framework=name)
    assert f"{title} runs no layout of this job, for what it lacks: {lack}" in str(no.value)


@pytest.mark.parametrize(
    ("name", "arch", "asked", "lack"), UNRUN, ids=lambda x: x if isinstance(x, str) else ""
)
def test_an_export_of_it_does_not_pass_the_prediction_as_its_own(
    name: str, arch: Transformer, asked: dict[str, Any], lack: str
) -> None:
    """The line under the prediction, whatever was searched."""
    head = exported((arch, changed(job(), **asked)), name).splitlines()
    assert head[1].startswith("# predicted: ")
    assert head[2].startswith(f"# {FRAMEWORKS[name].title} does not run this: ")
    assert lack in head[2]
    assert head[2].endswith("the step and the memory above are not those of this file")


@pytest.mark.parametrize(
    ("name", "asked", "others"),
    [
        ("megatron", TUNED, " (nemo has it). "),
        ("torchtitan", {"dtype": "fp16"}, " (megatron and nemo have it). "),
        ("nemo", QUARTERED | {"software": "fsdp-2025"}, "4 bits. "),
    ],
)
def test_the_refusal_names_frameworks_that_run_it(name: str, asked: dict[str, Any], others: str) -> None:
    with pytest.raises(PlanError) as no:
        search(changed(job(batch=64), **asked), DENSE, machine(1), Space(SMALL), framework=name)
    assert others in str(no.value)


def test_adapters_are_nemos_where_no_framework_is_asked_for() -> None:
    """Both frameworks of Megatron's eras share their software: what one of them runs is not told to lack."""
    space = Space(SMALL | {"zero": (1,)})
    words = search(changed(job(batch=64), **TUNED), DENSE, machine(1), space, top=1, steps=0).words
    assert not any("for what it lacks" in word or "does not run" in word for word in words)


@pytest.mark.parametrize("software", ["megatron-2021", "megatron-2022", "nemo-2024"])
def test_what_software_of_earlier_years_does_not_hide_is_no_lack_of_the_job(software: str) -> None:
    """Megatron-LM of 2022 hid no reduction of gradients: layouts that hide none run."""
    assert FRAMEWORKS["megatron"].lacks_always(changed(job(), software=software), DENSE) == []


def test_what_experts_on_several_gpus_do_without_is_no_lack_of_the_job() -> None:
    """A graph of the whole step holds HybridEP's kernels, which experts on one GPU have not."""
    whole = changed(job(batch=64), cuda_graphs=("step",))
    lack = "CUDA graphs of the step beside experts without fixed capacities (expert_capacity)"
    assert FRAMEWORKS["megatron"].lacks_always(whole, MOE) == [lack]
    assert FRAMEWORKS["megatron"].lacks_always(changed(whole, expert_nodes=1), MOE) == []
