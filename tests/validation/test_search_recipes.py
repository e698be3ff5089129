"""Layouts that their publishers tuned, beside the best that a search finds: the gap that a search claims of
what engineers chose is no measured gain, and should be small.  All of them: benchmarks/search_recipes.py."""

from __future__ import annotations

import pytest

from railwright.errors import PlanError
from railwright.measure.machines import Unsupported
from railwright.measure.training.jobs import job_of, machine_for
from railwright.measure.training.models import architecture_of
from railwright.measure.training.replay import records
from railwright.search import search
from railwright.search.training.explain import USUAL
from railwright.training.memory.peak import peak_memory

RECORDS = {record["id"]: record for record in records()}


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("mbridge-26-04-01-llama3-70b-gb200-64-fp8-pretrain-tp1pp1mbs2gbs256", 0.001),
        ("mbridge-26-08-qwen3-30b-a3b-gb200-8-mxfp8-pretrain-tp1pp1mbs4gbs512", 0.001),
        ("mbridge-26-06-qwen3-30b-a3b-b300-8-mxfp8-pretrain-tp1pp1mbs8gbs512", 0.001),
        ("dgxc-v25-04-nemotron4-15b-h100-256-bf16-gbs1024", 0.02),
        ("mlperf-v4-1-gpt3-nvidia-eos-n64-ngc24-09-nemo", 0.01),
        ("megatron-llama-fp8-llama3-8b", 0.05),
        # eight sequences on 64 GPUs: only context ranks of 1,024 tokens keep products whole
        ("mlperf-v5-0-llama2-70b-lora-oracle-8xbm-gpu-b200-8", 0.03),
    ],
)
def test_tuned_layouts_are_near_the_best(name: str, most: float) -> None:
    record = RECORDS[name]
    found = search(
        job_of(record), architecture_of(record), machine_for(record), top=1, steps=0, framework="nemo"
    )
    assert found.own is not None
    assert 0 <= found.own.time / found.best[0].time - 1 <= most


def filled() -> list[float]:
    """Share of a GPU that each different job of the records takes, by our count; batches do not count."""
    found = {}
    for record in records():
        try:
            job, machine = job_of(record), machine_for(record)
            alike = job.model_copy(update={"name": "any", "global_batch": 1})
            memory = peak_memory(job, architecture_of(record), machine.network.fabric, machine.gpu.hbm_bytes)
        except (Unsupported, PlanError):
            continue
        found[alike, record["gpu"]] = memory.total / machine.gpu.hbm_bytes
    return sorted(found.values())


def test_what_published_jobs_fill_of_their_gpus() -> None:
    """Half of them two thirds, nine of ten what a search calls usual."""
    found = filled()
    assert len(found) > 600
    assert found[len(found) // 2] == pytest.approx(0.65, abs=0.03)
    assert found[len(found) * 9 // 10] == pytest.approx(USUAL, abs=0.015)
