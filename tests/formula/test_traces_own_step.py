"""A predicted step that is recorded as its own GPUs' profiles, rank by rank, is off nowhere.

What a profiler would have seen of each stage is made of the timeline's events: kernels, copies, collectives
with their groups, and a receive's kernel from when the stage has nothing else to do but for its message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Overlap, TrainingJob
from railwright.traces.comparison import Comparison, compare
from railwright.traces.expected import COMPUTE
from railwright.traces.kineto import read
from railwright.traces.measured import step_of
from railwright.training import Groups, StepResult, place, simulate
from railwright.training.lanes.timeline import Event
from railwright.training.passes.lockstep import WAIT
from training_cases import DENSE, MOE, changed, job, machine

SAID = {
    "all_reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    "all_gather": ("_allgather_base", "ncclDevKernel_AllGather_RING_LL"),
    "reduce_scatter": ("_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"),
    "all_to_all": ("all_to_allv", "ncclDevKernel_SendRecv"),
    "sendrecv": ("send", "ncclDevKernel_SendRecv"),
}
"""Op -> what ProcessGroupNCCL.cpp records, and NCCL's kernel."""

SERVERS = 2

CASES: dict[str, tuple[Transformer, dict[str, Any], dict[str, Any]]] = {
    "pipeline": (DENSE, {"pipeline": 4}, {}),
    "pipeline and tensors": (DENSE, {"tensor": 2, "pipeline": 4}, {}),
    "sends that block": (DENSE, {"pipeline": 4, "overlap": Overlap(pp=False)}, {}),
    "interleaved": (DENSE, {"tensor": 2, "pipeline": 4, "virtual_pipeline": 2}, {}),
    "weight gradients apart": (DENSE, {"pipeline": 4, "schedule": "zb-h1"}, {}),
    "shards in a pipeline": (DENSE, {"pipeline": 4, "zero": 3}, {}),
    "tied embedding": (replace(DENSE, tied_embeddings=True), {"tensor": 2, "pipeline": 2}, {}),
    "two directions": (MOE, {"expert": 2, "pipeline": 4, "schedule": "dualpipe"}, {}),
    "experts": (MOE, {"expert": 8, "tensor": 2, "sequence_parallel": True}, {}),
    "experts cut more": (MOE, {"tensor": 2, "expert": 4, "expert_tensor": 4, "sequence_parallel": True}, {}),
    "shards of a server": (DENSE, {"zero": 3, "shard": 8}, {}),
    "optimizer on the host": (DENSE, {"zero": 2, "offload": ("optimizer",)}, {"software": "fsdp-2024"}),
    "activations on the host": (DENSE, {"tensor": 2, "offload": ("activations",)}, {}),
}

STAGES = [
    (name, stage) for name, (_, layout, _) in CASES.items() for stage in range(layout.get("pipeline", 1))
]


def taken(name: str) -> tuple[TrainingJob, Transformer]:
    """A case's job and model."""
    arch, layout, fields = CASES[name]
    return changed(job(batch=64, sequence=2048, **layout), **fields), arch


def recorded(step: StepResult, groups: Groups, rank: int | None, stage: int) -> list[dict[str, Any]]:
    """Kineto's events of a stage's representative GPU."""
    mark = {"cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0.0, "dur": step.step_time * 1e6}
    found: list[dict[str, Any]] = [{"ph": "X", "pid": 9, "tid": 1, **mark}]
    for event in step.timeline.events:
        if event.rank == stage:
            for about in kernels(event, step, groups, rank or 0):
                at = {"ts": event.start * 1e6, "dur": (event.end - event.start) * 1e6}
                found.append({"ph": "X", "pid": 0, **at, **about})
    return found


def kernels(event: Event, step: StepResult, groups: Groups, rank: int) -> Iterator[dict[str, Any]]:
    """What a profiler sees of an event: nothing of waits and of the host."""
    if event.kind in ("bubble", WAIT) or event.lane == "host":
        return
    if event.lane == "copy":
        yield {"cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "tid": 9}
    elif event.kind in ("transfer", "send"):
        yield {"cat": "kernel", "tid": 22, **called("sendrecv", 0.0, members(groups, "pp", rank))}
    elif event.lane == "compute":
        names = {"attention": "flash_fwd_kernel", "optimizer": "multi_tensor_apply_kernel<FusedAdam>"}
        yield {"cat": "kernel", "name": names.get(event.kind, "nvjet_tst"), "tid": 7}
    else:
        used = [u for u in step.collectives if u.kind == event.lane and u.prediction.op == event.kind]
        near = min(used, key=lambda u: abs(u.prediction.size - event.size))
        size = near.prediction.size
        yield {"cat": "kernel", "tid": event.lane} | called(
            event.kind, size, members(groups, near.groups, rank)
        )


def members(groups: Groups, kind: str, rank: int) -> list[int]:
    """Ranks of a rank's group of one kind."""
    rank_of = {int(gpu): place for place, gpu in enumerate(groups.grid.reshape(-1))}
    every = [[rank_of[int(gpu)] for gpu in one.gpus] for one in groups.of(kind)]  # type: ignore[arg-type]
    return next(sorted(ranks) for ranks in every if rank in ranks)


def called(op: str, size: float, ranks: list[int]) -> dict[str, Any]:
    """A collective's kernel with what is recorded beside it."""
    shards = {"all_gather": (len(ranks), 1), "reduce_scatter": (1, len(ranks))}.get(op, (1, 1))
    name, kernel = SAID[op]
    about = {
        "Collective name": name, "dtype": "Byte", "Group size": len(ranks),
        "In msg nelems": size / shards[0], "Out msg nelems": size / shards[1],
        "Process Group Ranks": str(ranks),
    }  # fmt: skip
    return {"name": kernel, "args": about}


def compared(folder: Path, name: str, stage: int, *, ranked: bool = True) -> Comparison:
    """A stage's own profile beside the prediction."""
    (wanted, arch), on = taken(name), machine(SERVERS)
    step = simulate(wanted, arch, on, most_events=400_000, stage=stage)
    groups = place(wanted, on.network.fabric)
    rank = stage * groups.grid[0].size + 1
    head = {"distributedInfo": {"rank": rank, "world_size": groups.grid.size}} if ranked else {}
    file = folder / "profile.json"
    file.write_text(json.dumps({**head, "traceEvents": recorded(step, groups, rank, stage)}))
    return compare([step_of(read(file))], wanted, arch, on)[0]


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("name", ["pipeline", "pipeline and tensors"])
def test_a_rank_stands_beside_its_own_pipeline_stage(tmp_path: Path, name: str, stage: int) -> None:
    """The predicted shares were those of the stage that waits least, whatever stage was profiled: of 8 layers
    on 4 stages the last one computes the head besides."""
    result = compared(tmp_path, name, stage)
    assert result.stage == stage
    measured, predicted = (
        sum(getattr(row, column) for row in result.rows if row.share in COMPUTE.values())
        for column in ("measured", "predicted")
    )
    assert predicted == pytest.approx(measured, rel=1e-6)
    assert (
        f"is of pipeline stage {stage} (of 0 to 3), so the predicted shares are that stage's"
        in result.words[1]
    )


def test_of_a_profile_without_a_rank_it_is_told_which_stage_is_predicted(tmp_path: Path) -> None:
    result = compared(tmp_path, "pipeline", 0, ranked=False)
    assert (result.rank, result.stage) == (None, 1)
    assert "does not say its rank" in result.words[1]
    assert "pipeline stage 1 (of 0 to 3), which waits least" in result.words[1]


@pytest.mark.parametrize("stage", range(4))
def test_the_optimizer_is_that_of_the_ranks_own_stage(tmp_path: Path, stage: int) -> None:
    """It was the longest of all stages': the head's here, with 32,000 x 1,024 weights beside two layers."""
    (row,) = [row for row in compared(tmp_path, "pipeline", stage).rows if row.share == "optimizer"]
    assert row.predicted == pytest.approx(row.measured, rel=1e-6)


def test_kernels_are_told_apart_on_the_ranks_own_stage(tmp_path: Path) -> None:
    """Stages 1 and 3 have two layers each, so attention takes the same; it was shared out on both as on the
    first stage, with whose embedding the last one's head had 40 % more. What launches take between
    kernels is shared out in proportion, which leaves some per cent."""
    one, last = (
        {row.share: row.predicted for row in compared(tmp_path, "pipeline", stage).rows} for stage in (1, 3)
    )
    assert last["attention"] == pytest.approx(one["attention"], rel=0.1)
    assert last["matrix products"] > 1.5 * one["matrix products"]


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_no_share_of_a_steps_own_profile_is_off(tmp_path: Path, name: str, stage: int) -> None:
    """Kernels of passes are of one name here, so that those rows are compared together."""
    result = compared(tmp_path, name, stage)
    passes = [label for label in COMPUTE.values() if label != COMPUTE["optimizer"]]
    measured, predicted = (
        {"passes": sum(getattr(row, column) for row in result.rows if row.share in passes)}
        | {row.share: getattr(row, column) for row in result.rows if row.share not in passes}
        for column in ("measured", "predicted")
    )
    assert sum(predicted.values()) == pytest.approx(result.predicted, rel=1e-9)
    assert predicted == pytest.approx(measured, abs=1e-5 * result.predicted)


def test_of_a_step_with_whole_passes_the_column_adds_up_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass in whole says itself what is inside; no ranks of this job wait for each other there."""
    every = {row.share: row.predicted for row in compared(tmp_path, "pipeline and tensors", 1).rows}
    monkeypatch.setattr("railwright.traces.comparison.MOST_EVENTS", 400)
    result = compared(tmp_path, "pipeline and tensors", 1)
    assert sum(row.predicted for row in result.rows) == pytest.approx(result.predicted, rel=1e-9)
    assert {row.share: row.predicted for row in result.rows} == pytest.approx(
        every, abs=1e-3 * result.predicted
    )
