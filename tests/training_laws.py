"""What holds of every training step, and what a kind of work takes of one."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

from railwright.training.lanes.result import StepResult


def adds_up(step: StepResult) -> None:
    """Every instant belongs to one share."""
    assert sum(s.exposed for s in step.shares) == pytest.approx(step.step_time, rel=1e-9)
    assert all(s.exposed >= -1e-12 for s in step.shares)


def one_thing_at_a_time(step: StepResult) -> None:
    """No two events of one lane of one rank overlap."""
    lanes: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for event in step.timeline.events:
        lanes[(event.rank, event.lane)].append((event.start, event.end))
    for spans in lanes.values():
        for (_, end), (start, _) in pairwise(sorted(spans)):
            assert start >= end - 1e-9 * step.step_time
