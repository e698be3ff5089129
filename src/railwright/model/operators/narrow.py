"""Attention in 8 bits: what Transformer Engine runs, keeps and sends beside cuDNN's kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from railwright.model.operators.kernels import ELEMENT, Block, elementwise
from railwright.model.shape.architecture import Operator

Scaling = Literal["", "mxfp8", "delayed", "current"]
"""How operands of attention are scaled: '' not at all, in 16 bits; 'mxfp8' per block; with one scale per
tensor, found before ('delayed') or in the tensor itself ('current')."""


@dataclass(frozen=True)
class Narrow:
    """One way to scale, in elements of 16 bits moved for an element where nothing else is said.

    dtype     format of the products
    written   bytes of an element that the kernels write: output and gradients
    inputs    (read, written) in front of the forward pass, for queries, keys and values
    output    (read, written) behind it, for the output
    gradient  moved in front of the backward pass, for the gradient of the output
    gradients  moved behind it, for those of queries, keys and values
    launches  kernels of the four
    keeps     bytes of an element of queries, keys and values that is kept
    keeps_output  of the output, beside what the product behind it keeps; 0 where the kernel's own output in
              16 bits is kept
    sent      bytes that context-parallel ranks exchange over those of 16 bits: queries, keys and values,
              output, gradient of the output, other gradients
    """

    dtype: str
    written: float
    inputs: tuple[float, float]
    output: tuple[float, float]
    gradient: float
    gradients: float
    launches: tuple[int, int, int, int]
    keeps: float
    keeps_output: float = 0.0
    sent: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)


BLOCK_COPIES = 2 * (0.5 + 0.5 / 32) + 4 * 0.5 / 32
"""What casts to MXFP8 write for one element, in elements of 16 bits: two copies in 8 bits with a scale byte
per 32, and in the four kernels that permute and swizzle all scales these read and written again."""

JOINED, CAST, WIDENED, SCANNED = 1.0 + 1.0, 1.0 + 0.5, 0.5 + 1.0, 1.0
"""Elements of 16 bits that a kernel moves which copies a tensor behind another, casts it to 8 bits or back,
or looks for its largest value."""

NARROW: dict[Scaling, Narrow] = {
    "mxfp8": Narrow(
        dtype="mxfp8",
        written=ELEMENT,
        inputs=(1.0, BLOCK_COPIES),
        output=(0.0, 0.0),
        gradient=1.0 + BLOCK_COPIES,
        gradients=0.0,
        launches=(7, 0, 5, 0),
        keeps=2 * (1.0 + 1 / 32),
    ),
    "delayed": Narrow(
        dtype="fp8",
        written=1.0,
        inputs=(2.0, JOINED + CAST - 2.0),
        output=(0.5, 1.0),
        gradient=CAST,
        gradients=JOINED / 2 + WIDENED,
        launches=(2, 1, 1, 2),
        keeps=1.0,
        keeps_output=1.0,
        sent=(0.5, 0.5, 0.5, 0.5),
    ),
    "current": Narrow(
        dtype="fp8",
        written=ELEMENT,
        inputs=(3.0, JOINED + SCANNED + CAST - 3.0),
        output=(0.0, 0.0),
        gradient=SCANNED + CAST,
        gradients=0.0,
        launches=(5, 0, 4, 0),
        keeps=1.0,
        sent=(0.5, 1.0, 0.5, 1.0),
    ),
}
"""MXFP8: one kernel for each tensor, straight and transposed, and four that permute and swizzle all scales.
One scale per tensor: queries, keys and values are joined and cast as one tensor.  Delayed, the kernels write
8 bits, which are widened behind them; the output is kept so, and the product behind it casts its own input.
Current, each cast clears and finds a maximum and makes a scale first, and the kernels write 16 bits.
Ranks of a ring or an all-to-all exchange what is cast; MXFP8 is cast behind the exchange.
Transformer Engine before 2.9 cast queries, keys and values one by one and joined nothing (3.5 to 1.5 elements
moved, 2.5 to 1.5 behind): it is told to take a little too long.
Source: Transformer Engine 2.16 (d0067d0), pytorch/attention/dot_product_attention/backends.py
(FusedAttnFunc), utils.py (combine_and_quantize, combine_and_dequantize, mxfp8_quantize_fast_path),
context_parallel.py (AttnFuncWithCPAndQKVOA2A, AttnFuncWithCPAndKVP2P); common/recipe/current_scaling.cu."""

SUMMED_HEADS = 12.0
"""Bytes moved for an element of the gradients of keys and values, which an attention in 8 bits makes in fp32
for every query head and then sums over those that share them: cleared, written, read.  Of cuDNN 9.22's
backward pass 9.6 to 12.6 bytes are left beside its products in MXFP8 where heads share keys (llama3.1), 10.8
to 13.9 with one scale per tensor, none where they do not (dsv3, gpt_oss; compute/data/attention.yaml)."""

SUMMED = ", sum over heads"
"""End of the name of the sum of gradients of keys and values."""

OUTPUT_IN_16_BITS = "attention output in 16 bits"
"""The kernel that widens the output."""


def beside_narrow(
    core: list[Block],
    rows: int,
    scaling: Scaling,
    *,
    heads: int,
    query_dim: int,
    value_dim: int,
    kv_heads: int,
) -> list[Block]:
    """Core attention in 8 bits with what runs beside it: casts, and the sum of the gradients of keys and
    values over the heads that share them (SUMMED_HEADS).

    core  its blocks in forward order
    """
    how = NARROW[scaling]
    inputs, out = heads * query_dim + kv_heads * (query_dim + value_dim), heads * value_dim
    read, written = how.inputs
    casts = elementwise(
        "attention casts",
        rows,
        read * inputs,
        written * inputs,
        how.gradients * inputs,
        (how.launches[0], how.launches[3]),
    )
    cast = Operator(
        "attention casts, backward",
        "memory",
        0.0,
        ELEMENT * rows * how.gradient * out,
        "bf16",
        phase="backward_input",
        launches=how.launches[2],
    )
    moved = rows * SUMMED_HEADS * heads * (query_dim + value_dim)
    summed = Operator(f"core attention{SUMMED}", "memory", 0.0, moved, "bf16", phase="backward_input")
    *others, last = core
    blocks = [*others, replace(last, backward_input=(cast, *last.backward_input))]
    if kv_heads < heads:
        blocks[0] = replace(blocks[0], backward_input=(*blocks[0].backward_input, summed))
    if how.launches[1]:
        read, written = how.output
        blocks.append(
            elementwise(OUTPUT_IN_16_BITS, rows, read * out, written * out, 0, (how.launches[1], 0))
        )
    return [casts, *blocks]
