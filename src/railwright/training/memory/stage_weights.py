"""Weights of a stage's layers, one by one: what autograd and products hold for the sake of single ones."""

from __future__ import annotations

from functools import lru_cache

from railwright.model import Cut, layer_operators
from railwright.model.operators.kernels import ELEMENT
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.pattern import Layer, made_as
from railwright.spec.training import TrainingJob
from railwright.training.layers.stages import StageShape
from railwright.training.layout.sizes import weights_cut
from railwright.training.software.eras import era_of
from railwright.training.software.lora import linears
from railwright.training.software.nf4 import is_nf4, widest


def placeholders(job: TrainingJob, arch: Transformer, kinds: list[Layer]) -> float:
    """Empty gradients, one per shape of a layer's weights. [byte]

    Weight gradients of Transformer Engine's linear layers go straight into the main gradients, and autograd
    gets an empty 16-bit tensor instead, which is kept for good (pytorch/module/base.py, get_dummy_wgrad;
    pytorch/ops for the fused MLP of experts).
    """
    if not era_of(job).placeholders or job.layout.zero == 3 or job.lora:
        return 0.0
    return ELEMENT * sum(m * n for m, n in _weights(job, arch, kinds))


def largest_weight(job: TrainingJob, arch: Transformer, shape: StageShape) -> float:
    """Parameters of the largest weight of a stage."""
    kinds: list[Layer] = sorted({k for chunk in shape.chunks for k in chunk.layers})
    embedding = shape.embedding * any(c.embedding for c in shape.chunks)
    head = shape.head * any(c.head for c in shape.chunks)
    return max(embedding, head, *(float(m * n) for m, n in _weights(job, arch, kinds)))


def _weights(job: TrainingJob, arch: Transformer, kinds: list[Layer]) -> set[tuple[int, int]]:
    """Shapes of the weights of a stage's layers."""
    return {(op.m, op.n) for kind in kinds for op in weight_products(job, arch, kind)}


def weight_products(job: TrainingJob, arch: Transformer, kind: Layer) -> tuple[Operator, ...]:
    """Products that make the gradients of a layer's weights on one GPU: one of each is m x n large."""
    return _weight_products(arch, kind, weights_cut(job.layout, kind))


@lru_cache(maxsize=1024)
def _weight_products(arch: Transformer, kind: Layer, cut: Cut) -> tuple[Operator, ...]:
    return layer_operators(arch, kind, cut.tp, cut.tp, cut).backward_weight


def widened(job: TrainingJob, arch: Transformer, kind: Layer) -> float:
    """16 bits of a layer's largest weight, where they are in 4: there while its product runs. [byte]"""
    if not is_nf4(job):
        return 0.0
    apart = linears(made_as(arch, kind), era_of(job).adapts_apart)
    return widest(weight_products(job, arch, kind), apart)
