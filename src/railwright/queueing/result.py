"""One policy's run in the figures people ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from railwright.network import Network
from railwright.queueing.jobs import Job
from railwright.queueing.network_cost import Spread, spread
from railwright.queueing.place import Policy, Site
from railwright.queueing.simulate import Failures, Run, simulate

FIFTHS = 5


@dataclass(frozen=True)
class Outcome:
    """A policy on a trace.

    wait_mean, wait_p50, wait_p90, wait_p99  from submission to first start [s]
    wait_fifths  wait_mean of each fifth of the jobs, in order of submission: how far one run's mean says what
                 another's would be, and whether the line grows [s]
    by_size      (least GPUs, most GPUs, jobs, mean wait [s]) of each class of sizes
    utilisation  GPU-time at work over all there was until the last submission (hosts that are down included)
    fragmented   GPU-time idle although no fewer GPUs were idle than the first in line asked for, over all
    lost         GPU-time of work that failures took, over the work of all jobs
    kills        jobs ended by failures, each time
    refused      jobs that can never run here
    spread       jobs on several hosts; None without any
    """

    policy: Policy
    jobs: int
    wait_mean: float
    wait_p50: float
    wait_p90: float
    wait_p99: float
    wait_fifths: tuple[float, ...]
    by_size: tuple[tuple[int, int, int, float], ...]
    utilisation: float
    fragmented: float
    lost: float
    kills: int
    refused: int
    spread: Spread | None


def outcome(
    site: Site,
    jobs: Sequence[Job],
    policy: Policy,
    network: Network,
    pxn: bool,
    failures: Failures | None = None,
    seed: int = 0,
) -> Outcome:
    """Simulate one policy and sum it up."""
    return summed(simulate(site, jobs, policy, failures, seed), site, jobs, policy, network, pxn)


def summed(run: Run, site: Site, jobs: Sequence[Job], policy: Policy, network: Network, pxn: bool) -> Outcome:
    ran: list[int] = np.flatnonzero(~np.isnan(run.waits)).tolist()
    waits = run.waits[ran]
    gpus = np.array([jobs[i].gpus for i in ran])
    work = float(sum(jobs[i].gpus * jobs[i].duration for i in ran))
    there = site.capacity * run.span
    p50, p90, p99 = np.quantile(waits, [0.5, 0.9, 0.99])
    return Outcome(
        policy=policy,
        jobs=len(ran),
        wait_mean=float(waits.mean()),
        wait_p50=float(p50),
        wait_p90=float(p90),
        wait_p99=float(p99),
        wait_fifths=tuple(float(part.mean()) for part in np.array_split(waits, FIFTHS) if len(part)),
        by_size=_classes(gpus, waits, site.gpus),
        utilisation=run.used / there if there else 0.0,
        fragmented=run.idle_while_waiting / there if there else 0.0,
        lost=run.lost / work,
        kills=run.kills,
        refused=len(run.refused),
        spread=spread(run, site, network, pxn),
    )


def _classes(gpus: np.ndarray, waits: np.ndarray, host: int) -> tuple[tuple[int, int, int, float], ...]:
    """One GPU, below a host, a host, up to eight hosts, more."""
    edges = sorted({1, 2, host, host + 1, 8 * host + 1})
    rows = []
    for low, above in zip(edges, [*edges[1:], 1 << 30], strict=True):
        inside = (gpus >= low) & (gpus < above)
        if inside.any():
            row = (int(gpus[inside].min()), int(gpus[inside].max()), int(inside.sum()))
            rows.append((*row, float(waits[inside].mean())))
    return tuple(rows)
