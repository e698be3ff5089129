"""Step tables and workloads for tests of the request simulator, and a simulator that is slow and obvious."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from railwright.serving.clients.client import Workload, no_parts
from railwright.serving.engine.table import StepTable
from railwright.serving.simulator.fleet import Fleet, Pool, Scheduler


def flat_table(
    step: float = 0.01, token: float = 0.0, context: float = 0.0, prefill: float = 0.0, **other: Any
) -> StepTable:
    """A step takes `step` + `token` per token; decode attention `context` per token seen; prefill attention
    `prefill` per new token. [s]"""
    tokens = np.array([1.0, 4096.0, 8192.0])
    contexts = np.array([0.0, 512.0, 4096.0])
    requests = np.array([1.0, 64.0])
    chunks = np.array([1.0, 8192.0])
    settings: dict[str, Any] = {
        "tokens": tokens,
        "decode_rows": step + token * tokens,
        "mixed_rows": step + token * tokens,
        "requests": requests,
        "contexts": contexts,
        "decode": context * requests[:, None] * contexts[None, :],
        "chunks": chunks,
        "prefill": prefill * chunks[:, None] * np.ones(3)[None, :],
        "stages": 1,
        "hop": 0.0,
        "kv_tokens": 1_000_000,
        "block": 16,
        "host_step": 0.0,
        "host_request": 0.0,
        "overlaps": False,
        "request": 0.0,
    }
    return StepTable(**(settings | other))


def requests(
    arrival: Any, prompt: Any, output: Any, concurrency: int = 0, waves: bool = False, parts: Any = None
) -> Workload:
    """A workload from plain lists; `parts` (ids of each, tokens of one) shares prefixes."""
    arrival = np.asarray(arrival, float)
    num = len(arrival)
    ptr, ids = no_parts(num)
    size = 0
    if parts is not None:
        lists, size = parts
        ptr = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
        ids = np.array([i for one in lists for i in one], np.int64)
    return Workload(
        arrival,
        np.broadcast_to(np.asarray(prompt, np.int64), (num,)).copy(),
        np.broadcast_to(np.asarray(output, np.int64), (num,)).copy(),
        concurrency,
        waves,
        0,
        ptr,
        ids,
        size,
    )


def one_replica(table: StepTable, **scheduler: Any) -> Fleet:
    """A fleet of one replica."""
    return Fleet((Pool(table, Scheduler(**scheduler)),))


@dataclass
class _Request:
    i: int
    prompt: int
    output: int
    arrival: float
    out: int = 0
    computed: int = 0
    need: int = 0
    first: float = -1.0
    done: float = -1.0
    losses: int = 0
    queued: float = 0.0
    events: list[float] = field(default_factory=list)


def step_by_step(work: Workload, fleet: Fleet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First token, last token and losses of each request, one engine step at a time.

    One replica of one stage, no prefixes, no speculation: vLLM's scheduler as its documents say it, with
    lists of requests, and every request's blocks counted anew at every step.
    """
    (pool,) = fleet.pools
    table, plan = pool.table, pool.scheduler
    total = table.kv_tokens // table.block
    everyone = [
        _Request(i, int(work.prompt[i]), int(work.output[i]), float(work.arrival[i]))
        for i in range(len(work))
    ]
    for one in everyone:
        one.need = one.prompt
    unsent, arriving = list(everyone), []
    waiting: list[_Request] = []
    running: list[_Request] = []
    now, began, in_flight = 0.0, 0.0, 0

    def blocks(tokens: int) -> int:
        return -(-tokens // table.block)

    def held(one: _Request) -> int:
        decoded = one.computed - one.need if one.computed > one.need else 0
        whole = one.prompt + one.output if plan.reserves else one.need + decoded
        return blocks(whole)

    def used() -> int:
        return sum(held(one) for one in running)

    def receive(freed: float = 0.0) -> None:
        """Send what may be sent until now, no earlier than its arrival and the moment a place was freed."""
        nonlocal in_flight
        while unsent and unsent[0].arrival <= now and (not work.concurrency or in_flight < work.concurrency):
            arriving.append((max(unsent[0].arrival, freed) + table.request, unsent.pop(0)))
            in_flight += 1
        while arriving and arriving[0][0] <= now:
            when, one = arriving.pop(0)
            one.queued = when
            waiting.append(one)

    def fit_decoders() -> bool:
        lost = False
        while True:
            ready = [one for one in running if one.computed >= one.need]
            growth = 0 if plan.reserves else sum(one.computed % table.block == 0 for one in ready)
            if used() + growth <= total:
                return lost
            victim = running.pop()
            victim.need = victim.prompt + victim.out
            victim.computed = 0
            victim.losses += 1
            waiting.insert(0, victim)
            lost = True

    def add_prompts(budget: int, room: int, lost: bool, partial: list, chunks: list) -> None:
        for one in partial:
            if one in running and budget > 0:
                new = min(one.need - one.computed, budget)
                chunks.append((one, new))
                budget -= new
        while not lost and waiting and budget > 0 and len(running) < plan.max_requests:
            one = waiting[0]
            going = chunks or any(other.computed >= other.need for other in running)
            if plan.ahead and going and one.queued > began:
                break
            wanted = one.prompt + one.output if plan.reserves else one.need
            if blocks(wanted) > total - room - used():
                break
            new = min(one.need, budget)
            if plan.whole_prompts:
                if one.need > budget and chunks:
                    break
                new = one.need
            running.append(waiting.pop(0))
            chunks.append((one, new))
            budget -= new

    receive()
    while len([one for one in everyone if one.done < 0]):
        decoders = [one for one in running if one.computed >= one.need]
        partial = [one for one in running if one.computed < one.need]
        lost = False
        chunks: list[tuple[_Request, int]] = []
        if plan.policy == "mixed":
            lost = fit_decoders()
            decoders = [one for one in running if one.computed >= one.need]
            growth = 0 if plan.reserves else sum(one.computed % table.block == 0 for one in decoders)
            add_prompts(plan.token_budget - len(decoders), growth, lost, partial, chunks)
            if lost and not decoders and not chunks:
                lost = False
                continue
        else:
            add_prompts(plan.token_budget, 0, lost, partial, chunks)
            if chunks:
                decoders = []
            else:
                fit_decoders()
                decoders = [one for one in running if one.computed >= one.need]
        if not decoders and not chunks:
            moments = [when for when, _ in arriving]
            if unsent and (not work.concurrency or in_flight < work.concurrency):
                moments.append(unsent[0].arrival)
            now = max(min(moments), now)
            receive()
            continue
        tokens = len(decoders) + sum(new for _, new in chunks)
        gpu = np.interp(tokens, table.tokens, table.mixed_rows if chunks else table.decode_rows)
        if decoders:
            context = sum(one.computed for one in decoders) / len(decoders) + 1
            rows = [np.interp(context, table.contexts, row) for row in table.decode]
            gpu += np.interp(len(decoders), table.requests, rows)
        for one, new in chunks:
            rows = [np.interp(one.computed, table.contexts, row) for row in table.prefill]
            gpu += np.interp(new, table.chunks, rows)
        host = table.host_step + table.host_request * (len(decoders) + len(chunks))
        began = now
        now += max(gpu, host) if table.overlaps else gpu + host
        ended = []
        for one in decoders:
            one.computed += 1
            one.out += 1
            ended += [one] if one.out == one.output else []
        for one, new in chunks:
            one.computed += new
            if one.computed == one.need:
                one.out += 1
                if one.first < 0:
                    one.first = now
                ended += [one] if one.out == one.output else []
        receive()
        for one in ended:
            one.done = now
            running.remove(one)
            in_flight -= 1
        receive(now)
    return tuple(np.array([getattr(one, name) for one in everyone]) for name in ("first", "done", "losses"))
