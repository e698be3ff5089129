"""Small steps whose whole result is kept: nothing moves unasked.

Rewrite with `RAILWRIGHT_GOLDEN=write pytest tests/golden/test_training_step.py` and name the cause in the
commit.  Network and kernels are the closed forms of `training_cases`, without an era's factors, so only
training and the model's operators can move it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.software.eras import Pace
from training_cases import DENSE, MOE, job, machine, priced, roofline

FILE = Path(__file__).parent / "test_training_step.json"
CASES: dict[str, TrainingJob] = {
    "dense, data parallel": job(),
    "dense, tensor and pipeline": job(tensor=4, pipeline=4, sequence_parallel=True),
    "dense, interleaved, recompute": job(tensor=2, pipeline=4, virtual_pipeline=2, recompute="full"),
    "experts": job(tensor=2, expert=8, sequence_parallel=True, imbalance=1.2),
    "experts, overlapped": job(expert=8, overlap=Overlap(ep=True, tp=True)),
    "experts, nothing overlapped": job(expert=8, pipeline=2, overlap=Overlap(dp=False, pp=False), zero=0),
}


def summary(wanted: TrainingJob) -> dict[str, Any]:
    arch = MOE if wanted.layout.expert > 1 else DENSE
    result = simulate(wanted, arch, machine(4), predict=priced(50e9), kernel=roofline, pace=Pace())
    return {
        "step_time": result.step_time,
        "exposed": {s.kind: s.exposed for s in result.shares},
        "memory": result.memory.parts,
        "collectives": {
            f"{c.purpose} {c.prediction.op} {c.prediction.size:.0f}": c.count for c in result.collectives
        },
        "events": len(result.timeline.events),
    }


@pytest.mark.parametrize("name", list(CASES))
def test_result_is_as_kept(name: str) -> None:
    found = summary(CASES[name])
    if os.environ.get("RAILWRIGHT_GOLDEN") == "write":
        kept = json.loads(FILE.read_text()) if FILE.exists() else {}
        kept[name] = found
        FILE.write_text(json.dumps(kept, indent=1) + "\n")
    kept = json.loads(FILE.read_text())[name]
    assert found["collectives"] == kept["collectives"]
    assert found["events"] == kept["events"]
    assert found["step_time"] == pytest.approx(kept["step_time"], rel=1e-9)
    assert found["exposed"] == pytest.approx(kept["exposed"], rel=1e-9, abs=1e-12)
    assert found["memory"] == pytest.approx(kept["memory"], rel=1e-9)
