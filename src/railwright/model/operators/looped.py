"""Routed experts one after the other, as Hugging Face's models loop over them (`unfused: [experts]`).

For each expert PyTorch looks for the tokens that chose it, the host waits for their number, gathers their
rows, runs three linear layers and an activation, weights what they make, and adds it to the sum of all.
Source: Hugging Face's transformers 4.40 to 4.57, models/mixtral/modeling_mixtral.py, MixtralSparseMoeBlock
(so in Qwen2-MoE, Qwen3-MoE, OLMoE and others); version 5 groups the products of all experts.
tests/oracle/test_model_experts_pytorch.py counts every operation of PyTorch's autograd.
"""

from __future__ import annotations

from dataclasses import replace

from railwright.errors import PlanError
from railwright.model.operators.eager import Part
from railwright.model.operators.kernels import ELEMENT, Block, elementwise, linear
from railwright.model.operators.mlp_kernels import expert_activation
from railwright.model.operators.recompute import ORDER, ROWS, SEARCH, SUMS
from railwright.model.shape.architecture import Operator, Transformer

SORTED = ", sorted"
"""End of the names of what adds rows up in an order that it sorts them into."""

KERNELS = {SEARCH: 7, SORTED: 9, ORDER: 6}
"""Kernels and copies that one operation launches.
nonzero: a contiguous copy of the mask, a count in two, its copy to the host, which waits for it; then a
choice in two, and the indices in two dimensions.  Source: ATen, native/cuda/Nonzero.cu,
nonzero_cuda_out_impl.
index_put with sums: a linear index, its quotient, a row of numbers, a radix sort (histogram, sums and three
passes over the 17 bits that number 131,072 tokens), and the sum.  Source: native/cuda/Indexing.cu,
index_put_with_sort_kernel.
argsort: a row of numbers, histogram, sums and three passes over as many bits.  Source:
native/cuda/SortStable.cu, by cub's radix sort."""

WAITED = 2
"""Operations for which the GPU waits when the host has an expert's number of tokens: what is left of the
search, and the gather of its rows; behind those launches run ahead of their kernels again."""

CHOICE = (6, 12)
"""Kernels around the router forward and backward, without its product: softmax in fp32, the best experts, the
sum of their scores, a copy that it divides, and a cast; backward their gradients, one sum and zeros."""

MASK = 2
"""Kernels of the mask of who chose which expert: zeros, and ones scattered into them."""


def choice(arch: Transformer, rows: int) -> Block:
    """Scores and the best experts of every token. `rows`: tokens this GPU routes."""
    scores = 2 * arch.experts  # in 32 bits
    ahead, back = CHOICE
    return elementwise("expert choice", rows, ahead * scores, ahead * scores, back * 3 * scores, CHOICE)


def looped_experts(
    arch: Transformer, rows: int, dispatched: float, here: int, width: int, dtype: str, how: tuple[Part, ...]
) -> list[Block]:
    """The experts of a layer, `here` on this GPU and each `width` wide, between the router and their sum.

    rows, dispatched  tokens, and rows that all experts receive together; their shares are even
    how  parts that run one kernel per operation

    The gradient of each expert's rows is added to zeros as large as all hidden states, and these to each
    other; that of a row's weight, which all experts' rows have, is one number.
    Raises PlanError for experts with biases, or of another width than the hidden states: other loops.
    """
    if arch.mlp_bias or arch.expert_latent:
        what = "biases" if arch.mlp_bias else "latents"
        raise PlanError(f"{arch.name}: unfused experts are modelled without {what}; leave 'experts' out.")
    h, gates = arch.hidden, 2 if arch.gated else 1
    each = dispatched / max(rows, 1)
    sums = (here - 1) * 3 * h  # of gradients of all hidden states
    joined = 3 * each * h * (gates - 1)  # of those that gate and up projection read
    search = Operator(SEARCH, "memory", 0.0, 0.0, "bf16", launches=here * KERNELS[SEARCH])
    gathered = elementwise(
        ROWS,
        rows,
        reads=each * h,
        writes=each * h,
        back=here * h + sums + joined,
        launches=(MASK + here, here + here - 1 + here * (gates - 1)),
    )
    summed = elementwise(
        SUMS,
        rows,
        reads=(1 + 2) * each * h,
        writes=h + 2 * each * h,
        back=(2 + 2 + 3 + 1) * each * h,
        launches=(1 + 3 * here, (1 + 2 + 1 + 1) * here + here - 1),
    )
    return [
        Block(search, ()),
        with_sorted(gathered, here, 3 * ELEMENT * dispatched * h),
        _one_by_one(linear("experts up", dispatched, gates * width, h, dtype, here), here, gates),
        expert_activation(arch, dispatched, width, how, here),
        _one_by_one(linear("experts down", dispatched, h, width, dtype, here), here, 1),
        with_sorted(summed, here, 0.0),
    ]


def with_sorted(block: Block, times: int, moved: float) -> Block:
    """A block of which gradients are added up row by row besides, so many times. `moved` [byte]"""
    name, launches = f"{block.forward.name}{SORTED}", times * KERNELS[SORTED]
    added = Operator(name, "memory", 0.0, moved, "bf16", phase="backward_input", launches=launches)
    return replace(block, backward_input=(*block.backward_input, added))


def _one_by_one(block: Block, experts: int, layers: int) -> Block:
    """A grouped product as one of every expert's `layers` linear layers after the other."""

    def each(op: Operator) -> Operator:
        return replace(op, steps=experts, launches=experts * layers)

    return Block(
        each(block.forward), tuple(map(each, block.backward_input)), tuple(map(each, block.backward_weight))
    )
