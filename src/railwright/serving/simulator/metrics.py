"""What users see of a run: TTFT, TPOT, inter-token and end-to-end latency, throughput, goodput, timelines.

Legend: N requests, E runs of like steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.serving.simulator import kernel_rows as r
from railwright.serving.simulator.simulate import Run
from railwright.spec.serving import Slo
from railwright.units import trace_time

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Distribution:
    """Of a latency over requests, or over tokens. [s]"""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Floats) -> Distribution:
        """Percentiles interpolate linearly, as numpy and `vllm bench serve` do; NaN of no values."""
        if not len(values):
            return cls(*[float("nan")] * 4)
        return cls(float(values.mean()), *(float(p) for p in np.percentile(values, (50, 90, 99))))

    @classmethod
    def weighted(cls, values: Floats, weights: Floats) -> Distribution:
        """Of values that stand for `weights` tokens each: the least with the share at or below it."""
        if not weights.sum():
            return cls(*[float("nan")] * 4)
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(weights[order])
        at = np.searchsorted(reached, np.array([0.5, 0.9, 0.99]) * reached[-1])
        picked = values[order][np.minimum(at, len(order) - 1)]
        return cls(float((values * weights).sum() / weights.sum()), *(float(p) for p in picked))


def counted(run: Run) -> NDArray[np.bool_]:
    """(N,) which requests count: all after the warm-up."""
    return np.arange(len(run.work)) >= run.work.warmup


def ttft(run: Run) -> Floats:
    """(N,) seconds from sending to the first token."""
    seconds: Floats = run.first - run.sent
    return seconds


def tpot(run: Run) -> Floats:
    """(N,) mean seconds of each further token; NaN for answers of one."""
    more = run.work.output - 1.0
    seconds: Floats = np.full(len(more), np.nan)
    np.divide(run.done - run.first, more, out=seconds, where=more > 0)
    return seconds


def end_to_end(run: Run) -> Floats:
    """(N,) seconds from sending to the last token."""
    seconds: Floats = run.done - run.sent
    return seconds


def inter_token(run: Run) -> tuple[Floats, Floats]:
    """Gaps between the outputs of consecutive decode steps [s], and how many each stands for.

    Inside a run of like steps, which differ by the growth of the context alone, all have the mean.  Gaps in
    which a request was preempted and computed anew are not among them; they are in TPOT.
    """
    log = run.log[run.log[:, r.LOG_DECODERS] > 0]
    decoders, steps, joined = (log[:, c] for c in (r.LOG_DECODERS, r.LOG_STEPS, r.LOG_JOINED))
    each = (log[:, r.LOG_END] - log[:, r.LOG_START]) / steps
    waited = np.divide(log[:, r.LOG_JOINED_STALL], joined, out=np.zeros(len(log)), where=joined > 0)
    gaps = np.concatenate([each, each + waited, each + log[:, r.LOG_STALL]])
    return gaps, np.concatenate([decoders * (steps - 1), joined, decoders - joined])


def within(run: Run, slo: Slo) -> NDArray[np.bool_]:
    """(N,) which requests meet every promise; an answer of one token meets any TPOT."""
    good = np.ones(len(run.work), np.bool_)
    if slo.ttft is not None:
        good &= ttft(run) <= slo.ttft
    if slo.tpot is not None:
        good &= np.nan_to_num(tpot(run)) <= slo.tpot
    if slo.end_to_end is not None:
        good &= end_to_end(run) <= slo.end_to_end
    return good


KEEPING_UP = 0.9
"""Requests that end over those that come from which they keep up: arrivals at random differ by a tenth."""


@dataclass(frozen=True)
class Throughput:
    """Of the requests that count, from the first of them sent to the last of them over.

    seconds   that took
    requests, prompt_tokens, output_tokens  a second
    busy      share of the time that a replica's GPUs had a step, mean over replicas
    running   requests in a replica's decode step, mean over time of decode steps
    lasting   output tokens a second while the load lasts: at the client's rate where the fleet keeps up with
              it, and so without a finite run's first and last requests; else as measured
    """

    seconds: float
    requests: float
    prompt_tokens: float
    output_tokens: float
    busy: float
    running: float
    lasting: float


def throughput(run: Run, rate: float | None = None) -> Throughput:
    """How much the fleet gets done.

    rate  at which requests come whether or not others are answered [1/s]; None where they wait for others
    """
    chosen = counted(run)
    seconds = float(run.done[chosen].max() - run.sent[chosen].min())
    log = run.log
    lasted = log[:, r.LOG_END] - log[:, r.LOG_START]
    decoding = log[:, r.LOG_DECODERS] > 0
    busy = 0.0
    for v in range(run.fleet.num_replicas):
        busy += _covered(log[run.home[log[:, r.LOG_LANE].astype(int)] == v]) / run.end
    measured = float(run.work.output[chosen].sum()) / seconds
    return Throughput(
        seconds,
        float(chosen.sum()) / seconds,
        float(run.work.prompt[chosen].sum()) / seconds,
        measured,
        busy / run.fleet.num_replicas,
        float(np.average(log[decoding, r.LOG_DECODERS], weights=lasted[decoding])) if decoding.any() else 0.0,
        rate * float(run.work.output[chosen].mean()) if rate is not None and keeps_up(run) else measured,
    )


def keeps_up(run: Run) -> bool:
    """Whether, while the second half of the time of sending passes, about as many requests end as come."""
    last = float(run.sent.max())
    half = 0.5 * (float(run.sent.min()) + last)
    came = int((run.sent > half).sum())
    ended = int(((run.done > half) & (run.done <= last)).sum())
    return ended >= KEEPING_UP * came


def _covered(log: Floats) -> float:
    """Seconds in which at least one of a replica's lanes has a step."""
    if not len(log):
        return 0.0
    order = np.argsort(log[:, r.LOG_START], kind="stable")
    start, end = log[order, r.LOG_START], np.maximum.accumulate(log[order, r.LOG_END])
    before = np.concatenate([[-np.inf], end[:-1]])
    return float(np.maximum(end - np.maximum(start, before), 0.0).sum())


@dataclass(frozen=True, eq=False)
class Timeline:
    """A replica's steps over time.

    start, end   (E,) of each run of like steps [s];  steps in it
    lane         (E,) which of its batches in flight, from 0: with pipeline stages they run beside each other
    decoders, chunks, tokens  (E,) requests that decode, parts of prompts and their tokens
    waiting      (E,) requests in its queue at the end
    held         (E,) share of its blocks of keys and values in use
    """

    replica: int
    start: Floats
    end: Floats
    lane: Floats
    steps: Floats
    decoders: Floats
    chunks: Floats
    tokens: Floats
    waiting: Floats
    held: Floats


_COLUMNS = (
    r.LOG_START,
    r.LOG_END,
    r.LOG_STEPS,
    r.LOG_DECODERS,
    r.LOG_CHUNKS,
    r.LOG_TOKENS,
    r.LOG_QUEUE,
)


def timelines(run: Run) -> tuple[Timeline, ...]:
    """One for each replica, in order of time."""
    found = []
    first = 0
    for pool in run.fleet.pools:
        blocks = pool.table.kv_tokens // pool.table.block
        for v in range(first, first + pool.replicas):
            log = run.log[run.home[run.log[:, r.LOG_LANE].astype(int)] == v]
            log = log[np.argsort(log[:, r.LOG_END], kind="stable")]
            start, end, steps, decoders, chunks, tokens, queue = (log[:, column] for column in _COLUMNS)
            lane = log[:, r.LOG_LANE] - np.flatnonzero(run.home == v)[0]
            found.append(
                Timeline(
                    v, start, end, lane, steps, decoders, chunks, tokens, queue, log[:, r.LOG_USED] / blocks
                )
            )
        first += pool.replicas
    return tuple(found)


DRAWN = 3000
"""Requests in a trace at most: more make a viewer slow."""


def perfetto(run: Run) -> dict[str, Any]:
    """The run as Chrome trace events: steps and counters of each replica, and the first requests."""
    events = [*_step_events(run), *_request_events(run)]
    return {"displayTimeUnit": "ms", "traceEvents": events}


LANE = 1000
"""Threads count from here: Perfetto takes 0, and the number of the process, for its main thread."""


def _step_events(run: Run) -> Iterator[dict[str, Any]]:
    for line in timelines(run):
        pid = line.replica + 1
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"replica {line.replica}"}}
        for lane in sorted({int(lane) for lane in line.lane}):
            name = "steps" if not line.lane.any() else f"steps of batch {lane + 1}"
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": LANE + lane, "args": {"name": name}}
        joins: dict[float, int] = {}
        for k in range(len(line.start)):
            mixed = line.chunks[k] > 0
            name = ("mixed" if line.decoders[k] else "prefill") if mixed else "decode"
            begin, end = trace_time(line.start[k]), trace_time(line.end[k])
            yield {
                "ph": "X",
                "name": name,
                "pid": pid,
                "tid": LANE + int(line.lane[k]),
                "ts": begin,
                "dur": round(end - begin, 3),
                "args": {"steps": int(line.steps[k]), "prompt tokens": int(line.tokens[k])},
            }
            for ts, change in ((begin, 1), (end, -1)):
                joins[ts] = joins.get(ts, 0) + change * int(line.decoders[k])
            yield _counter(pid, end, "requests", "waiting", float(line.waiting[k]))
            yield _counter(pid, end, "KV", "in use (%)", round(100 * float(line.held[k]), 2))
        decoding = 0
        for ts in sorted(joins):
            decoding += joins[ts]
            yield _counter(pid, ts, "requests", "decoding", decoding)


def _counter(pid: int, ts: float, name: str, what: str, value: float) -> dict[str, Any]:
    """Perfetto calls it by both names; its value holds from here on."""
    return {"ph": "C", "name": name, "pid": pid, "ts": ts, "args": {what: value}}


def _request_events(run: Run) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "requests"}}
    for i in range(min(len(run.work), DRAWN)):
        moments = (("waits", run.sent[i], run.admitted[i]), ("prefill", run.admitted[i], run.first[i]))
        for name, begin, end in (*moments, ("decode", run.first[i], run.done[i])):
            # A local id keeps it in its process; a plain one belongs to none.
            one = {"cat": "request", "name": name, "id2": {"local": hex(i)}, "pid": 0, "tid": 0}
            args = {"prompt": int(run.work.prompt[i]), "output": int(run.work.output[i])}
            yield {"ph": "b", "ts": trace_time(begin), "args": args, **one}
            yield {"ph": "e", "ts": trace_time(end), **one}
