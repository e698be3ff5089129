"""What cannot be served is refused in one sentence that says what would do."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.errors import PlanError, SpecError
from railwright.model import load_model
from railwright.serving.engine.profiles import engine_of
from railwright.serving.engine.step import step_parts, tabulate
from railwright.spec import load_study_text
from railwright.spec.serving import ServingLayout
from serving_jobs import arch, job, machine

STUDY = """
railwright: 1
name: x
cluster: {servers: 1, server: dgx-h100, compute: {family: single-switch, switch: qm9700}}
serving: [%s]
"""


def test_a_model_that_does_not_fit_says_how_much_and_what_would() -> None:
    with pytest.raises(PlanError, match=r"needs 13\d\.\d GiB .* GiB too much\. Raise layout\.tensor to 4"):
        tabulate(job(tensor=1), arch(), machine())


def test_a_cut_that_does_not_divide() -> None:
    with pytest.raises(PlanError, match=r"layout\.tensor is 7.*64 attention heads"):
        tabulate(job(tensor=7), arch(), machine())
    with pytest.raises(PlanError, match=r"layout\.expert is 2, but llama-3\.1-70b has no experts"):
        tabulate(job(layout=ServingLayout(tensor=8, expert=2)), arch(), machine())


def test_experts_that_get_more_tokens_than_there_are() -> None:
    # Mixtral: 2 of 8 experts for a token, so that no GPU's get more than all tokens, 4 times the mean.
    asked = job(model="mixtral-8x7b", expert_imbalance=5.0, layout=ServingLayout(tensor=8, expert=8))
    with pytest.raises(PlanError, match=r"expert_imbalance is 5, .* 8 / 2 = 4 times the mean; give 1 to 4"):
        tabulate(asked, load_model("mixtral-8x7b"), machine())
    tabulate(asked.model_copy(update={"expert_imbalance": 4.0}), load_model("mixtral-8x7b"), machine())


def test_a_replica_larger_than_the_cluster() -> None:
    with pytest.raises(PlanError, match=r"cluster has 8 GPUs; raise cluster\.servers"):
        tabulate(job(layout=ServingLayout(tensor=8, pipeline=2)), arch(), machine())


def test_an_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(PlanError, match=r"'vlm-2025' is not a known profile; did you mean 'vllm-2025'"):
        tabulate(job(engine="vlm-2025"), arch(), machine())


def test_a_gpu_without_measured_kernels() -> None:
    with pytest.raises(PlanError, match=r"No inference kernel was measured on the GPU 'mi300x'"):
        tabulate(job(), arch(), machine("mi300x-8"))


def test_an_empty_step() -> None:
    with pytest.raises(PlanError, match="needs a request that decodes"):
        step_parts(job(), arch(), machine(), decoding=0, context=0)


def test_a_users_profile(tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text("base: vllm-2026\nhost_step: 0.002\ntoken_budget: 4096\n")
    own = engine_of(job(engine=str(file)))
    assert (own.name, own.host_step, own.token_budget, own.kernels) == ("ours", 0.002, 4096, "vllm")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host_step: 0.002\n", r"ours\.yaml: base: missing or unknown; write one of vllm-2023"),
        ("base: vllm-2026\nhost_stp: 1\n", "host_stp: not a field of an engine profile; did you mean"),
        ("base: vllm-2026\nscheduler: lifo\n", "'lifo' is not one of mixed, prefill-first, static"),
        ("base: vllm-2026\nblock: many\n", "block: 'many' is not allowed; write a int"),
        ("base: vllm-2026\nhost_step: -1\n", "host_step: -1.0 is negative"),
        ("base: [\n", "is not YAML"),
    ],
)  # fmt: skip
def test_a_profile_with_a_mistake(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text(text)
    with pytest.raises(SpecError, match=said):
        engine_of(job(engine=str(file)))


@pytest.mark.parametrize(
    ("serving", "said"),
    [
        ("{name: a, model: llama-3.1-8b, client: {kind: poisson}}", "client.rate: missing"),
        ("{name: a, model: llama-3.1-8b}", "client.concurrency: missing"),
        (
            "{name: a, model: llama-3.1-8b, client: {concurrency: 8, rate: 4}}",
            "client.rate: is not read by a client of kind 'closed-loop'; write kind: poisson",
        ),
        (
            "{name: a, model: llama-3.1-8b, client: {kind: constant, rate: 4, burstiness: 0.3}}",
            "client.burstiness: is not read by a client of kind 'constant'; write kind: poisson",
        ),
        (
            "{name: a, model: llama-3.1-8b, client: {concurrency: 8, speed: 2}}",
            "client.speed: is not read by a client of kind 'closed-loop'; write kind: trace",
        ),
        (
            "{name: a, model: llama-3.1-8b, layout: {tensor: 8, expert: 3}, client: {concurrency: 1}}",
            "layout.expert: 3 does not divide tensor x attention_data = 8",
        ),
        ("{name: a, model: x, client: {concurrency: 1}, slo: {percentile: 9.0}}", "slo.ttft: missing"),
        (
            "{name: a, model: x, client: {concurrency: 1, input: 10}, shared_prefix: {tokens: 11}}",
            "shared_prefix.tokens: 11 is more than the prompt",
        ),
    ],
)
def test_a_section_that_contradicts_itself(serving: str, said: str) -> None:
    with pytest.raises(SpecError, match=said.replace(".", r"\.")):
        load_study_text(STUDY % serving)
