"""Laws of frozen weights in 4 bits: what is widened is what is stored, and 16 bits bound it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.catalog import load_catalog
from railwright.model import Cut, layer_operators, layer_parameters, load_model
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import kinds_present
from railwright.spec.lora import Lora
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.checks.plan import check
from railwright.training.layers.operators import operators_of
from railwright.training.memory.peak import peak_memory
from railwright.training.memory.stage_weights import widened
from railwright.training.software.lora import DEQUANTISED
from railwright.training.software.nf4 import widening
from training_cases import (
    BLOCKS,
    DELTA,
    DENSE,
    KIMI,
    LATENTS,
    LIGHTNING,
    MOE,
    changed,
    job,
    machine,
    priced,
    roofline,
)

GPU = load_catalog().gpus["a100-sxm-80"]
MODELS = (
    *(DENSE, MOE, LATENTS, BLOCKS, DELTA, KIMI, LIGHTNING),
    *(load_model(name) for name in ("mixtral-8x7b", "deepseek-v3", "gemma-3-27b", "qwen3-8b")),
)


def tuned(software: str = "fsdp-2025", frozen: str = "nf4", **fields: object) -> TrainingJob:
    lora = Lora(rank=8, frozen_dtype=frozen)  # type: ignore[arg-type]
    return changed(job(**fields), software=software, lora=lora)  # type: ignore[arg-type]


@pytest.mark.parametrize("arch", MODELS, ids=lambda arch: arch.name)
@pytest.mark.parametrize("software", ["fsdp-2023", "fsdp-2025"])
def test_every_matrix_of_a_layer_is_widened_once_each_way(arch: Transformer, software: str) -> None:
    wanted = tuned(software, zero=0)
    each = widening(wanted, GPU)
    for kind in kinds_present(arch):
        found = operators_of(wanted, arch, kind, GPU)
        moved = [
            sum(op.bytes for op in ops if op.name.endswith(DEQUANTISED)) / each.bytes
            for ops in (found.forward, found.backward_input)
        ]
        # what the gradients of a layer's weights would be of, if it trained
        products = [
            op
            for op in layer_operators(arch, kind, 64, 64, Cut()).backward_weight
            if op.kind in ("gemm", "grouped_gemm")
        ]
        matrices = float(sum(op.m * op.n * op.batch for op in products))
        assert moved == pytest.approx([matrices, matrices])
        counted = layer_parameters(arch, kind)
        whole = counted.dense + counted.expert
        assert matrices <= whole
        # beside them there are norms, biases and convolutions alone
        assert whole - matrices <= 0.01 * whole
        largest = max(2.0 * op.m * op.n for op in products)
        assert 0 < widened(wanted, arch, kind) <= largest


@settings(max_examples=40)
@given(
    software=st.sampled_from(["fsdp-2023", "fsdp-2024", "fsdp-2025"]),
    arch=st.sampled_from([DENSE, MOE]),
    zero=st.sampled_from([0, 1, 2, 3]),
    recompute=st.sampled_from(["none", "full"]),
    micro=st.sampled_from([1, 2, 4]),
    reshard=st.booleans(),
)
def test_bounds_of_16_bits(
    software: str, arch: Transformer, zero: int, recompute: str, micro: int, reshard: bool
) -> None:
    """Less memory, no more to send, and without a network no shorter a step."""
    fields = {
        "gpus": 8, "batch": 32, "micro_batch": micro, "zero": zero, "recompute": recompute,
        "reshard": reshard,
    }  # fmt: skip
    four, wide = (tuned(software, frozen, **fields) for frozen in ("nf4", "bf16"))
    one = machine(1)
    check(four, arch, one.network.fabric)
    small, large = (peak_memory(w, arch, one.network.fabric, 80e9) for w in (four, wide))
    assert small.total < large.total
    steps = [simulate(w, arch, one, predict=priced(0.0), kernel=roofline) for w in (four, wide)]
    assert steps[0].step_time >= steps[1].step_time * (1 - 1e-9)
    sizes = [
        sum(
            c.count * c.prediction.size
            for c in simulate(w, arch, one, predict=priced(50e9), kernel=roofline).collectives
        )
        for w in (four, wide)
    ]
    assert sizes[0] <= sizes[1]
    assert (sizes[0] < sizes[1]) == (zero == 3)
