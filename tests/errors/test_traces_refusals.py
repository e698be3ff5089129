"""Files that are no traces, traces that cannot be replayed: one sentence each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from railwright.errors import PlanError, SpecError
from railwright.traces import chakra_read, load, replay, simai
from railwright.traces.graph import Group, Node, StepTrace
from railwright.traces.kineto import read
from railwright.traces.measured import step_of
from training_cases import machine

HEAD = '{"schemaVersion": 1, "traceEvents": ['
UNTIMED = '{"ph": "X", "name": "k", "ts": "soon"}'
RANKS = '{"ph": "X", "ts": 1, "args": {"Process Group Ranks": "[0, ' + "9" * 5000 + ']"}}'
ROW = "a -1 7 NONE 0 1 NONE 0 1 NONE 0 1\n"
PAIR = '{"ph": "B", "cat": "kernel", "name": "k", "ts": 1}, {"ph": "E", "ts": 3}'
EVENT = '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}'


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("", "character 0", "cut off"),
        ("hello", "character 0", "does not begin with an object"),
        (HEAD + EVENT, f"character {len(HEAD + EVENT)}", "cut off"),
        (HEAD + EVENT[:-5], f"character {len(HEAD)}", "cut off"),
        (HEAD + EVENT + ",}]}", f"character {len(HEAD + EVENT) + 1}", "no JSON"),
        (HEAD + UNTIMED + "]}", f"character {len(HEAD + UNTIMED)}", "without a time"),
        ('{"schemaVersion": 1}', "character 19", "no traceEvents"),
        (HEAD + "]}", "", "without kernels"),
        (HEAD + PAIR + "]}", "", "pairs of a beginning and an end"),
        (HEAD + "[" * 100_000, f"character {len(HEAD)}", "nested too deeply"),
        (HEAD + EVENT.replace("2", "9" * 5000) + "]}", f"character {len(HEAD)}", "thousands of digits"),
        (HEAD + EVENT.replace("2", "9" * 400) + "]}", f"character {len(HEAD) + 459}", "without a time"),
        (HEAD + EVENT.replace("1", "1e999") + "]}", f"character {len(HEAD) + 64}", "without a time"),
        (HEAD + RANKS + "]}", f"character {len(HEAD + RANKS)}", "'Process Group Ranks'"),
        (HEAD + EVENT + '], "distributedInfo": [0]}', "distributedInfo", "not an object"),
    ],
)
def test_a_profile_that_is_none(tmp_path: Path, text: str, place: str, says: str) -> None:
    file = tmp_path / "profile.json"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}: {place}")
    assert says in str(caught.value)


def test_a_folder_of_profiles(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a folder; name the profiles in it"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}', "PyTorch's own execution trace"),
        # PyTorch 2.13 begins its profiles with a blank.
        (" " + HEAD + EVENT + "]}", "a profile of PyTorch"),
    ],
)
def test_files_of_pytorch_where_a_chakra_trace_is_wanted(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "rank_0.json").write_text(text)
    with pytest.raises(SpecError, match=f"rank_0.json: this is {says}"):
        load(tmp_path, 8)


def test_an_execution_trace_where_a_profile_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text('{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{}')
    with pytest.raises(SpecError, match="PyTorch's own execution trace, which has no times"):
        read(file)


def test_a_truncated_gzip_profile(tmp_path: Path) -> None:
    import gzip

    file = tmp_path / "profile.json.gz"
    file.write_bytes(gzip.compress(b'{"a": [' + b'"text", ' * 9999)[:60])
    with pytest.raises(SpecError, match="gzip stream is cut off"):
        read(file)


def test_a_small_file_that_unpacks_to_a_huge_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    monkeypatch.setattr("railwright.traces.reading.MOST_BYTES", 1000)
    file = tmp_path / "0.et"
    for packed in (gzip.compress(bytes(5000)), bytes(1001)):
        file.write_bytes(packed)
        with pytest.raises(SpecError, match=r"0\.et: longer than .* GiB, which is what is read whole"):
            load(tmp_path, 8)


def test_a_profile_in_which_nothing_repeats(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(HEAD + EVENT + "]}")
    with pytest.raises(SpecError, match="profile several steps"):
        step_of(read(file))
    assert step_of(read(file), whole=True).seconds == pytest.approx(2e-6)


def test_a_profile_whose_marks_enclose_no_work(tmp_path: Path) -> None:
    event = json.loads(EVENT)
    event |= {"name": "ProfilerStep#1", "cat": "user_annotation", "ts": 5000, "dur": 10}
    file = tmp_path / "profile.json"
    file.write_text(HEAD + EVENT + ", " + json.dumps(event) + "]}")
    with pytest.raises(SpecError, match="none of its 1 ProfilerStep# marks encloses work"):
        step_of(read(file))


def test_folders_of_traces(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no execution traces here"):
        chakra_read.read(tmp_path)
    (tmp_path / "et.1.et").write_bytes(b"x")
    with pytest.raises(SpecError, match="none of rank 0"):
        chakra_read.read(tmp_path)
    with pytest.raises(SpecError, match="no such file or folder"):
        chakra_read.read(tmp_path / "absent")


def test_a_folder_of_several_workloads(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text(f"{simai.POLICY} all_gpus: 1\n0\n")
    with pytest.raises(SpecError, match=r"2 workloads of SimAI \('a.txt', 'b.txt'\); name one"):
        load(tmp_path, 8)
    (tmp_path / "a.txt").write_text("notes")
    assert load(tmp_path, 8).name == "b"


def test_one_file_of_many_ranks(tmp_path: Path) -> None:
    (tmp_path / "workload.0.et").write_bytes(b"x")
    with pytest.raises(SpecError, match="a file of one rank; name the folder"):
        load(tmp_path / "workload.0.et", 8)


def test_pytorchs_own_execution_trace_is_named(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": []}))
    with pytest.raises(SpecError, match="chakra_trace_link"):
        chakra_read.read(tmp_path)


SENT = [{"name": "comm_size", "int64Val": "4"}, {"name": "comm_dst", "int64Val": "0"}]
SUMMED = [{"name": "comm_size", "int64Val": "4"}, {"name": "comm_type", "int64Val": "0"}]


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"dataDeps": ["7"]}, "waits for node 7"),
        ({"id": "-2"}, r"node -2 \('n'\); their numbers are 0 or more"),
        ({"type": "COMP_NODEX"}, "there is no type 'COMP_NODEX'; types are INVALID_NODE, METADATA_NODE"),
        ({"dataDeps": {"a": 1}}, r'its data_deps are {"a": 1}, no list'),
        ({"inputs": "abc"}, '"abc" is no object'),
        ({"attr": [{"int64Val": "4"}]}, "it says no 'name'"),
        ({"type": "COMM_COLL_NODE"}, "says no 'comm_size'"),
        (
            {"type": "COMM_SEND_NODE", "attr": [{"name": "comm_size", "int64Val": "4"}]},
            "says no 'comm_dst'; .* without pipeline",
        ),
        (
            {
                "type": "COMM_COLL_NODE",
                "attr": [{"name": "comm_size", "int64Val": "4"}, {"name": "comm_type", "int64Val": "9"}],
            },
            "of type 9",
        ),
        ({"durationMicros": "9" * 5000}, "is no whole number of 64 bits"),
        (
            {"attr": [{"name": "railwright_seconds", "doubleVal": "NaN"}]},
            "takes nan s; times are 0 or more, and finite",
        ),
        ({"attr": [{"name": "railwright_seconds", "doubleVal": "Infinity"}]}, "takes inf s"),
        (
            {"type": "COMM_SEND_NODE", "attr": [*SENT, {"name": "comm_tag", "stringVal": "x"}]},
            "says 'comm_tag' 'x'; a replay needs it, as a whole number",
        ),
        (
            {"type": "COMM_COLL_NODE", "attr": [*SUMMED, {"name": "railwright_parts", "stringVal": "q"}]},
            "says 'railwright_parts' 'q'",
        ),
        (
            {"type": "COMM_COLL_NODE", "attr": [*SUMMED, {"name": "railwright_size", "doubleVal": "NaN"}]},
            "says railwright_size nan",
        ),
    ],
)
def test_nodes_that_cannot_be_replayed(tmp_path: Path, node: dict[str, object], says: str) -> None:
    (tmp_path / "0.json").write_text('{"version": "0.0.4"}' + json.dumps({"id": "1", "name": "n", **node}))
    with pytest.raises(SpecError, match=says):
        chakra_read.read(tmp_path)


@pytest.mark.parametrize("node", ["", '{"id": 1, "name": "n", "type": "COMP_NODE"}'])
def test_a_trace_in_which_nothing_happens(tmp_path: Path, node: str) -> None:
    """It was replayed as a step of 0 ms."""
    for rank in range(2):
        (tmp_path / f"{rank}.json").write_text('{"version": "0.0.4"}' + node)
    trace = chakra_read.read(tmp_path)
    with pytest.raises(PlanError, match="no rank computes for any time or sends anything"):
        replay(trace, machine(1))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"id": ' + "9" * 5000 + "}", "thousands of digits"),
        ('{"id": 1, "durationMicros": 1e999}', "inf is no whole number"),
    ],
)
def test_json_that_is_no_trace(tmp_path: Path, more: str, says: str) -> None:
    (tmp_path / "0.json").write_text('{"version": "0.0.4"}' + more)
    with pytest.raises(SpecError, match=says) as caught:
        chakra_read.read(tmp_path)
    assert "0.json: character 20: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"1": [1e999]}', "inf is no whole number"),
        ("[" * 100_000, "nested too deeply"),
        ('{"1": [' + "9" * 5000 + "]}", "thousands of digits"),
        ('{"1": [0]} {}', "more than one JSON value"),
        ('{"1": [-1]}', "not of ranks 0 to 0"),
        ('{"1": [0, 0]}', "group '1' has rank 0 twice"),
        ("[]", "they are an object of lists of ranks"),
    ],
)
def test_groups_that_are_none(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "0.json").write_text('{"version": "0.0.4"}')
    (tmp_path / "comm_groups.json").write_text(text)
    with pytest.raises(SpecError, match=says):
        chakra_read.read(tmp_path)


def test_a_workload_of_more_gpus_than_the_cluster_is_refused_before_its_groups_are_made(
    tmp_path: Path,
) -> None:
    file = tmp_path / "work.txt"
    file.write_text(f"{simai.POLICY} all_gpus: 1000000000\n1\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n")
    with pytest.raises(PlanError, match="needs 1,000,000,000 GPUs, but the cluster has 8"):
        load(file, 8)


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("", "line 1", "no workload"),
        (f"{simai.POLICY} pp_comm: 1.2.3\n1\n{ROW}", "line 1", "pp_comm is '1.2.3'"),
        (f"{simai.POLICY} model_parallel_NPU_group: eight\n1\n{ROW}", "line 1", "NPU_group is 'eight'"),
        (f"{simai.POLICY} ep: -2\n1\n{ROW}", "line 1", "its ep is '-2', no whole number"),
        (f"{simai.POLICY} pp: 8.5\n1\n{ROW}", "line 1", "its pp is '8.5', no whole number"),
        (f"{simai.POLICY} all_gpus: 0\n1\n{ROW}", "line 1", "its all_gpus is 0"),
        (f"{simai.POLICY} all_gpus: {'9' * 5000}\n1\n{ROW}", "line 1", "its all_gpus is '99999"),
        (f"{simai.POLICY}\n1\n{ROW.replace('7', '9' * 400)}", "line 3", "not a whole number below 10^18"),
        ("MICRO\nmany\n", "line 2", "not the number of rows"),
        ("MICRO\n2\na -1 1 NONE 0 1 NONE 0 1 ALLTOALL 4 1\n", "line 3", "cut off"),
        ("MICRO\n1\na -1 1 NONE 0 1 NONE 0 1\n", "line 3", "9 columns"),
        ("MICRO\n1\na -1 soon NONE 0 1 NONE 0 1 NONE 0 1\n", "line 3", "'soon' is not a whole number"),
        ("MICRO\n1\na -1 1 SHOUT 5 1 NONE 0 1 NONE 0 1\n", "line 3", "'SHOUT' is no collective"),
        (f"{simai.POLICY} pp: 3\n1\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", "line 1", "do not divide"),
        (f"{simai.POLICY} checkpoints: 2 3 4\n0\n", "line 1", "checkpoints"),
    ],
)  # fmt: skip
def test_workloads_that_are_none(tmp_path: Path, text: str, place: str, says: str) -> None:
    file = tmp_path / "work.txt"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        simai.read(file, 8)
    assert str(caught.value).startswith(f"{file}: {place}: ")
    assert says in str(caught.value)


def _trace(*nodes: tuple[Node, ...]) -> StepTrace:
    both = Group("both 0", tuple(range(len(nodes))), "both")
    return StepTrace("case", len(nodes), lambda rank: nodes[rank], {"both 0": both}, tuple(range(len(nodes))))


def test_ranks_that_call_different_collectives() -> None:
    first = Node(0, "sum", "collective", (), 0.0, "all_reduce", 8.0, "both 0")
    other = Node(0, "gather", "collective", (), 0.0, "all_gather", 8.0, "both 0")
    with pytest.raises(PlanError, match=r"number 1 is all_reduce .* on rank 0 and all_gather .* on rank 1"):
        replay(_trace((first,), (other,)), machine(1))


def test_a_rank_that_never_comes_and_a_message_never_sent() -> None:
    sums = Node(0, "sum", "collective", (), 0.0, "all_reduce", 8.0, "both 0")
    with pytest.raises(PlanError, match="rank 1 never calls it"):
        replay(_trace((sums,), ()), machine(1))
    got = Node(0, "get", "receive", (), 0.0, size=8.0, peer=0, tag=3)
    with pytest.raises(PlanError, match="rank 0 never sends message 3"):
        replay(_trace((), (got,)), machine(1))


def test_what_never_starts_is_told_where_it_begins() -> None:
    """Rank 0's sum waits for rank 1, which has not got its message: rank 2 sends none."""
    sums = Node(1, "sum", "collective", (), 0.0, "all_reduce", 8.0, "both 0")
    got = Node(0, "get", "receive", (), 0.0, size=8.0, peer=2, tag=3)
    ranks = (sums, Node(2, "next", "compute", (1,), 1e-3)), (got, replace(sums, after=(0,))), (sums,)
    with pytest.raises(
        PlanError, match=r"rank 1's 'get' .* never starts: rank 2 never sends message 3 to it"
    ):
        replay(_trace(*ranks), machine(1))


def test_nodes_that_wait_for_each_other() -> None:
    with pytest.raises(PlanError, match="waits for a node that never ends"):
        replay(_trace((Node(0, "a", "compute", (1,)), Node(1, "b", "compute", (0,)))), machine(1))


def test_a_trace_larger_than_the_cluster() -> None:
    trace = StepTrace("large", 9, lambda rank: (), {}, tuple(range(9)))
    with pytest.raises(PlanError, match="needs 9 GPUs, but the cluster has 8"):
        replay(trace, machine(1))


def test_two_ranks_on_one_gpu(tmp_path: Path) -> None:
    for rank in range(2):
        head = {"version": "0.0.4", "attr": [{"name": "railwright_gpu", "int64Val": "3"}]}
        (tmp_path / f"{rank}.json").write_text(json.dumps(head))
    with pytest.raises(SpecError, match=r"1\.json: it is on GPU 3, and so is '0\.json'"):
        chakra_read.read(tmp_path)
