"""What one GPU runs for a recommendation model: lookups and updates of tables, dense products."""

from __future__ import annotations

import math
from dataclasses import dataclass

from railwright.model.operators.kernels import ELEMENT, Block, elementwise, linear
from railwright.model.recommendation.dlrm import Part, Recommender
from railwright.model.shape.architecture import Operator

INDEX_BYTES = 8.0
"""Bytes of one index: int64, as TorchRec exchanges them.  HugeCTR's have 4, but for `i64_input_key`
(solver_wrapper.hpp of 25.03)."""

SAMPLE_BYTES = 4.0
"""Bytes of the sample's number that is sorted beside each index."""

STATE_BYTES = {"adagrad": 4.0, "rowwise-adagrad": 0.0, "sgd": 0.0}
ROW_STATE_BYTES = {"adagrad": 0.0, "rowwise-adagrad": 4.0, "sgd": 0.0}
"""fp32 optimiser state of each number of a table, and of each row (FBGEMM: EXACT_ADAGRAD,
EXACT_ROWWISE_ADAGRAD)."""

SORT_BITS = 8
"""Bits that one pass of a radix sort orders (CUB's onesweep)."""


@dataclass(frozen=True)
class Held:
    """What one GPU holds of the tables, and does with them for one batch.

    rows      of all tables it holds a part of
    lookups   rows read; values: numbers read, lookups times columns held
    distinct  rows among them that differ; touched: numbers in those
    pooled    sums written [numbers]
    """

    rows: float
    lookups: float
    values: float
    distinct: float
    touched: float
    pooled: float


def distinct_rows(rows: float, lookups: float) -> float:
    """Different rows among uniform lookups of a table: R (1 - e^(-L/R)).

    Real lookups are skewed, so fewer differ: an upper bound of what an update touches.
    """
    return -rows * math.expm1(-lookups / rows)


def lookup_operator(held: Held, table_bytes: float) -> Operator:
    """Read rows and indices, write sums: one fused kernel over all tables.

    table_bytes  of one number in a table
    Every lookup counts as read from HBM: caches are left out, an upper bound for small tables.
    """
    moved = held.values * table_bytes + held.lookups * INDEX_BYTES + held.pooled * ELEMENT
    return Operator("lookup", "memory", 0.0, moved, "bf16")


def update_operators(held: Held, table_bytes: float, optimizer: str) -> tuple[Operator, ...]:
    """Sort the indices, add up gradients of equal rows, update each different row once.

    Sorting takes a pass per 8 bits of a row's number.
    Source: FBGEMM_GPU, split_embeddings_backward: radix sort of (index, sample) pairs, then one warp per run
    of equal indices reads the gradients, the row and its state, and writes the last two.
    """
    passes = max(1, math.ceil(math.log2(max(held.rows, 2.0)) / SORT_BITS))
    sorted_bytes = held.lookups * (INDEX_BYTES + SAMPLE_BYTES) * (2 * passes + 1)
    state = held.touched * STATE_BYTES[optimizer] + held.distinct * ROW_STATE_BYTES[optimizer]
    moved = held.values * ELEMENT + 2.0 * (held.touched * table_bytes + state)
    return (
        Operator("sort indices", "memory", 0.0, sorted_bytes, "bf16", phase="optimizer", launches=passes + 1),
        Operator("update tables", "memory", 0.0, moved, "bf16", phase="optimizer"),
    )


def layout_blocks(model: Recommender, samples: int, arriving: float, placed: float) -> list[Block]:
    """Copies of a sample's vectors on their way from the tables to the interaction, and of their gradients.

    arriving  numbers of a sample that an all-to-all brings, pieces by rows apart; 0 without one
    placed    numbers of a sample that these are the sums of
    What an all-to-all brings lies by sender: it is put in the order of the samples, where pieces by rows are
    added up.  Then the sums and the bottom MLP's vector are put together.  Backward the same two copies.
    Source: HugeCTR 25.03, embedding/operators/network_forward.cu and network_backward.cu, and
    src/layers/concat_layer.cu; TorchRec, distributed/comm_ops.py, All2All_Pooled_Wait, and models/dlrm.py,
    torch.cat in every interaction.
    """
    wide = model.vectors * model.width
    found = []
    if arriving:
        back = arriving + placed
        found.append(elementwise("order sums", samples, reads=arriving, writes=placed, back=back))
    return [*found, elementwise("concatenate", samples, reads=wide, writes=wide, back=2 * wide)]


def dense_blocks(model: Recommender, samples: int, dtype: str) -> dict[Part, list[Block]]:
    """Products and element-wise kernels of 'bottom', 'interaction' and 'top' for `samples` of one GPU.

    Activation functions and biases are fused into the products (cuBLASLt epilogues).
    A dot interaction reads all vectors and writes one number per pair; a cross layer multiplies and adds
    after its second product.
    """
    found: dict[Part, list[Block]] = {"bottom": [], "interaction": [], "top": []}
    wide = model.vectors * model.width
    for i, one in enumerate(model.products()):
        blocks = found[one.part]
        blocks.append(linear(f"{one.part} {i + 1}", samples, one.outputs, one.inputs, dtype))
        if one.crosses:
            blocks.append(elementwise("cross", samples, reads=3 * wide, writes=wide, back=6 * wide))
    if model.interaction == "dot":
        out = model.interacted
        found["interaction"].append(
            elementwise("pairs", samples, reads=wide, writes=out, back=wide + out + wide)
        )
    return found
