"""Gated delta nets between their products: convolution, normed keys, the delta rule in chunks, gated norm.

Kernels, their products and what they read and write are counted in fla-org/flash-linear-attention bc3b101d,
ops/gated_delta_rule (chunk.py, chunk_fwd.py, wy_fast.py) and ops/common (chunk_delta_h.py, chunk_o.py), and
what is around them in Megatron-LM d98e8a64, core/ssm/gated_delta_net (gdn.py, common.py): queries and keys
are repeated for every head of values.  States pass from chunk to chunk in two kernels whose blocks wait for
one another: `Operator.steps`.  Legend: `chunks.Local`.
"""

from __future__ import annotations

from railwright.model.operators.chunks import WIDE, Local, block
from railwright.model.operators.kernels import ELEMENT, Block
from railwright.model.operators.mamba import convolution
from railwright.model.shape.architecture import LinearMixer

LOWER = 10 / 16
"""Share of a chunk's square that keys times keys fill: blocks of 16 tokens up to the diagonal
(chunk_fwd.py, chunk_gated_delta_rule_fwd_kkt_solve_kernel)."""


def delta_blocks(mixer: LinearMixer, rows: float, sequence: int, tp: int, dtype: str) -> list[Block]:
    """From the projected rows to what the product behind takes.

    rows      of the microbatch; sequence  tokens of one of its sequences, which may lie on several ranks,
              each with a part of the heads
    dtype     16-bit format
    """
    here = Local.of(mixer, rows, tp, dtype)
    rounds = max(sequence / mixer.chunk, 1.0)
    return [
        convolution(here, here.v + 2 * here.k, again=False),
        _inputs(here),
        _gates(here),
        _solved(here),
        _written(here),
        _states(here, rounds),
        _output(here),
        _gated_norm(here),
    ]


def delta_kept(mixer: LinearMixer, tp: int) -> dict[str, float]:
    """Bytes per token beside the projected row, which is the convolution's input.

    The delta rule keeps queries and keys of every head of values, values, the inverse of every chunk's
    square; sums of decays and gates, in fp32 and 16 bits; queries and keys before their norm.  Then its
    output, and that normed beside its gate.
    """
    heads, v, k = mixer.heads / tp, mixer.values / tp, mixer.keys / tp
    repeated = heads * mixer.key_dim
    rule = ELEMENT * (2 * repeated + v + heads * mixer.chunk + 2 * k) + heads * (WIDE + 2 * ELEMENT)
    return {"mixer rule": rule, "mixer scanned": ELEMENT * v, "mixer normed": ELEMENT * v}


def delta_working(mixer: LinearMixer, tp: int) -> tuple[float, float]:
    """Bytes per token that the forward and the backward pass need for themselves at most: written keys and
    values with the states; those again with new values and gradients of all of them."""
    heads, v = mixer.heads / tp, mixer.values / tp
    repeated, state = heads * mixer.key_dim, v * mixer.key_dim / mixer.chunk
    return ELEMENT * (repeated + 2 * v + state), ELEMENT * (4 * repeated + 5 * v + 2 * state)


def _inputs(here: Local) -> Block:
    """Queries and keys copied and normed, repeated for the heads of values; values and gates copied.

    Backward: repeated ones summed, the norm, and the gradient of the projected row put together.
    """
    name, each = "mixer inputs", ELEMENT * here.rows
    repeated = 2 * here.heads * here.n
    normed, copied = 2 * 2 * (2 * here.k), 2 * 2 * here.v
    moved = each * (normed + 2 * here.k + repeated + copied)
    back = each * (repeated + 2 * here.k + 3 * 2 * here.k + 2 * 2 * (here.k + here.v))
    return block(here.stream(name, moved, 6, tuned=2), here.stream(f"{name}, backward", back, 5, tuned=2))


def _gates(here: Local) -> Block:
    """Decays and their sums over a chunk in fp32, and gates of what is written."""
    name, each = "mixer decays", here.rows * here.heads
    back = each * (4 * WIDE + 4 * ELEMENT)
    return block(
        here.stream(name, each * (3 * ELEMENT + 3 * WIDE), 3, tuned=1),
        here.stream(f"{name}, backward", back, 4, tuned=1),
    )


def _solved(here: Local) -> Block:
    """Keys times keys inside a chunk, and the inverse of that triangle, whose small products are left out.

    Backward, with that of what is written: its products with keys, values and their gradients.
    """
    name, n, p, c = "mixer chunk inverse", here.n, here.p, here.c
    batch, each, keys = here.chunks * here.heads, ELEMENT * here.rows, here.heads * here.n
    square = each * here.heads * c
    gates = here.rows * here.heads * (WIDE + ELEMENT)
    back = each * (5 * keys + 4 * here.v) + square + 2 * gates
    return block(
        here.products(name, (c, c, n), batch, each * keys + square + gates, share=LOWER),
        here.products(f"{name}, backward", (c, c, 5 * n + 2 * p + 2 * c), batch, back),
        here.stream(f"{name}, sums", 3 * each * keys + 3 * WIDE * here.rows * here.heads, 2),
    )


def _written(here: Local) -> Block:
    """The inverse times keys and values: what a chunk erases and writes; again in the backward pass."""
    name, each = "mixer chunk writes", ELEMENT * here.rows
    moved = each * (2 * here.heads * here.n + 2 * here.v + here.heads * here.c)
    shape = (here.c, here.n + here.p, here.c)
    batch = here.chunks * here.heads
    return block(
        here.products(name, shape, batch, moved), here.products(f"{name}, again", shape, batch, moved)
    )


def _states(here: Local, rounds: float) -> Block:
    """The state of every head, chunk after chunk: what is erased of it, and what is added.

    Backward it runs again, and its gradient passes from the last chunk to the first.
    rounds  chunks of one sequence
    """
    name, n, p, c = "mixer state passing", here.n, here.p, here.c
    batch, each, keys = here.chunks / rounds * here.heads, ELEMENT * here.rows, here.heads * here.n
    states = ELEMENT * here.state
    moved = each * (2 * keys + 2 * here.v) + states
    back = each * (3 * keys + 3 * here.v) + states
    local = each * (2 * keys + 2 * here.v)
    return block(
        here.products(name, (n, p, 2 * c), batch, moved, steps=rounds),
        here.products(f"{name}, again", (n, p, 2 * c), batch, moved, steps=rounds),
        here.products(f"{name}, local gradient", (c, p, c + n * c / p), here.chunks * here.heads, local),
        here.products(f"{name}, backward", (n, p, 3 * c), batch, back, steps=rounds),
    )


def _output(here: Local) -> Block:
    """Queries times the state in front of a chunk, and times its own keys and values.

    Backward: gradients of queries, keys, what is erased and decays.
    """
    name, n, p, c = "mixer chunk output", here.n, here.p, here.c
    batch, each, keys = here.chunks * here.heads, ELEMENT * here.rows, here.heads * here.n
    states = ELEMENT * here.state
    back = each * (6 * keys + 3 * here.v) + 2 * states + 2 * WIDE * here.rows * here.heads
    return block(
        here.products(name, (c, p, n + c + n * c / p), batch, each * (2 * keys + 2 * here.v) + states),
        here.products(f"{name}, backward", (c, n, 3 * p + c * p / n + 2 * c), batch, back),
    )


def _gated_norm(here: Local) -> Block:
    """A norm of every head, and its product with the activated gate; a kernel each."""
    name, each = "mixer gated norm", ELEMENT * here.rows * here.v
    return block(here.stream(name, 5 * each, 2), here.stream(f"{name}, backward", 8 * each, 3))
