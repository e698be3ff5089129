"""A step for formats in which a rank does one thing at a time: its host's work stands in its turn."""

from __future__ import annotations

import re

import pytest

from railwright.spec.training import Overlap
from railwright.traces import goal, replay, step_trace
from railwright.traces.graph import Group, Node, StepTrace
from railwright.traces.outcome import on_one_processor
from training_cases import DENSE, MOE, job, machine, priced

LAYOUTS: dict[str, tuple[bool, dict[str, object]]] = {
    "data parallel": (False, {}),
    "tensor": (False, {"tensor": 8}),
    "pipeline": (False, {"pipeline": 4}),
    "folded": (False, {"pipeline": 4, "schedule": "zb-v"}),
    "experts": (True, {"expert": 8, "overlap": Overlap(dp=False)}),
    "optimizer on the host": (False, {"zero": 1, "offload": ("optimizer", "activations")}),
}


def alone(*nodes: Node) -> StepTrace:
    return StepTrace("case", 1, lambda _: nodes, {"all 0": Group("all 0", (0,), "all")}, (0,))


def test_the_rest_of_a_launch_follows_the_kernels_it_outlasts() -> None:
    """A launch of 10 ms beside kernels of 2 and 3 ms is 5 ms behind them, before the next pass."""
    made = alone(
        Node(0, "launching", "host", (), 10e-3),
        Node(1, "first kernel", "compute", (), 2e-3),
        Node(2, "second kernel", "compute", (1,), 3e-3),
        Node(3, "next pass", "compute", (0, 2), 1e-3),
    )
    found = on_one_processor(replay(made, machine(1), priced(0.0))).nodes(0)
    assert [node.kind for node in found] == ["compute"] * 4
    assert [node.seconds for node in found] == pytest.approx([5e-3, 2e-3, 3e-3, 1e-3])
    assert [set(node.after) for node in found] == [{2}, set(), {1}, {0, 2}]


def test_a_launch_that_ends_beside_a_kernel_takes_nothing() -> None:
    made = alone(Node(0, "launching", "host", (), 2e-3), Node(1, "kernel", "compute", (), 3e-3))
    found = on_one_processor(replay(made, machine(1), priced(0.0))).nodes(0)
    assert [node.seconds for node in found] == pytest.approx([0.0, 3e-3])


@pytest.mark.parametrize("name", LAYOUTS)
def test_on_the_same_network_it_takes_as_long(name: str) -> None:
    """Until November 2026 a pipeline of four stages that launches bind came out 6.5 % short: nothing said
    whether the host's part of a pass or its kernels go first."""
    moe, layout = LAYOUTS[name]
    made, _ = step_trace(job(batch=32, sequence=512, **layout), MOE if moe else DENSE, machine(2))  # type: ignore[arg-type]
    both = replay(made, machine(2))
    assert replay(on_one_processor(both), machine(2)).time == pytest.approx(both.time, rel=1e-9)


def test_goal_names_no_label_before_it_is_there() -> None:
    """txt2bin stops at 'requires' of a label that it has not read, and a launch waits for later kernels."""
    made, _ = step_trace(job(gpus=4, batch=16, sequence=512, pipeline=4), DENSE, machine(2))
    known: set[str] = set()
    for line in "".join(goal.write(on_one_processor(replay(made, machine(2))))).splitlines():
        if line.startswith("rank "):
            known = set()
        elif found := re.fullmatch(r"(\w+) requires (\w+)", line):
            assert {found[1], found[2]} <= known
        elif ":" in line:
            known.add(line.split(":")[0])
