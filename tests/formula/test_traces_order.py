"""In which order the collectives of a group run: the program's, or that in which their members come.

`priced(bandwidth, latency)` takes latency + wire bytes / bandwidth: 1 MB over two ranks at 1 GB/s 1.02 ms.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from railwright.errors import PlanError, SpecError
from railwright.export.protobuf import data, delimited, number, packed
from railwright.spec.training import Overlap
from railwright.traces import load, replay, step_trace
from railwright.traces.graph import Group, Node, StepTrace
from railwright.training.lanes.tasks import PASSED_ON
from training_cases import MOE, changed, job, machine, priced

MB = 1e6
ONE = 1.02e-3
GROUPS = '{"1": [0, 1]}'


def test_what_has_queued_runs_before_what_the_one_before_lets_in() -> None:
    """The second reduction has queued for the first, whose end lets the third in on each rank in turn."""
    nodes = tuple(
        Node(i, f"reduce {i}", "collective", after, 0.0, "all_reduce", MB, "all")
        for i, after in enumerate(((), (), (0,)))
    )
    trace = StepTrace("case", 2, lambda rank: nodes, {"all": Group("all", (0, 1), "all")}, (0, 1))
    result = replay(trace, machine(1), priced(1e9))
    assert [run.end for run in result.runs[1]] == pytest.approx([ONE, 2 * ONE, 3 * ONE])


def pair(name: str, field: int, value: int | str) -> bytes:
    return data(1, name.encode()) + (
        number(field, value) if isinstance(value, int) else data(field, value.encode())
    )


def attribute(name: str, field: int, value: int | str) -> bytes:
    return data(10, pair(name, field, value))


def node(index: int, kind: int, *after: int, micros: int = 0, **said: int) -> bytes:
    fields = number(1, index) + data(2, f"node {index}".encode()) + number(3, kind) + packed(5, after)
    return fields + number(7, micros) + b"".join(attribute(key, 9, value) for key, value in said.items())


def reduction(index: int, *after: int) -> bytes:
    return node(index, 7, *after, comm_type=0, comm_size=1_000_000) + attribute("pg_name", 29, "1")


def written(folder: Path, *nodes: bytes, groups: str | None = "workload.json") -> Path:
    """Two ranks' files as symbolic_tensor_graph writes them: no version, the groups beside the traces."""
    head = data(2, pair("schema", 29, "symbolic_tensor_network"))
    for rank in range(2):
        (folder / f"workload.{rank}.et").write_bytes(b"".join(delimited([head, *nodes])))
    if groups is not None:
        (folder / groups).write_text(GROUPS)
    return folder


def test_nodes_that_are_listed_in_no_order_run_as_they_come(tmp_path: Path) -> None:
    """The backward pass's reduction is listed first and waits, through computing, for the forward pass's."""
    made = written(
        tmp_path, reduction(5, 4), node(4, 4, 3, micros=2000), reduction(3, 2), node(2, 4, micros=1000)
    )
    assert replay(load(made, 8), machine(1), priced(1e9)).time == pytest.approx(3e-3 + 2 * ONE)


def test_listed_in_order_they_run_in_it(tmp_path: Path) -> None:
    """The second of a group does not pass the first, though it is there 3 ms earlier."""
    made = written(tmp_path, node(2, 4, micros=3000), reduction(3, 2), reduction(4))
    result = replay(load(made, 8), machine(1), priced(1e9))
    assert [run.start for run in result.runs[0]] == pytest.approx([0.0, 3e-3, 3e-3 + ONE])


@pytest.mark.parametrize("name", ["comm_groups.json", "comm_group.json", "workload.json"])
def test_groups_are_found_beside_the_traces(tmp_path: Path, name: str) -> None:
    """Other files of ASTRA-sim's that lie there are no groups."""
    made = written(tmp_path, reduction(2), groups=name)
    (tmp_path / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    (tmp_path / "notes.json").write_text("{")
    assert [group.ranks for group in load(made, 8).groups.values()] == [(0, 1)]


def test_groups_that_are_not_found_or_found_twice(tmp_path: Path) -> None:
    made = written(tmp_path, reduction(2), groups=None)
    with pytest.raises(SpecError, match=r"described nowhere; put .* beside the traces, as comm_groups\.json"):
        load(made, 8)
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(GROUPS)
    with pytest.raises(SpecError, match=r"'a\.json', 'b\.json'; call the right one comm_groups\.json"):
        load(made, 8)


def test_what_says_operations_and_no_time_is_told(tmp_path: Path) -> None:
    """ASTRA-sim gives the product, 0 us here, the time of its roofline, and the load one of its memory; the
    other product's is measured."""
    sized = {"num_ops": 10**9, "tensor_size": 10**6}
    works = (node(2, 4, **sized), node(3, 2, tensor_size=10**6), node(4, 4, micros=1000, **sized))
    (said,) = load(written(tmp_path, *works), 8).notes
    assert said.startswith("4 of 6 computing and memory nodes say operations or bytes")
    assert "Give them duration_micros" in said
    assert load(written(tmp_path, works[2]), 8).notes == ()
    with pytest.raises(PlanError, match="no rank computes for any time"):
        replay(load(written(tmp_path, works[0]), 8), machine(1))


def test_a_token_is_passed_on_inside_a_server_while_it_crosses_the_network() -> None:
    """DeepEP's two parts run side by side: where NVLink (an H800's 200 GB/s) takes longer than the NICs, a
    replay takes as long as NVLink, not as long as both."""
    on, arch = machine(2, server="hgx-h800"), replace(MOE, experts=32, experts_per_token=6)
    one = job(batch=16, sequence=4096, expert=8, expert_tensor=2, overlap=Overlap(dp=False))
    made, step = step_trace(changed(one, expert_nodes=1), arch, on)
    assert any(PASSED_ON in event.name for event in step.timeline.events)
    assert replay(made, on).time == pytest.approx(step.step_time, rel=1e-9)
