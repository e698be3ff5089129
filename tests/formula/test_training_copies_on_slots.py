"""Copies to and from the host on GPUs without scale-up links, whose one PCIe slot carries all else too."""

from __future__ import annotations

import pytest

from railwright.model import load_model
from railwright.training import simulate
from railwright.training.lanes.contention import Uses
from railwright.training.lanes.tasks import Task, run
from railwright.training.passes.offload import host_copy, layer_copies
from railwright.training.software.hosted import unoffered
from training_cases import DENSE, job, machine

PCIE, NVLINK = machine(1, server="server-8x-l40s"), machine(1)


def test_a_copy_and_a_gather_that_each_fill_the_slot_take_the_sum() -> None:
    """2 s and 3 s at once: the copy has half until it ends at 4 s, the gather's last second is alone."""
    gather = Task("dp", "parameters", "dp", 3.0, (), 0, 8.0, 3.0, Uses(nic=False, slot=1.0))
    last = Task("compute", "layer", "layer", 0.0, (0, 1))
    spans = {s.task.lane: s.end for s in run([host_copy(PCIE, "weights", 2.0), gather, last]).spans}
    assert spans["copy"] == pytest.approx(4.0)
    assert spans["dp"] == pytest.approx(5.0)


def test_beside_a_gather_that_fills_a_quarter_a_copy_has_the_rest() -> None:
    gather = Task("dp", "parameters", "dp", 3.0, (), 0, 8.0, 3.0, Uses(nic=False, slot=0.25))
    last = Task("compute", "layer", "layer", 0.0, (0, 1))
    spans = {s.task.lane: s.end for s in run([host_copy(PCIE, "weights", 1.5), gather, last]).spans}
    assert spans["copy"] == pytest.approx(2.0)
    assert spans["dp"] == pytest.approx(3.0)


def test_what_the_host_does_then_takes_nothing_of_the_slot() -> None:
    copy = host_copy(PCIE, "gradients", 2.0, 3, behind=0.5)
    assert (copy.duration, copy.wire, copy.layer) == (2.5, 2.0, 3)


def test_with_nvlink_copies_meet_nothing() -> None:
    assert host_copy(NVLINK, "weights", 2.0).wire == 0.0
    away = job(offload=("activations",))
    assert all(copy.wire == 0.0 for copy in layer_copies(away, DENSE, NVLINK).values())
    assert all(copy.wire == copy.duration for copy in layer_copies(away, DENSE, PCIE).values())


def test_a_step_whose_slot_is_always_busy_takes_the_copies_longer() -> None:
    """Llama 3.1 8B on 8 L40S: tensor-parallel collectives fill the slot while activations want to leave."""
    arch = load_model("llama-3.1-8b")
    plain = job(sequence=2048, batch=16, tensor=4, sequence_parallel=True)
    away = plain.model_copy(update={"layout": plain.layout.model_copy(update={"offload": ("activations",)})})
    free, busy = (simulate(one, arch, PCIE, must_fit=False) for one in (plain, away))
    assert busy.step_time > 1.15 * free.step_time
    free, busy = (simulate(one, arch, NVLINK, must_fit=False) for one in (plain, away))
    assert busy.step_time < 1.02 * free.step_time


def test_what_a_framework_does_not_offload_is_told_without_an_article() -> None:
    """It is read behind 'has no'."""
    for framework in ("megatron", "torchtitan"):
        for sent in (("activations",), ("optimizer",), ("weights",)):
            layout = job(offload=sent, pipeline=2).layout.model_copy(update={"zero": 0})
            assert not [told for told in unoffered(framework, layout, 2) if told.startswith(("a ", "an "))]
