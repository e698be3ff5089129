"""NVFP4's casts: kernels of their own before every product (Transformer Engine, NVFP4Quantizer)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from railwright.catalog import load_catalog
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.pattern import Layer
from railwright.spec.training import Lora, TrainingJob
from railwright.training.layers.four_bits import cast_bytes
from railwright.training.layers.operators import operators_of
from training_cases import DENSE, MOE, changed, job

GPU = load_catalog().gpus["b200-sxm"]
READ, COPY, ORDERED = 2.0, 0.5 + 1 / 16, 2 / 16
"""Bytes of an element in 16 bits, of a copy with its scale, of a scale read and written once more."""

SHARED = replace(MOE, shared_experts=1, shared_ffn=1024)
UNFUSED = 3 * READ + 2 * (COPY + ORDERED)


def found(wanted: TrainingJob, arch: Transformer = DENSE, kind: Layer = "dense") -> tuple[Operator, ...]:
    layer = operators_of(wanted, arch, kind, GPU)
    return (*layer.forward, *layer.backward_input, *layer.backward_weight)


def casts(
    wanted: TrainingJob, ending: str, arch: Transformer = DENSE, kind: Layer = "dense"
) -> dict[str, float]:
    """Elements per token that casts read, by the product behind them."""
    return {
        op.name.removesuffix(ending): op.bytes / 1024 / UNFUSED
        for op in found(wanted, arch, kind)
        if op.name.endswith(ending)
    }


def test_bytes_by_hand() -> None:
    # largest elements, rows, columns; scales of both in the tensor cores' order
    assert cast_bytes(turned=True, fused=False) == UNFUSED
    assert cast_bytes(turned=True, fused=True) == UNFUSED - READ
    # frozen weights have no gradient that would sum over rows
    assert cast_bytes(turned=False, fused=False) == 2 * READ + COPY + ORDERED
    assert cast_bytes(turned=False, fused=True) == cast_bytes(turned=False, fused=False)


def test_every_product_has_its_input_and_its_gradient_cast() -> None:
    wanted = job(dtype="nvfp4")
    assert casts(wanted, " input cast") == {
        "qkv projection": 1024,
        "output projection": 1024,
        "mlp up": 1024,
        "mlp down": 4096,
    }
    assert casts(wanted, ", gradient cast") == {
        "qkv projection": (16 + 2 * 4) * 64,
        "output projection": 1024,
        "mlp up": 2 * 4096,
        "mlp down": 1024,
    }
    products = [op for op in found(wanted) if op.dtype == "nvfp4"]
    assert len(products) == 3 * 4


def test_each_cast_stands_before_its_product() -> None:
    layer = operators_of(job(dtype="nvfp4"), SHARED, "moe", GPU)
    for part in (layer.forward, layer.backward_input):
        for before, op in pairwise(part):
            if op.dtype == "nvfp4":
                assert before.name.startswith(op.name.removesuffix(", input gradient"))
                assert before.name.endswith(" cast")
    # the rows of all experts
    read = casts(job(dtype="nvfp4"), " input cast", SHARED, "moe")["experts up"]
    assert read == pytest.approx(SHARED.experts_per_token * SHARED.hidden)


def test_rows_that_tensor_ranks_share_are_cast_by_who_has_them() -> None:
    whole, part = (job(dtype="nvfp4", tensor=4, sequence_parallel=shared) for shared in (False, True))
    for ending, gathered in (
        (" input cast", ("qkv projection", "mlp up")),
        (", gradient cast", ("output projection", "mlp down")),
    ):
        ours, all_of_them = casts(part, ending), casts(whole, ending)
        for name, elements in all_of_them.items():
            assert ours[name] == elements / (4 if name in gathered else 1)


def test_one_kernel_writes_both_copies_in_newer_software() -> None:
    old, new = job(dtype="nvfp4"), changed(job(dtype="nvfp4"), software="megatron-2026")
    before, after = casts(old, " input cast"), casts(new, " input cast")
    for name, elements in before.items():
        assert after[name] == pytest.approx(elements * (UNFUSED - READ) / UNFUSED)


def test_frozen_weights_want_one_copy() -> None:
    frozen = changed(job(dtype="nvfp4"), lora=Lora(rank=16))
    moved = {op.name: op.bytes for op in found(frozen)}
    assert moved["mlp down input cast"] == 1024 * 4096 * (2 * READ + COPY + ORDERED)


def test_norms_launch_the_casts_behind_them() -> None:
    launches = {op.name: op.launches for op in found(job(dtype="nvfp4")) if op.name.endswith(" cast")}
    assert {name for name, count in launches.items() if not count} == {
        "qkv projection input cast",
        "mlp up input cast",
    }


def test_what_runs_again_is_cast_again() -> None:
    wanted = job(dtype="nvfp4", recompute="selective", recompute_modules=("mlp",))
    again = operators_of(wanted, DENSE, "dense", GPU).recomputed
    assert "mlp down input cast" in {op.name for op in again}
