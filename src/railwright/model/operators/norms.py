"""Norms: one fused kernel, or RMSNorm as Hugging Face's models run it in eager PyTorch."""

from __future__ import annotations

from railwright.model.operators.eager import Part
from railwright.model.operators.kernels import Block, elementwise
from railwright.model.shape.architecture import Transformer

RMS_LAUNCHES = (8, 16)
"""Kernels of one RMSNorm, forward and backward: a cast to fp32, square, mean, epsilon, inverse root, product,
a cast back and the product with the gains; backward the gradients of gains (product, sum) and of what they
multiply, a cast, the gradients of that product (two, and a sum for the factor of a row), three from the
factor of a row down to its mean, that mean's spread over the row, the square's (its base, twice it, times the
spread), the sum of both ways and a cast.
Counted in Hugging Face's transformers, models/llama/modeling_llama.py, LlamaRMSNorm; OLMo's RMSLayerNorm and
foundation-model-stack's LayerNormParameterized run the same.  tests/oracle/test_model_eager_pytorch.py counts
every operation of PyTorch's autograd."""

RMS_MOVED = (18.0, 46.0)
"""Times all elements are read or written forward and backward, an element in fp32 counted as two: forward the
casts 3 each, square 4, mean 2, product 4, gains 2; backward gains 2, 3 and 1, casts 3 each, the product's
gradients 6, 4 and a sum of 2, the mean's spread 2, the square's 4, 4 and 6, the sum 6.  What has one value a
row is left out."""

GAINS = (1, 3)
GAINS_MOVED = (2.0, 6.0)
"""Of these, what norms without learned gains lack."""

COPIED, NORMALISED = " in 32 bits", ", normalised"
ENDS = {COPIED: 2, NORMALISED: 1}
"""What autograd keeps of an RMSNorm instead of its input in 16 bits, and sizes over that: the copy in fp32
that square and product read, and, where there are gains, what these multiply.  Source: torch.autograd.graph.
saved_tensors_hooks around LlamaRMSNorm, PyTorch 2.13; the inverse root, a value a row, is left out."""

WORKING = (2, 8)
"""What its kernels need beside that, forward and backward, as so many inputs in 16 bits: a product in fp32;
backward the way through the product, the mean's spread, and two steps of the square, all in fp32."""


def splits_norms(arch: Transformer, unfused: tuple[Part, ...]) -> bool:
    """Whether norms run one kernel per operation; norms with biases are LayerNorm, one kernel in PyTorch."""
    return "norm" in unfused and not arch.norm_bias


def norm(
    name: str, rows: float, width: float, split: bool, gains: bool = True, tensors: tuple[int, int] = (1, 1)
) -> Block:
    """Norms of `width` elements a row in all.

    split    one kernel per operation; the cast that a fused norm does for a product in a narrow format is
             then left out
    gains    they are learned
    tensors  that are normed apart, and how many kernels norm them where they are fused
    """
    apart, fused = tensors
    if not split:
        return elementwise(name, rows, reads=width, writes=width, back=3 * width, launches=(fused, fused))
    forward, backward = (
        every - (0.0 if gains else less) for every, less in zip(RMS_MOVED, GAINS_MOVED, strict=True)
    )
    ahead, back = (
        apart * (every - (0 if gains else less)) for every, less in zip(RMS_LAUNCHES, GAINS, strict=True)
    )
    reads = forward / 2 * width
    return elementwise(name, rows, reads, reads, back=backward * width, launches=(ahead, back))


def layer_norm(name: str, arch: Transformer, rows: float, unfused: tuple[Part, ...]) -> Block:
    """A norm of hidden states."""
    return norm(name, rows, arch.hidden, splits_norms(arch, unfused), arch.norm_gain)


def kept_by_norm(gains: bool) -> dict[str, int]:
    """End of the name and size over an input in 16 bits of what RMSNorm keeps operation by operation."""
    return {end: times for end, times in ENDS.items() if gains or end != NORMALISED}


def more_by_norm(arch: Transformer, unfused: tuple[Part, ...]) -> float:
    """Inputs in 16 bits that a norm keeps beyond its one; 0 of a fused norm."""
    return sum(kept_by_norm(arch.norm_gain).values()) - 1.0 if splits_norms(arch, unfused) else 0.0
