"""What `railwright search --serving` says when it cannot search, and how users find it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import PlanError, SpecError
from railwright.search.serving.searching import search_serving
from railwright.search.serving.space import ServingSpace
from railwright.spec.serving import Client, Slo
from serving_jobs import arch, job, machine

HEAD = """\
railwright: 1
name: small
cluster:
  servers: 1
  server: dgx-h100
  compute: {family: single-switch, switch: qm9700}
"""
TRAINING = """\
jobs:
  - {name: tune, model: llama-3-8b, sequence: 4096, global_batch: 32, tokens: 1e9, layout: {tensor: 8}}
"""
SERVING = """\
serving:
  - name: chat
    model: llama-3-8b
    client: {kind: poisson, rate: 4, requests: 60, input: 500, output: 50}
    slo: {ttft: 1 s, tpot: 50 ms}
"""
TIGHT = Slo.model_validate({"ttft": "5 ms", "tpot": "50 ms"})
CLIENT = Client(kind="poisson", rate=2.0, requests=40, input=500, output=20)


def _run(tmp_path: Path, text: str, *options: str) -> tuple[int, str]:
    file = tmp_path / "study.yaml"
    file.write_text(text)
    done = CliRunner().invoke(app, ["search", str(file), "-q", *options])
    return done.exit_code, done.output


def test_a_study_with_serving_alone_is_searched_for_serving(tmp_path: Path) -> None:
    code, said = _run(tmp_path, HEAD + SERVING, "--json", "--gpus", "2", "--front", "0")
    assert code == 0
    assert json.loads(said)["gpus"] == 1
    _, text = _run(tmp_path, HEAD + SERVING, "--export", "vllm", "--gpus", "2", "--front", "0")
    both = _run(tmp_path, HEAD + SERVING, "--json", "--export", "vllm", "--gpus", "2", "--front", "0")[1]
    assert json.loads(both) == json.loads(said) | {"export": text}


def test_what_is_of_training_jobs_alone_is_refused(tmp_path: Path) -> None:
    for option, value in (("--framework", "megatron"), ("--rank", "2")):
        code, said = _run(tmp_path, HEAD + SERVING, "--export", "vllm", option, value)
        assert code == 2
        assert f"{option} is of training jobs; leave it out of a serving search" in said


def test_of_both_it_says_which(tmp_path: Path) -> None:
    small = (
        "tensor: [8]\npipeline: [1]\nmicro_batch: [1]\nrecompute: [selective]\nzero: [1]\nschedule: [auto]\n"
    )
    (tmp_path / "space.yaml").write_text(small)
    options = ("--space", str(tmp_path / "space.yaml"), "--top", "1", "--front", "0")
    code, said = _run(tmp_path, HEAD + TRAINING + SERVING, *options)
    assert code == 0
    assert "Searching for training job 'tune'; --serving searches for serving job 'chat'" in said
    code, said = _run(tmp_path, HEAD + TRAINING + SERVING, "--job", "chat", "--gpus", "1", "--front", "0")
    assert code == 0
    assert "1 h100-sxm serve 4 requests/s of llama-3-8b within the SLO" in said


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (HEAD + TRAINING, ["--serving"], "no serving job to search for"),
        (HEAD + SERVING, ["--serving", "--job", "chta"], "no serving job 'chta'; did you mean 'chat'?"),
        (HEAD + SERVING, ["--export", "vlm"], "--export: there is no 'vlm'; did you mean 'vllm'?"),
        (HEAD + SERVING, ["--export", "megatron"], "for a serving job choose one of vllm, sglang"),
        (HEAD + TRAINING, ["--rate", "3"], "--rate and --dtypes are of serving jobs"),
        (
            HEAD + SERVING.replace("    slo: {ttft: 1 s, tpot: 50 ms}\n", ""),
            [],
            "there is no SLO to search for",
        ),
        (HEAD + TRAINING + SERVING, ["--job", "chatt"], "no job 'chatt'; did you mean 'chat'?"),
    ],
)
def test_refusals(tmp_path: Path, text: str, options: list[str], said: str) -> None:
    code, output = _run(tmp_path, text, *options)
    assert code != 0
    assert said in " ".join(output.split())
    assert "Traceback" not in output


def test_mistakes_of_a_space_are_all_named() -> None:
    with pytest.raises(SpecError) as caught:
        ServingSpace.of({"tensr": [1], "tensor": [0], "kv": ["fp4"], "pipeline": [], "disaggregated": [2]})
    said = str(caught.value)
    for part in ("did you mean 'tensor'?", "not a whole number above 0", "not one of bf16, fp8", "empty"):
        assert part in said
    assert "not true or false" in said
    with pytest.raises(SpecError, match="a space is a set of axes"):
        ServingSpace.of([1, 2])


def test_nothing_keeps_the_slo() -> None:
    """What is in the way is counted, and the promise that nothing keeps is named."""
    asked = job("llama-3-8b", 1, client=CLIENT, slo=TIGHT)
    with pytest.raises(PlanError, match=r"no plan .* up to 2 GPUs keeps the SLO: .*TTFT.*More GPUs"):
        search_serving(asked, arch("llama-3-8b"), machine(), gpus=2)


def test_nothing_fits() -> None:
    """A model that no layout of so few GPUs holds: the engine's own refusal is repeated."""
    asked = job("deepseek-v3", 1, client=CLIENT, slo=TIGHT)
    with pytest.raises(PlanError, match=r"no layout of the space can run on 2 GPUs; e.g. .*GiB"):
        search_serving(asked, arch("deepseek-v3"), machine(), gpus=2)
