"""Closed forms that no simulation of a setting beats: floors of latencies, and the rate it can keep up with.

Each counts only what the simulator counts at least, from the same `StepTable`, so that a plan ruled out here
could not have met the SLO (tests/property/test_search_serving.py).

Legend: N requests, J lines.  A step with T tokens of which D are of decoding requests takes at least

    a_j + b_j T + alpha D     for every line j of the lower hull of its times, alpha decode attention's least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from railwright.serving.clients.client import Workload
from railwright.serving.engine.table import StepTable
from railwright.serving.simulator.fleet import Role, Scheduler, Speculation
from railwright.serving.simulator.simulate import decode_steps
from railwright.serving.simulator.state import read
from railwright.spec.serving import Client, Slo

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Load:
    """What a search's requests ask of a fleet, whatever the fleet.

    rate     requests a second over the long run; None for clients that wait for answers
    users    requests in flight at most, 0: no bound
    fresh    (N,) tokens of each prompt that no prefix cache can hold
    held     tokens of keys and values that every decoding request has at least, none of them shared
    context  tokens that every decoding request sees at least
    passes   (N,) decode steps of each request;  output  (N,) tokens
    counted  first request that counts in statistics
    queries  tokens of one request in a decode step
    burst    tokens of prompts sent at once in the beginning that must be computed within the SLO's TTFT: the
             shortest of them, without as many as may be late of all requests
    """

    rate: float | None
    users: int
    prompt: Longs
    fresh: Longs
    held: float
    context: float
    passes: Longs
    output: Longs
    counted: int
    queries: int
    burst: float

    @classmethod
    def of(
        cls, work: Workload, client: Client, slo: Slo, speculation: Speculation | None, caches: bool
    ) -> Load:
        """From a workload; `caches`: whether the engine keeps prefixes."""
        shared = np.diff(work.part_ptr) * work.part_tokens if caches else np.zeros(len(work), np.int64)
        rate = client.rate if client.kind in ("poisson", "constant") else None
        if client.kind == "trace" and np.isfinite(work.rate):
            rate = work.rate
        fresh = np.maximum(work.prompt - shared, 1)
        return cls(
            rate=rate,
            users=work.concurrency,
            prompt=work.prompt,
            fresh=fresh,
            held=float(fresh.min()),
            context=float(work.prompt.min()) + 1.0,
            passes=decode_steps(work.output, speculation, client.seed),
            output=work.output,
            counted=work.warmup,
            queries=speculation.drafted + 1 if speculation else 1,
            burst=_burst(work, fresh, slo),
        )


@dataclass(frozen=True, eq=False)
class Bounds:
    """Of one replica of a setting in one role.

    ttft, tpot, end_to_end  the SLO's percentile of each, at least [s]; 0 where the role does not decide it
    rate     requests a second that a replica keeps up with at most, the SLO's TPOT kept
    limit    what sets it: 'TPOT', 'memory' or 'throughput'
    prompts  tokens of prompts it computes within the SLO's TTFT at most
    a, c     (J,) a decode step over one stage takes at least a + c D, its share of prompts included [s]
    stages, between  stages, and seconds of a pass that are not in them
    """

    ttft: float
    tpot: float
    end_to_end: float
    rate: float
    limit: str
    prompts: float
    a: Floats
    c: Floats
    stages: int
    between: float

    def expected(self, passes: float) -> float:
        """TPOT at so many decode steps of requests a second and replica, were all requests alike [s].

        From Little's law: D = passes x s over one stage, and s = a + c D.
        """
        left = 1.0 - self.c * passes
        if not len(self.a) or bool((left <= 0).any()):
            return float("inf")
        return float((self.a / left).max()) * self.stages + self.between


class _Lines(NamedTuple):
    """(J,) lines that no step takes less than any of: a + b n + decode m with n tokens of prompts and m
    decoders, on each stage. [s]

    between  beside it, once a step, what stages send each other
    """

    a: Floats
    b: Floats
    decode: Floats
    between: float


def bounds(table: StepTable, plan: Scheduler, role: Role, load: Load, slo: Slo) -> Bounds:
    """What a replica cannot do better than."""
    # With stages the host's work is beside the next batch's; without overlap one stage waits for it.
    waits = not table.overlaps and table.stages == 1
    base, each = (table.host_step, table.host_request) if waits else (0.0, 0.0)
    between = table.hop * (table.stages - 1)
    between += table.host_step if not table.overlaps and table.stages > 1 else 0.0
    alpha, least = _attention(table, load)
    first = _first(table, plan, load, base, between) if role != "decode" else np.zeros(len(load.fresh))
    step = 0.0
    if role != "prefill":
        rows = _least_from(table, float(load.queries)) + least + base + each
        floor = max(rows, table.host_step + table.host_request) if table.overlaps else rows
        step = floor * table.stages + between
    more = load.output - 1
    counts = np.arange(len(more)) >= load.counted
    each_token = step * load.passes[counts & (more > 0)] / more[counts & (more > 0)]
    whole = (first + step * load.passes)[counts]
    widest = _widest(plan, load)
    a, b = _hull(*_rows(table, widest))
    a = a + base
    passes, fresh = float(load.passes.mean()), float(load.fresh.mean())
    if role == "prefill":
        passes = 0.0
    if role == "decode":
        fresh = 0.0
    decode = b * load.queries + alpha + each
    lines = _Lines(a, b, decode, between)
    rate, limit = _ceiling(table, plan, load, slo, lines, (passes, fresh), widest)
    c = decode + (b * fresh / passes if passes else 0.0)
    return Bounds(
        ttft=_percentile(first[counts], slo.percentile),
        tpot=_percentile(each_token, slo.percentile),
        end_to_end=_percentile(whole, slo.percentile),
        rate=rate,
        limit=limit,
        prompts=_in_time(table, widest, slo) if role != "decode" else float("inf"),
        a=a if role != "prefill" else np.zeros(0),
        c=c,
        stages=table.stages,
        between=between,
    )


def _ceiling(
    table: StepTable,
    plan: Scheduler,
    load: Load,
    slo: Slo,
    lines: _Lines,
    tokens: tuple[float, float],
    widest: float,
) -> tuple[float, str]:
    """Requests a second at most, and why: steps with m decoders in the mean, all stages busy all the time.

    With n = m fresh / passes tokens of prompts the mean step takes a + b n + decode m at least, and by Jensen
    a step as decoded tokens see it a + decode m: the SLO bounds that for the requests that keep it.

    tokens  decode steps and tokens of prompts of a request, in the mean
    widest  tokens of a step at most
    """
    a, b, decode, between = lines
    passes, fresh = tokens
    attention = float(_prompt_attention(table, plan, load).mean()) if fresh else 0.0
    if passes == 0.0:
        return 1.0 / (float((a / widest + b).max() * fresh) + attention), "throughput"
    stages = table.stages
    limits = {"throughput": widest / (load.queries + fresh / passes)}
    limits["throughput"] = min(limits["throughput"], plan.max_requests / stages)
    limits["memory"] = table.kv_tokens / load.held / stages
    if load.users:
        limits["throughput"] = min(limits["throughput"], load.users / stages)
    if slo.tpot is not None:
        kept, pace = _kept(load, slo.percentile)
        room = (slo.tpot * pace - between) / stages - a
        most = np.divide(room, decode, out=np.where(room > 0, np.inf, 0.0), where=decode > 0)
        limits["TPOT"] = max(float(most.min()), 0.0) / kept
    limit = min(limits, key=lambda name: limits[name])
    m = limits[limit]
    if m <= 0.0:
        return 0.0, limit
    seconds = float((passes * a / m + b * fresh + decode * passes).max()) + attention
    return (1.0 / seconds if seconds > 0 else float("inf")), limit


def _burst(work: Workload, fresh: Longs, slo: Slo) -> float:
    """Tokens of prompts sent at the very beginning that must be on time, whatever order they are taken in."""
    total = len(work) - work.warmup
    may = total - int((total - 1) * slo.percentile / 100.0) - 1
    at_once = np.arange(len(work)) < (work.concurrency or len(work))
    sent = np.sort(fresh[at_once & (work.arrival <= 0.0) & (np.arange(len(work)) >= work.warmup)])
    return float(sent[: max(len(sent) - may, 0)].sum())


def _in_time(table: StepTable, widest: float, slo: Slo) -> float:
    """Tokens of prompts that a replica computes until the SLO's TTFT is over, at its best pace."""
    if slo.ttft is None:
        return float("inf")
    grid = np.append(table.tokens[table.tokens < widest], widest)
    seconds = float((_least(table.mixed_rows, table, grid) / grid).min())
    return max(slo.ttft - table.request, 0.0) / seconds if seconds > 0 else float("inf")


def _kept(load: Load, percentile: float) -> tuple[float, float]:
    """Least share of decode steps that belong to requests which keep the TPOT; most tokens of such a step."""
    counts = (np.arange(len(load.output)) >= load.counted) & (load.output > 1)
    passes = np.sort(load.passes[counts])
    if not len(passes):
        return 1.0, 1.0
    need = int((len(passes) - 1) * percentile / 100.0) + 1
    pace = float(((load.output[counts] - 1) / load.passes[counts]).max())
    return float(passes[:need].sum() / passes.sum()), pace


def _first(table: StepTable, plan: Scheduler, load: Load, base: float, between: float) -> Floats:
    """(N,) seconds to the first token at least: its own prompt through all stages, nobody else there."""
    own = load.fresh.astype(float)
    if plan.whole_prompts or plan.policy == "static":
        rows = _least(table.mixed_rows, table, own)
    else:
        # Cut into chunks of at most the budget, each no cheaper a token than the cheapest size.
        most = np.minimum(own, float(plan.token_budget))
        per = np.minimum.accumulate(_least(table.mixed_rows, table, table.tokens) / table.tokens)
        at = np.maximum(np.searchsorted(table.tokens, most, side="right") - 1, 0)
        rows = own * np.minimum(per[at], _least(table.mixed_rows, table, most) / most)
    rows = rows + _prompt_attention(table, plan, load)
    stage = np.maximum(rows, table.host_step) if table.overlaps else rows + base
    seconds: Floats = table.request + stage * table.stages + between
    return seconds


def _prompt_attention(table: StepTable, plan: Scheduler, load: Load) -> Floats:
    """(N,) seconds that attention of each prompt takes on a stage at least.

    A chunk's tokens have at most a chunk less before them than the last of them; per token a chunk is no
    cheaper than the cheapest size at as many tokens before it.
    """
    own = load.fresh.astype(float)
    if plan.whole_prompts or plan.policy == "static":
        cheapest = table.prefill.min(axis=1)
        low = np.minimum.accumulate(cheapest[::-1])[::-1]
        shares = np.minimum(own / table.chunks[0], 1.0)
        whole_prompt: Floats = np.asarray(np.interp(own, table.chunks, low) * shares, np.float64)
        return whole_prompt
    each = (table.prefill / table.chunks[:, None]).min(axis=0)
    each = np.minimum.accumulate(each[::-1])[::-1]
    ends = np.linspace(0.0, float(own.max()), 129)
    starts = np.maximum(ends[:-1] - plan.token_budget, 0.0)
    parts = np.diff(ends) * np.interp(starts, table.contexts, each)
    whole = np.concatenate([[0.0], np.cumsum(parts)])
    return np.asarray(np.interp(own, ends, whole))


def _attention(table: StepTable, load: Load) -> tuple[float, float]:
    """Decode attention of one request in a step, at least; and of any step with one. [s]"""
    column = max(int(np.searchsorted(table.contexts, load.context, side="right")) - 1, 0)
    seen = table.decode[:, column:]
    return float((seen / table.requests[:, None]).min()), float(seen.min())


def _widest(plan: Scheduler, load: Load) -> float:
    """Tokens of a step at most."""
    most = float(max(plan.token_budget, min(plan.max_requests, len(load.fresh)) * load.queries))
    if plan.policy == "static":
        most = float(plan.max_requests * max(int(load.prompt.max()), load.queries))
    elif plan.whole_prompts:
        most += float(load.prompt.max())
    return max(most, 2.0)


def _read_rows(table: StepTable, tokens: Floats) -> Floats:
    both: Floats = np.minimum(
        read(tokens, table.tokens, table.decode_rows), read(tokens, table.tokens, table.mixed_rows)
    )
    return both


def _rows(table: StepTable, widest: float) -> tuple[Floats, Floats]:
    """All but attention of any step of so many tokens or more, on the grid up to the widest step."""
    grid = np.append(table.tokens[table.tokens < widest], widest)
    rows = _read_rows(table, grid)
    return grid, np.minimum.accumulate(rows[::-1])[::-1]


def _least_from(table: StepTable, tokens: float) -> float:
    """Of any step of so many tokens or more [s]."""
    grid = np.append(tokens, table.tokens[table.tokens > tokens])
    return float(_read_rows(table, grid).min())


def _least(rows: Floats, table: StepTable, tokens: Floats) -> Floats:
    """Of a step of so many tokens or more, by tokens [s]."""
    later = np.minimum.accumulate(rows[::-1])[::-1]
    at = np.searchsorted(table.tokens, tokens, side="right")
    after = np.where(at < len(later), later[np.minimum(at, len(later) - 1)], np.inf)
    least: Floats = np.minimum(read(tokens, table.tokens, rows), after)
    return least


def _hull(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Lines a + b x below all points: edges of their lower convex hull, none below 0 at 0."""
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            o, p = kept[-2], kept[-1]
            if (y[p] - y[o]) * (x[i] - x[o]) < (y[i] - y[o]) * (x[p] - x[o]):
                break
            kept.pop()
        kept.append(i)
    left, right = np.array(kept[:-1]), np.array(kept[1:])
    slope = (y[right] - y[left]) / (x[right] - x[left])
    start = y[left] - slope * x[left]
    steep = start < 0
    return np.append(start[~steep], 0.0), np.append(slope[~steep], float((y / x).min()))


def _percentile(values: Floats, percentile: float) -> float:
    return float(np.percentile(values, percentile)) if len(values) else 0.0
