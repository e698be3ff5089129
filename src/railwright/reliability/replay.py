"""Node faults as they really came: a published trace replayed, and the spares a cluster needs under it.

Independent repairs understate how many nodes are out at once: in StepFun's trace 31 of 400 nodes in the worst
hundredth of the time, where a Poisson law of the same mean says 17.  So spares are counted on the trace.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from railwright.errors import RailwrightError
from railwright.spec.document import read_text
from railwright.spec.reliability import FaultTrace
from railwright.units import DAY, HOUR

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ONE_INCIDENT = 60.0
"""Faults that start within so much of the one before are one incident seen on several nodes. [s]"""

SHIFTS = 256
"""Draws of shifts of the trace's copies from which a larger cluster is put together."""


@dataclass(frozen=True, eq=False)
class Trace:
    """When which node was out.

    name, source
    nodes, days  of the cluster that was watched
    start, end   (F,) of every fault [s]
    node         (F,) number of the node
    kind         (F,) what failed, in the source's words
    """

    name: str
    source: str
    nodes: int
    days: float
    start: Floats
    end: Floats
    node: Ints
    kind: tuple[str, ...]


@dataclass(frozen=True)
class TraceFigures:
    """What a trace says by itself.

    rate            faults per 1,000 node-days
    unavailable     share of node time that is out
    mean, p50, p99, most   nodes out at once, over time
    independent_p99 the same by a Poisson law of that mean
    shape           Weibull shape of the gaps between incidents, maximum likelihood
    repair_median, repair_mean, repair_p90  [s]
    spread          variance over mean of faults per node
    worst_tenth     share of all faults that the worst tenth of the nodes has
    """

    rate: float
    unavailable: float
    mean: float
    p50: float
    p99: float
    most: int
    independent_p99: int
    shape: float
    repair_median: float
    repair_mean: float
    repair_p90: float
    spread: float
    worst_tenth: float


@dataclass(frozen=True)
class Spares:
    """Servers out at once, and so the spares that keep a job whole for a share of the time.

    servers, rate  of the job: its servers, and their faults per 1,000 node-days
    share          of the time
    replayed       copies of the trace shifted against each other: faults of one copy are correlated
    scaled         the trace's own share of nodes, as if the whole cluster failed together like its 400 nodes
    independent    a Poisson law of the same mean
    """

    servers: float
    rate: float
    share: float
    replayed: int
    scaled: int
    independent: int


@cache
def stepfun() -> Trace:
    """StepFun's 400 nodes over 348 days, shipped with Railwright."""
    text = (files("railwright.reliability") / "data" / "stepfun_trace.csv").read_text(encoding="utf-8")
    return _parsed(
        text, "stepfun_trace.csv", "StepFun, 400 nodes, 348 days", 400, 348.0,
        "stepfun-ai/InfiniteHBD-Trace, fault_trace.json @7aacdc8 (Apache-2.0)",
    )  # fmt: skip


@cache
def read_trace(asked: FaultTrace) -> Trace:
    """A study's own trace: CSV with the columns start_day, end_day, node, level, kind; '#' begins a comment.

    Raises RailwrightError naming file and line; one without a fault is refused too.
    """
    file = Path(asked.file)
    trace = _parsed(read_text(file), asked.file, file.stem, asked.nodes, asked.days, asked.file)
    if not len(trace.start):
        raise RailwrightError(
            f"{asked.file}: no fault in it; leave reliability.trace out for StepFun's trace"
        )
    return trace


def figures(trace: Trace) -> TraceFigures:
    """What a trace says: rates, repairs, correlation. Raises RailwrightError with fewer than 20 faults."""
    from scipy.optimize import brentq
    from scipy.stats import poisson

    if len(trace.start) < 20:
        raise RailwrightError(
            f"trace '{trace.name}' has {len(trace.start)} faults; at least 20 say something",
            "reliability.trace",
        )
    out = concurrent(trace)
    gaps = np.diff(np.sort(trace.start))
    gaps = gaps[gaps > ONE_INCIDENT]
    logs = np.log(gaps / gaps.mean())

    def score(k: float) -> float:
        powered = np.exp(k * logs)
        return float(1 / k + logs.mean() - (powered * logs).sum() / powered.sum())

    repair = trace.end - trace.start
    each = np.bincount(trace.node, minlength=trace.nodes)
    worst = np.sort(each)[-max(trace.nodes // 10, 1) :].sum()
    return TraceFigures(
        rate=len(trace.start) / (trace.nodes * trace.days) * 1000,
        unavailable=float(out.mean()) / trace.nodes,
        mean=float(out.mean()),
        p50=float(np.percentile(out, 50)),
        p99=float(np.percentile(out, 99)),
        most=int(out.max()),
        independent_p99=int(poisson.ppf(0.99, out.mean())),
        shape=float(brentq(score, 0.05, 20.0)),
        repair_median=float(np.median(repair)),
        repair_mean=float(repair.mean()),
        repair_p90=float(np.percentile(repair, 90)),
        spread=float(each.var() / each.mean()),
        worst_tenth=float(worst / each.sum()),
    )


@lru_cache(maxsize=8)
def concurrent(trace: Trace, step: float = HOUR) -> Ints:
    """(T,) nodes out at every `step` seconds; a node with two faults at once is out once."""
    times = np.arange(0, trace.days * DAY, step)
    out = np.zeros(len(times), np.int64)
    for node in np.unique(trace.node):
        mine = trace.node == node
        begins = np.searchsorted(times, trace.start[mine])
        ends = np.searchsorted(times, trace.end[mine])
        down = np.zeros(len(times) + 1, np.int64)
        np.add.at(down, begins, 1)
        np.add.at(down, ends, -1)
        out += np.cumsum(down)[:-1] > 0
    return out


def spares(trace: Trace, servers: float, rate: float, share: float, seed: int = 0) -> Spares:
    """Spares that a job of so many servers needs for a share of the time, replayed.

    rate  faults per 1,000 node-days that take a server out of service

    The cluster is put together of as many copies of the trace as it has faults more; each copy is shifted by
    a random time, the last one counted in part.
    Raises RailwrightError for a share outside 0..1.
    """
    from scipy.stats import poisson

    if not 0 < share < 1:
        raise RailwrightError(f"a share of the time lies between 0 and 1, not {share:g}")
    out = concurrent(trace)
    own = len(trace.start) / (trace.nodes * trace.days) * 1000
    copies = servers / trace.nodes * rate / own
    mean = float(out.mean()) * copies
    rng = np.random.default_rng(seed)
    draws = max(SHIFTS // max(int(copies), 1), 8)
    levels = [_cluster(trace, out, servers, rate, rng) for _ in range(draws)]
    return Spares(
        servers=servers,
        rate=rate,
        share=share,
        replayed=math.ceil(float(np.quantile(np.concatenate(levels), share)) - 1e-9),
        scaled=math.ceil(float(np.quantile(out, share)) * copies - 1e-9),
        independent=int(poisson.ppf(share, mean)),
    )


def shortage(
    trace: Trace, servers: float, rate: float, kept: int, length: float, samples: int, seed: int = 0
) -> tuple[Floats, Floats]:
    """(S,) share of a run's wall time with more servers out than spares, and (S,) mean number short in it.

    servers, rate  as in `spares`; kept  spares
    length         of the run if it never waited [s]

    Each sample begins at a random time at which the job is whole, and waits whenever it is not, until it has
    had its length; the trace is a ring.  A share of 1: it is never whole.
    """
    out = concurrent(trace)
    hours = max(math.ceil(length / HOUR), 1)
    rng = np.random.default_rng(seed)
    short, missing = np.ones(samples), np.zeros(samples)
    for i in range(samples):
        over = np.maximum(_cluster(trace, out, servers, rate, rng) - kept, 0.0)
        whole = over == 0
        missing[i] = over.mean()
        if not whole.any():
            continue
        had = np.cumsum(np.roll(whole, -int(np.argmax(whole))))
        rounds, rest = divmod(hours, int(had[-1]))
        wall = rounds * len(had) + (int(np.searchsorted(had, rest)) + 1 if rest else 0)
        short[i] = 1 - hours / max(wall, hours)
    return short, missing


def _cluster(trace: Trace, out: Ints, servers: float, rate: float, rng: np.random.Generator) -> Floats:
    """(T,) servers out of a cluster made of copies of the trace, each turned to begin at a random time."""
    own = len(trace.start) / (trace.nodes * trace.days) * 1000
    copies = servers / trace.nodes * rate / own
    total = np.zeros(len(out))
    for _ in range(int(copies)):
        total += np.roll(out, int(rng.integers(len(out))))
    if part := copies - int(copies):
        # Each node of the last copy belongs to the cluster with probability `part`.
        total += rng.binomial(np.roll(out, int(rng.integers(len(out)))), part)
    return total


def _parsed(text: str, file: str, name: str, nodes: int, days: float, source: str) -> Trace:
    starts, ends, numbers, kinds = [], [], [], []
    header: list[str] | None = None
    for line, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row or row[0].startswith("#"):
            continue
        if header is None:
            header = [cell.strip() for cell in row]
            if header[:3] != ["start_day", "end_day", "node"]:
                raise RailwrightError(
                    f"{file}:{line}: the columns are start_day, end_day, node, level, kind; "
                    f"this file begins with {', '.join(header[:3])}"
                )
            continue
        try:
            start, end, node = float(row[0]), float(row[1]), int(row[2])
        except (ValueError, IndexError):
            raise RailwrightError(
                f"{file}:{line}: '{','.join(row)}' is no fault; write start_day,end_day,node,level,kind, "
                "like 3.9,26.0,17,hardware,gpu"
            ) from None
        if not (0 <= start <= end < math.inf and 0 <= node < nodes):
            raise RailwrightError(
                f"{file}:{line}: a fault starts at day 0 or later, ends after that, on a node from 0 to "
                f"{nodes - 1}; this one says {row[0]} to {row[1]} on node {row[2]}"
            )
        starts.append(start * DAY)
        ends.append(end * DAY)
        numbers.append(node)
        kinds.append(row[4].strip() if len(row) > 4 else "")
    return Trace(
        name=name,
        source=source,
        nodes=nodes,
        days=days,
        start=np.array(starts),
        end=np.array(ends),
        node=np.array(numbers, np.int64),
        kind=tuple(kinds),
    )
