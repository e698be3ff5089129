"""The event loop: an event is the end of a run of steps, a request sent or routed, a transfer, an outage.

Runs interpreted and compiled; see `kernel_rows`.  Events of one moment are taken in the order runs (by lane),
outages, transfers, landings, requests sent, requests routed; only then do idle lanes start their next step.
"""

from __future__ import annotations

from typing import Any

from railwright.serving.simulator.kernel_memory import give_back
from railwright.serving.simulator.kernel_outage import bring_back, lose
from railwright.serving.simulator.kernel_price import run_time
from railwright.serving.simulator.kernel_queue import due_remove, finish_drop
from railwright.serving.simulator.kernel_route import cut, hand_over, route, run_touched, touch
from railwright.serving.simulator.kernel_rows import (
    ACTIVE,
    ADVANCES,
    AFTER,
    AHEAD,
    ARRIVAL,
    BATCH,
    BEGAN,
    BUSY,
    CHUNK_TOKENS,
    CHUNKS,
    CONCURRENCY,
    CONTEXT,
    DECODERS,
    DONE,
    DUE_SIZE,
    ENDS,
    FINISH,
    FIRST,
    FRESH,
    FRESH_END,
    HEAPED,
    HOME,
    IN_FLIGHT,
    INTAKE,
    JOIN_SUM,
    JOINED,
    LAND,
    LAND_END,
    LANDED,
    LANDING,
    LANDINGS,
    LANDINGS_END,
    LAST,
    LEFT,
    LOAD,
    LOG_CHUNKS,
    LOG_CONTEXT,
    LOG_DECODERS,
    LOG_END,
    LOG_JOINED,
    LOG_JOINED_STALL,
    LOG_LANE,
    LOG_QUEUE,
    LOG_ROOM,
    LOG_STALL,
    LOG_START,
    LOG_STEPS,
    LOG_TOKENS,
    LOG_USED,
    LOG_WIDTH,
    LOGGED,
    MOST_HEAP,
    NEVER,
    NEXT_MOVE,
    NEXT_OUTAGE,
    NEXT_QUEUED,
    NEXT_SEND,
    NOBODY,
    NOW,
    NUM_OUTAGES,
    OLDER,
    ORDER,
    OVER,
    OVERHEAD,
    OVERS,
    OWN,
    POLICY,
    POOL,
    PREFILLS,
    QUEUE,
    QUEUED,
    REPLICA,
    REQUESTS,
    ROLE,
    RUNNING_NOW,
    SENT,
    SHARED,
    SLOPE,
    SOURCE,
    SOURCE_OWN,
    SOURCE_SHARED,
    STANDING,
    START,
    STATIC,
    STEP,
    STEPS,
    TAKES,
    TOUCHED_HEAD,
    USED,
    WAVES,
    YIELD,
    YOUNGEST,
)
from railwright.serving.simulator.kernel_schedule import dismiss, join, leave
from railwright.serving.simulator.kernel_transfer import end_transfer, settle, share

FINISHED, LOG_FULL, STUCK = 0, 1, 2
NOTHING, RUN_ENDS, OUTAGE, MOVED, LANDS, SENDS, QUEUES = 0, 1, 2, 3, 4, 5, 6


def advance(s: Any) -> int:
    """Run events until all requests are over, the log is full, or nothing can ever happen."""
    count, clock, due, ends = s.count, s.clock, s.due[ORDER], s.run[ENDS]
    arrival, queue = s.when[ARRIVAL], s.when[QUEUED]
    num = count[REQUESTS]
    while True:
        now = clock[NOW]
        if count[LOGGED] >= count[LOG_ROOM]:
            return LOG_FULL
        if count[WAVES] >= 0 and count[IN_FLIGHT] == 0:
            count[WAVES] = count[CONCURRENCY]
        # The first of what can happen next; where several can, in the order of these.
        kind, then = NOTHING, NEVER
        if count[DUE_SIZE] > 0:
            kind, then = RUN_ENDS, ends[due[0]]
        if count[NEXT_OUTAGE] < count[NUM_OUTAGES] and s.outage[3 * count[NEXT_OUTAGE]] < then:
            kind, then = OUTAGE, s.outage[3 * count[NEXT_OUTAGE]]
        if count[ACTIVE] > 0 and clock[NEXT_MOVE] < then:
            kind, then = MOVED, clock[NEXT_MOVE]
        if count[LANDINGS] != NOBODY and s.when[LANDING][count[LANDINGS]] < then:
            kind, then = LANDS, s.when[LANDING][count[LANDINGS]]
        at = count[NEXT_SEND]
        if at < num and may_send(s):
            sent = arrival[at]
            if sent < now:
                sent = now
            if sent < then:
                kind, then = SENDS, sent
        if count[NEXT_QUEUED] < at and queue[count[NEXT_QUEUED]] < then:
            kind, then = QUEUES, queue[count[NEXT_QUEUED]]
        if then > now and count[TOUCHED_HEAD] != NOBODY:
            run_touched(s, now)
            continue
        if count[OVERS] == num:
            return FINISHED
        if kind == NOTHING:
            return STUCK
        clock[NOW] = then
        if kind == RUN_ENDS:
            complete(s, due[0], then)
        elif kind == OUTAGE:
            at = 3 * count[NEXT_OUTAGE]
            count[NEXT_OUTAGE] += 1
            if s.outage[at + 2] > 0.0:
                bring_back(s, int(s.outage[at + 1]), then)
            else:
                lose(s, int(s.outage[at + 1]), then)
        elif kind == MOVED:
            arrive(s, then)
        elif kind == LANDS:
            land(s, then)
        elif kind == SENDS:
            while count[NEXT_SEND] < num and may_send(s) and arrival[count[NEXT_SEND]] <= then:
                send(s, count[NEXT_SEND], then)
        else:
            while count[NEXT_QUEUED] < count[NEXT_SEND] and queue[count[NEXT_QUEUED]] <= then:
                count[NEXT_QUEUED] += 1
                route(s, count[NEXT_QUEUED] - 1, then)


def may_send(s: Any) -> bool:
    """Whether the client may have one more request in flight."""
    if s.count[WAVES] >= 0:
        return bool(s.count[WAVES] > 0)
    return bool(s.count[CONCURRENCY] == 0 or s.count[IN_FLIGHT] < s.count[CONCURRENCY])


def send(s: Any, i: int, now: float) -> None:
    """The client sends its next request."""
    s.count[NEXT_SEND] += 1
    s.count[IN_FLIGHT] += 1
    if s.count[WAVES] > 0:
        s.count[WAVES] -= 1
    s.when[SENT][i] = now
    queued = now + s.clock[OVERHEAD]
    if i > 0:
        queued = max(queued, s.when[QUEUED][i - 1] + s.clock[INTAKE])
    s.when[QUEUED][i] = queued


def complete(s: Any, lane: int, now: float) -> None:
    """A lane's run has ended: tokens are out, answers end, prompts become decoders."""
    v = s.lane[HOME][lane]
    y = s.replica[POOL][v]
    due_remove(s, lane)
    record(s, v, lane, now)
    s.lane[BUSY][lane] = 0
    if s.pool[AHEAD][y]:
        before = run_time(s.run[TAKES][lane], s.run[SLOPE][lane], s.lane[STEPS][lane] - 1)
        s.run[BEGAN][lane] = s.run[START][lane] + before
    static = s.pool[POLICY][y] == STATIC
    base = lane * s.count[MOST_HEAP]
    if s.lane[ADVANCES][lane]:
        s.lane[STEP][lane] += s.lane[STEPS][lane]
        s.run[CONTEXT][lane] += s.lane[DECODERS][lane] * s.rate[YIELD][y] * s.lane[STEPS][lane]
        s.run[LAST][lane] = now
        s.lane[JOINED][lane] = 0
        s.run[JOIN_SUM][lane] = 0.0
        while s.lane[HEAPED][lane] > 0 and s.request[FINISH][s.heap[base]] <= s.lane[STEP][lane]:
            i = s.heap[base]
            finish_drop(s, base, lane, 0)
            if not static:
                leave(s, lane, y, i)
                release(s, v, lane, i)
            over(s, v, i, now)
    i = s.lane[FRESH][lane]
    s.lane[FRESH][lane] = NOBODY
    s.lane[FRESH_END][lane] = NOBODY
    while i != NOBODY:
        after = s.request[AFTER][i]
        again = s.when[FIRST][i] >= 0.0
        if again:
            # Computed anew after a loss: this step gave the next token.
            s.request[LEFT][i] -= 1
        if s.request[LEFT][i] == 0:
            if not again:
                s.when[FIRST][i] = now
            if not static:
                release(s, v, lane, i)
            over(s, v, i, now)
        elif s.pool[ROLE][y] == PREFILLS:
            hand_over(s, v, lane, i, now)
        else:
            if not again:
                s.when[FIRST][i] = now
            join(s, lane, y, i, now)
        i = after
    if static and s.lane[HEAPED][lane] == 0:
        end_batch(s, v, lane)
    touch(s, v)


def record(s: Any, v: int, lane: int, now: float) -> None:
    """Write the run that ends now into the log."""
    at, log = s.count[LOGGED] * LOG_WIDTH, s.log
    s.count[LOGGED] += 1
    start = s.run[START][lane]
    log[at + LOG_LANE] = lane
    log[at + LOG_START] = start
    log[at + LOG_END] = now
    log[at + LOG_STEPS] = s.lane[STEPS][lane]
    log[at + LOG_DECODERS] = s.lane[DECODERS][lane] if s.lane[ADVANCES][lane] else 0
    log[at + LOG_CONTEXT] = s.run[CONTEXT][lane]
    log[at + LOG_CHUNKS] = s.lane[CHUNKS][lane]
    log[at + LOG_TOKENS] = s.lane[CHUNK_TOKENS][lane]
    log[at + LOG_QUEUE] = s.replica[QUEUE][v]
    log[at + LOG_USED] = s.replica[USED][v]
    joined = s.lane[JOINED][lane] if s.lane[ADVANCES][lane] else 0
    log[at + LOG_STALL] = start - s.run[LAST][lane]
    log[at + LOG_JOINED] = joined
    log[at + LOG_JOINED_STALL] = start * joined - s.run[JOIN_SUM][lane] if joined > 0 else 0.0


def over(s: Any, v: int, i: int, now: float) -> None:
    """Request i has its last token."""
    s.when[DONE][i] = now
    s.request[STANDING][i] = OVER
    s.replica[LOAD][v] -= 1
    s.count[IN_FLIGHT] -= 1
    s.count[OVERS] += 1


def release(s: Any, v: int, lane: int, i: int) -> None:
    """Request i leaves the lane and gives its blocks back."""
    dismiss(s, lane, i)
    give_back(s, v, i, s.request[OWN][i], s.request[SHARED][i])
    s.replica[RUNNING_NOW][v] -= 1


def end_batch(s: Any, v: int, lane: int) -> None:
    """The longest answer of a static batch has ended: all its members leave."""
    i = s.lane[YOUNGEST][lane]
    while i != NOBODY:
        older = s.request[OLDER][i]
        give_back(s, v, i, s.request[OWN][i], s.request[SHARED][i])
        s.replica[RUNNING_NOW][v] -= 1
        i = older
    s.lane[YOUNGEST][lane] = NOBODY
    s.lane[DECODERS][lane] = 0
    s.lane[BATCH][lane] = 0
    s.run[CONTEXT][lane] = 0.0


def arrive(s: Any, now: float) -> None:
    """The next transfer has moved its last byte: the replica that computed the prompt is rid of it."""
    settle(s, now)
    i = end_transfer(s, now)
    v = s.request[SOURCE][i]
    give_back(s, v, i, s.request[SOURCE_OWN][i], s.request[SOURCE_SHARED][i])
    s.request[SOURCE][i] = NOBODY
    share(s, now)
    cut(s, v, now)
    touch(s, v)


def land(s: Any, now: float) -> None:
    """The next request whose keys and values have arrived gives its first token, and joins the next step."""
    i = s.count[LANDINGS]
    s.count[LANDINGS] = s.request[AFTER][i]
    if s.count[LANDINGS] == NOBODY:
        s.count[LANDINGS_END] = NOBODY
    v = s.request[REPLICA][i]
    if s.when[FIRST][i] < 0.0:
        s.when[FIRST][i] = now
    s.request[STANDING][i] = LANDED
    s.request[AFTER][i] = NOBODY
    if s.replica[LAND][v] == NOBODY:
        s.replica[LAND][v] = i
    else:
        s.request[AFTER][s.replica[LAND_END][v]] = i
    s.replica[LAND_END][v] = i
    cut(s, v, now)
    touch(s, v)
