"""A predicted step that is recorded as a profile is known again: its collectives and its shares."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.traces.comparison import compare
from railwright.traces.expected import COPY, IDLE
from railwright.traces.kineto import read
from railwright.traces.measured import step_of
from railwright.training import place, simulate
from railwright.training.lanes.timeline import WAITS
from railwright.training.layout.placement import GroupKind
from railwright.training.passes.lockstep import WAIT
from training_cases import DENSE, MOE, changed, job, machine

NAMES = {
    "all_reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    "all_gather": ("_allgather_base", "ncclDevKernel_AllGather_RING_LL"),
    "reduce_scatter": ("_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"),
    "all_to_all": ("all_to_allv", "ncclDevKernel_SendRecv"),
    "sendrecv": ("send", "ncclDevKernel_SendRecv"),
}
"""Op -> what ProcessGroupNCCL.cpp records, and NCCL's kernel."""

TIED = replace(DENSE, tied_embeddings=True)
CASES: dict[str, tuple[Transformer, dict[str, object], dict[str, object]]] = {
    # the two context-parallel ranks are the data-parallel ones too
    "one copy, ring": (DENSE, {"tensor": 8, "context": 2}, {}),
    "one copy, gathered": (DENSE, {"tensor": 8, "context": 2, "context_kind": "all-gather"}, {}),
    "one copy, swapped": (DENSE, {"gpus": 4, "tensor": 2, "context": 2, "context_kind": "all-to-all"}, {}),
    # two stages share an embedding
    "tied": (TIED, {"tensor": 4, "pipeline": 2}, {}),
    "maxima of all ranks": (DENSE, {"tensor": 8, "dtype": "fp8"}, {"amax_over": "stage"}),
    "experts of all ranks": (MOE, {"expert": 8, "tensor": 2, "sequence_parallel": True}, {}),
    "experts cut less": (MOE, {"tensor": 4, "expert_tensor": 2, "sequence_parallel": True}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_collective_is_of_the_predicted_kind(tmp_path: Path, name: str) -> None:
    """By the ranks of the first group of its kind; of kinds that have the same ranks by its size."""
    arch, layout, fields = CASES[name]
    wanted, on = changed(job(batch=32, sequence=512, **layout), **fields), machine(2)  # type: ignore[arg-type]
    groups = place(wanted, on.network.fabric)
    rank_of = {int(gpu): rank for rank, gpu in enumerate(groups.grid.reshape(-1))}
    called = {
        (u.groups, u.prediction.op, round(u.prediction.size / 4) * 4): u.kind
        for u in simulate(wanted, arch, on).collectives
    }
    events: list[dict[str, object]] = [
        {"ph": "X", "cat": "kernel", "name": "nvjet_tst", "ts": 0, "dur": 50, "pid": 0, "tid": 7}
    ]
    for at, (kind, op, size) in enumerate(called):
        members = sorted(rank_of[int(gpu)] for gpu in groups.of(_kind(kind))[0].gpus)
        shards = {"all_gather": (len(members), 1), "reduce_scatter": (1, len(members))}.get(op, (1, 1))
        said, kernel = NAMES[op]
        about = {
            "Collective name": said, "dtype": "Byte", "Group size": len(members),
            "In msg nelems": size / shards[0], "Out msg nelems": size / shards[1],
            "Process Group Ranks": str(members), "Process Group Name": str(at),
        }  # fmt: skip
        events.append(
            {"ph": "X", "cat": "kernel", "name": kernel, "ts": 100 * (at + 1), "dur": 50, "args": about}
            | {"pid": 0, "tid": 20}
        )
    (tmp_path / "profile.json").write_text(json.dumps({"traceEvents": events}))
    result, _ = compare([step_of(read(tmp_path / "profile.json"), whole=True)], wanted, arch, on)
    found = sorted((row.op or "", round(row.size), row.kind) for row in result.collectives)
    assert found == sorted((op, size, kind) for (_, op, size), kind in called.items())
    assert all(row.predicted for row in result.collectives)


@pytest.mark.parametrize(
    "layout",
    [{}, {"zero": 3}, {"zero": 3, "offload": ("weights",)}, {"zero": 1, "offload": ("optimizer",)}],
    ids=str,
)
def test_a_predicted_step_is_off_nowhere_on_its_own_gpu(tmp_path: Path, layout: dict[str, object]) -> None:
    """The host's work is not on the GPU: gradients beside it, and copies, have its instants in a profile."""
    wanted, on = changed(job(batch=32, sequence=512, **layout), software="fsdp-2024"), machine(2)  # type: ignore[arg-type]
    step = simulate(wanted, MOE, on, most_events=400_000)
    names = {"compute": "nvjet_tst", "copy": "Memcpy DtoH (Device -> Pinned)", "dp": NAMES["all_reduce"][1]}
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "gpu_memcpy" if one.lane == "copy" else "kernel", "name": names[one.lane]}
        | {"ts": one.start * 1e6, "dur": (one.end - one.start) * 1e6, "pid": 0, "tid": one.lane}
        for one in step.timeline.events
        if one.lane in names and one.kind not in (*WAITS, WAIT)
    ]
    (tmp_path / "profile.json").write_text(json.dumps({"traceEvents": events}))
    result, _ = compare([step_of(read(tmp_path / "profile.json"), whole=True)], wanted, MOE, on)
    assert sum(row.predicted for row in result.rows) == pytest.approx(step.step_time)
    told = {row.share: (row.measured, row.predicted) for row in result.rows}
    assert told["dp communication"][1] > step.exposed("dp"), "some gradients run beside launches"
    first, last = (pick(events, key=lambda e: e["ts"]) for pick in (min, max))
    recorded = (last["ts"] + last["dur"] - first["ts"]) * 1e-6
    for share in ("dp communication", COPY):
        measured, predicted = told.get(share, (0.0, 0.0))
        assert measured == pytest.approx(predicted, abs=1e-6), share
    # what the host does before the GPU's first kernel and behind its last one is not in a profile
    idle = told[IDLE][1] - (step.step_time - recorded)
    assert told[IDLE][0] == pytest.approx(idle, abs=1e-6)


def _kind(name: str) -> GroupKind:
    return name  # type: ignore[return-value]
