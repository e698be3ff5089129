"""Twenty-one of SimuMax's published steps on 8 B200 that are in no record and no fit.

Source: MooreThreads/SimuMax at 4dcaae5, docs/b200/b200_release_v1.2_summary.json (times and allocated memory,
measured with Megatron-LM and Transformer Engine 2.11): four layers of Llama 3.1 405B and of DeepSeek-V3.
They were first scored on 22 November 2026, 5.2 % off in the mean; that all cases run with a fused loss (they
end in "_cef", docs/strategy.md) was read then, and the fit of the other 22 made anew (4.1 %).  That products
bound by HBM keep their isolated time was found in them, so they are no longer blind to that (3.3 %; 3.4 with
the factors as gpt-oss has moved them since), nor to the embedding's dense gradient and the 16 groups of keys
and values of its 405B (4.9 to 3.5 %).  Each time is the shorter of the second and third step of a run of
three (tools/b200/run_megatron_perf_real_pipeline.py, parse_run_logs).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from statistics import mean
from typing import NamedTuple

import pytest

from railwright.collectives.machine import Machine
from railwright.measure.training.jobs import job_of, machine_for
from railwright.measure.training.replay import records
from railwright.model import load_model
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.memory.cached import cached
from railwright.training.memory.peak import SYSTEM

MODELS = {
    # 16 groups of keys and values, twice the published model's (run_pretrain_llama3.sh)
    "llama-3.1-405b": replace(load_model("llama-3.1-405b"), layers=4, kv_heads=16),
    # "DeepSeekV3 formal rows use dense_layers=1" (its notes); no multi-token prediction
    "deepseek-v3": replace(load_model("deepseek-v3"), layers=4, dense_layers=1, mtp_layers=0),
}


class Case(NamedTuple):
    """One published step: layout, microbatches of one sequence, step [ms], allocated memory [GiB]."""

    model: str
    tensor: int
    context: int
    pipeline: int
    expert: int
    data: int
    microbatches: int
    sequence: int
    milliseconds: float
    gib: float


def _cases() -> list[Case]:
    found = []
    for model, tp, pp, ep, dp, gib, steps in (
        ("llama-3.1-405b", 1, 2, 1, 4, 87.08, (1074.6, 1935.4, 7046.4)),
        ("llama-3.1-405b", 2, 1, 1, 4, 81.59, (907.3, 1716.8, 6604.1)),
        ("llama-3.1-405b", 4, 1, 1, 2, 52.89, (476.0, 899.6, 3455.4)),
        ("llama-3.1-405b", 8, 1, 1, 1, 38.57, (258.8, 488.1, 1901.8)),
        ("deepseek-v3", 1, 1, 8, 8, 104.3, (603.2, 1101.7, 4141.2)),
        ("deepseek-v3", 1, 2, 4, 4, 114.0, (452.2, 771.6, 2718.6)),
    ):
        found += [
            Case(model, tp, 1, pp, ep, dp, n, 4096, ms, gib) for n, ms in zip((4, 8, 32), steps, strict=True)
        ]
    for tp, cp, sequence, ms, gib in (
        (2, 4, 32768, 1984.7, 87.03),
        (1, 8, 32768, 2003.6, 139.22),
        (2, 4, 131072, 10577.6, 118.13),
    ):
        found.append(Case("llama-3.1-405b", tp, cp, 1, 1, 1, 4, sequence, ms, gib))
    return found


def _job(case: Case) -> tuple[TrainingJob, Machine]:
    """A case with the habits of SimuMax's own records."""
    like = next(r for r in records() if r["family"].startswith("simumax"))
    record = {
        **like,
        "id": "unseen",
        "seq": str(case.sequence),
        "tp": str(case.tensor),
        "cp": str(case.context),
        "pp": str(case.pipeline),
        "ep": str(case.expert),
        "dp": str(case.data),
        "gbs": str(case.microbatches * case.data),
        "sp": str(case.tensor > 1),
    }
    moe = next(
        r
        for r in records()
        if r["model"].startswith("deepseek-v2") and r["family"] == "simumax-deepseek-v2-std"
    )
    if case.model == "deepseek-v3":
        record = {**record, "model": moe["model"], "family": moe["family"]}
    return job_of(record), machine_for(record)


@cache
def _errors(case: Case) -> tuple[float, float]:
    """Of time and of memory."""
    job, machine = _job(case)
    step = simulate(job, MODELS[case.model], machine, must_fit=False, most_events=0)
    allocated = (step.memory.total - step.memory.parts[SYSTEM]) / 2**30
    return step.step_time / (case.milliseconds / 1e3) - 1, allocated / case.gib - 1


CASES = _cases()


@pytest.mark.parametrize(
    "case",
    CASES,
    ids=lambda c: (
        f"{c.model} tp{c.tensor} cp{c.context} pp{c.pipeline} ep{c.expert} {c.microbatches} x {c.sequence}"
    ),
)
def test_a_step_nobody_fitted(case: Case) -> None:
    time, memory = _errors(case)
    assert abs(time) < 0.09
    assert abs(memory) < 0.02


def test_their_mean_is_what_the_documentation_says() -> None:
    # docs/training/unseen.md: 3.1 % off, bias -2.2 %, memory 0.3 %
    times, memories = zip(*map(_errors, CASES), strict=True)
    assert mean(map(abs, times)) == pytest.approx(0.031, abs=0.004)
    assert mean(times) == pytest.approx(-0.022, abs=0.005)
    assert mean(map(abs, memories)) == pytest.approx(0.003, abs=0.001)


HOLES = ((0.058, 0.013), (0.036,), (0.033,), (0.033,), (0.055,), (0.052, 0.040), (0.040,), (0.056,), (0.072,))
"""max_reserved_mb over max_allocated_mb - 1 of the nine layouts (same file), the mean of each stage's
ranks."""


def test_what_the_allocator_holds_beyond_tensors() -> None:
    """It was written with the other ten layouts in view; nothing in it is fitted."""
    layouts = [case for case in CASES if case.microbatches == 4]
    off = []
    for case, stages in zip(layouts, HOLES, strict=True):
        job, machine = _job(case)
        for stage, measured in enumerate(stages):
            found = cached(job, MODELS[case.model], machine.network.fabric, stage)
            assert found is not None
            off.append(found.reserved / found.allocated - 1 - measured)
    # docs/training/memory.md: 1.0 points
    assert mean(map(abs, off)) == pytest.approx(0.010, abs=0.003)
    assert max(map(abs, off)) <= 0.05
