"""Lightning attention between its products: activation, states with a fixed decay, gated norm.

Kernels, their products and what they read and write are counted in fla-org/flash-linear-attention bc3b101d,
ops/lightning_attn/chunk.py, which is ops/simple_gla/chunk.py with decays that nothing computes, ops/common
(chunk_h.py, chunk_o.py), and what is around them in huggingface/transformers 5.23, models/minimax.  States
pass from chunk to chunk in one kernel: `Operator.steps`.  Legend: `chunks.Local`.
"""

from __future__ import annotations

from railwright.model.operators.chunks import WIDE, Local, block
from railwright.model.operators.kernels import ELEMENT, Block
from railwright.model.shape.architecture import LinearMixer


def lightning_blocks(mixer: LinearMixer, rows: float, sequence: int, tp: int, dtype: str) -> list[Block]:
    """From the projected rows to what the product behind takes.

    rows   of the microbatch; sequence  tokens of one of its sequences, which may lie on several ranks, each
           with a part of the heads
    dtype  16-bit format
    """
    here = Local.of(mixer, rows, tp, dtype)
    rounds = max(sequence / mixer.chunk, 1.0)
    return [_activated(here), _states(here, rounds), _output(here), _gated_norm(here)]


def lightning_kept(mixer: LinearMixer, tp: int) -> dict[str, float]:
    """Bytes per token beside the projected row: queries, keys and values; the state's output; that normed,
    and its gate."""
    values, keys = ELEMENT * mixer.values / tp, ELEMENT * mixer.keys / tp
    return {"mixer rule": values + 2 * keys, "mixer scanned": values, "mixer normed": 2 * values}


def lightning_working(mixer: LinearMixer, tp: int) -> tuple[float, float]:
    """Bytes per token that the forward and the backward pass need for themselves at most: states; those in
    fp32 with their gradients, and gradients of queries, keys and values."""
    state = mixer.values * mixer.key_dim / mixer.chunk / tp
    rows = ELEMENT * (2 * mixer.keys + 2 * mixer.values) / tp
    return ELEMENT * state, 2 * WIDE * state + rows


def _activated(here: Local) -> Block:
    """Queries, keys and values activated."""
    name, each = "mixer activation", ELEMENT * here.rows * (here.v + 2 * here.k)
    return block(here.stream(name, 2 * each), here.stream(f"{name}, backward", 3 * each))


def _states(here: Local, rounds: float) -> Block:
    """The state of every head, chunk after chunk; backward again, and its gradient from the last chunk to the
    first, both in fp32.

    rounds  chunks of one sequence
    """
    name, shape = "mixer state passing", (here.n, here.p, here.c)
    batch, read = here.chunks / rounds * here.heads, ELEMENT * here.rows * (here.k + here.v)
    wide = read + WIDE * here.state
    return block(
        here.products(name, shape, batch, read + ELEMENT * here.state, steps=rounds),
        here.products(f"{name}, again", shape, batch, wide, steps=rounds),
        here.products(f"{name}, backward", shape, batch, wide, steps=rounds),
    )


def _output(here: Local) -> Block:
    """Queries times the state in front of a chunk, and times its own keys and values; backward gradients of
    queries and keys in one kernel, of values in another."""
    name, n, p, c = "mixer chunk output", here.n, here.p, here.c
    batch, each = here.chunks * here.heads, ELEMENT * here.rows
    own = (c, p, n + c + n * c / p)
    back = each * (4 * here.k + 2 * here.v) + 2 * WIDE * here.state
    values = each * (2 * here.k + 2 * here.v) + WIDE * here.state
    return block(
        here.products(name, own, batch, each * (2 * here.k + 2 * here.v) + ELEMENT * here.state),
        here.products(f"{name}, backward", (c, n, 2 * p + c * p / n + 2 * c), batch, back),
        here.products(f"{name}, value gradient", own, batch, values),
    )


def _gated_norm(here: Local) -> Block:
    """A norm of all heads together, a sigmoid of the gate, and their product: a kernel each."""
    name, each = "mixer gated norm", ELEMENT * here.rows * here.v
    return block(here.stream(name, 7 * each, 3), here.stream(f"{name}, backward", 11 * each, 4))
