"""What trace viewers want of every event: Perfetto drops what overlaps on a thread, and says nothing."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.report.files.trace import step_events
from railwright.serving.simulator.metrics import perfetto
from railwright.serving.simulator.simulate import simulate
from railwright.training.lanes.result import StepResult
from railwright.training.lanes.timeline import Event, Timeline
from report_fixture import toy_step
from serving_cases import flat_table, one_replica, requests


def check(events: list[dict[str, Any]]) -> None:
    """In whole nanoseconds no event ends after its thread's next begins, and no lane is a main thread."""
    threads: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            start = round(1000 * e["ts"])
            threads[e["pid"], e["tid"]].append((start, start + round(1000 * e["dur"])))
    assert threads
    for found in threads.values():
        found.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(found))
    assert all(tid not in (0, pid) for pid, tid in threads)
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert threads.keys() == named


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.floats(0, 1e-6), st.floats(1e-9, 1e-6)), min_size=1, max_size=40
    )
)
def test_any_steps_events(drawn: list[tuple[int, float, float]]) -> None:
    """Events of parts of a nanosecond, on ranks whose numbers could be those of threads."""
    step: StepResult = toy_step(1.0)
    events = tuple(Event(rank, "dp", "a", "x", start, start + length) for rank, start, length in drawn)
    object.__setattr__(step, "timeline", Timeline(events, max(e.end for e in events)))
    check(step_events(step))


@pytest.mark.parametrize("stages", [1, 3])
@given(seed=st.integers(0, 2**31))
@settings(max_examples=20)
def test_any_runs_steps(stages: int, seed: int) -> None:
    """Batches in flight lie beside each other; who decodes is counted from a step's begin to its end."""
    rng = np.random.default_rng(seed)
    work = requests(np.cumsum(rng.exponential(0.01, 40)), rng.integers(1, 300, 40), rng.integers(1, 40, 40))
    table = flat_table(token=1.1e-5, request=0.00123, stages=stages, hop=1e-4)
    events = perfetto(simulate(work, one_replica(table), "interpreted"))["traceEvents"]
    check(events)
    decoding = [e for e in events if e["ph"] == "C" and "decoding" in e["args"]]
    assert decoding[-1]["args"]["decoding"] == 0
    assert all(e["args"]["decoding"] >= 0 for e in decoding)
    begun = [e for e in events if e["ph"] == "b"]
    assert len({(e["id2"]["local"], e["name"]) for e in begun}) == len(begun) == 3 * 40
