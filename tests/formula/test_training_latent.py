"""What tensor-parallel ranks exchange around multi-head latent attention: latents, not hidden states.

Megatron-LM duplicates the down-projections, which run on a rank's own tokens, and gathers what they make
(core/transformer/multi_latent_attention.py, core/models/gpt/gpt_layer_specs.py).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from railwright.model import load_model
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from training_cases import DENSE, job, machine, priced, roofline

LATENT = replace(
    DENSE, attention="mla", kv_heads=16, q_lora=384, kv_lora=128, rope_dim=32, v_head_dim=64, head_dim=64
)
PLAIN = replace(LATENT, q_lora=0)
TOKENS, BYTES = 1024.0, 2.0
"""One microbatch, in 16 bits."""

EACH = 8 * 8
"""Layers times microbatches of a job of 64 sequences on 32 GPUs with tensor parallelism of 4."""


def sent(arch: Transformer, **what: object) -> dict[str, float]:
    """Bytes of each token that a layer and microbatch sends, by purpose, all but embedding and head."""
    wanted: TrainingJob = job(**{"tensor": 4, "batch": 64} | what)  # type: ignore[arg-type]
    return {
        purpose: size / EACH / TOKENS / BYTES - arch.hidden * ends.get(purpose, 0) / 8
        for purpose, size in totals(wanted, arch).items()
        if purpose.startswith("tp ")
    }


ends = {"tp all-reduce": 2, "tp all-gather": 2, "tp reduce-scatter": 2, "tp all-gather again": 1}
"""Collectives of a microbatch beside its layers' (`test_training_communication`)."""


def totals(wanted: TrainingJob, arch: Transformer) -> dict[str, float]:
    """Bytes by purpose."""
    found: dict[str, float] = defaultdict(float)
    for one in simulate(wanted, arch, machine(4), predict=priced(50e9), kernel=roofline).collectives:
        found[one.purpose] += one.count * one.prediction.size
    return found


@pytest.mark.parametrize(("arch", "query"), [(LATENT, 384), (PLAIN, 1024)])
def test_latents_and_rotary_keys_are_gathered(arch: Transformer, query: int) -> None:
    found = sent(arch, sequence_parallel=True)
    h = arch.hidden
    # forward latents and rotary keys, and the MLP's input; backward the gradients of both blocks' outputs
    assert found["tp all-gather"] == pytest.approx(query + 128 + 32 + h + 2 * h)
    # both outputs; backward the gradients of what was gathered
    assert found["tp reduce-scatter"] == pytest.approx(2 * h + query + 128 + 32 + h)
    # inputs of products that have weights, which rotary keys go into none of
    assert found["tp all-gather again"] == pytest.approx(query + 128 + h)


@pytest.mark.parametrize(("arch", "query"), [(LATENT, 384), (PLAIN, 1024)])
def test_gradients_of_latents_are_all_reduced(arch: Transformer, query: int) -> None:
    # forward both outputs; backward the latents' gradients (Megatron-LM leaves that of the rotary keys as it
    # is on every rank) and that of the MLP's input
    h = arch.hidden
    assert sent(arch) == pytest.approx({"tp all-reduce": 2 * h + query + 128 + h})


def test_deepseek_v3_gathers_a_third_of_its_hidden_states() -> None:
    # 1,536 + 512 + 64 of 7,168
    arch = replace(load_model("deepseek-v3"), layers=4, dense_layers=4, mtp_layers=0)
    found = totals(job(tensor=8, batch=4, sequence_parallel=True), arch)
    layer = (1536 + 512 + 64) + 7168 + 2 * 7168
    assert found["tp all-gather"] == pytest.approx((4 * layer + 2 * 7168) * TOKENS * BYTES)


@pytest.mark.parametrize("what", [{"overlap": Overlap(tp=True)}, {"schedule": "zb-h1", "pipeline": 2}])
def test_overlap_and_split_passes_send_the_same(what: dict[str, object]) -> None:
    cut = {"sequence_parallel": True, "pipeline": what.get("pipeline", 1)}
    assert sent(LATENT, **cut) == pytest.approx(sent(LATENT, **cut | what))


CHOOSING = replace(LATENT, index_topk=512, index_heads=8, index_dim=64)


def test_an_indexer_gathers_its_inputs_once_and_gives_them_no_gradient() -> None:
    # hidden states and query latents more, whose gathered copies stay; latent keys stay gathered too
    found, h = sent(CHOOSING, sequence_parallel=True), LATENT.hidden
    assert found["tp all-gather"] == pytest.approx(384 + 128 + 32 + h + 2 * h + 384 + h)
    assert found["tp reduce-scatter"] == pytest.approx(2 * h + 384 + 128 + 32 + h)
    assert found["tp all-gather again"] == pytest.approx(384 + h)
    assert sent(CHOOSING) == pytest.approx({"tp all-reduce": 2 * h + 384 + 128 + h})


def test_an_indexer_that_runs_again_gathers_its_inputs_again() -> None:
    parts = (("core_attn",), 384 + LATENT.hidden), (("mla_up_proj",), 384)
    for modules, more in parts:
        part = {"recompute": "selective", "recompute_modules": modules}
        plain, again = (sent(CHOOSING, sequence_parallel=True, **one) for one in ({}, part))
        assert again["tp all-gather"] - plain["tp all-gather"] == pytest.approx(more)


def test_context_ranks_gather_latent_keys_and_those_of_the_indexer() -> None:
    found = totals(job(context=4, context_kind="all-gather", batch=64), CHOOSING)
    # 8 layers, each GPU's 32 / 4 microbatches of 64 / 8 sequences: keys of all ranks, forward and backward
    passes = 8 * 64 / 8
    assert found["cp all-gather"] == pytest.approx(passes * TOKENS * BYTES * (128 + 32 + 64))


def test_up_projections_that_run_again_gather_their_inputs_again() -> None:
    # no rotary keys: those are kept
    part = {"recompute": "selective", "recompute_modules": ("mla_up_proj",)}
    for arch, query in ((LATENT, 384), (PLAIN, 1024)):
        plain, again = (sent(arch, sequence_parallel=True, **one) for one in ({}, part))
        assert again["tp all-gather"] - plain["tp all-gather"] == pytest.approx(query + 128)
        assert again["tp reduce-scatter"] == pytest.approx(plain["tp reduce-scatter"])


def test_a_layer_that_runs_again_gathers_latents_again() -> None:
    plain, again = (sent(LATENT, sequence_parallel=True, recompute=one) for one in ("none", "full"))
    more = 384 + 128 + 32 + LATENT.hidden
    assert again["tp all-gather"] - plain["tp all-gather"] == pytest.approx(more)


def test_context_ranks_exchange_expanded_keys_and_values() -> None:
    # 16 heads: queries and keys 64 wide with 32 of rotary positions, values and outputs 64
    query, key, value = 16 * (64 + 32), 16 * (64 + 32), 16 * 64
    row = EACH * TOKENS * BYTES
    gathered = totals(job(context=4, batch=64, context_kind="all-gather"), LATENT)
    assert gathered["cp all-gather"] == pytest.approx(row * (key + value))
    swapped = totals(job(context=4, batch=64, context_kind="all-to-all"), LATENT)
    assert swapped["cp all-to-all in"] == pytest.approx(row / 4 * (query + key + value))
    assert swapped["cp all-to-all out"] == pytest.approx(row / 4 * value)
