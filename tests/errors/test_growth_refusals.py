"""A growth path that makes no sense is refused in one sentence; one that does answers in words first."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app

ASKED = ["grow", "--users", "6", "--gpu-hours", "20", "--model", "llama-3.1-8b", "--task", "inference"]


def said(*changes: str):
    options = dict(zip(ASKED[1::2], ASKED[2::2], strict=True))
    options |= dict(zip(changes[::2], changes[1::2], strict=True))
    return CliRunner().invoke(app, ["grow", *[word for pair in options.items() for word in pair]])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (("--users", "0"), "--users is 0; give a number above 0"),
        (("--gpu-hours", "-3"), "--gpu-hours is -3; give a number above 0"),
        (("--gpu-hours", "nan"), "--gpu-hours is nan; give a number above 0"),
        (("--sequence", "0"), "--sequence is 0"),
        (("--tokens", "0"), "--tokens is 0"),
        (("--task", "loora"), "there is no 'loora'; did you mean 'lora'?"),
        (("--growth", "-1"), "--growth is -1; give the change of a year"),
        (("--job-gpus", "9999"), "this ladder ends at jobs of 4,096 GPUs"),
        (("--users", "100000", "--gpu-hours", "160"), "keep 95,238 GPUs busy; this ladder ends"),
        (("--model", "llama-9"), "unknown model 'llama-9'; did you mean"),
        (("--sequence", "1000000000"), "does not fit"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_one_sentence(changes, sentence):
    result = said(*changes)
    assert result.exit_code == 2
    assert sentence in result.output
    assert result.output.count("\n") == 1
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--rate 3 -u 3", "--rate stands in the place of --users and --gpu-hours; leave out --users"),
        (
            "-u 3",
            "--gpu-hours is missing: give people and GPU-hours of each in a week, or, of inference, --rate",
        ),
        ("--gpu-hours 3", "--users is missing"),
        ("", "--users is missing"),
        ("--rate 3 --task lora", "--rate is of requests, and --task lora has none"),
        ("--rate 0", "--rate is 0; give a number above 0"),
        ("--rate nan", "--rate is nan; give a number above 0"),
        ("--rate 1e9", "GPUs busy; this ladder ends at 16,384"),
    ],
)
def test_a_load_is_stated_in_one_way(options, sentence):
    task = [] if "--task" in options else ["--task", "inference"]
    result = CliRunner().invoke(app, ["grow", "-m", "llama-3.1-8b", *task, *options.split()])
    assert result.exit_code == 2
    assert sentence in result.output
    assert result.output.count("\n") == 1


def test_a_rate_of_requests_is_answered_in_replicas():
    asked = ["grow", "-m", "llama-3.1-8b", "--task", "inference", "--rate", "20", "--growth", "1"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0
    assert re.match(
        r"Now: a [^.]+\. 20 requests a second of 4,096 tokens, 1,024 of them answers, keep [0-9.]+ of "
        r"its \d+ GPUs busy; a replica takes 1, of [0-9,]+ tokens a second each\.\n"
        r"A workstation is too small: [0-9.]+ GPUs would be busy, and its 2 carry 1\.4\.\n",
        result.output,
    )
    assert "busy today" in result.output
    assert "wait / length" not in result.output


def test_the_answer_comes_in_words_then_steps_then_networks():
    result = said("--growth", "0.6")
    assert result.exit_code == 0
    expected = (
        r"Now: a workstation \(workstation-2x-l40s\)\. 6 people at 20 GPU-hours a week keep 0\.714 of its "
        r"2 GPUs busy; a job takes 1, and waits 15 % of its own length on average\.\n"
        r"Next: a multi-GPU server \(hgx-h100\), in about 6 months, with about 8 people: by then jobs wait "
        r"25 % of their own length, at 0\.894 GPUs busy\.\n"
        r"Money: owned it costs \$\d+ a month over 4 years \(nobody's time\), the same GPU-hours rented "
        r"\$522 \(\$1\.00 each, crusoe on demand\)\. Owning pays above 0\.\d+ GPUs in use on average; 0\.714 "
        r"are, so renting is cheaper today\.\n"
        r"Network: 1 GbE to storage carries the weights within 6 minutes; a replica stays inside one server"
        r"[\s\S]*workstation[\s\S]*NEMA 5-20R[\s\S]*by network:[\s\S]*1 GbE[\s\S]*8 x NDR 400"
        r"[\s\S]*What is reused:\n- workstation \(workstation\): development and login machine"
    )
    assert re.match(expected, result.output)


def test_json_holds_what_the_words_say():
    result = CliRunner().invoke(app, [*ASKED, "--json"])
    found = json.loads(result.output)
    assert found["now"] == "workstation"
    assert found["steps"][0]["outgrown"] is None  # it never is: the load does not grow
    assert [step["name"] for step in found["steps"]] == ["workstation", "server", "rack", "cluster"]
    assert found["words"][0].startswith("Now: a workstation")
