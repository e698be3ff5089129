"""What holds for the rows of kernels of every GPU and engine, measured there or carried there from its kin.

Both laws were broken by tables of kernels that no engine runs so: experts in fp8 took four times their
weights' time on Hopper, experts in mxfp4 as long as in bf16.
"""

from __future__ import annotations

from itertools import product

import pytest

from railwright.catalog import load_catalog
from railwright.catalog.parts import Gpu
from railwright.errors import PlanError
from railwright.serving.kernels.constants import Kernels, kernels_of
from railwright.serving.kernels.times import experts_seconds
from railwright.spec.serving import Weights

Layer = tuple[int, int, int, int]
"""Experts, experts of a token, hidden and inner width."""

MIXTRAL, QWEN3, GPT_OSS = (8, 2, 4096, 14336), (128, 8, 2048, 768), (128, 4, 2880, 2880)
LAYERS: tuple[Layer, ...] = (MIXTRAL, QWEN3, GPT_OSS)
NARROW: tuple[Weights, ...] = ("fp8", "fp8_block", "int4", "mxfp4", "nvfp4")
TOKENS = 8


def served() -> list[tuple[Gpu, str]]:
    """Every GPU of the catalogue whose serving is predicted, with every engine's kernels."""
    found = []
    for gpu, family in product(load_catalog().gpus.values(), ("vllm", "trtllm", "sglang")):
        try:
            kernels_of(gpu, family)
        except PlanError:
            continue
        found.append((gpu, family))
    return found


def named(one: object) -> str:
    return one.name if isinstance(one, Gpu) else str(one)


def decode(kernels: Kernels, layer: Layer, weights: Weights) -> tuple[float, float]:
    """Seconds of a layer's experts for a few tokens, and of reading their weights at full rate."""
    number, each, hidden, inner = layer
    rows = float(TOKENS * each)
    busy = min(float(number), rows)
    row, peak, width = kernels.experts(weights)
    seconds = float(experts_seconds(rows, busy, hidden, inner, row, kernels.speeds, peak, width))
    return seconds, busy * 3 * hidden * inner * width / kernels.speeds.bandwidth


@pytest.mark.parametrize(("gpu", "family"), served(), ids=named)
def test_a_few_tokens_experts_are_bound_by_their_weights(gpu: Gpu, family: str) -> None:
    """Between the memory's full rate and a quarter of it: of small layers half is launches."""
    kernels = kernels_of(gpu, family)
    for layer, weights in product(LAYERS, ("bf16", *NARROW)):
        seconds, reading = decode(kernels, layer, weights)
        assert reading < seconds < 4 * reading, (weights, layer)


@pytest.mark.parametrize(("gpu", "family"), served(), ids=named)
def test_narrower_weights_are_no_slower(gpu: Gpu, family: str) -> None:
    kernels = kernels_of(gpu, family)
    for layer, weights in product(LAYERS, NARROW):
        assert decode(kernels, layer, weights)[0] < 1.02 * decode(kernels, layer, "bf16")[0], (weights, layer)
