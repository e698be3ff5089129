"""What an engine puts into its next step: admission, parts of prompts, preemption, runs of decode steps.

Runs interpreted and compiled; see `kernel_rows`.  The order is that of vLLM's scheduler (v1, core/sched/
scheduler.py): decoders first, then the prompt cut at the last step, then waiting requests in their order.
"""

from __future__ import annotations

from typing import Any

from railwright.serving.simulator.kernel_memory import (
    crossed,
    evict,
    fitting_steps,
    free_blocks,
    give_back,
    grown,
    matched,
    needed,
    recompute,
    take,
)
from railwright.serving.simulator.kernel_price import (
    along,
    decode_row,
    pass_stages,
    prefill_time,
    prompts_time,
    rows_time,
    run_time,
)
from railwright.serving.simulator.kernel_queue import (
    came_late,
    due_put,
    finish_drop,
    finish_put,
    holds,
    queue_first,
    queue_pop,
    room_left,
)
from railwright.serving.simulator.kernel_rows import (
    ADMITTED,
    ADVANCES,
    AFTER,
    AHEAD,
    BATCH,
    BLOCK,
    BUSY,
    CHUNK_TOKENS,
    CHUNKS,
    CONTEXT,
    CONTEXTS,
    CONTEXTS_LEN,
    COSTLIEST,
    CROSS,
    DECODERS,
    ENDS,
    FILLED,
    FINISH,
    FRESH,
    FRESH_END,
    GROWERS,
    HEAD,
    HEAPED,
    HELD,
    HELD_FROM,
    HIT,
    HOLD_STEPS,
    HOME,
    HOST_REQUEST,
    HOST_STEP,
    JOIN_SUM,
    JOINED,
    LAND,
    LAND_END,
    LANE,
    LARGEST,
    LATE,
    LEFT,
    LOSSES,
    MIXED_STEPS,
    MOST,
    MOST_HEAP,
    MOST_WINDOW,
    NEWER,
    NOBODY,
    OLDER,
    OVERLAPS,
    OWN,
    PART,
    PART_TOKENS,
    PARTIAL,
    POLICY,
    POOL,
    PREEMPTIONS,
    QUERIES,
    REMOTE,
    RESERVES,
    RUNNING,
    RUNNING_NOW,
    SEGMENT,
    SHARED,
    SINCE,
    SLOPE,
    STAGES,
    STANDING,
    START,
    STATIC,
    STEP,
    STEPS,
    TAKES,
    USED,
    WAITING,
    WHOLE,
    WINDOW,
    YIELD,
    YOUNGEST,
)
from railwright.serving.simulator.kernel_transfer import begin_transfer


def schedule(s: Any, lane: int, now: float) -> None:
    """Start the lane's next step, or run of decode steps, or leave it idle where there is nothing to do."""
    v = s.lane[HOME][lane]
    y = s.replica[POOL][v]
    while s.replica[LAND][v] != NOBODY:
        i = s.replica[LAND][v]
        s.replica[LAND][v] = s.request[AFTER][i]
        enlist(s, lane, i)
        join(s, lane, y, i, now)
    s.replica[LAND_END][v] = NOBODY
    policy = s.pool[POLICY][y]
    # A request that gave up its own blocks may find them free again: a second look, without preemption.
    for look in range(2):
        lost = 0
        if policy == MIXED_STEPS:
            lost = make_room(s, v, lane, y)
            s.replica[USED][v] += grown(s, lane, y, s.lane[STEP][lane], 1)
            evict(s, v)
        s.lane[CHUNKS][lane] = 0
        s.lane[CHUNK_TOKENS][lane] = 0
        s.lane[LARGEST][lane] = 0
        s.run[COSTLIEST][lane] = 0.0
        s.lane[LATE][lane] = 0
        attention = 0.0
        held = holds(s, v, lane, y)
        if not held and (lost == 0 or look == 1):
            attention = fill(s, v, lane, y, now)
        elif not held and s.lane[PARTIAL][lane] != NOBODY and room_left(s, lane, y) > 0:
            attention = add_chunk(s, lane, y, s.lane[PARTIAL][lane], room_left(s, lane, y))
        if s.lane[CHUNKS][lane] > 0:
            begin(s, v, lane, y, now, attention, policy == MIXED_STEPS and s.lane[DECODERS][lane] > 0)
            return
        if policy != MIXED_STEPS:
            lost = make_room(s, v, lane, y)
            s.replica[USED][v] += grown(s, lane, y, s.lane[STEP][lane], 1)
            evict(s, v)
        if s.lane[DECODERS][lane] > 0:
            begin(s, v, lane, y, now, 0.0, True)
            return
        if lost == 0:
            return


def fill(s: Any, v: int, lane: int, y: int, now: float) -> float:
    """Add prompts to the lane's next step; seconds their attention takes."""
    static = s.pool[POLICY][y] == STATIC
    if static and s.lane[BATCH][lane] > 0:
        return 0.0
    attention = 0.0
    budget = room_left(s, lane, y)
    if s.lane[PARTIAL][lane] != NOBODY and budget > 0:
        attention += add_chunk(s, lane, y, s.lane[PARTIAL][lane], budget)
        budget -= s.lane[CHUNK_TOKENS][lane]
    while s.replica[HEAD][v] != NOBODY and s.replica[RUNNING_NOW][v] < s.pool[MOST][y]:
        i = s.replica[HEAD][v]
        if s.request[STANDING][i] == REMOTE:
            if needed(s, v, i) > free_blocks(s, v):
                break
            queue_pop(s, v)
            take(s, v, i)
            s.replica[RUNNING_NOW][v] += 1
            begin_transfer(s, i, now)
            continue
        if s.pool[AHEAD][y] and came_late(s, lane, i):
            s.lane[LATE][lane] = 1
            break
        if (budget <= 0 and not static) or needed(s, v, i) > free_blocks(s, v):
            break
        # The last token is always computed: its result is the first token of the answer.
        cached = min(matched(s, v, i) * s.count[PART_TOKENS], s.request[HELD][i] - 1)
        left = s.request[HELD][i] - cached
        if s.pool[WHOLE][y] and not static:
            if left > budget and s.lane[CHUNKS][lane] > 0:
                break
            budget = max(budget, left)
        elif s.lane[PARTIAL][lane] != NOBODY and left > min(budget, s.pool[PART][y]):
            break  # one prompt is cut at a time
        queue_pop(s, v)
        take(s, v, i)
        enlist(s, lane, i)
        s.replica[RUNNING_NOW][v] += 1
        s.request[FILLED][i] = cached
        s.request[FINISH][i] = NOBODY
        if s.when[ADMITTED][i] < 0.0:
            s.when[ADMITTED][i] = now
            s.request[HIT][i] = cached
        before = s.lane[CHUNK_TOKENS][lane]
        attention += add_chunk(s, lane, y, i, s.request[HELD][i] if static else budget)
        budget -= s.lane[CHUNK_TOKENS][lane] - before
        if static:
            s.lane[BATCH][lane] += 1
    return attention


def add_chunk(s: Any, lane: int, y: int, i: int, room: int) -> float:
    """Put up to `room` tokens of request i's prompt into the next step; seconds of their attention."""
    filled = s.request[FILLED][i]
    left = s.request[HELD][i] - filled
    new = min(left, room, s.pool[PART][y])
    s.request[FILLED][i] = filled + new
    s.lane[CHUNKS][lane] += 1
    s.lane[CHUNK_TOKENS][lane] += new
    if new < left:
        s.lane[PARTIAL][lane] = i
    else:
        if s.lane[PARTIAL][lane] == i:
            s.lane[PARTIAL][lane] = NOBODY
        s.request[AFTER][i] = NOBODY
        if s.lane[FRESH][lane] == NOBODY:
            s.lane[FRESH][lane] = i
        else:
            s.request[AFTER][s.lane[FRESH_END][lane]] = i
        s.lane[FRESH_END][lane] = i
    seconds = prefill_time(s, y, new, filled)
    if new > s.lane[LARGEST][lane]:
        s.lane[LARGEST][lane] = new
    if seconds > s.run[COSTLIEST][lane]:
        s.run[COSTLIEST][lane] = seconds
    return seconds


def begin(s: Any, v: int, lane: int, y: int, now: float, attention: float, advances: bool) -> None:
    """Start a step, or as many decode steps alike as nothing can change in between."""
    decoders = s.lane[DECODERS][lane] if advances else 0
    chunks = s.lane[CHUNKS][lane]
    tokens = decoders * s.pool[QUERIES][y]
    if chunks:
        gpu = prompts_time(s, lane, y, tokens, decoders, attention)
    else:
        gpu = rows_time(s, y, tokens, 0) + attention
    slope, steps = 0.0, 1
    if decoders > 0:
        many = chunks == 0 and s.pool[STAGES][y] == 1
        if many:
            steps = s.request[FINISH][s.heap[lane * s.count[MOST_HEAP]]] - s.lane[STEP][lane]
            if s.lane[HELD_FROM][lane] != NOBODY:
                waited = s.lane[STEP][lane] - s.lane[HELD_FROM][lane]
                steps = min(steps, s.pool[HOLD_STEPS][y] - waited)
            if s.lane[LATE][lane]:
                steps = 1
        grid = s.pool[CONTEXTS][y]
        last = grid + s.pool[CONTEXTS_LEN][y] - 2
        context = s.run[CONTEXT][lane] / decoders + 1.0
        at = max(s.lane[SEGMENT][lane], grid)
        while at < last and s.price[at + 1] <= context:
            at += 1
        while at > grid and s.price[at] > context:
            at -= 1
        s.lane[SEGMENT][lane] = at
        values = decode_row(s, y, decoders, 1 if chunks else 0) + at - grid
        gpu += along(s, at, context, values)
        each = s.rate[YIELD][y]
        if context >= s.price[at]:
            slope = (s.price[values + 1] - s.price[values]) / (s.price[at + 1] - s.price[at]) * each
            if at < last:
                steps = min(steps, int((s.price[at + 1] - context) / each) + 1)
        else:
            steps = min(steps, int((s.price[at] - context) / each) + 1)
        if many and steps > 1:
            # One step's blocks are taken already.
            more = fitting_steps(s, lane, y, s.lane[STEP][lane] + 1, steps - 1, free_blocks(s, v))
            steps = 1 + more
    host = s.rate[HOST_STEP][y] + s.rate[HOST_REQUEST][y] * (decoders + chunks)
    takes = gpu + host
    if s.pool[OVERLAPS][y]:
        takes = gpu
        if gpu < host:
            takes = host
            if slope > 0.0:
                steps = min(steps, int((host - gpu) / slope) + 1)
            slope = 0.0
    if s.pool[STAGES][y] > 1:
        ends = pass_stages(s, v, y, now, gpu, host)
        takes, slope, steps = ends - now, 0.0, 1
    else:
        ends = now + run_time(takes, slope, steps)
    if steps > 1:
        s.replica[USED][v] += grown(s, lane, y, s.lane[STEP][lane] + 1, steps - 1)
        evict(s, v)
    s.lane[BUSY][lane] = 1
    s.lane[STEPS][lane] = steps
    s.lane[ADVANCES][lane] = 1 if decoders > 0 else 0
    s.run[START][lane] = now
    s.run[TAKES][lane] = takes
    s.run[SLOPE][lane] = slope
    s.run[ENDS][lane] = ends
    due_put(s, lane)


def enlist(s: Any, lane: int, i: int) -> None:
    """Request i becomes the lane's youngest."""
    older = s.lane[YOUNGEST][lane]
    s.request[OLDER][i] = older
    s.request[NEWER][i] = NOBODY
    if older != NOBODY:
        s.request[NEWER][older] = i
    s.lane[YOUNGEST][lane] = i
    s.request[LANE][i] = lane
    s.request[STANDING][i] = RUNNING


def dismiss(s: Any, lane: int, i: int) -> None:
    """Request i leaves the lane's list."""
    older, newer = s.request[OLDER][i], s.request[NEWER][i]
    if older != NOBODY:
        s.request[NEWER][older] = newer
    if newer != NOBODY:
        s.request[OLDER][newer] = older
    else:
        s.lane[YOUNGEST][lane] = older
    s.request[LANE][i] = NOBODY


def join(s: Any, lane: int, y: int, i: int, now: float) -> None:
    """Request i, its prompt computed, decodes from the lane's next decode step on."""
    step, held = s.lane[STEP][lane], s.request[HELD][i]
    s.request[SINCE][i] = step
    s.request[FINISH][i] = step + s.request[LEFT][i]
    s.lane[DECODERS][lane] += 1
    s.run[CONTEXT][lane] += held
    s.lane[JOINED][lane] += 1
    s.run[JOIN_SUM][lane] += now
    finish_put(s, lane * s.count[MOST_HEAP], lane, i)
    s.request[CROSS][i] = NOBODY
    if not s.pool[RESERVES][y]:
        window = s.pool[WINDOW][y]
        # what is left of its last block
        cross = step + min(int(-held % s.pool[BLOCK][y] / s.rate[YIELD][y]) + 1, window)
        s.request[CROSS][i] = cross
        s.growth[lane * s.count[MOST_WINDOW] + cross % window] += 1
        s.lane[GROWERS][lane] += 1


def leave(s: Any, lane: int, y: int, i: int) -> None:
    """Request i decodes no more; its blocks are its OWN."""
    step = s.lane[STEP][lane]
    s.lane[DECODERS][lane] -= 1
    s.run[CONTEXT][lane] -= s.request[HELD][i] + s.rate[YIELD][y] * (step - s.request[SINCE][i])
    if s.lane[DECODERS][lane] == 0:
        s.run[CONTEXT][lane] = 0.0
    if s.request[CROSS][i] != NOBODY:
        s.request[OWN][i] += crossed(s, y, i, step)
        s.growth[lane * s.count[MOST_WINDOW] + s.request[CROSS][i] % s.pool[WINDOW][y]] -= 1
        s.lane[GROWERS][lane] -= 1


def make_room(s: Any, v: int, lane: int, y: int) -> int:
    """Preempt the youngest until the lane's next decode step finds its blocks; how many."""
    lost = 0
    while grown(s, lane, y, s.lane[STEP][lane], 1) > free_blocks(s, v):
        preempt(s, v, lane, y, s.lane[YOUNGEST][lane])
        lost += 1
    return lost


def preempt(s: Any, v: int, lane: int, y: int, i: int) -> None:
    """Request i gives up its blocks and waits, first in the queue, to have all its tokens computed again."""
    if s.request[FINISH][i] == NOBODY:
        if s.lane[PARTIAL][lane] == i:
            s.lane[PARTIAL][lane] = NOBODY
    else:
        base = lane * s.count[MOST_HEAP]
        for at in range(s.lane[HEAPED][lane]):
            if s.heap[base + at] == i:
                finish_drop(s, base, lane, at)
                break
        leave(s, lane, y, i)
        recompute(s, lane, y, i)
    dismiss(s, lane, i)
    give_back(s, v, i, s.request[OWN][i], s.request[SHARED][i])
    s.request[FILLED][i] = 0
    s.request[STANDING][i] = WAITING
    s.request[LOSSES][i] += 1
    s.replica[RUNNING_NOW][v] -= 1
    s.replica[PREEMPTIONS][v] += 1
    queue_first(s, v, i)
