"""Names of the rows of the simulator's state: what is kept of requests, lanes, replicas and pools.

The event loop of `kernel_loop` and its parts are one source that runs twice: interpreted over lists of lists,
where importing numba would take longer than the answer, and compiled over arrays. `state[ROW][index]` reads
the same in both. Legend: N requests, W lanes (batches in flight: pipeline stages x replicas), V replicas,
Y pools of like replicas, H parts of shared prefixes.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class State(NamedTuple):
    """Everything the event loop reads and writes.

    request  (.., N) whole numbers by the rows below; `when` its moments [s]
    lane     (.., W) whole numbers; `run` its times [s] and context
    replica  (.., V) whole numbers
    pool     (.., Y) settings; `rate` those that are not whole
    price    step times, as laid out by `prices`
    prefix   (.., V * H) parts of prefixes held by each replica
    part     parts of the prefixes of requests, one after another
    heap     requests of each lane by the step of their last token, MOST_HEAP places for each; `due` lanes by
             the end of their run
    growth   by lane and step modulo the most steps a block lasts: decoders that then need a block
    stage    (V * most stages) when each pipeline stage is free [s]
    flow     (.., N) transfers: remaining bytes, rate [byte/s]; `active` those under way, `row` scratch
    path     links of each pair of replicas, then of others' traffic: CSR with `path_ptr`, and `weight`
    link     (.., links) capacity [byte/s], and scratch
    outage   moments, replica and kind of losses and returns, three numbers each
    count    scalars by the names below; `clock` scalars in seconds
    log      one record of LOG_WIDTH numbers for every run of steps
    """

    request: Any
    when: Any
    lane: Any
    run: Any
    replica: Any
    pool: Any
    rate: Any
    price: Any
    prefix: Any
    part: Any
    heap: Any
    due: Any
    growth: Any
    stage: Any
    flow: Any
    active: Any
    row: Any
    path_ptr: Any
    path: Any
    weight: Any
    link: Any
    outage: Any
    count: Any
    clock: Any
    log: Any


# request: what it is (set once) and where it stands
PROMPT, PASSES, PARTS, PART0, LEFT, HELD, FILLED, OWN, SINCE, CROSS, FINISH = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
AFTER, OLDER, NEWER, LANE, REPLICA, SOURCE, SOURCE_OWN, SHARED, HIT, LOSSES, STANDING = (
    11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
)  # fmt: skip
TOTAL, SOURCE_SHARED, REQUEST_ROWS = 22, 23, 24
# PROMPT tokens; PASSES decode steps after the first token; PARTS, PART0 of its prefix in `part`; LEFT passes;
# HELD tokens its next prefill ends with; FILLED of them computed; OWN blocks; SINCE step it decodes from;
# CROSS lane step of its next block; FINISH lane step of its last token; AFTER next in the queue it stands in;
# OLDER, NEWER neighbours in order of admission; SHARED parts it refers to; HIT prefix tokens found computed;
# LOSSES times it was preempted or lost; TOTAL most tokens it will hold
UNSENT, WAITING, REMOTE, RUNNING, MOVING, LANDED, OVER = 0, 1, 2, 3, 4, 5, 6
"""Where a request stands: REMOTE waits for room on the replica that decodes, MOVING while its keys and values
cross the fabric, LANDED until that replica's next step."""

# when
ARRIVAL, SENT, QUEUED, ADMITTED, FIRST, DONE, HANDED, LANDING, JOINED_AT, WHEN_ROWS = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
)

# lane
HOME, STEP, DECODERS, GROWERS, HEAPED, YOUNGEST, PARTIAL, FRESH, FRESH_END, STEPS, ADVANCES, JOINED = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
)  # fmt: skip
BUSY, CHUNKS, CHUNK_TOKENS, SEGMENT, BATCH, HELD_FROM, LATE, LARGEST, LANE_ROWS = (
    12, 13, 14, 15, 16, 17, 18, 19, 20,
)  # fmt: skip
# HOME replica; STEP decode steps so far; GROWERS decoders whose cache grows; HEAPED entries of its heap;
# YOUNGEST admitted last; PARTIAL a prompt partly computed, or -1; FRESH prompts that this step completes;
# STEPS of the run under way; ADVANCES 1 if decoders are in it; BATCH requests of a static batch;
# HELD_FROM the decode step since which prompts are held back, or -1; LATE 1 if a prompt came too late for the
# step that begins; LARGEST tokens of its longest chunk

# run
START, TAKES, SLOPE, CONTEXT, LAST, JOIN_SUM, ENDS, BEGAN, COSTLIEST, RUN_ROWS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
# START of the run; ENDS when its last step does; TAKES its first step; SLOPE what each next takes longer;
# BEGAN start of the last step that has ended; CONTEXT sum over decoders;
# COSTLIEST attention of one chunk of the next step;
# LAST end of the last decode step; JOIN_SUM of the moments at which decoders joined since

# replica
POOL, LANE0, USED, CACHED, RUNNING_NOW, LOAD, HEAD, TAIL, QUEUE, LAND, LAND_END, ALIVE, TOUCHED = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
)  # fmt: skip
LRU, MRU, NEXT_TOUCHED, PREEMPTIONS, REPLICA_ROWS = 13, 14, 15, 16, 17
# USED blocks that something refers to; CACHED blocks of prefixes that nobody refers to; LOAD requests routed
# here and not over; LRU, MRU ends of the list of unreferred parts

# pool
POLICY, WHOLE, BUDGET, MOST, BLOCKS, BLOCK, WINDOW, QUERIES, RESERVES, STAGES, ROLE, OVERLAPS = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
)  # fmt: skip
CACHES, DENSE, DENSE_LEN, MIXED, GRID, GRID_LEN, GRID_DECODE, GRID_MIXED, CONTEXTS, CONTEXTS_LEN, DECODE = (
    12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
)  # fmt: skip
CHUNK_GRID, CHUNK_LEN, PREFILL, FIRST_REPLICA, REPLICAS, HOLD_STEPS, HOLD_TOKENS, AHEAD, DECODE_MIXED = (
    23, 24, 25, 26, 27, 28, 29, 30, 31,
)  # fmt: skip
GROUPS, PART, PADDED, GRID_GROUP, POOL_ROWS = 32, 33, 34, 35, 36
# POLICY; WHOLE prompts are not cut; BUDGET tokens and MOST requests of a step; BLOCKS of BLOCK tokens; WINDOW
# decode steps a block lasts; QUERIES tokens a decoder brings to a step; RESERVES blocks for the whole answer;
# CACHES prefixes; from DENSE on offsets into `price`; HOLD_STEPS that prompts wait for, or HOLD_TOKENS;
# AHEAD: what is in a step is settled when the one before begins; GROUPS of attention data, each computing at
# most PART tokens of a prompt in a step; PADDED tokens up to which all groups have the fullest's
MIXED_STEPS, PREFILL_FIRST, STATIC = 0, 1, 2
BOTH, PREFILLS, DECODES = 0, 1, 2

# rate
YIELD, HOP, HOST_STEP, HOST_REQUEST, BESIDE, RATE_ROWS = 0, 1, 2, 3, 4, 5
# YIELD tokens a decode step gives a request; BESIDE seconds of a decode for each token of the longest chunk

# prefix
REFERRED, RESIDENT, COLDER, WARMER, PREFIX_ROWS = 0, 1, 2, 3, 4

# flow
REMAINING, SPEED, FLOW_ROWS = 0, 1, 2

# link
CAPACITY, SLACK, DEMAND, LINK_ROWS = 0, 1, 2, 3

# count
REQUESTS, LANES, NUM_REPLICAS, MOST_HEAP, MOST_WINDOW, MOST_STAGES, NUM_PARTS, PART_BLOCKS, PART_TOKENS = (
    0, 1, 2, 3, 4, 5, 6, 7, 8,
)  # fmt: skip
CONCURRENCY, WAVES, ROUTER, NEXT_SEND, NEXT_QUEUED, IN_FLIGHT, OVERS, TURN, DECODE_TURN, DUE_SIZE = (
    9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
)  # fmt: skip
TOUCHED_HEAD, LIMBO, LIMBO_END, ACTIVE, LANDINGS, LANDINGS_END, NUM_OUTAGES, NEXT_OUTAGE, LOGGED, LOG_ROOM = (
    19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
)  # fmt: skip
DECODE_POOL, NUM_DECODE, NUM_LINKS, FIRST_DECODE, OTHERS, COUNT_ROWS = 29, 30, 31, 32, 33, 34

ROUND_ROBIN, LEAST_LOADED, PREFIX_AWARE = 0, 1, 2

# clock
NOW, OVERHEAD, LATENCY, MOVED_AT, NEXT_MOVE, TOKEN_BYTES, INTAKE, CLOCK_ROWS = 0, 1, 2, 3, 4, 5, 6, 7
# OVERHEAD of each request before it is queued; INTAKE at least between two that are

# due, per lane: which lane stands at a place of the heap, and at which place a lane stands (or -1)
ORDER, PLACE, DUE_ROWS = 0, 1, 2

# log record
LOG_LANE, LOG_START, LOG_END, LOG_STEPS, LOG_DECODERS, LOG_CONTEXT, LOG_CHUNKS, LOG_TOKENS = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
)
LOG_QUEUE, LOG_USED, LOG_STALL, LOG_JOINED, LOG_JOINED_STALL, LOG_WIDTH = 8, 9, 10, 11, 12, 13

EMPTY = 64
"""Tokens of the longest chunk that bring no empty thread blocks (serving/kernels/flash2.py, ROWS)."""

NOBODY = -1
NEVER = 1e300

MATCH, APART, APART_TIMES = 0.3, 64, 1.5
"""Prefix-aware routing: the best match counts from this share of the prompt on, unless loads differ by more
than APART requests and APART_TIMES. Source: defaults of the SGLang model gateway
(lightseekorg/smg, docs/getting-started/load-balancing.md, cache_aware; read 2026-11-22)."""
