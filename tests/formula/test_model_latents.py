"""Experts that read latents (Nemotron 3 Super): counts, products, and what travels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import (
    Cut,
    count_parameters,
    flops_per_token,
    layer_activations,
    layer_operators,
    layer_parameters,
    load_model,
)
from railwright.model.counts.matrices import layer_matrices
from railwright.model.operators.recompute import LATENT as PRODUCTS
from railwright.training import simulate
from railwright.training.layers.communication import routed_size
from training_cases import LATENTS, MOE, job, machine

SUPER = load_model("nemotron-3-super-120b")
ROWS = 1024


def test_flops_are_megatrons() -> None:
    """Megatron-LM, training.py, moe_layer_flops: 4 t l f k of the experts, 4 t h l of the products to latents
    and back, 4 t h s of the shared expert; and the router, which it leaves out."""
    h, width, f, k, shared = 4096, 1024, 2688, 22, 5376
    layer = 4 * width * f * k + 4 * h * width + 4 * h * shared + 2 * h * 512
    plain = replace(SUPER, pattern=tuple(kind for kind in SUPER.pattern if kind != "experts"), layers=48)
    ours = flops_per_token(SUPER, 8192).forward - flops_per_token(plain, 8192).forward
    assert ours == 40 * layer


def test_parameters_of_a_layer_add_up() -> None:
    h, width, f = 4096, 1024, 2688
    own = h * (512 + 2 * width) + 512 + 2 * h * 5376
    count = count_parameters(SUPER)
    assert count.expert == 2 * width * f
    assert count.router + count.shared == own
    held = layer_parameters(SUPER, "experts", Cut(tp=2, ep=8, expert_tp=1))
    # every tensor rank has the router, its bias, both products and the norm whole
    assert held.dense == h + h * (512 + 2 * width) + 512 + h * 5376
    assert held.expert == 64 * 2 * width * f
    weights = sum(m.size * m.count for m in layer_matrices(SUPER, "experts"))
    assert weights == count.mlp_moe - 512


def test_products_to_latents_run_on_a_ranks_own_rows() -> None:
    """moe_layer.py: fc1_latent_proj behind the router, in front of the dispatch; fc2_latent_proj behind the
    combine; both duplicated over tensor ranks, under sequence parallelism on the rows of each."""
    ops = layer_operators(LATENTS, "moe", ROWS, ROWS, Cut(tp=2, sequence_parallel=True, ep=4)).forward
    names = [op.name for op in ops]
    down, up = (next(op for op in ops if op.name == name) for name in PRODUCTS)
    assert (down.m, down.n, down.k) == (ROWS // 2, 256, 1024)
    assert (up.m, up.n, up.k) == (ROWS // 2, 1024, 256)
    order = ["router", PRODUCTS[0], "permute", "experts up", "unpermute", PRODUCTS[1], "add shared"]
    assert [name for name in names if name in order] == order
    experts = next(op for op in ops if op.name == "experts up")
    assert (experts.n, experts.k) == (2048, 256)


def test_narrow_formats_quantise_what_both_products_read() -> None:
    names = {op.name for op in layer_operators(LATENTS, "moe", ROWS, ROWS, dtype="mxfp8").forward}
    assert {f"{name}, cast" for name in PRODUCTS} <= names
    wide, narrow = (layer_activations(LATENTS, "moe", ROWS, ROWS, dtype=d) for d in ("bf16", "fp8"))
    assert wide["expert latents"] == 2 * ROWS * 256
    assert (narrow["expert latents"], narrow["latents' input"]) == (ROWS * 256, ROWS * 1024)


def test_experts_computed_again_run_the_products_again() -> None:
    again = {op.name for op in layer_operators(LATENTS, "moe", ROWS, ROWS, modules=("moe",)).recomputed}
    assert set(PRODUCTS) <= again
    kept = layer_activations(LATENTS, "moe", ROWS, ROWS, recompute="selective", modules=("moe",))
    assert not {"expert latents", "expert input"} & kept.keys()


def test_latents_travel_not_hidden_states() -> None:
    one = job(expert=8)
    assert routed_size(one, LATENTS) == routed_size(one, MOE) / 4


@pytest.mark.parametrize("layout", [{}, {"tensor": 2}, {"expert": 8}, {"expert": 8, "pipeline": 2}])
def test_steps_with_latents_are_predicted(layout: dict[str, int]) -> None:
    """Narrower experts are a faster step, unless the launches of two more products bind it."""
    one = job(batch=32, **layout).model_copy(update={"cuda_graphs": ("step",)})
    step, wide = (simulate(one, arch, machine()) for arch in (LATENTS, replace(LATENTS, expert_latent=0)))
    assert 0 < step.step_time < wide.step_time
    assert step.model_flops < wide.model_flops
