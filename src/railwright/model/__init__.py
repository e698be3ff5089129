"""The transformer as a value: architecture, parameters, FLOPs, operators of one GPU, activation memory."""

from railwright.model.configs.hf_config import bundled_config, bundled_models, load_model, parse_config
from railwright.model.counts.parameters import (
    GpuParameters,
    ParameterCount,
    count_parameters,
    layer_parameters,
    mtp_end_parameters,
)
from railwright.model.operators.adam import AdamTypes, optimizer_bytes, optimizer_operators
from railwright.model.operators.cut import Cut
from railwright.model.operators.ends import embedding_operators, head_operators
from railwright.model.operators.layer import LayerOperators, layer_operators
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.flops import ForwardBackward, flops_per_token
from railwright.model.tensors.activations import (
    head_activation_bytes,
    layer_activations,
    layer_gradient_bytes,
)

__all__ = [
    "AdamTypes",
    "Cut",
    "ForwardBackward",
    "GpuParameters",
    "LayerOperators",
    "Operator",
    "ParameterCount",
    "Transformer",
    "bundled_config",
    "bundled_models",
    "count_parameters",
    "embedding_operators",
    "flops_per_token",
    "head_activation_bytes",
    "head_operators",
    "layer_activations",
    "layer_gradient_bytes",
    "layer_operators",
    "layer_parameters",
    "load_model",
    "mtp_end_parameters",
    "optimizer_bytes",
    "optimizer_operators",
    "parse_config",
]
