"""A serving search's closed forms by hand, its space counted, its exports in the engines' own words."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from railwright.search.serving.bounds import Load, bounds
from railwright.search.serving.export import FORMS, export
from railwright.search.serving.fleet import Verdict, first
from railwright.search.serving.result import Point, ServingSearchResult, front_of
from railwright.search.serving.searching import search_serving
from railwright.search.serving.space import Plan, ServingSpace, Setting, settings
from railwright.serving.clients.client import workload
from railwright.serving.engine.profiles import engines
from railwright.serving.simulator.fleet import Scheduler
from railwright.spec import load_study_text
from railwright.spec.serving import Client, ServingLayout, Slo, Speculative
from serving_cases import flat_table
from serving_jobs import arch, job, machine

KNOWN = yaml.safe_load((Path(__file__).parent / "serving_arguments.yaml").read_text())
SLO = Slo.model_validate({"ttft": "1 s", "tpot": "50 ms"})


def _load(client: Client, slo: Slo = SLO) -> Load:
    return Load.of(workload(client), client, slo, None, False)


def test_a_rate_by_hand() -> None:
    """Steps of 10 ms whatever is in them, 64 requests at most, 100 decode steps each: 64 / (100 x 10 ms)."""
    client = Client(kind="poisson", rate=1.0, requests=50, input=10, output=101)
    found = bounds(flat_table(step=0.01), Scheduler(max_requests=64), "decode", _load(client), SLO)
    assert found.rate == pytest.approx(64.0)
    assert found.limit == "throughput"
    assert found.tpot == pytest.approx(0.01)


def test_a_rate_that_the_promise_bounds() -> None:
    """A step of 10 ms and 1 ms a decoder keeps 50 ms up to 40 decoders: 40 / (100 x 50 ms) = 8 a second."""
    client = Client(kind="poisson", rate=1.0, requests=50, input=10, output=101)
    slo = SLO.model_copy(update={"percentile": 100.0})
    table = flat_table(step=0.01, token=0.001)
    found = bounds(table, Scheduler(max_requests=400), "decode", _load(client, slo), slo)
    assert found.rate == pytest.approx(8.0)
    assert found.limit == "TPOT"
    # At 4 a second, 400 passes: s = 10 ms / (1 - 400 x 1 ms).
    assert found.expected(400.0) == pytest.approx(0.01 / 0.6)


def test_a_rate_that_memory_bounds() -> None:
    """4,000 tokens hold four prompts of 1,000: 4 / (100 x 10 ms)."""
    client = Client(kind="poisson", rate=1.0, requests=50, input=1000, output=101)
    found = bounds(flat_table(step=0.01, kv_tokens=4000), Scheduler(), "decode", _load(client), SLO)
    assert found.rate == pytest.approx(4.0)
    assert found.limit == "memory"


def test_a_burst_by_hand() -> None:
    """100 requests at once, one in a hundred late: 99 prompts of 1,000 tokens; 8,192 in 10 ms, so 819,200."""
    load = _load(Client(concurrency=100, requests=100, input=1000, output=2))
    assert load.burst == 99_000
    found = bounds(flat_table(step=0.01), Scheduler(token_budget=8192), "prefill", load, SLO)
    assert found.prompts == pytest.approx(8192 / 0.01)


def test_a_first_token_by_hand() -> None:
    """4,096 tokens in chunks of 1,024 at 10 ms and 1 us a token: no faster than four times 11.024 ms."""
    load = _load(Client(concurrency=1, requests=4, input=4096, output=2))
    table = replace(
        flat_table(step=0.01, token=1e-6, request=0.002),
        tokens=np.array([1.0, 1024.0, 8192.0]),
        mixed_rows=0.01 + 1e-6 * np.array([1.0, 1024.0, 8192.0]),
        decode_rows=0.01 + 1e-6 * np.array([1.0, 1024.0, 8192.0]),
    )
    found = bounds(table, Scheduler(token_budget=1024), "both", load, SLO)
    assert found.ttft == pytest.approx(0.002 + 4 * 0.011024)


def test_the_space_of_a_dense_model() -> None:
    """8 GPUs: tensor 1, 2, 4, 8 by stages 1, 2, 4, 8 within 8 are ten layouts; with three budgets, thirty."""
    asked = job("llama-3.1-70b", 8)
    found = settings(asked, arch(), engines()["vllm-2025"], 8, 8, ServingSpace())
    assert len({s.layout for s in found.shared}) == 10
    assert len(found.shared) == 30
    assert len(found.apart) == 10
    aggregated = ServingSpace({"disaggregated": (False,)})
    assert not settings(asked, arch(), engines()["vllm-2025"], 8, 8, aggregated).apart


@pytest.mark.parametrize(("engine", "sizes"), [("vllm-2025", {1, 8}), ("trtllm-2025", {1, 2, 4, 8})])
def test_expert_sizes_are_the_engines(engine: str, sizes: set[int]) -> None:
    """Of eight attention-data ranks: vLLM deals experts to all or none, TensorRT-LLM to any divisor."""
    space = ServingSpace({"tensor": (1,), "attention_data": (8,), "pipeline": (1,)})
    found = settings(job("deepseek-v3", 1), arch("deepseek-v3"), engines()[engine], 8, 8, space)
    assert {s.layout.expert for s in found.apart} == sizes


def test_replicas_do_not_cross_servers() -> None:
    """Two servers of 8: two of 3 GPUs fit each, so a fifth does not; one of 16 does."""
    three = Setting(ServingLayout(tensor=3), None, None, None, "bf16", "bf16")
    assert Plan(three, 4).fits(8, 16)
    assert not Plan(three, 5).fits(8, 16)
    assert Plan(replace(three, layout=ServingLayout(tensor=16)), 1).fits(8, 16)


def test_the_front_has_no_beaten_point() -> None:
    setting = Setting(ServingLayout(), None, None, None, "bf16", "bf16")

    def point(gpus: int, tokens: float, user: float) -> Point:
        return Point(Plan(setting, gpus), Verdict(0.5, None, {}, user, tokens))

    kept = front_of([point(2, 200, 50), point(4, 200, 40), point(4, 200, 80), point(8, 200, 80)])
    assert [(p.plan.gpus, p.per_user) for p in kept] == [(2, 50), (4, 80)]


def test_the_first_requests_are_the_same() -> None:
    work = workload(Client(kind="poisson", rate=3.0, requests=40, input=100, output=9, spread=0.5))
    part = first(work, 10)
    assert len(part) == 10
    assert (part.arrival == work.arrival[:10]).all()
    assert (part.prompt == work.prompt[:10]).all()


@cache
def _found(case: str) -> ServingSearchResult:
    client = Client(kind="poisson", rate=2.0, requests=60, input=500, output=50)
    changes: dict[str, object] = {
        "together": {"disaggregated": (False,), "max_batched_tokens": (2048,), "chunked_prefill": (False,)},
        "apart": {"disaggregated": (True,), "kv": ("fp8",), "max_requests": (64,)},
        "experts": {"attention_data": (2,), "tensor": (1,), "expert": (2,), "pipeline": (2,)},
        "context": {"context": (2,), "chunked_prefill": (True,)},
    }
    model = "qwen3-30b-a3b" if case == "experts" else "llama-3-8b"
    extra = {"speculative": Speculative(tokens=2, acceptance=0.7), "prefix_cache": False, "max_length": 4096}
    given = extra if case == "together" else {"prefix_cache": True}
    asked = job(model, 1, client=client, slo=SLO, weights="fp8", **given)
    return search_serving(asked, arch(model), machine(), ServingSpace(changes[case]), gpus=4, front=0)


@pytest.mark.parametrize("case", ["together", "apart", "experts", "context"])
def test_names_are_the_engines_own(case: str) -> None:
    for form in ("vllm", "sglang", "trtllm"):
        text = export(_found(case), form)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        options = {name for line in lines for name in re.findall(r"--([a-z0-9_-]+)", line)}
        assert options
        assert options <= set(KNOWN[form]["names"]), form
    files = re.findall(r"<<'EOF'\n(.*?)EOF", export(_found(case), "trtllm"), re.S)
    assert files
    for file in files:
        fields = yaml.safe_load(file)
        inner = {key for value in fields.values() if isinstance(value, dict) for key in value}
        assert set(fields) | inner <= set(KNOWN["trtllm"]["fields"])


def test_a_draft_model_is_told_to_the_engines() -> None:
    guess = Speculative(tokens=2, acceptance=0.7, draft="llama-3-8b")
    client = Client(kind="poisson", rate=2.0, requests=40, input=256, output=32)
    asked = job("llama-3-8b", 1, client=client, slo=SLO, weights="fp8", speculative=guess)
    found = search_serving(
        asked, arch("llama-3-8b"), machine(), ServingSpace({"tensor": (1,)}), gpus=1, front=0
    )
    said = export(found, "vllm")
    assert "; DRAFT: one of llama-3-8b" in said
    assert '{"method": "draft_model", "model": "DRAFT", "num_speculative_tokens": 2}' in said
    assert "--speculative-algorithm STANDALONE" in export(found, "sglang")
    assert "--speculative-draft-model-path DRAFT" in export(found, "sglang")


def test_arguments_say_the_layout() -> None:
    """SGLang's tensor size counts attention-data ranks; vLLM's does not."""
    experts = _found("experts")
    assert "--data-parallel-size 2" in export(experts, "vllm")
    assert "--tensor-parallel-size 1" in export(experts, "vllm")
    assert "--tp-size 2" in export(experts, "sglang")
    assert "--enable-dp-attention" in export(experts, "sglang")
    assert "--pp_size 2" in export(experts, "trtllm")
    assert "enable_attention_dp: true" in export(experts, "trtllm")
    assert export(_found("apart"), "vllm").count("vllm serve") == 2
    together = export(_found("together"), "sglang")
    assert "--chunked-prefill-size -1" in together
    assert "--speculative-num-draft-tokens 3" in together


@pytest.mark.parametrize("case", ["together", "apart", "experts", "context"])
def test_the_study_reads_back(case: str) -> None:
    """The job exported is the job on the plan."""
    text = export(_found(case), "study")
    head = "railwright: 1\nname: x\ncluster:\n  servers: 1\n  server: dgx-h100\n  compute: "
    study = load_study_text(head + "{family: single-switch, switch: qm9700}\n" + text, "x")
    assert study.serving[0] == _found(case).best.plan.job(_found(case).job)


def test_every_form_is_listed() -> None:
    assert set(FORMS) == {"vllm", "sglang", "trtllm", "study"}
