"""Every collective that a step is predicted to call is known again where a profile recorded it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from railwright.model.architecture import Transformer
from railwright.traces.comparison import compare
from railwright.traces.kineto import read
from railwright.traces.measured import step_of
from railwright.training import place, simulate
from railwright.training.placement import GroupKind
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


def _kind(name: str) -> GroupKind:
    return name  # type: ignore[return-value]
