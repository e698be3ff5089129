"""A log that gives no curve is refused in one sentence with its file and line."""

import json
import time
from pathlib import Path

import pytest

from railwright.errors import SpecError
from railwright.measure.logs import read_log

LOGS = Path(__file__).parent.parent / "data" / "logs"
HEAD = " size time algbw busbw\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\n\n", "<text>: the log is empty"),
        ("hello\nworld\n", "<text>:2: there is no table of a benchmark here"),
        ("# nThread 1 nGpus 8 minBytes 8\n# Using devices\n", "no row of its table was printed"),
        (HEAD + " 1048576 50 20.97 19.66\n", "all_gather or all_to_all); say it with --op"),
        (f"all_gather_perf\n{HEAD} 1048576 N/A N/A 19.66\n", "say it with --ranks"),
        (f"all_reduce_perf\n{HEAD} 1048576 N/A N/A N/A\n", "no complete row with a size"),
        ('{"results": [{"size": 8, "out_of_place": {"bus_bw"', "holds no complete result"),
        ('[\n{"numCycle":0, "name":"AllReduce", "size":8, "busBw":0.1', "holds no complete result"),
        ('{"schemaVersion": 1, "traceEvents": []}', "`railwright trace compare STUDY PROFILE...` reads it"),
    ],
)  # fmt: skip
def test_texts(text, sentence):
    with pytest.raises(SpecError) as refused:
        read_log(text)
    assert sentence in str(refused.value)
    assert len(refused.value.mistakes) == 1


def test_files(tmp_path):
    binary = tmp_path / "x.log"
    binary.write_bytes(b"\x7fELF\0\0\0")
    for path, sentence in (
        (tmp_path / "none.log", "there is no such file"),
        (tmp_path, "this is a folder"),
        (binary, "this is a binary file"),
    ):
        with pytest.raises(SpecError, match=sentence):
            read_log(path)


def test_what_the_caller_says_is_checked():
    with pytest.raises(SpecError, match="'all_sing' is not a collective"):
        read_log(LOGS / "nccl_all_reduce_16.log", op="all_sing")
    with pytest.raises(SpecError, match="0 ranks cannot run"):
        read_log(LOGS / "nccl_all_reduce_16.log", ranks=0)


def test_half_of_a_json_report_is_read_and_noted():
    whole = json.loads((LOGS / "nccl.json").read_text())
    text = json.dumps(whole)
    for cut in range(200, len(text), 311):
        try:
            curve = read_log(text[:cut] + "\n")[0]
        except SpecError:
            continue
        assert len(curve.points) < len(whole["results"]) + 1
        if cut < text.index('"out_of_bounds"'):
            assert any("cut short" in n for n in curve.notes)


@pytest.mark.alone
def test_endless_lines_are_refused_at_once():
    """200,000 characters without a break would keep backtracking patterns busy for minutes."""
    text = "\n".join(["1 2 3 4 " * 25_000, "a" * 200_000, "> " * 100_000, "OSU " * 50_000, "(" * 200_000, ""])
    started = time.perf_counter()
    with pytest.raises(SpecError, match="there is no table"):
        read_log(text)
    assert time.perf_counter() - started < 5
