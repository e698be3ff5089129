"""Kimi delta attention between its products: convolution, decays of every key, the delta rule, gated norm.

Kernels, their products and what they read and write are counted in fla-org/flash-linear-attention bc3b101d,
layers/kda.py, ops/kda (chunk.py, chunk_fwd.py, chunk_bwd.py, chunk_intra.py, wy_fast.py, gate.py) and
ops/common/chunk_delta_h.py: a gated delta net with a decay for every key in place of one per head.  States
pass from chunk to chunk in two kernels: `Operator.steps`.  Legend: `chunks.Local`.
"""

from __future__ import annotations

from railwright.model.operators.chunks import WIDE, Local, block
from railwright.model.operators.delta import LOWER
from railwright.model.operators.kernels import ELEMENT, Block
from railwright.model.operators.mamba import convolution
from railwright.model.shape.architecture import LinearMixer


def kda_blocks(mixer: LinearMixer, rows: float, sequence: int, tp: int, dtype: str) -> list[Block]:
    """From the projected rows, decays and gates to what the product behind takes.

    rows   of the microbatch; sequence  tokens of one of its sequences, which may lie on several ranks, each
           with a part of the heads
    dtype  16-bit format
    """
    here = Local.of(mixer, rows, tp, dtype)
    rounds = max(sequence / mixer.chunk, 1.0)
    return [
        convolution(here, here.v + 2 * here.k, again=False),
        _normed(here),
        _decays(here),
        _inside(here),
        _written(here),
        _states(here, rounds),
        _output(here),
        _gated_norm(here),
    ]


def kda_kept(mixer: LinearMixer, tp: int) -> dict[str, float]:
    """Bytes per token beside the projected row: queries and keys before and after their norm, values; decays
    and gates as projected, with what is between their two products; two squares of every chunk; the state's
    output."""
    heads, v, k = mixer.heads / tp, mixer.values / tp, mixer.keys / tp
    rule = ELEMENT * (4 * k + v + 2 * heads * mixer.chunk + 2 * heads)
    gates = ELEMENT * (k + v + 2 * mixer.value_dim)
    return {"mixer rule": rule, "mixer gates": gates, "mixer scanned": ELEMENT * v}


def kda_working(mixer: LinearMixer, tp: int) -> tuple[float, float]:
    """Bytes per token that the forward and the backward pass need for themselves at most: decays in fp32,
    written keys and values, states; those with new values and gradients of all of them."""
    v, k = mixer.values / tp, mixer.keys / tp
    state = v * mixer.key_dim / mixer.chunk
    return WIDE * k + ELEMENT * (2 * k + 2 * v + state), 2 * WIDE * k + ELEMENT * (7 * k + 5 * v + 2 * state)


def _normed(here: Local) -> Block:
    """Queries and keys, each normed by a kernel; values are read as they are."""
    name, each = "mixer key norm", ELEMENT * here.rows * 2 * here.k
    return block(
        here.stream(name, 2 * each, 2, tuned=2), here.stream(f"{name}, backward", 3 * each, 2, tuned=2)
    )


def _decays(here: Local) -> Block:
    """Sums of decays over a chunk in fp32, again in the backward pass, and gates of what is written; backward
    also their sums from the end of the chunk."""
    name, each = "mixer decays", here.rows * here.k
    moved = each * (ELEMENT + WIDE) + here.rows * here.heads * 2 * ELEMENT
    back = each * (4 * WIDE + 2 * ELEMENT)
    again = here.stream(f"{name}, again", moved, tuned=1)
    return block(
        here.stream(name, moved, 2, tuned=1), again, here.stream(f"{name}, backward", back, 4, tuned=2)
    )


def _inside(here: Local) -> Block:
    """Queries and keys times keys inside a chunk, block by block with their decays, and the inverse of the
    second triangle; backward the gradients of these, of queries, keys and decays."""
    name, n, c = "mixer chunk inverse", here.n, here.c
    batch, each = here.chunks * here.heads, ELEMENT * here.rows
    read = each * 2 * here.k + WIDE * here.rows * here.k
    squares = 2 * each * here.heads * c
    forward = here.products(name, (c, 2 * c, n), batch, read + squares, share=LOWER)
    gradients = 2 * each * 2 * here.k + 2 * WIDE * here.rows * here.k
    back = here.products(f"{name}, backward", (c, n, 4 * c), batch, read + squares + gradients, share=LOWER)
    return block(forward, back)


def _written(here: Local) -> Block:
    """The inverse times keys and values, and keys with their decays; again in the backward pass, with queries
    too."""
    name, each = "mixer chunk writes", ELEMENT * here.rows
    moved = each * (3 * here.k + 2 * here.v + here.heads * here.c) + WIDE * here.rows * here.k
    shape, batch = (here.c, here.n + here.p, here.c), here.chunks * here.heads
    again = here.products(f"{name}, again", shape, batch, moved + each * 2 * here.k)
    return block(here.products(name, shape, batch, moved), again)


def _states(here: Local, rounds: float) -> Block:
    """As of a gated delta net (`delta`), with decays of every key read too.

    rounds  chunks of one sequence
    """
    name, n, p, c = "mixer state passing", here.n, here.p, here.c
    batch, each = here.chunks / rounds * here.heads, ELEMENT * here.rows
    states, decays = ELEMENT * here.state, WIDE * here.rows * here.k / c
    moved = each * (2 * here.k + 2 * here.v) + states + decays
    back = each * (3 * here.k + 3 * here.v) + states + decays
    local = each * (here.heads * c * 2 + 3 * here.v)
    return block(
        here.products(name, (n, p, 2 * c), batch, moved, steps=rounds),
        here.products(f"{name}, again", (n, p, 2 * c), batch, moved, steps=rounds),
        here.products(f"{name}, local gradient", (c, p, 2 * c), here.chunks * here.heads, local),
        here.products(f"{name}, backward", (n, p, 3 * c), batch, back, steps=rounds),
    )


def _output(here: Local) -> Block:
    """Queries times the state in front of a chunk, and the chunk's square times its values.

    Backward: gradients of queries, keys, values, what is erased and decays, in one kernel.
    """
    name, n, p, c = "mixer chunk output", here.n, here.p, here.c
    batch, each = here.chunks * here.heads, ELEMENT * here.rows
    states, decays = ELEMENT * here.state, WIDE * here.rows * here.k
    square = each * here.heads * c
    back = each * (5 * here.k + 5 * here.v) + 2 * square + 2 * states + 2 * decays
    inner = 3 * p + 2 * c * p / n + 2 * c + 2 * c * c / n
    return block(
        here.products(name, (c, p, n + c), batch, each * (here.k + 2 * here.v) + square + states + decays),
        here.products(f"{name}, backward", (c, n, inner), batch, back),
    )


def _gated_norm(here: Local) -> Block:
    """A norm of every head times the sigmoid of its gate, in one kernel; gains' gradients in a second one."""
    name, each = "mixer gated norm", ELEMENT * here.rows * here.v
    return block(here.stream(name, 3 * each, tuned=1), here.stream(f"{name}, backward", 5 * each, 2, tuned=1))
