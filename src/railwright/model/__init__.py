"""The transformer as a value: architecture, parameters, FLOPs, operators of one GPU, activation memory."""

from railwright.model.architecture import Operator, Transformer
from railwright.model.ends import (
    embedding_operators,
    head_operators,
    optimizer_bytes,
    optimizer_operators,
)
from railwright.model.flops import ForwardBackward, flops_per_token
from railwright.model.operators import LayerOperators, layer_operators

__all__ = [
    "ForwardBackward",
    "LayerOperators",
    "Operator",
    "Transformer",
    "embedding_operators",
    "flops_per_token",
    "head_operators",
    "layer_operators",
    "optimizer_bytes",
    "optimizer_operators",
]
