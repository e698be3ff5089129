"""What an engine keeps in memory: published sizes of checkpoints and caches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.errors import PlanError
from railwright.model import count_parameters
from railwright.serving.engine.memory import engine_memory, kv_token_bytes, weight_bytes
from railwright.serving.engine.profiles import engines
from railwright.spec.serving import ServingLayout, Speculative
from serving_jobs import arch, job, machine

ONE = ServingLayout()
ALTERNATING = (
    "llama-4-maverick",
    "llama-4-scout",
    "kimi-k2",
    "glm-4.5-air",
    "gemma-3-27b",
    "phi-4",
    "trinity-large",
)
"""Models with dense layers between or before those with experts, shared experts, windows, tied embeddings."""


def test_bf16_weights_are_two_bytes_a_parameter() -> None:
    for name in (
        "llama-3.1-8b",
        "llama-3.1-70b",
        "mixtral-8x7b",
        "deepseek-v3",
        "qwen3-30b-a3b",
        *ALTERNATING,
    ):
        model = arch(name)
        assert weight_bytes(model, "bf16", ONE) == pytest.approx(2 * count_parameters(model).total, rel=0.002)


def test_gpt_oss_120b_is_a_checkpoint_of_61_gib() -> None:
    # gpt-oss model card, table 1: checkpoint size 60.8 GiB (4.25 bits for experts, bf16 for the rest)
    assert weight_bytes(arch("gpt-oss-120b"), "mxfp4", ONE) / 2**30 == pytest.approx(60.8, rel=0.02)


def test_keys_and_values_of_one_token() -> None:
    engine = engines()["vllm-2025"]
    # Llama 3 70B: 80 layers x 8 heads x 2 x 128 x 2 bytes = 327,680; over 8 GPUs one head each
    assert kv_token_bytes(arch(), job(), engine, ONE) == 327680
    assert kv_token_bytes(arch(), job(), engine, ServingLayout(tensor=8)) == 327680 / 8
    # sixteen GPUs keep each head twice
    assert kv_token_bytes(arch(), job(), engine, ServingLayout(tensor=16)) == 327680 / 8
    # DeepSeek-V3: 61 layers x (512 + 64) x 2 bytes = 70,272 on every tensor-parallel GPU (the report's 70 KB)
    assert kv_token_bytes(arch("deepseek-v3"), job("deepseek-v3"), engine, ServingLayout(tensor=8)) == 70272
    assert kv_token_bytes(arch(), job(kv="fp8"), engine, ONE) == 327680 / 2


def test_nothing_of_the_memory_is_lost_or_found() -> None:
    for name in ("vllm-2025", "trtllm-2025"):
        memory = engine_memory(job(engine=name), arch(), engines()[name], machine().gpu)
        beside = memory.weights + memory.working + memory.reserve
        assert memory.kv + (0 if engines()[name].of_free else beside) == pytest.approx(memory.allowed)
        assert memory.allowed + (beside if engines()[name].of_free else 0) <= memory.capacity
        assert 0 <= memory.kv - memory.kv_tokens * memory.token < engines()[name].block * memory.token


def test_a_draft_lies_beside_the_model_with_its_weights_keys_and_values() -> None:
    def memory(draft: str | None, tokens: int | None = 3):
        guess = Speculative(tokens=tokens, acceptance=0.5, draft=draft) if tokens else None
        asked = job(weights="fp8", tensor=2, speculative=guess)
        return engine_memory(asked, arch(), engines()["vllm-2025"], machine().gpu)

    alone, layer, small = memory(None, None), memory(None), memory("llama-3.1-8b")
    # Llama 3.1 8B on two GPUs: half of its weights, and 32 layers x 4 heads x 2 x 128 x 2 bytes a token.
    two = ServingLayout(tensor=2)
    assert small.weights - alone.weights == weight_bytes(arch("llama-3.1-8b"), "fp8", two)
    assert small.token - alone.token == 32 * 4 * 2 * 128 * 2
    # One more layer of its own: one of 80, without embeddings (70.6 billion less 2.1 of ends, over 2 GPUs).
    assert layer.token == pytest.approx(alone.token * 81 / 80)
    assert layer.weights - alone.weights == pytest.approx(68.5e9 / 80 / 2, rel=0.01)
    assert small.kv_tokens < 0.7 * layer.kv_tokens < 0.7 * alone.kv_tokens


def test_a_draft_that_does_not_fit_is_told() -> None:
    guess = Speculative(tokens=3, acceptance=0.5, draft="llama-3.1-70b")
    asked = job(weights="fp8", tensor=1, speculative=guess)
    with pytest.raises(
        PlanError, match=r"llama-3\.1-70b with its draft in fp8 needs 13\d\.\d GiB of weights"
    ):
        engine_memory(asked, arch(), engines()["vllm-2025"], machine().gpu)


def test_windowed_layers_keep_their_window() -> None:
    # gpt-oss: every second layer sees 128 tokens; with prompts and answers of 1,024 they keep a tenth
    engine = engines()["vllm-2025"]
    all_layers = 36 * 2 * 8 * 64 * 2
    kept = kv_token_bytes(arch("gpt-oss-120b"), job("gpt-oss-120b"), engine, ONE)
    assert kept == pytest.approx(all_layers * (0.5 + 0.5 * (128 + 16) / 1536))


def test_stages_of_an_alternating_model_hold_half_of_the_experts_each() -> None:
    # Maverick's 48 layers are d e d e …: of two stages either has 12 dense layers and 12 with 129 experts
    model = arch("llama-4-maverick")
    halves = [weight_bytes(model, "bf16", ServingLayout(pipeline=n)) for n in (1, 2)]
    ends = 2 * model.vocab * model.hidden
    assert halves[1] - ends == pytest.approx((halves[0] - 2 * ends) / 2)
    # DeepSeek's leading dense layers are all on the first stage; the fullest is the last, without any
    model = arch("deepseek-v3")
    last = weight_bytes(model, "bf16", ServingLayout(pipeline=2))
    assert last == weight_bytes(replace(model, dense_layers=0), "bf16", ServingLayout(pipeline=2))


def test_layers_of_gemma_3_keep_their_window() -> None:
    # 52 of 62 layers keep 1,024 tokens and a block of requests of 8,192 tokens in and none out
    engine = engines()["vllm-2025"]
    whole = 62 * 2 * 16 * 128 * 2
    wanted = job("gemma-3-27b", client={"input": 8192, "output": 1, "concurrency": 1})
    kept = kv_token_bytes(arch("gemma-3-27b"), wanted, engine, ONE)
    assert kept == pytest.approx(whole * (10 + 52 * (1024 + 16) / 8192.5) / 62)
    # of a stage with 16 layers three may see everything
    staged = kv_token_bytes(arch("gemma-3-27b"), wanted, engine, ServingLayout(pipeline=4))
    assert staged == pytest.approx(whole / 62 * (3 + 13 * (1024 + 16) / 8192.5))
