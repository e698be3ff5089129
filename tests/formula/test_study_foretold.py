"""Warnings before anything is predicted, and of a quiet run."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import railwright as rw
from railwright.cli.main import app
from railwright.spec import load_study_text
from railwright.study.evaluate import Workshop
from railwright.study.foretold import foretold_warnings

WARNED = """
railwright: 1
name: warned
cluster: {servers: 2, server: workstation-4x-l40s, compute: {family: single-switch, switch: qm9700}}
jobs:
  - name: q
    model: gpt2
    sequence: 64
    global_batch: 16
    tokens: 1e9
    layout: {sequence_parallel: true, placement: spread}
recommendations:
  - {name: r, model: dlrm-dcnv2, global_batch: 65536, samples: 4.2e9, dtype: fp16, sharding: row-wise}
variants:
  - {name: experts, why: none, set: {jobs.q.expert_nodes: 1}}
"""


@pytest.fixture
def study(tmp_path):
    (tmp_path / "s.yaml").write_text(WARNED)
    return str(tmp_path / "s.yaml")


def test_check_foretells_what_a_run_warns_of_and_nothing_else(study, tmp_path):
    asked = load_study_text(WARNED)
    known = foretold_warnings(asked, Workshop.of(asked))
    assert any(text.startswith("q: sequence_parallel does nothing") for text in known)
    of_one = "q, with 'experts': expert_nodes does nothing"
    assert any(text.startswith(of_one) for text in known)
    assert any(
        "No published training step of software" in text and "on l40s in 16-bit" in text for text in known
    )
    assert any(text.startswith("r: Recommendation models were held against") for text in known)
    warned = rw.run(asked).warnings
    assert set(known) == {text for text in warned if "without launches by the host" not in text}
    said = CliRunner().invoke(app, ["check", study])
    assert said.exit_code == 0
    first, *rest = said.stdout.splitlines()
    assert ": correct (" in first
    assert rest == [f"! {text}" for text in known]


def test_a_quiet_run_warns_on_stderr_and_lists_files_alone_on_stdout(study, tmp_path):
    done = CliRunner().invoke(app, ["run", study, "-q", "-o", str(tmp_path / "out")])
    assert done.exit_code == 0
    assert "! q: sequence_parallel does nothing while layout.tensor is 1." in done.stderr
    assert all(line.startswith(str(tmp_path / "out")) for line in done.stdout.splitlines())


def test_what_the_allocator_lacks_is_foretold(monkeypatch):
    """The replay needs no step; its warning is the first that keeps a job from running at all."""
    monkeypatch.setattr("railwright.study.foretold.crowded", lambda held, capacity: "holes do not fit.")
    asked = load_study_text(WARNED)
    assert "q: holes do not fit." in foretold_warnings(asked, Workshop.of(asked))
