"""Requests about failures that cannot be met end in one clear sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import PlanError, RailwrightError
from railwright.reliability import goodput, read_trace
from railwright.reliability.replay import figures, spares, stepfun
from railwright.spec.reliability import Checkpoint, FaultTrace, Flaps
from railwright.spec.study import Study
from reliability_cases import TEXT, asking, catalog, machine, study


def ask(wanted: Study) -> None:
    goodput(wanted, machine(), catalog(), network=False)


def test_unknown_fleet_and_component() -> None:
    with pytest.raises(RailwrightError, match=r"no published fleet 'llama3'.*did you mean 'llama3-2024'"):
        ask(asking(rates="llama3"))
    with pytest.raises(RailwrightError, match=r"no component 'gpus'.*did you mean 'gpu'"):
        ask(asking(factors={"gpus": 2.0}))


def test_nothing_that_fails() -> None:
    names = ("gpu", "hbm", "sdc", "nic", "link", "leaf", "node", "psu", "feed", "software", "host")
    with pytest.raises(RailwrightError, match="nothing ever interrupts it"):
        ask(asking(factors=dict.fromkeys(names, 0.0)))
    with pytest.raises(RailwrightError, match="nothing ever interrupts it"):
        ask(asking(factors=dict.fromkeys(names, 0.0), interruptions=3.0))


def test_checkpoints_that_make_no_sense() -> None:
    """0 s was the best interval, and storage_interval did nothing where all checkpoints go to storage."""
    with pytest.raises(PlanError, match="interval: 500 ms between two checkpoints; write 1 s or more"):
        ask(asking(checkpoint=Checkpoint(kind="blocking", interval="500 ms")))
    with pytest.raises(PlanError, match="storage_interval: every checkpoint of kind async goes to storage"):
        ask(asking(checkpoint=Checkpoint(kind="async", storage_interval="1 h")))


@pytest.mark.parametrize("kind", ["memory", "two-level"])
def test_a_single_server_has_no_other_memory(kind: str) -> None:
    """Its checkpoints were taken to outlive it in the memory of a server that the job has not."""
    asked = asking(checkpoint=Checkpoint.model_construct(**{**Checkpoint().__dict__, "kind": kind}))
    alone = asked.model_copy(update={"jobs": (study().jobs[0].model_copy(update={"gpus": 8}),)})
    with pytest.raises(PlanError, match=f"of kind {kind} lie in the memory of another server"):
        ask(alone)


def test_own_counts_are_not_scaled_again() -> None:
    with pytest.raises(RailwrightError, match="is your own count"):
        ask(asking(interruptions=3.0, correlated=2.8))


def test_a_study_without_a_job_or_storage() -> None:
    with pytest.raises(PlanError, match="no training job"):
        ask(study().model_copy(update={"jobs": ()}))
    bare = study().cluster.model_copy(update={"storage": None})
    with pytest.raises(PlanError, match=r"no storage network.*fewer than 384 GPUs.*checkpoint\.bandwidth"):
        ask(study().model_copy(update={"cluster": bare}))


def test_an_interval_shorter_than_its_checkpoint() -> None:
    hasty = Checkpoint.model_construct(**{**Checkpoint().__dict__, "interval": 0.5})
    with pytest.raises(
        PlanError, match=r"interval: 500 ms is shorter than the 1\.\d+ s a checkpoint of 112 GB"
    ):
        ask(asking(checkpoint=hasty))


def test_a_job_that_never_gets_on() -> None:
    with pytest.raises(PlanError, match=r"is interrupted every .*: it never gets on"):
        ask(asking(interruptions=1e7))


def test_flaps_and_shares_out_of_order() -> None:
    flaps = Flaps.model_construct(per_link_day=1.0, median=10.0, p99=2.0)
    with pytest.raises(RailwrightError, match=r"median \(10 s\) is above 0 and below the p99 \(2 s\)"):
        ask(asking(flaps=flaps))
    with pytest.raises(RailwrightError, match="between 0 and 1"):
        spares(stepfun(), 100, 4.0, 1.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b,c\n1,2,3\n", r"t\.csv:1: the columns are start_day"),
        ("start_day,end_day,node\n# fine\n1,two,3\n", r"t\.csv:3: '1,two,3' is no fault"),
        ("start_day,end_day,node\n5,4,3\n", r"t\.csv:2: a fault starts at day 0 or later"),
        ("start_day,end_day,node\n", "no fault in it"),
        ("start_day,end_day,node\n1,2,10\n", r"t\.csv:2: .*node from 0 to 9"),
    ],
)
def test_a_trace_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RailwrightError, match=said):
        read_trace(FaultTrace(file=str(file), nodes=10, days=30.0))


def test_a_trace_too_short_to_say_anything(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("start_day,end_day,node,level,kind\n1,2,3,hardware,gpu\n", encoding="utf-8")
    with pytest.raises(RailwrightError, match="1 faults; at least 20"):
        figures(read_trace(FaultTrace(file=str(file), nodes=10, days=30.0)))


def test_a_trace_lies_beside_its_study(tmp_path: Path) -> None:
    from railwright.spec import load_study

    (tmp_path / "ours.csv").write_text("start_day,end_day,node\n1,3,0\n2,4,1\n", encoding="utf-8")
    file = tmp_path / "s.yaml"
    file.write_text(TEXT + "  trace: {file: ours.csv, nodes: 20, days: 30.0}\n", encoding="utf-8")
    asked = load_study(file)
    assert asked.reliability is not None
    assert asked.reliability.trace is not None
    assert asked.reliability.trace.file == str(tmp_path / "ours.csv")
    assert goodput(asked, machine(), catalog(), network=False).wanted[0].replayed >= 1
    (tmp_path / "ours.csv").unlink()


def test_the_command_says_mistakes_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(TEXT + "  spare: 3\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["goodput", str(file)])
    assert done.exit_code == 2
    assert "reliability.spare: not a field; did you mean 'spares'" in done.output + done.stderr


def test_the_command_answers_in_words_and_in_json(tmp_path: Path) -> None:
    import json

    file = tmp_path / "s.yaml"
    file.write_text(TEXT, encoding="utf-8")
    done = CliRunner().invoke(app, ["goodput", str(file), "--no-network"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("small on 128 GPUs is interrupted every")
    assert "Published figures that disagree" in done.output
    done = CliRunner().invoke(app, ["goodput", str(file), "--no-network", "--json"])
    plain = json.loads(done.output)
    assert 0 < plain["goodput"] <= plain["ettr"] < 1
    assert {c["name"] for c in plain["components"]} >= {"gpu", "link", "spine", "feed"}


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("factors: {gpus: 2.0}", "there is no component 'gpus'"),
        ("flaps: {per_link_day: 1, median: 10 s, p99: 2 s}", "is above 0 and below the p99"),
        ("interruptions: 3\n  age: 90 d", "reliability.interruptions: it is your own count"),
        ("interruptions: 1e8", "it never gets on"),
        ("trace: {file: none.csv, nodes: 5, days: 3}", "none.csv: no such file"),
        ("checkpoint: {interval: 1 ms}", "takes to become whole"),
    ],
)
def test_check_refuses_what_goodput_would(tmp_path: Path, section: str, said: str) -> None:
    """At once, where `run` would after minutes."""
    file = tmp_path / "s.yaml"
    file.write_text(TEXT + f"  {section}\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["check", str(file)])
    assert done.exit_code == 2
    assert said in done.output + done.stderr


def test_figures_of_a_small_job_are_not_nought(tmp_path: Path) -> None:
    """One GPU: a checkpoint of gigabytes, an eighth of a server, more spares than it has servers."""
    file = tmp_path / "small.yaml"
    file.write_text(
        "railwright: 1\nname: small\n"
        "cluster: {servers: 1, server: dgx-h100, compute: {family: single-switch, switch: qm9700}}\n"
        "jobs: [{name: j, model: gpt2, gpus: 1, tokens: 1e9, global_batch: 32, sequence: 1024}]\n"
        "reliability: {spares: 9000, samples: 10, checkpoint: {bandwidth: 10 GB/s}}\n"
    )
    done = CliRunner().invoke(app, ["goodput", str(file), "--no-network"], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    assert "Checkpoint (async): 1.74 GB at 10 GB/s" in done.output
    assert "kept: 9,000 (9,000 times the job's own)" in done.output
    assert re.search(r"^gpu +1 ", done.output, re.MULTILINE)
    assert re.search(r"^host +0\.125 ", done.output, re.MULTILINE)
