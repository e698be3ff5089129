"""Laws of the step table: more work never takes less time, more GPUs never more memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.serving.engine.profiles import engines
from railwright.serving.engine.step import step_parts, tabulate
from railwright.spec.serving import ServingLayout
from serving_jobs import arch, job, machine

MODELS = {"llama-3.1-8b": (1, 2, 4, 8), "llama-3.1-70b": (4, 8), "qwen3-30b-a3b": (1, 2, 4)}
ENGINES = ("vllm-2023", "vllm-2025", "trtllm-2024-static", "trtllm-2025", "sglang-2025")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_times_are_positive_and_grow_with_the_batch(model: str, engine: str) -> None:
    table = tabulate(job(model, MODELS[model][-1], engine=engine), arch(model), machine())
    for rows in (table.decode_rows, table.mixed_rows):
        assert (rows > 0).all()
        # tiles make products of some widths faster than narrower ones; never by much
        assert (rows[1:] > 0.93 * np.maximum.accumulate(rows)[:-1]).all()
    # TensorRT-LLM of 2024 goes over to a faster kernel at one batch (XQA); nothing else is faster for more
    switches = (np.diff(table.decode, axis=0) < 0).any(axis=1).sum()
    assert switches <= (0 if engines()[engine].splits_context else 1)
    assert (np.diff(table.decode, axis=1) >= 0).all()
    assert (np.diff(table.prefill, axis=0) >= 0).all()
    assert (np.diff(table.prefill, axis=1) >= -1e-9).all()
    for grid in (table.tokens, table.requests, table.contexts, table.chunks):
        assert (np.diff(grid) > 0).all()


@pytest.mark.parametrize("model", MODELS)
def test_more_tensor_ranks_keep_more_and_compute_faster(model: str) -> None:
    tables = [tabulate(job(model, t, engine="vllm-2026"), arch(model), machine()) for t in MODELS[model]]
    for fewer, more in itertools.pairwise(tables):
        assert more.kv_tokens > fewer.kv_tokens
        # many rows: products shrink faster than all-reduces grow
        assert more.mixed_rows[-1] < fewer.mixed_rows[-1]


@settings(max_examples=40)
@given(
    decoding=st.integers(1, 256),
    context=st.integers(1, 8192),
    chunk=st.integers(1, 4096),
    cached=st.integers(0, 8192),
)
def test_a_step_with_a_chunk_takes_longer(decoding: int, context: int, chunk: int, cached: int) -> None:
    alone = step_parts(job(), arch(), machine(), decoding=decoding, context=context)
    beside = step_parts(
        job(), arch(), machine(), decoding=decoding, context=context, prefill=((chunk, cached),)
    )
    assert beside.total > 0.97 * alone.total
    assert beside.parts["prefill attention"] > 0


@settings(max_examples=20)
@given(weights=st.sampled_from(["bf16", "fp8", "int4"]), batch=st.sampled_from([1, 4, 16, 64]))
def test_narrower_weights_decode_no_slower(weights: str, batch: int) -> None:
    wide = tabulate(job(engine="vllm-2026"), arch(), machine())
    narrow = tabulate(job(engine="vllm-2026", weights=weights), arch(), machine())
    at = [float(np.interp(batch, t.tokens, t.decode_rows)) for t in (wide, narrow)]
    assert at[1] <= at[0] * 1.001
    assert narrow.kv_tokens >= wide.kv_tokens


def test_context_ranks_share_a_long_prompt() -> None:
    one = tabulate(job("llama-3.1-8b", 1), arch("llama-3.1-8b"), machine())
    eight = tabulate(job("llama-3.1-8b", layout=ServingLayout(context=8)), arch("llama-3.1-8b"), machine())
    # eight times the tokens, less the communication buffers that one GPU alone does not need
    assert 0.97 <= eight.kv_tokens / (8 * one.kv_tokens) < 1.03
    # 8,192 tokens after 65,536: attention is shared by eight, less what the gathering takes
    at = int(np.searchsorted(one.contexts, 60000)), -1
    assert eight.prefill[at[1], at[0]] < 0.3 * one.prefill[at[1], at[0]]
