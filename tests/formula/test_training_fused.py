"""Kernels that run inside others cost nothing and keep their place."""

from __future__ import annotations

import pytest

from railwright.catalog import find, load_catalog
from railwright.compute import profile_of
from railwright.model import layer_operators
from railwright.training.eras import eras
from railwright.training.fused import DISPATCH, EXPERTS, inside
from training_cases import MOE

GPUS = load_catalog().gpus


def test_only_the_named_operators_become_free() -> None:
    layer = layer_operators(MOE, "moe", 4096, 1024, ep=8, dtype="fp8")
    fused = inside(layer, DISPATCH | EXPERTS)
    for before, after in zip(layer.forward, fused.forward, strict=True):
        assert before.name == after.name
        assert before.flops == after.flops
        if before.name in DISPATCH | EXPERTS:
            assert (after.bytes, after.launches) == (0.0, 0)
        else:
            assert after == before
    assert {op.name for op in layer.forward} >= {"permute", "unpermute", "experts activation"}


def test_the_fused_mlp_is_of_8_bit_experts_on_blackwell() -> None:
    era = eras()["megatron-2026"]
    blackwell, hopper = find(GPUS, "gb200"), find(GPUS, "h100")
    assert era.fuses_experts(blackwell, "fp8")
    assert not era.fuses_experts(blackwell, "bf16")
    assert not era.fuses_experts(hopper, "fp8")
    assert not eras()["megatron-2025"].fuses_experts(blackwell, "fp8")


@pytest.mark.parametrize(("gpu", "flash", "slower"), [("h100", "flash-2", True), ("a100", "flash-2", False)])
def test_an_era_names_its_attention_kernel(gpu: str, flash: str, slower: bool) -> None:
    usual, named = profile_of(find(GPUS, gpu)), profile_of(find(GPUS, gpu), flash)
    rates = [one.attention["forward"].compute for one in (named, usual)]
    # FlashAttention-2 is the usual kernel of A100; on H100 it does without the asynchronous products
    assert (rates[0] < rates[1]) if slower else (rates[0] == rates[1])
