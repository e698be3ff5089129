"""Blocks of keys and values: taken, shared through prefixes, grown by decoding, given back.

Runs interpreted and compiled; see `kernel_rows`.
"""

from __future__ import annotations

from typing import Any

from railwright.serving.simulator.kernel_queue import cold_append, cold_remove
from railwright.serving.simulator.kernel_rows import (
    BLOCK,
    BLOCKS,
    CACHED,
    CACHES,
    CROSS,
    FINISH,
    GROWERS,
    HELD,
    LEFT,
    LRU,
    MOST_WINDOW,
    NOBODY,
    NUM_PARTS,
    OWN,
    PART0,
    PART_BLOCKS,
    PART_TOKENS,
    PARTS,
    POOL,
    REFERRED,
    RESERVES,
    RESIDENT,
    SHARED,
    SINCE,
    STEP,
    TOTAL,
    USED,
    WINDOW,
    YIELD,
)


def blocks_for(tokens: int, block: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + block - 1) // block


def free_blocks(s: Any, v: int) -> int:
    """Blocks of replica v that nobody refers to, those of cached prefixes among them."""
    free: int = s.pool[BLOCKS][s.replica[POOL][v]] - s.replica[USED][v]
    return free


def evict(s: Any, v: int) -> None:
    """Drop cached parts, coldest first, until what is used and what is cached fit."""
    blocks = s.pool[BLOCKS][s.replica[POOL][v]]
    while s.replica[USED][v] + s.replica[CACHED][v] > blocks:
        h = s.replica[LRU][v]
        cold_remove(s, v, h)
        s.prefix[RESIDENT][h] = 0
        s.replica[CACHED][v] -= s.count[PART_BLOCKS]


def parts_of(s: Any, v: int, i: int) -> int:
    """Parts of request i's prefix that replica v may share."""
    parts: int = s.request[PARTS][i]
    return parts if parts > 0 and s.pool[CACHES][s.replica[POOL][v]] else 0


def matched(s: Any, v: int, i: int) -> int:
    """Parts of request i's prefix, from the first on, that replica v holds."""
    if s.request[PARTS][i] == 0:
        return 0
    base, first = v * s.count[NUM_PARTS], s.request[PART0][i]
    found, parts = 0, parts_of(s, v, i)
    while found < parts and s.prefix[RESIDENT][base + s.part[first + found]]:
        found += 1
    return found


def needed(s: Any, v: int, i: int) -> int:
    """Blocks that replica v must find to admit request i, parts it already refers to left out."""
    y = s.replica[POOL][v]
    tokens = s.request[TOTAL][i] if s.pool[RESERVES][y] else s.request[HELD][i]
    if s.request[PARTS][i] == 0:
        return blocks_for(tokens, s.pool[BLOCK][y])
    parts = parts_of(s, v, i)
    total = blocks_for(tokens - parts * s.count[PART_TOKENS], s.pool[BLOCK][y])
    base, first = v * s.count[NUM_PARTS], s.request[PART0][i]
    for k in range(parts):
        if s.prefix[REFERRED][base + s.part[first + k]] == 0:
            total += s.count[PART_BLOCKS]
    return total


def take(s: Any, v: int, i: int) -> None:
    """Give request i the blocks of its prompt on replica v, and the parts of its prefix."""
    y = s.replica[POOL][v]
    parts = parts_of(s, v, i)
    tokens = s.request[TOTAL][i] if s.pool[RESERVES][y] else s.request[HELD][i]
    own = blocks_for(tokens - parts * s.count[PART_TOKENS], s.pool[BLOCK][y])
    s.request[OWN][i] = own
    s.request[SHARED][i] = parts
    s.replica[USED][v] += own
    base, first = v * s.count[NUM_PARTS], s.request[PART0][i]
    for k in range(parts):
        h = base + s.part[first + k]
        if s.prefix[REFERRED][h] == 0:
            s.replica[USED][v] += s.count[PART_BLOCKS]
            if s.prefix[RESIDENT][h]:
                cold_remove(s, v, h)
                s.replica[CACHED][v] -= s.count[PART_BLOCKS]
            s.prefix[RESIDENT][h] = 1
        s.prefix[REFERRED][h] += 1
    if s.replica[CACHED][v] > 0:
        evict(s, v)


def give_back(s: Any, v: int, i: int, own: int, parts: int) -> None:
    """Replica v gets back `own` blocks of request i; parts that nobody else refers to stay until evicted."""
    s.replica[USED][v] -= own
    base, first = v * s.count[NUM_PARTS], s.request[PART0][i]
    # The end of a prefix goes first when room is needed: without it the beginning is still of use.
    for k in range(parts - 1, -1, -1):
        h = base + s.part[first + k]
        s.prefix[REFERRED][h] -= 1
        if s.prefix[REFERRED][h] == 0:
            s.replica[USED][v] -= s.count[PART_BLOCKS]
            s.replica[CACHED][v] += s.count[PART_BLOCKS]
            cold_append(s, v, h)


def grown(s: Any, lane: int, y: int, step: int, steps: int) -> int:
    """Blocks that a lane's decoders need in the `steps` decode steps after `step`."""
    if s.lane[GROWERS][lane] == 0:
        return 0
    window, base = s.pool[WINDOW][y], lane * s.count[MOST_WINDOW]
    total = steps // window * s.lane[GROWERS][lane]
    for k in range(1, steps % window + 1):
        total += s.growth[base + (step + k) % window]
    return int(total)


def fitting_steps(s: Any, lane: int, y: int, step: int, steps: int, free: int) -> int:
    """How many of `steps` decode steps after `step` fit in so many free blocks."""
    window, base = s.pool[WINDOW][y], lane * s.count[MOST_WINDOW]
    if (steps // window + 1) * s.lane[GROWERS][lane] <= free:
        return steps
    total = 0
    for k in range(1, steps + 1):
        total += s.growth[base + (step + k) % window]
        if total > free:
            return k - 1
    return steps


def crossed(s: Any, y: int, i: int, step: int) -> int:
    """Blocks that request i has been given since it decodes, up to this lane step."""
    cross = s.request[CROSS][i]
    if cross < 0 or step < cross:
        return 0
    return int(1 + (step - cross) // s.pool[WINDOW][y])


def recompute(s: Any, lane: int, y: int, i: int) -> None:
    """What a decoding request has to have computed when it comes back, and what is then left of it."""
    done = s.lane[STEP][lane] - s.request[SINCE][i]
    s.request[LEFT][i] -= done
    s.request[HELD][i] += int(s.rate[YIELD][y] * done) + 1
    s.request[FINISH][i] = NOBODY
