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


def test_the_answer_comes_in_words_then_steps_then_networks():
    result = said("--growth", "0.6")
    assert result.exit_code == 0
    expected = (
        r"Now: a workstation \(workstation-2x-l40s\)\. 6 people at 20 GPU-hours a week keep 0\.714 of its "
        r"2 GPUs busy; a job takes 1, and waits 15 % of its own length on average\.\n"
        r"Next: a multi-GPU server \(hgx-h100\), in about 6 months, with about 8 people: by then jobs wait "
        r"25 % of their own length, at 0\.894 GPUs busy\.\n"
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
