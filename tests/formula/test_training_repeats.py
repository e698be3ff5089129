"""Selective recomputation that saves nothing is told with what it costs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training import peak_memory, simulate
from railwright.training.whatif.repeats import idle_recompute
from training_cases import DENSE, changed, job, machine

LONG = replace(DENSE, hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128)


def told(asked: TrainingJob, arch: Transformer = LONG) -> str:
    cluster = machine(1)
    return idle_recompute(asked, arch, cluster, simulate(asked, arch, cluster))


def selective(*modules: str, **fields: object) -> TrainingJob:
    again = {"recompute": "selective", "recompute_modules": modules or ("core_attn",)}
    return changed(job(gpus=8, sequence=4096, batch=16, zero=1, **again), **fields)


def test_fused_attention_has_no_scores_to_drop() -> None:
    """What is saved is the difference of two peaks, what it costs that of two steps."""
    asked = selective()
    plain = changed(asked, layout=asked.layout.model_copy(update={"recompute": "none"}))
    cluster = machine(1)
    peaks = [peak_memory(one, LONG, cluster.network.fabric, 80e9).total / 2**30 for one in (asked, plain)]
    steps = [simulate(one, LONG, cluster).step_time for one in (asked, plain)]
    found = re.search(
        r"core_attn\) saves ([\d.]+) of ([\d.]+) GiB and makes a step ([\d.]+)% longer", told(asked)
    )
    assert found is not None
    saved, total, cost = map(float, found.groups())
    assert saved == pytest.approx(peaks[1] - peaks[0], abs=0.005)
    assert saved < 0.01 * peaks[0]
    assert total == pytest.approx(peaks[1], abs=0.05)
    assert cost == pytest.approx(100 * (steps[0] / steps[1] - 1), abs=0.05)
    assert "keeps no scores" in told(asked)


@pytest.mark.parametrize(
    "asked",
    [
        # scores of attention that is not fused are most of what a layer keeps
        selective(software="megatron-2022"),
        # the MLP's tensors are worth their time
        selective("mlp"),
        # nothing is computed again, or everything
        job(gpus=8, sequence=4096, batch=16),
        job(gpus=8, sequence=4096, batch=16, recompute="full"),
    ],
    ids=["unfused", "mlp", "none", "full"],
)
def test_what_saves_memory_is_no_doubt(asked: TrainingJob) -> None:
    assert told(asked) == ""


def test_a_job_that_fits_only_so_is_no_doubt() -> None:
    """Where the little that is saved is what was missing, it is not idle."""
    asked, cluster = selective(), machine(1)
    step = simulate(asked, LONG, cluster)
    tight = replace(cluster, gpu=replace(cluster.gpu, hbm_bytes=step.memory.total))
    assert idle_recompute(asked, LONG, tight, step) == ""
