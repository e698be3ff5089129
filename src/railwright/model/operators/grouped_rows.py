"""Rows on their way to experts and back by operations of PyTorch, around grouped products (`Cut.dispatch`).

Rows are gathered for every choice of a token, gathered again in the order of experts, weighted behind these,
put back and added up; numbers of tokens stay on the GPU, and the host waits for none.
Source: Hugging Face's transformers 5, integrations/moe.py, grouped_mm_experts_forward (its default).
tests/oracle/test_model_experts_pytorch.py counts every operation of PyTorch's autograd.
"""

from __future__ import annotations

from railwright.model.operators.kernels import ELEMENT, Block, elementwise
from railwright.model.operators.looped import KERNELS, with_sorted
from railwright.model.operators.recompute import OFFSETS, ORDER, ROWS, SUMS
from railwright.model.shape.architecture import Operator

COUNTS = 7
"""Numbers of tokens: their indices and a copy of them for every choice, choices and weights in order, a cast,
a histogram and running sums."""

SORTS = 2
"""Sorts of choices: there and back."""


def rows_there(rows: int, dispatched: float, width: int) -> list[Block]:
    """What runs before the products of all experts.

    rows, dispatched  tokens, and rows that experts receive
    width  of a row
    """
    each = dispatched / max(rows, 1) * width
    gathered = elementwise(ROWS, rows, 2 * each, 2 * each, back=width + each, launches=(2, 2))
    return [
        Block(Operator(ORDER, "memory", 0.0, 0.0, "bf16", launches=SORTS * KERNELS[ORDER]), ()),
        Block(Operator(OFFSETS, "memory", 0.0, 0.0, "bf16", launches=COUNTS), ()),
        with_sorted(gathered, 2, 2 * 3 * ELEMENT * rows * each),
    ]


def rows_back(rows: int, dispatched: float, width: int) -> Block:
    """What runs behind them: weights, the old order, and the sum over a token's rows.

    Backward every row is read from the sum's gradient, and put among zeros; weights have gradients too.
    """
    each = dispatched / max(rows, 1) * width
    back = (2 + 1 + 2 + 3 + 1) * each
    summed = elementwise(SUMS, rows, 3 * each, width + 4 * each, back=back, launches=(4, 6))
    return with_sorted(summed, 2, 3 * ELEMENT * rows * each)
