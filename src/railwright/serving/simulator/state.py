"""The simulator's state from a workload and a fleet: arrays, or lists of lists, that the loop runs on.

Legend: N requests, W lanes, V replicas, Y pools.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.serving.clients.client import Workload
from railwright.serving.engine.table import StepTable
from railwright.serving.simulator import kernel_rows as r
from railwright.serving.simulator.fleet import Fleet, Pool
from railwright.serving.simulator.kernel_rows import State

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

DENSE_MOST = 1 << 15
"""Tokens of a step up to which the times of a step are tabulated for each number: beyond, by search."""
LOG_RECORDS = 1 << 14

_ROLES = {"both": r.BOTH, "prefill": r.PREFILLS, "decode": r.DECODES}
UNCUT = 2**62
"""More tokens than any prompt has."""

_POLICIES = {"mixed": r.MIXED_STEPS, "prefill-first": r.PREFILL_FIRST, "static": r.STATIC}
_ROUTERS = {"round-robin": r.ROUND_ROBIN, "least-loaded": r.LEAST_LOADED, "prefix-aware": r.PREFIX_AWARE}


def build(work: Workload, fleet: Fleet, passes: Longs, as_lists: bool) -> State:
    """The state before the first event.

    passes    (N,) decode steps of each request after its first token
    as_lists  lists of lists, for the interpreted loop; arrays for the compiled one
    """
    num, pools = len(work), fleet.pools
    stages = [p.table.stages for p in pools]
    replicas = np.repeat(np.arange(len(pools)), [p.replicas for p in pools])
    lanes_of = np.array([stages[y] for y in replicas])
    num_replicas, num_lanes = len(replicas), int(lanes_of.sum())
    num_parts = int(work.parts.max()) + 1 if len(work.parts) and any(_caches(p) for p in pools) else 0
    part = _part_tokens(work, pools)
    pool, rate, price = _pools(work, pools)

    request = np.zeros((r.REQUEST_ROWS, num), np.int64)
    request[[r.AFTER, r.OLDER, r.NEWER, r.LANE, r.REPLICA, r.SOURCE, r.CROSS, r.FINISH]] = r.NOBODY
    request[r.PROMPT] = request[r.HELD] = work.prompt
    request[r.PASSES] = request[r.LEFT] = passes
    request[r.TOTAL] = work.prompt + work.output
    request[r.PART0] = work.part_ptr[:-1]
    if num_parts and part:
        request[r.PARTS] = np.diff(work.part_ptr)
    when = np.full((r.WHEN_ROWS, num), -1.0)
    when[r.ARRIVAL] = work.arrival

    lane = np.zeros((r.LANE_ROWS, num_lanes), np.int64)
    lane[[r.YOUNGEST, r.PARTIAL, r.FRESH, r.FRESH_END, r.HELD_FROM]] = r.NOBODY
    lane[r.HOME] = np.repeat(np.arange(num_replicas), lanes_of)
    replica = np.zeros((r.REPLICA_ROWS, num_replicas), np.int64)
    replica[[r.HEAD, r.TAIL, r.LAND, r.LAND_END, r.LRU, r.MRU]] = r.NOBODY
    replica[r.POOL] = replicas
    replica[r.ALIVE] = 1
    replica[r.LANE0] = np.cumsum(lanes_of) - lanes_of
    window, heap = int(pool[r.WINDOW].max()), int(pool[r.MOST].max())
    due = np.full((r.DUE_ROWS, num_lanes), r.NOBODY, np.int64)

    links = fleet.transfers
    path_ptr, path, weight, capacity = (
        (links.ptr, links.link, links.weight, links.capacity)
        if links is not None
        else (np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    )
    link = np.zeros((r.LINK_ROWS, len(capacity)))
    link[r.CAPACITY] = capacity
    outage = np.array([[o.at, o.replica, kind] for o, kind in _moments(fleet)]).reshape(-1)

    num_decode = sum(pool.replicas for pool in pools if pool.role == "decode")
    others = max(len(path_ptr) - 1 - (num_replicas - num_decode) * num_decode, 0)
    count = np.zeros(r.COUNT_ROWS, np.int64)
    count[[r.TOUCHED_HEAD, r.LIMBO, r.LIMBO_END, r.LANDINGS, r.LANDINGS_END]] = r.NOBODY
    decode = [y for y, p in enumerate(pools) if p.role == "decode"]
    settings = {
        r.REQUESTS: num,
        r.LANES: num_lanes,
        r.NUM_REPLICAS: num_replicas,
        r.MOST_HEAP: heap,
        r.MOST_WINDOW: window,
        r.MOST_STAGES: max(stages),
        r.NUM_PARTS: num_parts,
        r.PART_TOKENS: part,
        r.PART_BLOCKS: part // pools[0].table.block,
        r.CONCURRENCY: work.concurrency,
        r.WAVES: 0 if work.waves else r.NOBODY,
        r.ROUTER: _ROUTERS[fleet.router],
        r.NUM_OUTAGES: len(outage) // 3,
        r.LOG_ROOM: LOG_RECORDS,
        r.DECODE_POOL: decode[0] if decode else r.NOBODY,
        r.NUM_DECODE: num_decode,
        r.OTHERS: others,
        r.FIRST_DECODE: int(pool[r.FIRST_REPLICA][decode[0]]) if decode else 0,
        r.NUM_LINKS: len(capacity),
    }
    for row, value in settings.items():
        count[row] = value
    clock = np.zeros(r.CLOCK_ROWS)
    clock[r.OVERHEAD], clock[r.INTAKE] = pools[0].table.request, pools[0].table.intake
    if links is not None:
        clock[r.LATENCY], clock[r.TOKEN_BYTES] = links.latency, links.token_bytes

    arrays: tuple[Any, ...] = (
        request,
        when,
        lane,
        np.zeros((r.RUN_ROWS, num_lanes)),
        replica,
        pool,
        rate,
        price,
        _prefix(num_replicas * num_parts),
        work.parts.astype(np.int64),
        np.zeros(num_lanes * heap, np.int64),
        due,
        np.zeros(num_lanes * window, np.int64),
        np.zeros(num_replicas * max(stages)),
        np.zeros((r.FLOW_ROWS, num if decode else 0)),
        np.zeros(num if decode else 0, np.int64),
        np.zeros(num + others if decode else 0, np.int64),
        path_ptr.astype(np.int64),
        path.astype(np.int64),
        weight.astype(np.float64),
        link,
        outage.astype(np.float64),
        count,
        clock,
        np.zeros(LOG_RECORDS * r.LOG_WIDTH),
    )
    return State(*(one.tolist() for one in arrays)) if as_lists else State(*arrays)


def _caches(pool: Pool) -> bool:
    return pool.scheduler.prefix_cache and pool.role != "decode"


def _part_tokens(work: Workload, pools: tuple[Pool, ...]) -> int:
    """Tokens of a part of a prefix that fill whole blocks: only those are shared."""
    block = pools[0].table.block
    return work.part_tokens // block * block


def _moments(fleet: Fleet) -> list[tuple[Any, float]]:
    found = [(o, 0.0) for o in fleet.outages] + [(o.back(), 1.0) for o in fleet.outages]
    return sorted(found, key=lambda pair: (pair[0].at, pair[1], pair[0].replica))


def _prefix(num: int) -> Longs:
    prefix = np.zeros((r.PREFIX_ROWS, num), np.int64)
    prefix[[r.COLDER, r.WARMER]] = r.NOBODY
    return prefix


def _pools(work: Workload, pools: tuple[Pool, ...]) -> tuple[Longs, Floats, Floats]:
    pool = np.zeros((r.POOL_ROWS, len(pools)), np.int64)
    rate = np.zeros((r.RATE_ROWS, len(pools)))
    prices: list[Floats] = []
    at = first = 0
    for y, one in enumerate(pools):
        table, plan = one.table, one.scheduler
        static = plan.policy == "static"
        gives = one.speculation.tokens_per_step if one.speculation else 1.0
        queries = one.speculation.drafted + 1 if one.speculation else 1
        most = min(plan.max_requests, len(work))
        widest = plan.token_budget
        if plan.whole_prompts or static:
            widest = max(widest, int(work.prompt.max() + work.output.max()))
        dense = min(max(widest, most * queries) + 1, DENSE_MOST)
        settings = {
            r.POLICY: _POLICIES[plan.policy],
            r.WHOLE: plan.whole_prompts,
            r.BUDGET: plan.token_budget,
            r.MOST: most,
            r.BLOCKS: table.kv_tokens // table.block,
            r.BLOCK: table.block,
            r.WINDOW: max(round(table.block / gives), 1),
            r.QUERIES: queries,
            r.RESERVES: plan.reserves or static,
            r.STAGES: table.stages,
            r.ROLE: _ROLES[one.role],
            r.OVERLAPS: table.overlaps,
            r.CACHES: _caches(one),
            r.HOLD_STEPS: plan.hold_steps if plan.policy == "mixed" else 0,
            r.HOLD_TOKENS: plan.hold_tokens,
            r.AHEAD: plan.ahead and not static and one.role != "prefill" and table.stages == 1,
            r.FIRST_REPLICA: first,
            r.REPLICAS: one.replicas,
            r.DENSE_LEN: dense,
            r.GROUPS: table.groups,
            r.PART: UNCUT if plan.whole_prompts or static else max(plan.token_budget // table.groups, 1),
            r.PADDED: table.padded,
        }
        first += one.replicas
        laid = _laid_out(table, most, dense)
        for row, values in laid.items():
            settings[row] = at
            prices.append(values)
            at += len(values)
        settings[r.GRID_LEN] = len(laid[r.GRID])
        settings[r.CONTEXTS_LEN] = len(laid[r.CONTEXTS])
        settings[r.CHUNK_LEN] = len(laid[r.CHUNK_GRID])
        for row, value in settings.items():
            pool[row, y] = value
        rate[:, y] = gives, table.hop, table.host_step, table.host_request, table.beside
    return pool, rate, np.concatenate(prices)


def _laid_out(table: StepTable, most: int, dense: int) -> dict[int, Floats]:
    """Row of `pool` that tells where -> values, of the parts of a table."""
    own = table.mixed_rows if table.group_rows is None else table.group_rows
    grid, (decode_rows, mixed_rows, group_rows) = _two_points(
        table.tokens, (table.decode_rows, table.mixed_rows, own)
    )
    chunks, rows = _two_points(table.chunks, tuple(table.prefill.T))
    contexts, prefill = _two_points(table.contexts, tuple(np.stack(rows).T))
    every = np.arange(dense, dtype=float)
    full = _by_number(table, table.decode, most)
    beside = full if table.mixed_decode is None else _by_number(table, table.mixed_decode, most)
    return {
        r.DENSE: read(every, grid, decode_rows),
        r.MIXED: read(every, grid, mixed_rows),
        r.GRID: grid,
        r.GRID_DECODE: decode_rows,
        r.GRID_MIXED: mixed_rows,
        r.GRID_GROUP: group_rows,
        r.CONTEXTS: contexts,
        r.DECODE: full.reshape(-1),
        r.DECODE_MIXED: beside.reshape(-1),
        r.CHUNK_GRID: chunks,
        r.PREFILL: np.stack(prefill).reshape(-1),
    }


def _by_number(table: StepTable, decode: Floats, most: int) -> Floats:
    """(most + 1, contexts) decode attention of every number of requests, none first."""
    columns = _two_points(table.contexts, tuple(decode))[1]
    grid, by_number = _two_points(table.requests, tuple(np.stack(columns).T))
    each = np.arange(most + 1, dtype=float)
    full = np.stack([read(each, grid, column) for column in by_number], axis=1)
    full[0] = 0.0
    return full


def _two_points(grid: Floats, values: tuple[Floats, ...]) -> tuple[Floats, tuple[Floats, ...]]:
    """A grid of one point gets a second with the same values: interpolation needs a part to be on."""
    grid = np.asarray(grid, np.float64)
    if len(grid) > 1:
        return grid, values
    return np.array([grid[0], grid[0] + 1.0]), tuple(np.repeat(v, 2) for v in values)


def read(x: Floats, grid: Floats, values: Floats) -> Floats:
    """Values at x: linear between grid points, the last slope beyond, the first value before."""
    at = np.clip(np.searchsorted(grid, x, side="right") - 1, 0, len(grid) - 2)
    weight = np.maximum((x - grid[at]) / (grid[at + 1] - grid[at]), 0.0)
    read: Floats = values[at] + (values[at + 1] - values[at]) * weight
    return read
