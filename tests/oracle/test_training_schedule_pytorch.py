"""Orders of passes beside those of torch.distributed.pipelining, which makes them without a process group."""

from __future__ import annotations

from typing import Any

import pytest

from railwright.training.layout.schedule import route_under, schedule

pipelining = pytest.importorskip(
    "torch.distributed.pipelining.schedules", reason="PyTorch is not installed: pip install torch"
)

KINDS = {"FORWARD": "F", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W", "FULL_BACKWARD": "B"}

Pass = tuple[object, ...]
"""(kind, piece of the model, microbatch), twice where two run together."""


def theirs(name: str, stages: int, chunks: int, count: int) -> list[list[Pass]]:
    found = []
    for rank in range(stages):
        made = object.__new__(getattr(pipelining, name))
        made.pp_group_size, made.n_local_stages, made._n_microbatches = stages, chunks, count
        made.num_stages = made._num_stages = stages * chunks
        made.rank = rank
        made.number_of_rounds = max(1, count // stages)
        made.microbatches_per_round = count // made.number_of_rounds
        actions = made._calculate_single_rank_operations(rank)
        found.append([_named(action) for action in actions if action is not None])
    return found


def _named(action: Any) -> Pass:
    if action.sub_actions:
        return tuple(part for one in action.sub_actions for part in _named(one))
    return KINDS[action.computation_type.name], action.stage_index, action.microbatch_index


def ours(name: str, stages: int, chunks: int, count: int) -> list[list[Pass]]:
    route = route_under(name, stages, chunks)
    return [
        [
            tuple(
                part for one in unit.passes for part in (one.kind, route.piece(s, one.chunk), one.microbatch)
            )
            for unit in order
        ]
        for s, order in enumerate(schedule(stages, chunks, count, name))
    ]


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("count", [1, 2, 5, 8, 16, 33])
def test_zb_v(stages: int, count: int) -> None:
    assert ours("zb-v", stages, 2, count) == theirs("ScheduleZBVZeroBubble", stages, 2, count)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("more", [0, 1, 6, 25])
def test_dualpipe_v(stages: int, more: int) -> None:
    count = 2 * stages + more
    assert ours("dualpipe-v", stages, 2, count) == theirs("ScheduleDualPipeV", stages, 2, count)


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_interleaved(stages: int, chunks: int, rounds: int) -> None:
    size = stages, chunks, rounds * stages
    assert ours("interleaved", *size) == theirs("ScheduleInterleaved1F1B", *size)


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_zb_h1(stages: int, chunks: int, rounds: int) -> None:
    size = stages, chunks, rounds * stages
    assert ours("zb-h1", *size) == theirs("ScheduleInterleavedZeroBubble", *size)
