"""The engine's step against closed forms: bytes over bandwidth, flops over peak, cuts over GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from railwright.model import count_parameters
from railwright.serving.engine.step import step_parts, tabulate
from railwright.serving.kernels.constants import KNOTS, kernels_of
from railwright.serving.kernels.times import (
    AttentionRow,
    ExpertRow,
    Speeds,
    decode_seconds,
    experts_seconds,
    prefill_seconds,
)
from railwright.spec.serving import Client, ServingLayout, Speculative
from serving_jobs import arch, job, machine

IDEAL = Speeds(peak=1e15, bandwidth=1e12, sms=100)
PLAIN = AttentionRow(fixed=0.0, compute=1.0, memory=1.0, ramp=0.0, unit=0.0)


def test_decode_attention_reads_the_cache_once() -> None:
    # 16 requests x 1,000 tokens x 8 heads x 2 (keys, values) x 128 x 2 bytes = 65.536 MB at 1 TB/s
    seconds = decode_seconds(16, 1000, 8, 2 * 128 * 2, 64, 4 * 128, PLAIN, IDEAL)
    assert seconds == pytest.approx(65.536e-6)


def test_decode_attention_with_many_heads_on_one_latent_computes() -> None:
    # MLA: 128 heads x 2 (576 + 512) flop for 576 x 2 bytes = 242 flop a byte; at 100 flop a byte of machine
    # balance the work decides: 64 x 4,096 x 128 x 2,176 flop at 0.1 Pflop/s
    slow = Speeds(peak=1e14, bandwidth=1e12, sms=100)
    seconds = decode_seconds(64, 4096, 1, 576 * 2, 128, 2 * (576 + 512), PLAIN, slow)
    assert seconds == pytest.approx(64 * 4096 * 128 * 2176 / 1e14)


def test_prefill_attention_is_half_a_square() -> None:
    # 8,192 tokens, 64 heads of 128: 4 x 128 x 64 x 8,192^2 / 2 flop, and 8,192 x 64 x 512 bytes
    seconds = prefill_seconds(1, 8192, 0, 64, 512, PLAIN, IDEAL)
    assert seconds == pytest.approx(512 * 64 * 8192**2 / 2 / 1e15 + 8192 * 64 * 512 / 1e12)


def test_a_chunk_after_cached_tokens_completes_the_square() -> None:
    # two chunks of 2,048 do the attention work of one of 4,096
    quiet = Speeds(peak=1e15, bandwidth=1e30, sms=100)
    whole = prefill_seconds(1, 4096, 0, 64, 512, PLAIN, quiet)
    first, second = (prefill_seconds(1, 2048, p, 64, 512, PLAIN, quiet) for p in (0, 2048))
    assert first + second == pytest.approx(float(whole))


def test_experts_read_the_weights_that_have_tokens() -> None:
    # 8 busy experts x 3 x 4,096 x 14,336 x 2 bytes = 2.82 GB at 1 TB/s, beside 16 rows' activations
    row = ExpertRow(fixed=0.0, compute=1.0, memory=1.0, pad=0.0, row=0.0)
    seconds = experts_seconds(16, 8, 4096, 14336, row, IDEAL, 1.0, 2.0)
    weights = 8 * 3 * 4096 * 14336 * 2
    assert seconds == pytest.approx((weights + 16 * (4 * 4096 + 6 * 14336)) / 1e12)


def test_one_token_takes_the_weights_over_the_bandwidth() -> None:
    # 8 billion weights in bf16, without the input table, at 3.35 TB/s: 4.48 ms; engines reach 70-90 %
    table = tabulate(job("llama-3.1-8b", 1, engine="vllm-2026"), arch("llama-3.1-8b"), machine())
    count = count_parameters(arch("llama-3.1-8b"))
    floor = 2.0 * (count.total - count.embedding) / 3.35e12
    assert floor / table.decode_rows[0] == pytest.approx(0.8, abs=0.1)


def test_a_long_prefill_step_takes_the_flops_over_the_peak() -> None:
    # 8,192 tokens x 2 x 7 billion products' weights at H100's 989 Tflop/s: engines reach 65-90 %
    table = tabulate(job("llama-3.1-8b", 1), arch("llama-3.1-8b"), machine())
    count = count_parameters(arch("llama-3.1-8b"))
    floor = 8192 * 2.0 * (count.total - count.embedding - count.head) / 989.4e12
    seconds = np.interp(8192, table.tokens, table.mixed_rows)
    assert floor / seconds == pytest.approx(0.77, abs=0.12)


def test_parts_sum_to_the_step_and_to_the_table() -> None:
    parts = step_parts(job(), arch(), machine(), decoding=16, context=1024)
    table = tabulate(job(), arch(), machine())
    rows = np.interp(16, table.tokens, table.decode_rows)
    at = parts.parts["decode attention"]
    assert sum(parts.parts.values()) == pytest.approx(rows + at, rel=0.02)
    assert parts.total == pytest.approx(sum(parts.parts.values()) + parts.host)


def test_an_overlapping_engine_hides_its_host() -> None:
    parts = step_parts(job(engine="sglang-2025"), arch(), machine(), decoding=64, context=1024)
    assert parts.host > 0
    assert parts.total == pytest.approx(sum(parts.parts.values()))


def test_two_drafted_tokens_cost_two_more_layers() -> None:
    plain = tabulate(job(engine="vllm-2026"), arch(), machine())
    drafting = tabulate(
        job(engine="vllm-2026", speculative=Speculative(tokens=2, acceptance=0.8)), arch(), machine()
    )
    more = drafting.decode_rows / plain.decode_rows - 1
    # two layers of 80, and twice the LM head, which is as large as two layers
    assert 2 / 80 < more[0] < 0.2


def test_all_reduce_is_the_measured_one_at_the_knots() -> None:
    kernels = kernels_of(machine().gpu, "vllm")
    times = kernels.all_reduce(8, np.array(KNOTS))
    assert times is not None
    assert times == pytest.approx(kernels.tables["all_reduce"]["vllm"][8])
    # 512 MiB: 2 x 7/8 of it at NVSwitch's plateau of about 445 GB/s busbw
    assert 2 * 7 / 8 * KNOTS[-1] / times[-1] == pytest.approx(445e9, rel=0.05)


def test_pipeline_stages_share_the_layers_and_pay_a_hop() -> None:
    cut = job(layout=ServingLayout(tensor=4, pipeline=2), engine="vllm-2026")
    whole = tabulate(job(tensor=4, engine="vllm-2026", weights="fp8"), arch(), machine())
    halves = tabulate(cut.model_copy(update={"weights": "fp8"}), arch(), machine())
    assert halves.stages == 2
    assert halves.hop > 0
    assert halves.decode_rows[0] < 0.6 * whole.decode_rows[0]


def test_attention_data_groups_hold_their_own_requests() -> None:
    # eight groups keep eight times the tokens that tensor parallelism over copied latent vectors keeps
    moe = "deepseek-v3"
    fields = {"engine": "sglang-2025", "weights": "fp8_block", "client": Client(concurrency=8)}
    wide = job(moe, layout=ServingLayout(attention_data=8, expert=8), **fields)
    narrow = job(moe, layout=ServingLayout(tensor=8, expert=8), **fields)
    kept = [tabulate(j, arch(moe), machine("dgx-b200")).kv_tokens for j in (wide, narrow)]
    assert kept[0] > 5 * kept[1]


def test_decodes_meet_the_window_of_windowed_layers_and_half_a_chunk_of_chunked_ones() -> None:
    """Attention of a step at 64,000 tokens is that of the full layers there, and of the others at what they
    see: 36 chunked layers of Maverick half of 8,192 tokens, were they windowed all of it."""
    wanted, model = job("llama-4-maverick", weights="fp8"), arch("llama-4-maverick")

    def attention(context: int, **changes: object) -> float:
        parts = step_parts(wanted, replace(model, **changes), machine(), decoding=16, context=context)
        return parts.parts["decode attention"]

    def full(context: int) -> float:
        return attention(context, sliding_window=0)

    windowed = attention(64000, window_chunked=False)
    assert attention(64000) == pytest.approx(full(64000) / 4 + full(4096) * 3 / 4)
    assert windowed == pytest.approx(full(64000) / 4 + full(8192) * 3 / 4)
    # inside the first chunk nothing is cut off
    assert attention(8192) == full(8192)


def test_imbalance_loads_a_gpu_with_all_tokens_at_most() -> None:
    # experts cut over tensor ranks are on every GPU; on eight GPUs the busiest gets eight times the mean
    def experts(expert: int, imbalance: float | None) -> float:
        layout = ServingLayout(tensor=8, expert=expert)
        wanted = job("qwen3-30b-a3b", layout=layout, expert_imbalance=imbalance)
        step = step_parts(wanted, arch("qwen3-30b-a3b"), machine(), decoding=16, context=1024)
        return step.parts["experts"]

    assert experts(1, 3.0) == experts(1, None)
    assert experts(8, 8.0) == experts(8, 16.0) > experts(8, 3.0) > experts(8, None)


def test_layers_with_experts_are_counted_where_they_are() -> None:
    # half of Maverick's layers have no experts: as many dense layers more as experts fewer
    wanted = job("llama-4-maverick", weights="fp8")
    maverick = arch("llama-4-maverick")
    steps = [
        step_parts(wanted, model, machine(), decoding=16, context=1024).parts
        for model in (maverick, replace(maverick, dense_layers=0, expert_every=1))
    ]
    assert steps[0]["experts"] == pytest.approx(steps[1]["experts"] / 2)
    assert steps[0]["mlp"] > 0 == steps[1]["mlp"]
