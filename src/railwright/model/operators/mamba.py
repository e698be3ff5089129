"""Mamba-2 between its two products: convolution, the state-space dual scan in chunks, gated norm.

Kernels, their products and what they read and write are counted in state-spaces/mamba e9594ce1,
ops/triton/ssd_combined.py (MambaSplitConv1dScanCombinedFn, which Megatron-LM's MambaMixer calls) and the
files beside it: ssd_chunk_state.py, ssd_state_passing.py, ssd_bmm.py, ssd_chunk_scan.py, layernorm_gated.py.
The backward pass runs the convolution and the states again.  What a kernel reads for every head of a group
comes out of L2.  Legend: `chunks.Local`.
"""

from __future__ import annotations

from railwright.model.operators.chunks import CAUSAL, WIDE, Local, block
from railwright.model.operators.kernels import ELEMENT, Block
from railwright.model.shape.architecture import LinearMixer

SUMS = 12
"""Small kernels of the backward pass: zeros that others add to, and sums over their splits (dD, ddt, dB, dC,
dCB, ddA)."""


def mamba_blocks(mixer: LinearMixer, rows: float, sequence: int, tp: int, dtype: str) -> list[Block]:
    """From the projected rows to what the product behind takes.

    rows   tokens of the microbatch; sequence  of one of its sequences: kernels work on chunks of all at once
    dtype  16-bit format
    """
    here = Local.of(mixer, rows, tp, dtype)
    return [
        convolution(here, here.v + 2 * here.k, again=True),
        _decays(here),
        _states(here),
        _passing(here),
        _inside(here),
        _scan(here),
        _gated_norm(here),
    ]


def mamba_kept(mixer: LinearMixer, tp: int) -> dict[str, float]:
    """Bytes per token beside the projected row: the scan's output (what save_for_backward holds)."""
    return {"mixer scanned": ELEMENT * mixer.values / tp}


def mamba_working(mixer: LinearMixer, tp: int) -> tuple[float, float]:
    """Bytes per token that the forward and the backward pass need for themselves at most.

    Forward: the convolution's output, and new states beside those they become.  Backward: that output and
    its gradient, those of the projected row and of the scan's output; and either states and their gradients
    in two formats each, or those once with the squares of chunks and their gradients.
    """
    v, k = mixer.values / tp, mixer.keys / tp
    wide, state = v + 2 * k, v * mixer.key_dim / mixer.chunk
    squares = WIDE * mixer.chunk * mixer.key_heads / tp
    rows = ELEMENT * (2 * wide + 2 * v + 2 * k + v)
    back = rows + squares + max(4 * ELEMENT * state, 2 * ELEMENT * state + squares)
    return ELEMENT * wide + (WIDE + ELEMENT) * state, back


def convolution(here: Local, wide: float, again: bool) -> Block:
    """A causal convolution and its activation read and write their columns once; backward, input and gradient
    are read and a gradient written, and a second kernel sums the weights' gradients.

    again  whether the backward pass needs its output, which is not kept
    """
    name, once = "mixer convolution", 2 * ELEMENT * here.rows * wide
    repeated = (here.stream(f"{name}, again", once),) if again else ()
    return block(here.stream(name, once), *repeated, here.stream(f"{name}, backward", 1.5 * once, 2))


def _decays(here: Local) -> Block:
    """Steps and sums of decays in fp32; with the small sums of the backward pass."""
    name, each = "mixer decays", here.rows * here.heads
    moved = each * (ELEMENT + 2 * WIDE)
    return block(
        here.stream(name, moved, tuned=1),
        here.stream(f"{name}, again", moved, tuned=1),
        here.stream(f"{name}, sums", each * 6 * WIDE, SUMS),
        here.stream(f"{name}, backward", each * (2 * WIDE + 2 * ELEMENT), tuned=1),
    )


def _states(here: Local) -> Block:
    """What every chunk adds to the state of every head.

    B's gradient is summed over the heads of a group inside the kernel, and then over its splits.
    """
    name, shape = "mixer chunk states", (here.p, here.n, here.c)
    read = here.rows * (ELEMENT * (here.v + here.k) + 2 * WIDE * here.heads)
    made = read + WIDE * here.state
    summed = (here.c, here.n, here.p * here.heads / here.groups)
    back = read + ELEMENT * here.state + 3 * WIDE * here.rows * here.k
    return block(
        here.products(name, shape, here.chunks * here.heads, made),
        here.products(f"{name}, again", shape, here.chunks * here.heads, made),
        here.products(f"{name}, B gradient", summed, here.chunks * here.groups, back),
    )


def _passing(here: Local) -> Block:
    """The states in front of every chunk, one after another: fp32 read, 16 bits written.  Backward states and
    their gradients are read and written in 16 bits."""
    name, moved = "mixer state passing", (WIDE + ELEMENT) * here.state
    return block(
        here.stream(name, moved, tuned=1),
        here.stream(f"{name}, again", moved, tuned=1),
        here.stream(f"{name}, backward", 4 * ELEMENT * here.state, tuned=1),
    )


def _inside(here: Local) -> Block:
    """Products of B and C inside chunks, whole squares in fp32; backward once for each of the two."""
    name, batch, shape = "mixer chunk products", here.chunks * here.groups, (here.c, here.c, here.n)
    squares = WIDE * here.rows * here.c * here.groups
    moved = 2 * ELEMENT * here.rows * here.k + squares
    back = squares + here.rows * here.k * (2 * ELEMENT + WIDE)
    gradient = here.products(f"{name}, gradient", (here.c, here.n, here.c), batch, back)
    again = here.products(f"{name}, again", shape, batch, moved)
    return block(here.products(name, shape, batch, moved), again, gradient, gradient)


def _scan(here: Local) -> Block:
    """The output: C times the state in front of a chunk, and the chunk's own tokens up to the diagonal.

    Backward: gradients of states, inputs, C, the squares, and decays, which compute the squares' again.
    """
    name, p, n, c = "mixer chunk scan", here.p, here.n, here.c
    states, squares = ELEMENT * here.state, WIDE * here.rows * c * here.groups
    each, decays = ELEMENT * here.rows, 2 * WIDE * here.rows * here.heads
    v, k, of_heads, of_groups = here.v, here.k, here.chunks * here.heads, here.chunks * here.groups
    both, shared = (c, p, n + CAUSAL * c), p * here.heads / here.groups
    output = each * (2 * v + k) + states + squares + decays
    inputs = each * (3 * v + k) + states + squares + 1.5 * decays
    sums = each * (v + k) + states + 3 * WIDE * here.rows * k
    return block(
        here.products(name, both, of_heads, output),
        here.products(f"{name}, state gradient", (p, n, c), of_heads, each * (v + k) + states),
        here.products(f"{name}, input gradient", both, of_heads, inputs),
        here.products(f"{name}, C gradient", (c, n, shared), of_groups, sums),
        here.products(
            f"{name}, square gradient", (c, c, shared), of_groups, each * 2 * v + 3 * squares, share=CAUSAL
        ),
        here.products(
            f"{name}, decay gradient", (c, c, p), of_heads, each * 2 * v + squares + decays, share=CAUSAL
        ),
    )


def _gated_norm(here: Local) -> Block:
    """The scan's output times its gate, normed over a group; a second kernel sums the gains' gradients."""
    name, each = "mixer gated norm", ELEMENT * here.rows * here.v
    return block(here.stream(name, 3 * each, tuned=1), here.stream(f"{name}, backward", 5 * each, 2, tuned=1))
