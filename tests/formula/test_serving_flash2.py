"""FlashAttention 2 by its thread blocks, contexts drawn apart, and attention-data groups in lock step."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.measure.machines import published_machine
from railwright.model import load_model
from railwright.serving.engine.spread import Spread, spread_of
from railwright.serving.engine.step import step_parts, tabulate
from railwright.serving.kernels.constants import kernels_of
from railwright.serving.kernels.flash2 import (
    KEYS,
    ROWS,
    TileRow,
    beside_seconds,
    chunk_seconds,
    empty_seconds,
    splits,
    uneven_seconds,
)
from railwright.serving.simulator.simulate import simulate
from railwright.spec.serving import Client, ServingJob, ServingLayout
from serving_cases import flat_table, one_replica, requests

UNIT = TileRow(fixed=0.0, tile=1.0, open=0.0, empty=0.0, chain=1.0)


def array(*values: float) -> np.ndarray:
    return np.array(values)


@pytest.mark.parametrize(("new", "cached"), [(64, 0), (512, 0), (2048, 0), (1024, 4096), (128, 2048)])
def test_tiles_of_a_prompt_are_those_its_queries_see(new: int, cached: int) -> None:
    # block j of 64 queries sees the cache and its own keys up to its last query, in tiles of 128
    seen = [ceil((cached + (j + 1) * ROWS) / KEYS) for j in range(ceil(new / ROWS))]
    counted = float(chunk_seconds(array(new), array(cached), 1.0, UNIT, 1)[0])
    assert counted == pytest.approx(sum(seen), abs=0.26 * len(seen))


def test_a_decode_beside_a_prompt_takes_whole_tiles_and_its_empty_blocks() -> None:
    row = TileRow(fixed=0.0, tile=2.0, open=3.0, empty=5.0, chain=0.0)
    # one request of 1,216 tokens, 4 heads, 2 multiprocessors: ten tiles a head
    took = float(beside_seconds(array(1.0), array(1216.0), 4.0, row, 2)[0])
    assert took == pytest.approx(4 * (10 * 2.0 + 3.0) / 2)
    # a prompt of 1,024 tokens is 16 blocks of every head: 15 of a decode's have nothing to do
    assert (1024 - ROWS) * empty_seconds(4.0, row, 2) == pytest.approx(4 * 15 * 5.0 / 2)


def test_beside_prompts_as_measured_under_vllm() -> None:
    # LLMServingSim@5daddb2, profiler/perf/RTXPRO6000/meta-llama/Llama-3.1-8B/bf16/tp1/attention.csv [us]:
    # a prompt of so many tokens beside 128 decodes of 512 or 1,024 tokens
    measured = {(128, 512): 398.7, (512, 512): 450.2, (1024, 512): 537.5, (2048, 512): 743.9}
    measured |= {(512, 1024): 735.1, (1024, 1024): 824.6, (2048, 1024): 1031.2}
    row = kernels_of(load_catalog().gpus["rtx-pro-6000"], "vllm").tiles
    assert row is not None
    for (new, context), wanted in measured.items():
        took = row.fixed + 128 * max(new - ROWS, 0.0) * empty_seconds(32.0, row, 188)
        took += float(chunk_seconds(array(new), array(0.0), 32.0, row, 188)[0])
        took += float(beside_seconds(array(128.0), array(context), 32.0, row, 188)[0])
        assert took * 1e6 == pytest.approx(wanted, rel=0.12), (new, context)


def test_the_longest_context_is_left_alone_at_the_end() -> None:
    even = uneven_seconds(array(64.0), array(1000.0), array(1000.0), UNIT, 188)
    assert float(even[0]) == 0.0
    # nothing else to do meanwhile: all of its further tiles
    alone = uneven_seconds(array(1.0), array(128.0), array(1280.0), UNIT, 10**9)
    assert float(alone[0]) == pytest.approx(9.0, rel=1e-3)
    # the mean over where in its head the request stands
    for requests_, context, longest in ((128, 1000, 4000), (900, 1000, 1500)):
        further = (longest - context) / KEYS
        meanwhile = requests_ * context / KEYS / 188
        places = (np.arange(20000) + 0.5) / 20000
        mean = np.maximum(further - places * meanwhile, 0.0).mean()
        found = uneven_seconds(array(requests_), array(context), array(longest), UNIT, 188)
        assert float(found[0]) == pytest.approx(mean, rel=1e-3)


def test_uneven_decodes_as_measured_under_vllm() -> None:
    # skew.csv of the same run: n requests of 8 key/value heads, a sixteenth of them four times as long as the
    # others; what they take longer than even ones, three runs in all [us].  The long ones come first.
    row = kernels_of(load_catalog().gpus["rtx-pro-6000"], "vllm").tiles
    assert row is not None
    for n, longest, mean, three in (
        (128, 4096, 1216, 102.6),
        (128, 8192, 2432, 196.6),
        (64, 4096, 1216, 122.9),
    ):
        found = uneven_seconds(array(2.0 * n), array(mean), array(longest), row, 188)
        assert float(found[0]) * 3e6 == pytest.approx(three, rel=0.35)
    # 16 requests are 128 blocks on 188 multiprocessors: contexts are split, and 0.7 us of 208 were measured
    assert splits(array(16.0), 8, 188)[0]
    assert not splits(array(64.0), 8, 188)[0]


def test_contexts_drawn_apart() -> None:
    work = requests([0.0, 0.0], [100, 1000], [900, 100], 2)
    spread = spread_of(work)
    assert spread is not None
    # nine tenths of the steps are the first request's, from 100 to 1,000 tokens
    assert spread.mean == pytest.approx(0.9 * 550 + 0.1 * 1050, rel=0.01)
    assert float(spread.longest(array(1.0))[0]) == pytest.approx(1.0)
    draw = np.random.default_rng(1)
    picked = np.where(
        draw.random((20000, 8)) < 0.9,
        100 + 900 * draw.random((20000, 8)),
        1000 + 100 * draw.random((20000, 8)),
    )
    assert float(spread.longest(array(8.0))[0]) * spread.mean == pytest.approx(picked.max(1).mean(), rel=0.01)
    assert spread_of(requests([0.0], [10], [0])) is None


def test_unequal_contexts_cost_only_where_none_is_split() -> None:
    arch, card = load_model("llama-3.1-8b"), published_machine("RTX-PRO-6000", 1, None)
    client = Client(kind="closed-loop", concurrency=8, input=1024, output=128)
    job = ServingJob(name="x", model="llama-3.1-8b", engine="vllm-2026", client=client)
    wide = Spread(array(100.0, 200.0, 3000.0), array(0.0, 0.9, 1.0))
    even, uneven = tabulate(job, arch, card), tabulate(job, arch, card, spread=wide)
    few, many = even.requests <= 32, even.requests >= 40
    assert np.array_equal(even.decode[few], uneven.decode[few])
    assert np.all(even.decode[many][:, 1:] < uneven.decode[many][:, 1:])
    assert even.mixed_decode is not None
    assert uneven.mixed_decode is not None
    assert np.all(even.mixed_decode[1:, 1:] < uneven.mixed_decode[1:, 1:])
    # an fp8 cache is not FlashAttention 2's, nor are heads of other widths measured
    narrow = tabulate(job.model_copy(update={"kv": "fp8"}), arch, card, spread=wide)
    assert narrow.mixed_decode is None
    assert narrow.beside == 0.0
    # FlashAttention 3 of Hopper packs groups whatever else is in the step
    hopper = tabulate(job, arch, published_machine("H100", 1, None), spread=wide)
    assert hopper.mixed_decode is None
    assert hopper.beside == 0.0


def grouped(**other: object):
    """Two groups; 10 ms, 5 us a token of the step and 10 us a token of the fullest group."""
    table = flat_table(step=0.01, token=1e-5, groups=2)
    return replace(table, group_rows=1e-5 * table.tokens, **other)


@pytest.mark.parametrize(
    ("prompts", "seconds"),
    [
        ([1000], 0.01 + 0.005 + 0.010),
        ([1000, 1000], 0.01 + 0.010 + 0.010),
        ([1000, 1000, 1000], 0.01 + 0.015 + 0.020),
        ([1500, 500], 0.01 + 0.010 + 0.015),
    ],
)
def test_a_step_waits_for_the_group_with_most_prompts(prompts: list[int], seconds: float) -> None:
    work = requests([0.0] * len(prompts), prompts, 1)
    run = simulate(work, one_replica(grouped(), token_budget=4096), "interpreted")
    assert run.first == pytest.approx(seconds)


def test_groups_are_padded_to_the_fullest_where_graphs_are_replayed() -> None:
    run = simulate(requests([0.0], [300], 1), one_replica(grouped(padded=512)), "interpreted")
    assert run.first[0] == pytest.approx(0.01 + 1e-5 * 600)


def test_a_group_computes_no_more_of_a_prompt_than_its_own_budget() -> None:
    work = requests([0.0, 0.0], [3000, 500], 1)
    run = simulate(work, one_replica(grouped(), token_budget=4096), "interpreted")
    # 2,048 of the first prompt and the second whole, then the rest: 952
    both = 0.01 + 5e-6 * 2548 + 1e-5 * 2048
    assert run.first[1] == pytest.approx(both)
    assert run.first[0] == pytest.approx(both + 0.01 + 5e-6 * 952 + 1e-5 * 952)


def test_prompts_of_two_engines_take_longer_than_their_even_share() -> None:
    arch, cards = load_model("qwen3-30b-a3b"), published_machine("RTX-PRO-6000", 2, None)
    client = Client(kind="closed-loop", concurrency=8, input=1024, output=128)
    layout = ServingLayout(attention_data=2, expert=2)
    job = ServingJob(name="x", model="qwen3-30b-a3b", engine="vllm-2026", layout=layout, client=client)
    table = tabulate(job, arch, cards)
    assert (table.groups, table.padded) == (2, 512)
    # each engine decodes 128 requests at most: the table reaches both engines' together
    assert table.requests[-1] >= 2 * 256
    assert table.group_rows is not None
    alone = np.interp(1000.0, table.tokens, table.group_rows)
    even = np.interp(500.0, table.tokens, table.group_rows)
    assert alone > 1.3 * even
    part = step_parts(job, arch, cards, decoding=3, context=100).parts
    padded = step_parts(job, arch, cards, decoding=8, context=100).parts
    # three requests are padded to two on each engine, eight to four: 4 and 8 tokens at the experts
    assert part["experts"] < padded["experts"]
    assert part["experts"] == step_parts(job, arch, cards, decoding=4, context=100).parts["experts"]


def test_norms_and_activations_come_from_the_cache_as_measured() -> None:
    # dense.csv of the RTX PRO 6000, Llama 3.1 8B: two norms, rotary embedding and activation [us] by tokens
    row = kernels_of(load_catalog().gpus["rtx-pro-6000"], "vllm").elementwise
    assert row is not None
    memory = 0.87 * 1.597e12

    def kernel(moved: float) -> float:
        return row.fixed + min(moved, row.cache) / row.rate + max(moved - row.cache, 0.0) / memory

    for tokens, measured in ((32, 10.9), (128, 12.4), (1024, 53.9), (2048, 137.8)):
        took = 2 * kernel(8.0 * 4096 * tokens) + kernel(6.0 * 14336 * tokens)
        assert took * 1e6 == pytest.approx(measured, rel=0.25)
        # from memory alone they would take twice that
        if tokens >= 512:
            assert (2 * 8.0 * 4096 + 6.0 * 14336) * tokens / memory > 1.5e-6 * measured
    # half of the level-2 cache, 128 and 72 MB: what a kernel reads and what it writes
    card = kernels_of(load_catalog().gpus["rtx-4090"], "vllm").elementwise
    assert card is not None
    assert (row.cache / 128e6, card.cache / 72e6) == pytest.approx((0.5, 0.5), abs=0.07)
    assert kernels_of(load_catalog().gpus["h100-sxm"], "vllm").elementwise is None
