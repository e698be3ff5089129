"""One building block of a layer as operators: what it runs forward, and for its two gradients.

Bytes are HBM traffic with every operand read or written once: kernels whose working set fits the caches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from railwright.model.shape.architecture import Operator, Phase, Transformer
from railwright.model.shape.flops import score_flops_per_key, windowed_keys
from railwright.model.shape.pattern import windowed_share

HiddenDropout = Literal["", "fused", "apart"]
"""Whose kernel drops hidden states: none, the one that adds them, or one of its own."""

ELEMENT = 2.0
"""Bytes of one activation or weight in 16-bit training."""

MASK = 1.0 / ELEMENT
"""A dropout mask's byte, in elements."""

OPERAND_BYTES = {
    **dict.fromkeys(("fp8", "fp8_rowwise", "mxfp8", "fp8_block", "fp8_dynamic"), 1.0),
    **dict.fromkeys(("fp4", "nvfp4"), 0.5),
}
"""Bytes of one GEMM input by dtype; others take ELEMENT.  Outputs are always 16-bit."""

CAST_DTYPES = ("fp8", "fp8_rowwise", "mxfp8")
"""Formats whose casts are operators of their own here.  NVFP4's are put in where steps are made of them
(`training.layers.four_bits`); the measured rows of the others contain theirs."""

GRADIENT = 4.0
"""Bytes of one weight gradient: main gradients are accumulated in fp32 (Megatron-LM's default for bf16)."""

FLASH_BACKWARD = 2.5
"""FLOPs of FlashAttention's backward over its forward: five matrix products against two (the scores are
recomputed inside the kernel).  Source: Dao, FlashAttention-2 (2023), section 4.1."""


FUSED_KEYS, FUSED_BATCH = 4096, 4
"""Most keys of Megatron's fused softmax, and what heads times sequences on a GPU must be a multiple of.
Source: Megatron-LM core_v0.4, megatron/model/fused_softmax.py, is_kernel_available (2022; before, 2,048)."""

CAUSAL_SOFTMAX = (ELEMENT / 2 + ELEMENT, ELEMENT / 2 + ELEMENT / 2 + ELEMENT, 1)
"""Bytes per score forward and backward, and kernels, of Megatron's fused softmax: it reads up to the
diagonal, half of all scores, and writes them all.
Source: Megatron-LM, megatron/fused_kernels/scaled_upper_triang_masked_softmax.h."""

SPLIT_SOFTMAX = (6.0 + 8.0 + 8.0 + 8.0 + 6.0, 6.0 + 12.0 + 8.0 + 8.0 + 6.0, 5)
"""The same of the softmax that is not fused: cast to fp32, scale, mask, softmax, cast back; each reads and
writes every score, the softmax's gradient reads two.
Source: Megatron-LM core_v0.4, megatron/model/fused_softmax.py, forward_torch_softmax."""


@dataclass(frozen=True)
class Block:
    """One building block: its forward operator, and those of its input and weight gradients."""

    forward: Operator
    backward_input: tuple[Operator, ...]
    backward_weight: tuple[Operator, ...] = ()


def linear(name: str, rows: float, outputs: int, inputs: int, dtype: str, batch: int = 1) -> Block:
    """A linear layer y = x W: rows x inputs times inputs x outputs, in `batch` equal groups of rows.

    dX = dY W^T has the same FLOPs; dW = X^T dY too, and adds into fp32 main gradients (read and written).
    In fp8 the incoming gradient is cast first (16 bits read, fp8 written straight and transposed); the input
    was cast by the norm or activation before it (Transformer Engine's fused kernels).
    """
    each = -(-rows // batch)
    operand = OPERAND_BYTES.get(dtype, ELEMENT)
    x, y, w = rows * inputs, rows * outputs, float(batch * inputs * outputs)
    flops = 2.0 * rows * inputs * outputs

    def product(label: str, phase: Phase, m: int, n: int, k: int, moved: float) -> Operator:
        kind = "grouped_gemm" if batch > 1 else "gemm"
        return Operator(label, kind, flops, moved, dtype, m, n, k, batch, phase, batch)  # type: ignore[arg-type]

    m = int(each)
    cast = Operator(
        f"{name}, gradient cast", "memory", 0.0, 2.0 * ELEMENT * y, half(dtype), phase="backward_input"
    )
    back_bytes, weight_bytes = operand * (y + w) + ELEMENT * x, operand * (x + y) + 2 * GRADIENT * w
    back = product(f"{name}, input gradient", "backward_input", m, inputs, outputs, back_bytes)
    weight = product(f"{name}, weight gradient", "backward_weight", outputs, inputs, m, weight_bytes)
    return Block(
        product(name, "forward", m, outputs, inputs, operand * (x + w) + ELEMENT * y),
        (cast, back) if dtype in CAST_DTYPES else (back,),
        (weight,),
    )


def half(dtype: str) -> str:
    """The 16-bit format beside `dtype`: what attention, router and head run in."""
    return "fp16" if dtype == "fp16" else "bf16"


def elementwise(
    name: str, rows: float, reads: float, writes: float, back: float, launches: tuple[int, int] = (1, 1)
) -> Block:
    """Kernels limited by memory: `reads` and `writes` elements per row forward, `back` in all backward.

    launches  how many kernels that is, forward and backward
    """
    forward = Operator(name, "memory", 0.0, ELEMENT * rows * (reads + writes), "bf16", launches=launches[0])
    if not back:
        return Block(forward, ())
    moved = ELEMENT * rows * back
    return Block(
        forward,
        (
            Operator(
                f"{name}, backward",
                "memory",
                0.0,
                moved,
                "bf16",
                phase="backward_input",
                launches=launches[1],
            ),
        ),
    )


def expert_biases(rows: float, experts: int, width: int) -> Block:
    """The biases of `experts` down projections, added to their rows in eager PyTorch, in 16 bits.

    Forward each expert's bias is multiplied by its rows' router probabilities (one write) and added (two
    reads, one write), and the parts are joined (one each).  Backward gradients are joined (one each), and
    multiplied and summed up for the bias and again for the probabilities (two reads and a write each).
    Source: Megatron-LM, moe/experts.py, TEGroupedMLP._apply_bias; the up projection's bias is in its product.
    """
    launches = (2 * experts + 1, 4 * experts + 1)
    return elementwise("experts bias", rows, 3 * width, 3 * width, back=8 * width, launches=launches)


def residual(name: str, rows: float, hidden: int, biased: bool, dropout: HiddenDropout = "") -> Block:
    """The sum of a part's output and its input; backward, of their gradients.

    biased   the bias is in the forward kernel; backward, the sum of its gradient is a kernel of its own
    dropout  'fused' in the forward kernel, which writes a mask of one byte, else 'apart' before it; backward
             a kernel of its own, which reads gradient and mask and writes
    Source: Megatron-LM core_v0.4, megatron/model/transformer.py, bias_dropout_add, and d98e8a6, core/fusions/
    fused_bias_dropout.py (jit_fuser); the kernels backward are those of its autograd.  PyTorch, ATen
    native/cuda/Dropout.cu: fused_dropout_kernel, masked_scale_kernel.
    """
    reads, writes, back, launches = 2.0 * hidden, 1.0 * hidden, 3.0 * hidden, (1, 1)
    if dropout:
        writes, back, launches = writes + MASK * hidden, back + (2 + MASK) * hidden, (1, 2)
    if dropout == "apart":
        reads, writes, launches = reads + hidden, writes + hidden, (2, 2)
    if biased:
        back, launches = back + hidden, (launches[0], launches[1] + 1)
    return elementwise(name, rows, reads, writes, back, launches)


def dropping(name: str, rows: float, width: int) -> Block:
    """Elements dropped by a kernel of its own, which writes a mask beside what is left (`residual`)."""
    mask = MASK * width
    return elementwise(name, rows, reads=width, writes=width + mask, back=2 * width + mask)


def output_gate(rows: float, width: int, gates: int) -> Block:
    """The attention output times the sigmoid of its gates: one fused kernel each way, which backward makes
    the gradients of both out of output, gates and the incoming gradient.

    width, gates  elements of a row of them on this GPU; fewer gates than elements are those of heads
    Source: Megatron-LM d98e8a6, core/transformer/attention.py, _apply_output_gate (jit_fuser).
    """
    return elementwise("output gate", rows, reads=width + gates, writes=width, back=3 * width + 2 * gates)


def attention_pair(
    rows: int,
    sequence: int,
    *,
    heads: int,
    query_dim: int,
    value_dim: int,
    kv_heads: int,
    flops: float,
    dtype: str = "bf16",
    written: float = ELEMENT,
    dropped: bool = False,
) -> Block:
    """FlashAttention forward and backward on this GPU's heads.

    flops  of the forward pass, causal half only: the kernels skip blocks above the diagonal [flop]
    written  bytes of an element of the output and of gradients
    dropped  scores are dropped at random; a pass keeps two numbers of it, from which the backward kernel
             draws the same ones again

    Forward moves Q, K, V, O and the fp32 log-sum-exp once; backward reads them and dO and writes dQ, dK,
    dV.  K and V are re-read per block of queries, out of L2 at these sizes.
    The operator's shape: m queries and n keys per sequence, k the head width, `batch` heads times sequences.
    """
    q, kv = heads * query_dim, kv_heads * (query_dim + value_dim)
    out, stats = heads * value_dim, 4.0 * heads
    shape = (sequence, sequence, query_dim, max(rows // sequence, 1) * heads)
    narrow = OPERAND_BYTES.get(dtype, ELEMENT)
    return Block(
        Operator(
            "core attention",
            "attention",
            flops,
            rows * (narrow * (q + kv) + written * out + stats),
            dtype,
            *shape,
            dropped=dropped,
        ),
        (
            Operator(
                "core attention, backward",
                "attention",
                FLASH_BACKWARD * flops,
                rows * ((narrow + written) * (q + kv + out) + 2 * stats),
                dtype,
                *shape,
                phase="backward_input",
                dropped=dropped,
            ),
        ),
    )


def windowed_attention(
    arch: Transformer, whole: Block, rows: int, sequence: int, tp: int, backward: bool = True
) -> list[Block]:
    """The mean layer's attention with sliding windows: its windowed layers' share, and that of the others.

    whole     the attention of a layer without a window
    backward  whether the kernel's backward pass leaves out what lies outside the window; not in 8 bits
    A window's queries meet as many keys as those of a causal sequence of twice its length, and its kernel is
    as slow as that one's: few tiles of keys between prologue and tail.  A chunk is a causal sequence of its
    own.  The two count as one launch.
    """
    window, each = arch.sliding_window, score_flops_per_key(arch) * rows / tp
    if not 0 < window < sequence:
        return [whole]

    def part(share: float, mean: float, n: int, launches: int) -> Block:
        def scaled(op: Operator, mean: float, n: int) -> Operator:
            flops = op.flops / whole.forward.flops * each * mean * share
            return replace(op, flops=flops, bytes=op.bytes * share, n=n, launches=launches)

        seen = (mean, n) if backward else (sequence / 2, sequence)
        return Block(scaled(whole.forward, mean, n), tuple(scaled(op, *seen) for op in whole.backward_input))

    share = windowed_share(arch)
    if not share:
        return [whole]
    alike = window if arch.window_chunked else min(2 * window, sequence)
    near = part(share, windowed_keys(arch, sequence), alike, 1)
    if share == 1.0:
        return [near]
    return [near, part(1 - share, sequence / 2, sequence, 0)]


def unfused_attention(
    rows: int,
    sequence: int,
    *,
    heads: int,
    query_dim: int,
    value_dim: int,
    dtype: str = "bf16",
    dropout: bool = True,
) -> list[Block]:
    """Attention before FlashAttention: scores, masked softmax, dropout and values, each a kernel of its own.

    Every score, masked ones too, is computed and written to memory; keys and values count per query head.
    The softmax is one fused kernel where that takes the shape (CAUSAL_SOFTMAX), else SPLIT_SOFTMAX; dropout
    is another with a mask of one byte (at rate 0 PyTorch runs none).
    Source: Megatron-LM core_v0.4, megatron/model/transformer.py, CoreAttention (baddbmm,
    FusedScaleMaskSoftmax, dropout, bmm); bytes per score as in arXiv 2205.05198, section 4.1.
    """
    batch = max(rows // sequence, 1) * heads
    scores = float(rows) * sequence * heads
    q, v = float(rows) * heads * query_dim, float(rows) * heads * value_dim

    def product(name: str, n: int, k: int, moved: float, phase: Phase = "backward_input") -> Operator:
        """sequence x k times k x n for every head and sequence."""
        flops = 2.0 * rows * heads * n * k
        return Operator(name, "gemm", flops, moved, dtype, sequence, n, k, batch, phase)

    def products(name: str, width: int, moved: float, onto_scores: bool) -> Block:
        """Keys onto scores or scores onto values; backward, once each way."""
        label = f"{name}, backward"
        along, across = (sequence, width), (width, sequence)
        return Block(
            product(name, *(along if onto_scores else across), moved, "forward"),
            (
                product(label, *(across if onto_scores else along), moved),
                product(label, *across, moved),
            ),
        )

    def pointwise(name: str, forward: float, backward: float, kernels: int = 1) -> Block:
        """Bytes per score of so many kernels forward and backward."""
        label = f"{name}, backward"
        ahead = Operator(name, "memory", 0.0, forward * scores, dtype, launches=kernels)
        back = Operator(
            label, "memory", 0.0, backward * scores, dtype, phase="backward_input", launches=kernels
        )
        return Block(ahead, (back,))

    fused = batch % FUSED_BATCH == 0 and 16 < sequence <= FUSED_KEYS and sequence % 4 == 0
    softmax = CAUSAL_SOFTMAX if fused else SPLIT_SOFTMAX
    dropped = [pointwise("attention dropout", 2 * ELEMENT + 1, 2 * ELEMENT + 1)] if dropout else []
    return [
        products("attention scores", query_dim, 2 * ELEMENT * q + ELEMENT * scores, True),
        pointwise("attention softmax", *softmax),
        *dropped,
        products("attention values", value_dim, 2 * ELEMENT * v + ELEMENT * scores, False),
    ]
