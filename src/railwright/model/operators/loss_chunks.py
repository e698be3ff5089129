"""The LM head and its loss in chunks of tokens: how many rows each has, and what kernels run around them.

Legend: V vocabulary, h hidden width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from railwright.model.operators.kernels import ELEMENT, GRADIENT, Block, linear
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator

ChunkedLoss = Literal["torchtune", "torchtitan", "liger"]

PRODUCT, LOSS = "lm head", "softmax and loss"
"""How the names of those operators end (`model.ends`)."""

CHUNKS = 8
"""Chunks of torchtune's and torchtitan's losses.  Source: torchtune bd2a0fc, modules/loss/
cross_entropy_loss.py (num_output_chunks); torchtitan b5bcd76, components/loss.py (num_chunks)."""


@dataclass(frozen=True)
class Around:
    """What a loss in chunks runs beside its products and its passes over the logits. [byte]

    forward, backward  of every element of the head's input, once a microbatch
    first, summed      of every weight, for the gradient of the first chunk and of each other one
    scaled             of every weight, backward
    at_once            whether a chunk's backward pass follows its forward pass, in the model's forward pass
    written            whether the loss's forward kernel writes the gradient of the logits
    """

    forward: float = 0.0
    backward: float = 0.0
    first: float = 0.0
    summed: float = 0.0
    scaled: float = 0.0
    at_once: bool = True
    written: bool = False


AROUND: dict[ChunkedLoss, Around] = {
    "torchtune": Around(forward=4.0, backward=12.0, summed=6.0, at_once=False),
    "torchtitan": Around(forward=24.0, summed=10.0),
    "liger": Around(forward=6.0, backward=4.0, first=4.0, summed=2.0, scaled=4.0, written=True),
}
"""torchtune: rows that have a label are copied (2 + 2); backward the chunks' gradients are joined (2 + 2),
zeros made (2) and the rows added to them (2 + 2 + 2), and autograd adds each chunk's gradient of the weight
to those before it, in 16 bits (2 + 2 + 2).
Source: torchtune bd2a0fc, LinearCrossEntropyLoss.mask_inputs and forward; PyTorch, autograd/input_buffer.cpp.
torchtitan: zeros in fp32, each chunk's gradient widened and copied into them, at last 16 bits of all (4,
2 + 4, 4 + 4, 4 + 2); FSDP adds each chunk's gradient of the weight to a sum in fp32 (2 + 4 + 4).
Source: torchtitan b5bcd76, components/loss.py, GradAccumulator and ChunkedLossWrapper; PyTorch, FSDP2,
_fsdp_param.py, accumulate_unsharded_grad_if_needed.
liger: zeros, into which each chunk's gradient is copied (2, 2 + 2); zeros for that of the weight (2), to
which the product of each chunk adds (2 more to read).  Backward both are multiplied by the gradient of the
loss (2 + 2), which is not 1 where a trainer divides it, as Hugging Face's does.
Source: Liger-Kernel ead96b6, ops/fused_linear_cross_entropy.py, and pull request 1454 of September 2026,
since which the product adds again, as it did up to 2845fe83 of July 2025: in between it wrote 16 bits, which
were widened and added, 14 bytes a weight and chunk instead of 2; transformers, loss/loss_utils.py
(num_items_in_batch)."""


def chunk_rows(how: ChunkedLoss, rows: int, chunks: int | None, vocab: int, hidden: int) -> tuple[int, ...]:
    """Rows of each chunk of a microbatch of so many rows.

    chunks  asked for; None: as many as the software's own default

    torch.tensor_split makes chunks as even as can be.  Liger's are powers of two that take no more logits
    than hidden states are there: with ceil(V/h) as many columns, rows over that, rounded up.
    Source: Liger-Kernel ead96b6, ops/fused_linear_cross_entropy.py (inc_factor, chunk_size).
    """
    if how == "liger":
        each = 1 << (-(-rows // -(-vocab // hidden)) - 1).bit_length()
        return tuple(min(each, rows - start) for start in range(0, rows, each))
    count = min(chunks or CHUNKS, rows)
    return tuple(rows // count + (i < rows % count) for i in range(count))


def in_chunks(operators: LayerOperators, how: ChunkedLoss, rows: Sequence[int]) -> LayerOperators:
    """A head's operators (`ends.head_operators`) with its product and its loss once for each chunk.

    rows  of each chunk
    Gradients of a loss that runs backward `at_once` are among the forward operators, under the same names.
    """
    around, products = AROUND[how], {op.name: op for op in operators.forward if op.name.endswith(PRODUCT)}

    def split(op: Operator) -> Iterator[Operator]:
        """An operator once for each chunk, or as it is."""
        product = products.get(_of(op))
        if op.kind == "gemm" and product:
            yield from _products(op, product, rows, around)
        elif _of(op).endswith(LOSS):
            for r in rows:
                yield replace(op, bytes=op.bytes * r / sum(rows))
        else:
            yield op

    def early(op: Operator) -> bool:
        """Whether a gradient is computed in the forward pass."""
        return around.at_once and (_of(op).endswith(LOSS) or (op.kind == "gemm" and _of(op) in products))

    def ahead(op: Operator) -> Iterator[Operator]:
        yield from split(op)
        for back in (*operators.backward_input, *operators.backward_weight):
            if _of(back) == op.name and early(back) and not (around.written and op.name.endswith(LOSS)):
                yield from (replace(one, name=op.name) for one in split(back))
        if op.name in products:
            yield _moved(op, around.forward * sum(rows) * op.k)

    def behind(op: Operator, elements: float, each: float) -> Iterator[Operator]:
        """A gradient, and what moves so many bytes of each of its elements then."""
        if not early(op):
            yield from split(op)
        if op.kind == "gemm" and _of(op) in products and each:
            yield _moved(op, each * elements)

    return replace(
        operators,
        forward=tuple(new for op in operators.forward for new in ahead(op)),
        backward_input=tuple(
            new for op in operators.backward_input for new in behind(op, op.m * op.n, around.backward)
        ),
        backward_weight=tuple(
            new for op in operators.backward_weight for new in behind(op, op.m * op.n, around.scaled)
        ),
    )


def _products(op: Operator, product: Operator, rows: Sequence[int], around: Around) -> Iterator[Operator]:
    """The product of each chunk that the head's product, or a gradient of it, becomes.

    What becomes of a whole gradient of the weight is the first chunk's; others write 16 bits and add them.
    """
    weights = float(product.n * product.k)

    def block(rows: int) -> Block:
        return linear(product.name, rows, product.n, product.k, product.dtype)

    if op.phase != "backward_weight":
        for r in rows:
            yield block(r).forward if op.phase == "forward" else block(r).backward_input[-1]
        return
    (whole,) = block(sum(rows)).backward_weight
    for i, r in enumerate(rows):
        (made,) = block(r).backward_weight
        written = ELEMENT * weights if i else op.bytes - whole.bytes + 2 * GRADIENT * weights
        yield replace(made, bytes=made.bytes - 2 * GRADIENT * weights + written)
        if beside := around.summed if i else around.first:
            yield _moved(op, beside * weights)


def _of(op: Operator) -> str:
    """The forward operator that one is, or is a gradient of."""
    return op.name.rsplit(", ", 1)[0]


def _moved(op: Operator, moved: float) -> Operator:
    """A kernel beside an operator that moves so many bytes."""
    return Operator(op.name, "memory", 0.0, moved, op.dtype, phase=op.phase)
