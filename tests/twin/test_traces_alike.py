"""Of ranks that do the same one stands for all: the answer is that of all of them placed one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.traces import busiest, critical_path, replay
from railwright.traces.replaying import MOST_NODES
from railwright.traces.simai import Part, Row, Workload, step_trace
from training_cases import machine

GATHER, REDUCE = Part(0.0, "ALLGATHER", 3e6), Part(2e-4, "ALLREDUCE", 8e6)
ROWS = (
    Row("parameters", weight=GATHER),
    Row("attention", Part(1e-3, "ALLREDUCE", 4e6), REDUCE, Part(5e-4, "REDUCESCATTER", 6e7)),
    Row("experts", Part(2e-3, "ALLTOALL_EP", 5e6), Part(3e-3, "ALLTOALL_EP", 5e6), Part(1e-3)),
    Row("expert weights", weight=Part(1e-3, "ALLREDUCE_DP_EP", 9e7)),
)


@pytest.mark.parametrize(("tensor", "expert", "pipeline"), [(2, 4, 1), (4, 2, 2), (1, 8, 1), (8, 1, 2)])
def test_one_rank_stands_for_all(tensor: int, expert: int, pipeline: int) -> None:
    trace = step_trace(Workload(tensor, expert, pipeline, 4, 32, 0, ROWS), "case")
    assert trace.alike
    one, every = replay(trace, machine(4)), replay(replace(trace, alike=False), machine(4))
    assert one.time == pytest.approx(every.time, rel=1e-12)
    assert len(one.runs) == len(every.runs) == 32
    for rank in range(32):
        ends = [run.end for run in one.runs[rank]]
        assert ends == pytest.approx([run.end for run in every.runs[rank]], rel=1e-12)
    assert busiest(one) == busiest(every)
    assert critical_path(one) == critical_path(every)


def test_workloads_of_many_ranks_have_no_limit_of_nodes() -> None:
    """SimAI's own example has 79,902,720 nodes on 9,216 ranks."""
    trace = step_trace(Workload(2, 1, 1, 1, 32, 0, ROWS * (MOST_NODES // 200)), "long")
    assert sum(len(trace.nodes(rank)) for rank in (0, 1)) * 16 > MOST_NODES
    assert replay(trace, machine(4)).time > 0.0
