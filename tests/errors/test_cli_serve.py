"""`railwright serve`: what it prints and writes, and what it says to a user's mistake."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from railwright.cli.main import app

STUDY = """
railwright: 1
name: One server
cluster:
  servers: 1
  server: dgx-h100
  compute: {family: single-switch, switch: qm9700}
serving:
  - name: chat
    model: llama-3.1-8b
    client: {concurrency: 4, requests: 12, input: 256, output: 32}
    slo: {ttft: 1 s, tpot: 50 ms}
"""


def _run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["serve", *arguments])
    return done.exit_code, done.output


def _study(folder: Path, text: str = STUDY) -> str:
    path = folder / "study.yaml"
    path.write_text(text)
    return str(path)


def test_a_job_is_answered_on_paper_and_in_files(tmp_path):
    study, figures, events = _study(tmp_path), tmp_path / "f.json", tmp_path / "t.json"
    status, said = _run(study, "--json", str(figures), "--timeline", str(events))
    assert status == 0, said
    assert "time to first token" in said
    assert "1 s at p99: kept" in said
    assert "Yes, the SLO is kept: TTFT is " in said
    assert " at p99 of 1 s promised" in said
    assert "; 100.0 % of requests meet all of it." in said
    read = json.loads(figures.read_text())
    assert (read["requests"], read["gpus"], read["slo_kept"]) == (12, 1, True)
    assert abs(sum(read["ttft_parts_seconds"].values()) - read["ttft_seconds"]["mean"]) < 1e-9
    names = {event["name"] for event in json.loads(events.read_text())["traceEvents"]}
    assert {"decode", "waits", "requests", "KV"} <= names


def test_a_trace_is_found_beside_its_study(tmp_path):
    trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    trace += "".join(f"2023-11-16 18:15:{k:02d}.5,300,20\n" for k in range(10))
    (tmp_path / "requests.csv").write_text(trace)
    text = STUDY.replace(
        "{concurrency: 4, requests: 12, input: 256, output: 32}", "{kind: trace, trace: requests.csv}"
    )
    status, said = _run(_study(tmp_path, text))
    assert status == 0, said
    assert "10 requests" in said


def test_mistakes_are_named(tmp_path):
    study = _study(tmp_path)
    without = STUDY[: STUDY.index("serving:")]
    cases = [
        ((study, "--job", "chats"), "--job: there is no serving job 'chats'; did you mean 'chat'?"),
        ((study, "--lose", "0@now"), "--lose '0@now': write the replica's number and its seconds"),
        ((study, "--lose", "7@1-2"), "Replica 7 is lost, but they run from 0 to 0"),
        ((study, "--json", str(Path(study) / "f.json")), "cannot write"),
    ]
    for arguments, expected in cases:
        status, said = _run(*arguments)
        assert status == 2, said
        assert expected in said
    status, said = _run(_study(tmp_path, without))
    assert (status, "has no serving job" in said) == (2, True)


def test_answers_of_one_token_have_no_time_per_token(tmp_path):
    figures = tmp_path / "f.json"
    status, said = _run(_study(tmp_path, STUDY.replace("output: 32", "output: 1")), "--json", str(figures))
    assert status == 0, said
    assert "nan" not in said
    read = json.loads(figures.read_text())
    assert (read["tpot_seconds"]["mean"], read["slo_kept"]) == (None, True)
