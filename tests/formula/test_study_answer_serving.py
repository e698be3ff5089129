"""What a study's answer says of its serving jobs: first where nothing trains, each by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.spec import load_study
from railwright.study import run

STUDY = """
railwright: 1
name: Chat
cluster:
  servers: 1
  server: %s
  compute: {family: single-switch, switch: qm9700}
serving:
  - {name: chat, model: llama-3.1-8b, engine: vllm-2026, slo: {tpot: %s ms}, client: %s}
"""
CLIENT = "{concurrency: 2, requests: 6, input: 256, output: 16}"
TRAINING = """
jobs:
  - name: tune
    model: llama-3.1-8b
    tokens: 1e9
    global_batch: 8
    micro_batch: 1
    sequence: 1024
    layout: {tensor: 8}
"""


def answer(folder: Path, text: str) -> tuple[str, ...]:
    file = folder / "study.yaml"
    file.write_text(text, encoding="utf-8")
    return run(load_study(file)).answer


@pytest.mark.parametrize(
    ("promised", "begins"), [("50", "Yes, the SLO is kept"), ("1", "No, the SLO is missed")]
)
def test_a_study_that_only_serves_begins_with_what_users_get(
    tmp_path: Path, promised: str, begins: str
) -> None:
    told = answer(tmp_path, STUDY % ("dgx-h100", promised, CLIENT))
    assert told[0].startswith(begins)
    assert told[1].startswith("The fabric as written takes 1 switch")


def test_several_serving_jobs_are_named_and_of_many_the_rest_counted(tmp_path: Path) -> None:
    more = "".join(
        f"  - {{name: n{i}, model: llama-3.1-8b, engine: vllm-2026, client: {CLIENT}}}\n" for i in range(5)
    )
    told = answer(tmp_path, STUDY % ("dgx-h100", "50", CLIENT) + more)
    assert [line.split(":")[0] for line in told[:4]] == [
        "Serving chat",
        "Serving n0",
        "Serving n1",
        "Serving n2",
    ]
    assert told[4] == "2 more serving jobs are below."


def test_what_trains_comes_first(tmp_path: Path) -> None:
    told = answer(tmp_path, STUDY % ("dgx-h100", "50", CLIENT) + TRAINING)
    assert told[0].startswith("You have")
    assert told[-1].startswith("Yes, the SLO is kept")
