"""The products of an MLP or of experts, and the activation between: fused, or as eager PyTorch runs it."""

from __future__ import annotations

from dataclasses import replace

from railwright.model.operators.eager import Part
from railwright.model.operators.kernels import CAST_DTYPES, Block, elementwise, linear
from railwright.model.operators.recompute import LATENT, STORING
from railwright.model.shape.architecture import Operator, Transformer

GATED_LAUNCHES = (2, 3)
"""Kernels of silu(gate) * up, forward and backward: the two functions; both gradients of the product, and
that of silu.  Counted in Hugging Face's transformers, models/llama/modeling_llama.py, LlamaMLP, whose gate
and up are products of their own.  Where one product makes both, autograd also joins their gradients
(Megatron-LM with --no-bias-swiglu-fusion, OLMo's SwiGLU), which is left out.  tests/oracle/
test_model_eager_pytorch.py counts every operation of PyTorch's autograd."""

GATED_MOVED = (5.0, 9.0)
"""Times all elements of the product's width are read or written: silu reads and writes them once, the product
reads two and writes one; each of the three gradients reads two and writes one."""


Split = tuple[tuple[int, int], tuple[float, float]]
"""Kernels of what runs one for each operation, and times its elements are moved; forward and backward."""

SQUARED = ("relu2", "squared_relu")
"""Names of squared ReLU in config.json."""

SQUARED_LAUNCHES = (2, 4)
"""Kernels of pow(relu(x), 2), forward and backward: the gradient of pow is the product of three, x to the
first among them (PyTorch, autograd/FunctionsManual.cpp, pow_backward), and then comes that of relu."""

SQUARED_MOVED = (4.0, 10.0)
"""Times all elements are read or written: each function reads and writes them once; x to the first and twice
that too, the product with the gradient and ReLU's own read two and write one."""


def splits_gate(arch: Transformer, unfused: tuple[Part, ...]) -> bool:
    """Whether a gate's activation and its product run one kernel per operation."""
    return arch.gated and "activation" in unfused


def splits_square(arch: Transformer, unfused: tuple[Part, ...]) -> bool:
    """Whether a squared ReLU does; other activations without a gate are one kernel anyway."""
    return not arch.gated and "activation" in unfused and arch.details.activation in SQUARED


def activation(
    name: str,
    rows: float,
    width: int,
    gated: bool,
    split: Split | None,
    biased: bool = False,
) -> Block:
    """What lies between the two products of an MLP, of `width` elements a row behind it.

    split  None where one kernel is all
    biased the gradient of the first product's bias is summed by a kernel of its own
    """
    up, summed = 2 * width if gated else width, 1 if biased else 0
    if split is not None:
        launches, (forward, backward) = split
        back = backward * width + up * summed
        counts = (launches[0], launches[1] + summed)
        return elementwise(name, rows, (forward - 2) * width, 2 * width, back, counts)
    back = 2 * up + width + up * summed
    return elementwise(name, rows, reads=up, writes=width, back=back, launches=(1, 1 + summed))


def two_products(
    arch: Transformer,
    name: str,
    rows: float,
    width: int,
    dtype: str,
    batch: int = 1,
    casts: bool = False,
    biased: bool = False,
    outside: int | None = None,
    unfused: tuple[Part, ...] = (),
    stored: bool = False,
) -> list[Block]:
    """Up (with the gate beside it), activation, down; `rows` over all `batch` experts.

    outside  width of the rows outside, where it is not the hidden width
    biased  the gradient of the first product's bias is summed by a kernel of its own
    unfused  parts that run one kernel per operation
    stored  what the gated activation reads is kept in 8 bits (`storing`)
    casts  inputs are cast to fp8 by kernels of their own (16 bits read, fp8 written straight and transposed):
           no norm comes before routed experts, and their activation stays in 16 bits (Transformer Engine,
           pytorch/module/grouped_linear.py quantises its split input)
    """
    up, outer = 2 * width if arch.gated else width, outside or arch.hidden
    blocks = [
        linear(f"{name} up", rows, up, outer, dtype, batch),
        activation(f"{name} activation", rows, width, arch.gated, _split(arch, unfused), biased),
        linear(f"{name} down", rows, outer, width, dtype, batch),
    ]
    if stored:
        blocks.insert(1, storing(name, rows, up))
    if casts and dtype in CAST_DTYPES:
        blocks.insert(-1, elementwise(f"{name} down, cast", rows, reads=width, writes=width, back=0))
        blocks.insert(0, elementwise(f"{name} up, cast", rows, reads=outer, writes=outer, back=0))
    return blocks


def expert_activation(
    arch: Transformer, rows: float, width: int, unfused: tuple[Part, ...], experts: int
) -> Block:
    """The activation of `experts` that run one after the other; `rows` of all of them."""
    block = activation("experts activation", rows, width, arch.gated, _split(arch, unfused))

    def each(op: Operator) -> Operator:
        return replace(op, launches=experts * op.launches)

    return Block(each(block.forward), tuple(map(each, block.backward_input)))


def storing(name: str, rows: float, up: int) -> Block:
    """Casts what a gated activation reads, `up` elements a row, to 8 bits, in which it is kept, and in the
    backward pass to 16 bits again: a kernel each, beside the activation's own.

    Source: Megatron-LM d98e8a6, core/fusions/fused_bias_swiglu.py, SwiGLUFunction and WeightedSwiGLUFunction
    (fp8_input_store: Tensor.to outside of what is compiled).
    """
    return elementwise(f"{name}{STORING}", rows, reads=up, writes=0.5 * up, back=1.5 * up)


def _split(arch: Transformer, unfused: tuple[Part, ...]) -> Split | None:
    if splits_square(arch, unfused):
        return SQUARED_LAUNCHES, SQUARED_MOVED
    return (GATED_LAUNCHES, GATED_MOVED) if splits_gate(arch, unfused) else None


def to_latents(arch: Transformer, local: int, dtype: str) -> list[Block]:
    """Down to the width of experts; the norm's output stays in 16 bits for the router."""
    h = arch.hidden
    cast = [elementwise(f"{LATENT[0]}, cast", local, h, h, 0)] if dtype in CAST_DTYPES else []
    return [*cast, linear(LATENT[0], local, arch.expert_latent, h, dtype)]


def from_latents(arch: Transformer, local: int, dtype: str) -> list[Block]:
    """Back to hidden states; what comes from the experts is in 16 bits."""
    width = arch.expert_latent
    cast = [elementwise(f"{LATENT[1]}, cast", local, width, width, 0)] if dtype in CAST_DTYPES else []
    return [*cast, linear(LATENT[1], local, arch.hidden, width, dtype)]
