"""The tensors of a layer as values: which operator makes, reads and keeps which (`layer` writes them)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

INPUT, OUTPUT = "attention norm input", "layer output"
"""What a layer reads, and what the next one does; a name of `layer_activations` where there is one."""

QKV = "query, key, value"
NARROW_QKV = "query, key, value in 8 bits"
NARROW_OUTPUT, PROJECTED_INPUT = "attention output in 8 bits", "output projection input"
"""What attention keeps of its output for itself, and what the product behind it then keeps of it."""

STORED = " in 8 bits"
"""End of the name of what a gated activation reads, where it is kept so."""

BEFORE_EXCHANGE = "attention output before all-to-all"

SCOPES = {
    "attention norm output": "mlp norm output",
    "mlp norm output": OUTPUT,
    QKV: "projected",
    "query, key, value, exchanged": "projected",
    "scores": "projected",
    "dropped softmax": "projected",
    "attention output": "projected",
    "attention gates": "projected",
    "gated output": "projected",
    "value output": "projected",
    BEFORE_EXCHANGE: "projected",
    "projected": OUTPUT,
    "mlp norm input": OUTPUT,
    "down": OUTPUT,
}
"""Tensors that a variable of Megatron's forward functions still names: those of the attention until its
output projection, those of the layer until its end (core/transformer/attention.py, transformer_layer.py)."""

RECEIVED = (
    "dispatched",
    "expert input",
    "expert up output",
    "expert activated",
    "expert product",
    "expert output",
    "unsorted",
)
"""Tensors with a row for each one that a GPU's experts receive."""


@dataclass(frozen=True)
class Kept:
    """One tensor that is kept: bytes per row, and whether it is spread over ranks like norms are."""

    name: str
    bytes: float
    spread: bool = False


@dataclass(frozen=True)
class Makes:
    """One operator.

    reads    tensors of its forward pass, in the order their gradients are made
    makes    tensor -> bytes of the tensors it makes
    keeps    what its backward pass needs
    weights  parameters of each weight that it multiplies with
    beside   bytes that it needs for itself, forward and backward
    same     the gradient of what it reads is that of what it makes (an addition, or written in place)
    """

    reads: tuple[str, ...]
    makes: Mapping[str, float]
    keeps: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    beside: tuple[float, float] = (0.0, 0.0)
    same: bool = False


@dataclass(frozen=True)
class LayerTensors:
    """The operators of one layer of one microbatch on one GPU, in the order of the forward pass.

    gradients  tensor -> bytes of its gradient; activations have theirs in 16 bits
    groups     tensor -> the name under which `layer_activations` counts it, where that is another
    until      tensor -> tensor that is made before the first one's last name goes out of scope
    """

    operators: tuple[Makes, ...]
    gradients: Mapping[str, float]
    groups: Mapping[str, str]
    until: Mapping[str, str]


def with_received(tensors: LayerTensors, factor: float) -> LayerTensors:
    """The same layer where its experts receive `factor` times as many rows."""

    def scaled(sizes: Mapping[str, float]) -> dict[str, float]:
        return {name: size * (factor if name in RECEIVED else 1.0) for name, size in sizes.items()}

    operators = tuple(replace(op, makes=scaled(op.makes)) for op in tensors.operators)
    return replace(tensors, operators=operators, gradients=scaled(tensors.gradients))
