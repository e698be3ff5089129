"""How many forward passes of each chunk a stage holds at once, in the order its schedule runs them."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.training.layout.route import Unit

Held = tuple[int, ...]


def held_sets(
    order: Sequence[Unit],
    chunks: int,
    *,
    head: int | None = None,
    embedding: int | None = None,
    layered: bool = False,
) -> tuple[Held, ...]:
    """Passes held of each chunk at once: the moments that no other one exceeds in every chunk.

    head       of the moments when a backward pass of this chunk begins only; a forward pass beside it is not
               yet there
    embedding  of the moments when a backward pass of this chunk ends only; a forward pass beside it is whole
    layered    a forward pass fills up layer by layer as the backward pass beside it empties: both are never
               there whole

    A pass is held from its forward to its backward, or to its weight gradients where the backward is split.
    """
    split = {(unit.chunk, unit.microbatch) for unit in order if unit.kind == "W"}
    now = [0] * chunks
    seen: dict[Held, None] = {}
    growing, everywhere = False, head is None and embedding is None
    for unit in order:
        ended = False
        if unit.kind in ("B", "I", "FB") and unit.backward_chunk == head:
            seen[tuple(now)] = None
        if unit.kind == "F" or (unit.kind == "FB" and not layered):
            now[unit.chunk] += 1
            growing = True
        if unit.kind in ("B", "W", "FB"):
            chunk = unit.backward_chunk
            microbatch = unit.other if unit.kind == "FB" else unit.microbatch
            if unit.kind == "W" or (chunk, microbatch) not in split:
                if growing and everywhere:
                    seen[tuple(now)] = None
                growing = False
                now[chunk] -= 1
                ended = chunk == embedding
        if unit.kind == "FB" and layered:
            now[unit.chunk] += 1
            growing = True
        if ended:
            seen[tuple(now)] = None
    if growing and everywhere:
        seen[tuple(now)] = None
    return _largest(list(seen))


def through_head(order: Sequence[Unit], chunks: int, head: int) -> dict[bool, tuple[tuple[Held, int], ...]]:
    """Passes held of each chunk and passes that have left the head by then, at every moment when a backward
    pass begins; True: one of the head's chunk.

    head  its chunk
    """
    split = {(unit.chunk, unit.microbatch) for unit in order if unit.kind == "W"}
    now, left = [0] * chunks, 0
    seen: dict[bool, dict[tuple[Held, int], None]] = {True: {}, False: {}}
    for unit in order:
        for one in unit.passes:
            if one.kind == "F":
                now[one.chunk] += 1
                left += one.chunk == head
                continue
            seen[one.chunk == head][tuple(now), left] = None
            if one.kind == "W" or (one.kind == "B" and (one.chunk, one.microbatch) not in split):
                now[one.chunk] -= 1
    return {which: tuple(moments) for which, moments in seen.items()}


def _largest(moments: list[Held]) -> tuple[Held, ...]:
    """Those that no other one covers."""
    kept: list[Held] = []
    for one in sorted(moments, key=sum, reverse=True):
        if not any(all(a <= b for a, b in zip(one, other, strict=True)) for other in kept):
            kept.append(one)
    return tuple(kept)
