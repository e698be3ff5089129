"""What latent attention to chosen keys keeps, and when its tensors come and go: see `sparse` for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.sparse import KEPT_PER_KEY, SCORED_ROWS
from railwright.model.shape.architecture import Transformer

if TYPE_CHECKING:
    from railwright.model.tensors.layer import Tape

INPUTS = "index inputs"
"""Hidden states and query latents of all tensor ranks, that the indexer's products keep."""

SCORED, CHOICE = "index query, key", "index choice"


def sparse_kept(
    arch: Transformer, sequence: int, tp: int, split: int, keep: float
) -> list[tuple[str, float, bool]]:
    """Name, bytes per row, and whether it is spread over ranks like norms are, of each tensor kept between
    the input norm and the output projection.

    split  ranks that share the rows of norms;  keep  bytes of a product's kept input
    The indexer's products keep their inputs as the ranks gathered them: two copies of the hidden states
    where each quantises its own.  A layer without one keeps none of that, nor indices of its own.
    """
    heads, narrow = arch.heads / tp, keep != ELEMENT
    latent, key = arch.q_lora + arch.kv_lora, arch.kv_lora + arch.rope_dim
    gathered = arch.hidden + arch.q_lora if split > 1 else 0
    own = keep * (2 * arch.hidden + arch.q_lora) if narrow else ELEMENT * gathered
    index = ELEMENT * (arch.index_heads + 2) * arch.index_dim + 4.0 * arch.index_heads
    found = [
        ("latents", ELEMENT * (latent + arch.rope_dim) + keep * arch.q_lora, True),
        ("query up output", ELEMENT * heads * (arch.head_dim + arch.rope_dim), False),
        ("query, key, value", ELEMENT * (heads * key + key), False),
        ("attention output", ELEMENT * heads * arch.kv_lora, False),
        ("value output", keep * heads * arch.v_head_dim, False),
    ]
    if not arch.index_heads:
        return found
    chosen = KEPT_PER_KEY * min(arch.index_topk, sequence)
    found += [(SCORED, index, False), (CHOICE, chosen, False)]
    return [*found, (INPUTS, own, False)] if own else found


def index_logits(arch: Transformer, rows: float, sequence: int) -> float:
    """Index scores in memory at once, in 32 bits. [byte]"""
    return 4.0 * min(rows, SCORED_ROWS) * sequence if arch.index_heads else 0.0


def sparse_latents(tape: Tape, sequence: int) -> str:
    """From the norm's output to absorbed queries and keys; the indexer beside them."""
    arch, rows, heads = tape.arch, tape.rows, tape.arch.heads / tape.tp
    of = "attention norm output"
    down = (arch.q_lora, arch.kv_lora + arch.rope_dim)
    latent = tape.size("latents", ELEMENT * rows / tape.split * sum(down))
    tape.product(of, "latents", latent, of, *(n * arch.hidden for n in down))
    query = heads * (arch.head_dim + arch.rope_dim)
    up = tape.wide("query up output", query)
    tape.product("latents", "query up output", up, "latents", arch.q_lora * query)
    qkv = tape.wide("query, key, value", (heads + 1) * (arch.kv_lora + arch.rope_dim))
    absorbed = heads * arch.head_dim * arch.kv_lora
    tape.product("query up output", "query, key, value", qkv, "query up output", absorbed)
    if not arch.index_heads:
        return "query, key, value"
    # no gradient flows out of the indexer: it reads nothing that has one
    if INPUTS in tape.kept:
        tape.op((), {INPUTS: (0.0, tape.kept[INPUTS])})
    index = tape.kept.get(SCORED, ELEMENT * rows * (arch.index_heads + 2) * arch.index_dim)
    width = arch.index_heads * arch.index_dim
    weights = (arch.q_lora * width, arch.hidden * arch.index_dim, arch.hidden * arch.index_heads)
    keeps = (INPUTS,) if INPUTS in tape.kept else ()
    tape.op((), {SCORED: (index, index)}, keeps, weights=weights)
    chosen = tape.kept.get(CHOICE, KEPT_PER_KEY * rows * min(arch.index_topk, sequence))
    logits = index_logits(arch, rows, sequence)
    tape.op((SCORED,), {CHOICE: (0.0, chosen)}, (SCORED, CHOICE), beside=(logits, index))
    return "query, key, value"


def sparse_values(tape: Tape) -> str:
    """What attention gave out of the latent space; returns what the output projection reads."""
    arch, heads = tape.arch, tape.arch.heads / tape.tp
    size = tape.wide("value output", heads * arch.v_head_dim)
    weight = heads * arch.v_head_dim * arch.kv_lora
    tape.product("attention output", "value output", size, "attention output", weight)
    return "value output"
