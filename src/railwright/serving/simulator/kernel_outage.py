"""Replicas that are lost for a while: their requests start again elsewhere, with the tokens they have had.

Runs interpreted and compiled; see `kernel_rows`.
"""

from __future__ import annotations

from typing import Any

from railwright.serving.simulator.kernel_memory import give_back, recompute
from railwright.serving.simulator.kernel_price import run_time
from railwright.serving.simulator.kernel_queue import due_remove
from railwright.serving.simulator.kernel_route import route, touch
from railwright.serving.simulator.kernel_rows import (
    ACTIVE,
    ADVANCES,
    AFTER,
    ALIVE,
    BATCH,
    BUSY,
    CACHED,
    CHUNK_TOKENS,
    CHUNKS,
    CONTEXT,
    DECODERS,
    FILLED,
    FRESH,
    FRESH_END,
    GROWERS,
    HEAD,
    HEAPED,
    JOIN_SUM,
    JOINED,
    LAND,
    LAND_END,
    LANDINGS,
    LANDINGS_END,
    LANE,
    LANE0,
    LIMBO,
    LIMBO_END,
    LOAD,
    LOSSES,
    LRU,
    MOST_HEAP,
    MOST_STAGES,
    MOST_WINDOW,
    MRU,
    NEXT_SEND,
    NOBODY,
    NUM_PARTS,
    NUM_REPLICAS,
    OVER,
    OWN,
    PARTIAL,
    POOL,
    QUEUE,
    REFERRED,
    REMOTE,
    REPLICA,
    RESIDENT,
    RUNNING_NOW,
    SHARED,
    SLOPE,
    SOURCE,
    SOURCE_OWN,
    SOURCE_SHARED,
    STAGES,
    STANDING,
    START,
    STEP,
    STEPS,
    TAIL,
    TAKES,
    UNSENT,
    USED,
    YOUNGEST,
)
from railwright.serving.simulator.kernel_transfer import drop_transfer, settle, share


def lose(s: Any, v: int, now: float) -> None:
    """Replica v is gone with all it held: its requests go to others, and have their tokens computed again."""
    if s.replica[ALIVE][v] == 0:
        return
    s.replica[ALIVE][v] = 0
    y = s.replica[POOL][v]
    for lane in range(s.replica[LANE0][v], s.replica[LANE0][v] + s.pool[STAGES][y]):
        stop(s, lane, y, now)
    settle(s, now)
    k = 0
    while k < s.count[ACTIVE]:
        i = s.active[k]
        if s.request[REPLICA][i] == v or s.request[SOURCE][i] == v:
            drop_transfer(s, k)
        else:
            k += 1
    unland(s, v)
    unqueue(s, v)
    for i in range(s.count[NEXT_SEND]):
        standing = s.request[STANDING][i]
        if standing in (UNSENT, OVER):
            continue
        source = s.request[SOURCE][i]
        if s.request[REPLICA][i] != v and source != v:
            continue
        if source != NOBODY and source != v:
            give_back(s, source, i, s.request[SOURCE_OWN][i], s.request[SOURCE_SHARED][i])
            touch(s, source)
        elif source == v and standing != REMOTE:
            # On its way, or landed, elsewhere: the room kept for it is free again.
            w = s.request[REPLICA][i]
            give_back(s, w, i, s.request[OWN][i], s.request[SHARED][i])
            s.replica[RUNNING_NOW][w] -= 1
            touch(s, w)
        s.replica[LOAD][s.request[REPLICA][i]] -= 1
        s.request[SOURCE][i] = NOBODY
        s.request[LANE][i] = NOBODY
        s.request[FILLED][i] = 0
        s.request[LOSSES][i] += 1
        s.request[STANDING][i] = UNSENT
    clear(s, v)
    share(s, now)
    for i in range(s.count[NEXT_SEND]):
        if s.request[STANDING][i] == UNSENT and s.request[REPLICA][i] != NOBODY:
            route(s, i, now)


def stop(s: Any, lane: int, y: int, now: float) -> None:
    """A lane's run breaks off: steps completed count, the one under way does not."""
    if s.lane[BUSY][lane]:
        due_remove(s, lane)
        if s.lane[ADVANCES][lane] and s.pool[STAGES][y] == 1:
            done = 0
            takes, slope = s.run[TAKES][lane], s.run[SLOPE][lane]
            while (
                done + 1 < s.lane[STEPS][lane]
                and s.run[START][lane] + run_time(takes, slope, done + 1) <= now
            ):
                done += 1
            s.lane[STEP][lane] += done
    base = lane * s.count[MOST_HEAP]
    for at in range(s.lane[HEAPED][lane]):
        recompute(s, lane, y, s.heap[base + at])
    for k in range(s.count[MOST_WINDOW]):
        s.growth[lane * s.count[MOST_WINDOW] + k] = 0
    s.lane[BUSY][lane] = 0
    s.lane[DECODERS][lane] = 0
    s.lane[GROWERS][lane] = 0
    s.lane[HEAPED][lane] = 0
    s.lane[YOUNGEST][lane] = NOBODY
    s.lane[PARTIAL][lane] = NOBODY
    s.lane[FRESH][lane] = NOBODY
    s.lane[FRESH_END][lane] = NOBODY
    s.lane[JOINED][lane] = 0
    s.lane[BATCH][lane] = 0
    s.lane[CHUNKS][lane] = 0
    s.lane[CHUNK_TOKENS][lane] = 0
    s.run[CONTEXT][lane] = 0.0
    s.run[JOIN_SUM][lane] = 0.0


def unland(s: Any, v: int) -> None:
    """Landings on replica v are struck off."""
    before = NOBODY
    i = s.count[LANDINGS]
    while i != NOBODY:
        after = s.request[AFTER][i]
        if s.request[REPLICA][i] == v:
            if before == NOBODY:
                s.count[LANDINGS] = after
            else:
                s.request[AFTER][before] = after
        else:
            before = i
        i = after
    s.count[LANDINGS_END] = before


def unqueue(s: Any, v: int) -> None:
    """Requests whose keys and values lie on replica v leave the queues of the replicas they wait for."""
    for w in range(s.count[NUM_REPLICAS]):
        before = NOBODY
        i = s.replica[HEAD][w]
        while i != NOBODY:
            after = s.request[AFTER][i]
            if s.request[STANDING][i] == REMOTE and s.request[SOURCE][i] == v:
                s.replica[QUEUE][w] -= 1
                if before == NOBODY:
                    s.replica[HEAD][w] = after
                else:
                    s.request[AFTER][before] = after
            else:
                before = i
            i = after
        s.replica[TAIL][w] = before


def clear(s: Any, v: int) -> None:
    """Replica v is empty."""
    s.replica[USED][v] = 0
    s.replica[CACHED][v] = 0
    s.replica[RUNNING_NOW][v] = 0
    s.replica[LOAD][v] = 0
    s.replica[QUEUE][v] = 0
    s.replica[HEAD][v] = NOBODY
    s.replica[TAIL][v] = NOBODY
    s.replica[LAND][v] = NOBODY
    s.replica[LAND_END][v] = NOBODY
    s.replica[LRU][v] = NOBODY
    s.replica[MRU][v] = NOBODY
    for h in range(v * s.count[NUM_PARTS], (v + 1) * s.count[NUM_PARTS]):
        s.prefix[RESIDENT][h] = 0
        s.prefix[REFERRED][h] = 0


def bring_back(s: Any, v: int, now: float) -> None:
    """Replica v is back, empty; requests that waited for any replica are routed."""
    s.replica[ALIVE][v] = 1
    for k in range(s.count[MOST_STAGES]):
        s.stage[v * s.count[MOST_STAGES] + k] = now
    i = s.count[LIMBO]
    s.count[LIMBO] = NOBODY
    s.count[LIMBO_END] = NOBODY
    while i != NOBODY:
        after = s.request[AFTER][i]
        route(s, i, now)
        i = after
    touch(s, v)
