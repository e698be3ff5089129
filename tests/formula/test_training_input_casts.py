"""Megatron's layers cast in fp8 what no kernel in front of them writes so (core/transformer/mlp.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import load_catalog
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer
from railwright.spec.training import TrainingJob
from railwright.training.layers.operators import operators_of
from training_cases import BLOCKS, DENSE, MOE, changed, job

GPUS = load_catalog().gpus
LATENT = replace(DENSE, attention="mla", kv_heads=16, q_lora=384, kv_lora=128, rope_dim=32, v_head_dim=64)
SHARED = replace(MOE, shared_experts=1, shared_ffn=1024)


def casts(
    wanted: TrainingJob, arch: Transformer, kind: Layer = "dense", gpu: str = "h100-sxm"
) -> dict[str, float]:
    """Elements per token that casts in front of products read, where each writes two copies."""
    found = operators_of(wanted, arch, kind, GPUS[gpu]).forward
    return {
        op.name.removesuffix(" input cast"): op.bytes / 1024 / 4
        for op in found
        if op.name.endswith(" input cast")
    }


@pytest.mark.parametrize("dtype", ["fp8", "mxfp8"])
def test_what_the_activation_makes_is_cast_by_a_kernel_of_its_own(dtype: str) -> None:
    assert casts(job(dtype=dtype), DENSE) == {"mlp down": 4096}
    assert casts(job(dtype=dtype, tensor=4), DENSE) == {"mlp down": 4096 / 4}
    assert casts(job(dtype="bf16"), DENSE) == {}
    # compilers fuse them, and torchao has its own
    for software in ("xla-2025", "fsdp-2025"):
        assert "mlp activation" in {
            op.name
            for op in operators_of(
                changed(job(dtype="fp8"), software=software), DENSE, "dense", GPUS["h100-sxm"]
            ).forward
        }
    assert casts(changed(job(dtype="fp8"), software="xla-2025"), DENSE) == {}


def test_norms_that_stand_alone_write_16_bits() -> None:
    # the input norm of latent attention is no part of its products; those of latents are
    assert casts(job(dtype="fp8"), LATENT) == {"query down": 1024, "key/value down": 1024, "mlp down": 4096}
    bare = replace(LATENT, q_lora=0)
    cut = {"tensor": 4, "sequence_parallel": True}
    assert casts(job(dtype="fp8", **cut), bare) == {
        "query projection": 1024 / 4,  # cast before it is gathered
        "key/value down": 1024 / 4,
        "mlp down": 4096 / 4,
    }
    assert casts(job(dtype="fp8"), BLOCKS, "linear") == {}


def test_shared_experts_cast_what_the_router_reads_in_16_bits() -> None:
    assert casts(job(dtype="fp8"), SHARED, "moe") == {"shared expert up": 1024, "shared expert down": 1024}
    cut = {"tensor": 2, "sequence_parallel": True}
    assert casts(job(dtype="fp8", **cut), SHARED, "moe") == {
        "shared expert up": 1024 / 2,
        "shared expert down": 1024 / 2,
    }


def test_one_copy_takes_three_quarters_and_activations_stay_wide() -> None:
    two, one = (casts(job(dtype="fp8"), DENSE, gpu=gpu) for gpu in ("h100-sxm", "b200-sxm"))
    assert one == {"mlp down": 0.75 * two["mlp down"]}
    activations = [
        next(
            op.bytes
            for op in operators_of(job(dtype=dtype), DENSE, "dense", GPUS["b200-sxm"]).forward
            if op.name == "mlp activation"
        )
        for dtype in ("bf16", "fp8")
    ]
    assert activations[0] == activations[1]


def test_a_part_that_runs_again_casts_again() -> None:
    wanted = job(dtype="fp8", recompute="selective", recompute_modules=("mlp",))
    again = operators_of(wanted, DENSE, "dense", GPUS["h100-sxm"]).recomputed
    assert "mlp down input cast" in {op.name for op in again}


@pytest.mark.parametrize(
    ("dtype", "gpu", "gradient", "turned"),
    [
        # bytes per element of what is gathered: read in 16 bits and written on 1/4 of the rows, then turned
        ("fp8", "h100-sxm", 3 / 4 + 2, 2),
        ("fp8", "b200-sxm", 3 / 4, 0),
        ("mxfp8", "b200-sxm", 4 / 4, 0),
        ("fp8_block", "h100-sxm", 4 / 4, 0),
    ],
)
def test_gradients_are_cast_before_they_are_gathered(
    dtype: str, gpu: str, gradient: float, turned: float
) -> None:
    cut = {"tensor": 4, "sequence_parallel": True}
    found = operators_of(job(dtype=dtype, **cut), DENSE, "dense", GPUS[gpu])
    elements = 1024 * DENSE.hidden
    moved = {op.name: op.bytes / elements for op in (*found.backward_input, *found.backward_weight)}
    for name in ("output projection", "mlp down"):
        assert moved[f"{name}, gradient cast"] == gradient
    assert [moved.get(f"{name}, input turned", 0.0) for name in ("qkv projection", "mlp up")] == [turned] * 2
    # all-reduced without sequence parallelism, they are whole
    whole = operators_of(job(dtype=dtype, tensor=4), DENSE, "dense", GPUS[gpu])
    assert not [op for op in whole.backward_weight if op.name.endswith("turned")]
    assert moved["mlp up, gradient cast"] == next(
        op.bytes / elements for op in whole.backward_input if op.name == "mlp up, gradient cast"
    )
