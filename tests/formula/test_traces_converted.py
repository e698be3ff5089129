"""Chakra traces as PyTorch's converter and the jsonizer write them, made by hand after their source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from railwright.errors import SpecError
from railwright.export.protobuf import data, delimited, number
from railwright.traces import load, replay
from training_cases import machine, priced

GROUPS = str(['[{"pg_name": "3", "pg_desc": "tensor", "ranks": [0, 1], "group_size": 2}]'])
"""What the converter keeps of the node 'process_group:init': Python's text of a list with JSON in it."""


def attribute(name: str, field: int, value: int | str) -> bytes:
    held = number(field, value) if isinstance(value, int) else data(field, value.encode())
    return data(10, data(1, name.encode()) + held)


def converted(rank: int, groups: str = GROUPS) -> bytes:
    """A CPU operator of 40 us, its kernel of 1 ms, an all-gather of 1 MB a rank after it."""
    metadata = (
        number(1, 7) + data(2, b"process_group:init") + number(3, 1) + data(8, data(1, groups.encode()))
    )
    operator = (
        number(1, 8) + data(2, b"aten::mm") + number(3, 4) + number(7, 40) + attribute("is_cpu_op", 27, 1)
    )
    kernel = number(1, 9) + data(2, b"gemm") + number(3, 4) + number(5, 8) + number(7, 1000)
    kernel += attribute("is_cpu_op", 27, 0) + attribute("stream", 9, 7)
    gather = number(1, 10) + data(2, b"ncclDevKernel_AllGather_RING_LL") + number(3, 7) + number(5, 9)
    gather += (
        attribute("comm_type", 9, 2) + attribute("comm_size", 9, 1_000_000) + attribute("pg_name", 29, "3")
    )
    head = data(1, b"0.0.4")
    return b"".join(delimited([head, metadata, operator, kernel, gather]))


def test_a_trace_converted_from_pytorch(tmp_path: Path) -> None:
    """40 us of the host, 1 ms, then 2 MB gathered over two ranks at 1 GB/s after 20 us: half travels."""
    for rank in range(2):
        (tmp_path / f"chakra.{rank}.et").write_bytes(converted(rank))
    trace = load(tmp_path, 8)
    assert [node.kind for node in trace.nodes(0)] == ["host", "host", "compute", "collective"]
    assert trace.nodes(0)[3].size == 2e6
    assert [group.ranks for group in trace.groups.values()] == [(0, 1)]
    assert replay(trace, machine(1), priced(1e9)).time == pytest.approx(40e-6 + 1e-3 + 20e-6 + 1e-3)


def test_a_root_that_the_converter_took_out_is_waited_for_by_none(tmp_path: Path) -> None:
    """The converter takes the root out and leaves its number, 0, as the caller of the thread's node; data of
    a node that is not there is refused."""
    thread = number(1, 7) + data(2, b"[pytorch|profiler|execution_trace|thread]") + number(3, 4)
    for field, lost in ((4, False), (5, True)):
        node = thread + attribute("is_cpu_op", 27, 1) + number(field, 0) + number(7, 10)
        (tmp_path / "chakra.0.et").write_bytes(b"".join(delimited([data(1, b"0.0.4"), node])))
        if lost:
            with pytest.raises(SpecError, match="waits for node 0, which is not in the file"):
                load(tmp_path, 8).nodes(0)
        else:
            assert load(tmp_path, 8).nodes(0)[0].after == ()


def test_copies_to_and_from_the_host_leave_the_gpus_lane_free(tmp_path: Path) -> None:
    """A copy of 5 ms beside a kernel of 1 ms: the converter calls both computing."""
    copy = number(1, 11) + data(2, b"Memcpy HtoD (Pinned -> Device)") + number(3, 4) + number(5, 8)
    file = converted(0, GROUPS.replace("[0, 1]", "[0]").replace('"group_size": 2', '"group_size": 1'))
    more = copy + number(7, 5000) + attribute("is_cpu_op", 27, 0) + attribute("stream", 9, 8)
    (tmp_path / "chakra.0.et").write_bytes(file + b"".join(delimited([more])))
    trace = load(tmp_path, 8)
    assert trace.nodes(0)[-1].kind == "copy"
    assert replay(trace, machine(1), priced(1e9)).time == pytest.approx(40e-6 + 5e-3)


def test_groups_without_a_description_are_told_apart_by_their_shape(tmp_path: Path) -> None:
    """PyTorch calls them 'undefined': two ranks of a server and two of different ones are no family."""
    for rank in range(2):
        file = tmp_path / f"chakra.{rank}.et"
        file.write_bytes(converted(rank, GROUPS.replace("tensor", "undefined")))
    assert [group.family for group in load(tmp_path, 8).groups.values()] == [""]


JSON = """\
{
  "version": "0.0.4"
}{
  "id": "1",
  "name": "layer",
  "type": "COMP_NODE",
  "durationMicros": "1500"
}{
  "id": "2",
  "name": "sum",
  "type": "COMM_COLL_NODE",
  "dataDeps": [
    "1"
  ],
  "attr": [
    {"name": "is_cpu_op", "boolVal": false},
    {"name": "comm_type", "int64Val": "0"},
    {"name": "comm_size", "uint64Val": "1000000"}
  ]
}"""


def test_either_of_protobufs_names_is_read(tmp_path: Path) -> None:
    """Its guide: parsers accept lowerCamelCase and the names of the schema; null is a field's default."""
    plain = re.sub("[a-z0-9](?=[A-Z])", lambda one: f"{one[0]}_", JSON)
    plain = re.sub('"[a-zA-Z0-9_]+":', lambda one: one[0].lower(), plain)
    assert "duration_micros" in plain
    assert '"int64_val"' in plain
    for rank in range(2):
        (tmp_path / f"trace.{rank}.json").write_text(plain.replace('"name": "sum",', '"name": null,'))
    assert replay(load(tmp_path, 8), machine(1), priced(1e9)).time == pytest.approx(1.5e-3 + 20e-6 + 1e-3)


def test_the_jsonizers_text_without_groups_is_all_ranks(tmp_path: Path) -> None:
    """1.5 ms, then 1 MB over two ranks at 1 GB/s after 20 us: 2 * 1/2 MB travel."""
    for rank in range(2):
        (tmp_path / f"trace.{rank}.json").write_text(JSON)
    trace = load(tmp_path, 8)
    assert replay(trace, machine(1), priced(1e9)).time == pytest.approx(1.5e-3 + 20e-6 + 1e-3)
