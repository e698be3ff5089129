"""Adapters beside frozen weights, against closed forms (docs/training/layouts.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import layer_operators
from railwright.model.architecture import Layer, Transformer
from railwright.spec.lora import Lora
from railwright.spec.training import Layout
from railwright.training.lora import adapter_parameters, with_adapters
from railwright.training.stages import stage_shapes
from training_cases import DENSE, MOE, job, sent


def test_adapters_train_and_nothing_else_does() -> None:
    lora = Lora(rank=8)
    wanted = job(batch=32).model_copy(update={"lora": lora})
    # qkv 1024 -> (16 + 2 x 4) x 64, output 1024 -> 1024, up 1024 -> 2 x 4096 (gated), down 4096 -> 1024
    widths = (1024 + 24 * 64) + (1024 + 1024) + (1024 + 8192) + (4096 + 1024)
    assert adapter_parameters(DENSE, "dense", Layout(), lora) == 8 * widths
    sizes = sent(wanted, DENSE)[1]
    assert sizes["dp gradients"] == pytest.approx(4 * 8 * 8 * widths, rel=1e-9)
    assert sizes["dp parameters"] == pytest.approx(2 * 8 * 8 * widths, rel=1e-9)


def test_adapters_stand_beside_experts_that_only_expert_tensor_cuts() -> None:
    # an expert of 1001 columns is whole on a GPU; what its layer adapts is cut over the 4 tensor ranks
    arch = replace(MOE, expert_ffn=1001)
    wanted = job(gpus=32, tensor=4, expert=8, expert_tensor=1, sequence_parallel=True)
    lora = Lora(rank=8)
    (shape,) = stage_shapes(arch, wanted.layout, lora)
    widths = ((1024 + 24 * 64) + (1024 + 1024)) // 4
    assert shape.adapters == ((8.0 * widths,) * 8,)


@pytest.mark.parametrize(("arch", "kind"), [(DENSE, "dense"), (MOE, "moe")])
def test_tensor_ranks_hold_and_multiply_every_adapter_once(arch: Transformer, kind: Layer) -> None:
    # both products of an adapter are cut, beside products cut by columns and by rows
    lora = Lora(rank=8)
    one = adapter_parameters(arch, kind, Layout(), lora)
    assert adapter_parameters(arch, kind, Layout(tensor=4), lora) == one / 4
    made = [
        with_adapters(layer_operators(arch, kind, 1024, 1024, tp=tp), lora, "bf16", tp).backward_weight
        for tp in (1, 4)
    ]
    whole, cut = (sum(op.flops for op in operators) for operators in made)
    assert whole == pytest.approx(2 * 1024 * one)
    assert cut == pytest.approx(whole / 4)


def test_frozen_weights_have_no_weight_gradients() -> None:
    full = layer_operators(DENSE, "dense", 1024, 1024)
    thin = with_adapters(full, Lora(rank=8, targets=("qkv",)), "bf16")
    assert {op.name.split(" adapter")[0] for op in thin.backward_weight} == {"qkv projection"}
    flops = sum(op.flops for op in thin.backward_weight)
    assert flops == pytest.approx(2 * 1024 * 8 * (1024 + 24 * 64))
    more = sum(op.flops for op in thin.forward) - sum(op.flops for op in full.forward)
    assert more == pytest.approx(flops)
