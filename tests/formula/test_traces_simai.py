"""A SimAI workload has every collective of its stage, as often and as large as the prediction."""

from __future__ import annotations

from collections import Counter

import pytest

from railwright.spec.training import Muon, Overlap
from railwright.traces import simai_export
from railwright.traces.simai import COMM, Part, Workload
from railwright.training import StepResult, simulate
from training_cases import DENSE, MOE, changed, job, machine

CASES: dict[str, tuple[bool, dict[str, object], dict[str, object]]] = {
    "tensor and pipeline": (False, {"tensor": 2, "pipeline": 2, "sequence_parallel": True}, {}),
    "interleaved, buckets not hidden": (
        False,
        {"tensor": 2, "pipeline": 2, "virtual_pipeline": 2, "overlap": Overlap(dp=False)},
        {},
    ),
    "experts": (True, {"expert": 4, "tensor": 2, "sequence_parallel": True}, {}),
    "recomputed": (False, {"tensor": 4, "recompute": "full"}, {}),
    "Muon gathers": (False, {"tensor": 2, "pipeline": 2}, {"optimizer": "muon"}),
    "Muon sums up": (
        True,
        {"tensor": 2, "expert": 4, "sequence_parallel": True},
        {"optimizer": "muon", "muon": Muon(tp_mode="distributed")},
    ),
}
SUFFIXES = {"_DP_EP": "expert_dp", "_EP": "ep"}


def said(work: Workload) -> Counter[tuple[str, str, float]]:
    """How often a workload has a collective of a kind of groups, by its op and size."""
    found: Counter[tuple[str, str, float]] = Counter()

    def count(part: Part, usual: str) -> None:
        suffix = next((one for one in SUFFIXES if part.comm.endswith(one)), "")
        if part.comm:
            found[SUFFIXES.get(suffix, usual), part.comm.removesuffix(suffix), part.size] += 1

    for row in work.rows:
        count(row.forward, "tp")
        count(row.gradient, "tp")
        count(row.weight, "dp")
    return found


def predicted(step: StepResult) -> dict[tuple[str, str, float], float]:
    found: dict[tuple[str, str, float], float] = Counter()
    for one in step.collectives:
        if one.prediction.op in COMM:
            found[one.groups, COMM[one.prediction.op], one.prediction.size] += one.count
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_collective_of_the_stage_is_in_its_rows(name: str) -> None:
    moe, layout, fields = CASES[name]
    one = changed(job(batch=32, sequence=512, **layout), **fields)  # type: ignore[arg-type]
    on = machine(2)
    step = simulate(one, MOE if moe else DENSE, on, most_events=400_000, stage=0)
    assert said(simai_export.workload(one, step, on.network.fabric)) == predicted(step)


def test_what_tensor_ranks_exchange_of_a_momentum_lies_before_the_optimizer() -> None:
    """Rows are walked upwards: the optimizer's is above those of its gathers, which block as inputs'
    gradients do, and below the gathers of parameters."""
    one = changed(job(batch=32, sequence=512, tensor=2), optimizer="muon")
    step = simulate(one, DENSE, machine(2), most_events=400_000, stage=0)
    rows = simai_export.workload(one, step, machine(2).network.fabric).rows
    updated = next(i for i, row in enumerate(rows) if row.name == "optimizer")
    gathers = [i for i, row in enumerate(rows) if "Muon" in row.name]
    assert gathers == list(range(updated + 1, updated + 7)), "query, key, value, output, up, down"
    assert all(rows[i].gradient.comm == "ALLGATHER" for i in gathers)
    assert all("ALLGATHER" in row.weight.comm for row in rows[:updated])
