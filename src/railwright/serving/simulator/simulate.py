"""Requests through a fleet: the event loop, interpreted for small problems and compiled for large ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.serving.clients.client import Workload
from railwright.serving.simulator import kernel_rows as r
from railwright.serving.simulator.fleet import Fleet, Speculation, check
from railwright.serving.simulator.kernel_loop import LOG_FULL, STUCK, advance
from railwright.serving.simulator.kernel_rows import State
from railwright.serving.simulator.state import build

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

LoopEngine = Literal["auto", "interpreted", "compiled"]

COMPILED_FROM = 20_000
"""Runs of steps, by estimate, from which the compiled loop answers where it was compiled before: below, the
interpreted one takes no longer than importing numba and reading it (1.2 s)."""
COMPILE_FROM = 600_000
"""Runs of steps from which compiling it first (half a minute and more) pays."""


@dataclass(frozen=True, eq=False)
class Run:
    """What became of every request, and every run of steps.

    Legend: N requests, E runs of like steps, W lanes, V replicas.

    sent, queued, admitted, first, done  (N,) moments: left the client, reached a queue, was first put into a
                step, had its first and its last token [s]
    handed      (N,) when a prefill replica had computed the prompt, -1 without one [s]
    replica     (N,) that gave the last token
    hit         (N,) tokens of the prompt found in a prefix cache
    losses      (N,) times that all was to be computed again: preempted, or its replica lost
    passes      (N,) decode steps
    log         (E, LOG_WIDTH) as `kernel_rows` names its columns
    home        (W,) replica of each lane
    engine      'interpreted' or 'compiled': the same numbers
    """

    work: Workload
    fleet: Fleet
    sent: Floats
    queued: Floats
    admitted: Floats
    first: Floats
    done: Floats
    handed: Floats
    replica: Longs
    hit: Longs
    losses: Longs
    passes: Longs
    log: Floats
    home: Longs
    engine: str

    @property
    def end(self) -> float:
        """When the last request was over [s]."""
        return float(self.done.max())


def simulate(work: Workload, fleet: Fleet, engine: LoopEngine = "auto", seed: int = 0) -> Run:
    """Send the workload's requests through the fleet.

    engine  'interpreted' and 'compiled' give the same bits; 'auto' takes the second for large problems
    seed    of what speculative decoding accepts

    Raises PlanError for a fleet or workload that cannot run.
    """
    check(work, fleet)
    passes = decode_steps(work.output, fleet.pools[-1].speculation, seed)
    compiled = engine == "compiled" or (engine == "auto" and _pays(_runs(work, fleet)))
    state = build(work, fleet, passes, as_lists=not compiled)
    logs: list[Floats] = []
    loop: Callable[[State], int] = advance
    if compiled:
        from railwright.serving.simulator.compiled import compiled_loop

        loop, state = compiled_loop(state)
    while True:
        answer = loop(state)
        logs.append(np.array(state.log[: state.count[r.LOGGED] * r.LOG_WIDTH], np.float64))
        state.count[r.LOGGED] = 0
        if answer != LOG_FULL:
            break
    if answer == STUCK:
        raise PlanError(_stuck(state))
    when = {name: np.array(state.when[row]) for name, row in _MOMENTS.items()}
    return Run(
        work=work,
        fleet=fleet,
        **when,
        replica=np.array(state.request[r.REPLICA], np.int64),
        hit=np.array(state.request[r.HIT], np.int64),
        losses=np.array(state.request[r.LOSSES], np.int64),
        passes=passes,
        log=np.concatenate(logs).reshape(-1, r.LOG_WIDTH),
        home=np.array(state.lane[r.HOME], np.int64),
        engine="compiled" if compiled else "interpreted",
    )


_MOMENTS = {
    "sent": r.SENT,
    "queued": r.QUEUED,
    "admitted": r.ADMITTED,
    "first": r.FIRST,
    "done": r.DONE,
    "handed": r.HANDED,
}


def decode_steps(output: Longs, speculation: Speculation | None, seed: int = 0) -> Longs:
    """(N,) decode steps that give each answer's tokens after the first.

    With drafts a step gives one token and those accepted, each with the same chance given those before it.
    """
    after = output - 1
    if speculation is None or speculation.acceptance == 0.0:
        return after
    total = int(after.sum())
    draw = np.random.default_rng([seed, 2]).random(total)
    # Accepted in a row: floor(log u / log a), at most all that were drafted.
    a = speculation.acceptance
    given = 1 + (
        np.full(total, speculation.drafted)
        if a >= 1.0
        else np.minimum(np.log1p(-draw) / np.log(a), speculation.drafted).astype(np.int64)
    )
    start = np.cumsum(after) - after
    reached = np.concatenate([[0], np.cumsum(given)])
    steps: Longs = np.searchsorted(reached, reached[start] + after, side="left") - start
    return steps


def _pays(runs: float) -> bool:
    """Whether the compiled loop answers sooner."""
    if runs < COMPILED_FROM:
        return False
    from railwright.serving.simulator.compiled import is_kept

    return runs >= COMPILE_FROM or is_kept()


def _runs(work: Workload, fleet: Fleet) -> float:
    """Runs of like steps, about: each request begins one and ends one, and each part of a prompt is one."""
    pool = fleet.pools[0]
    parts = work.prompt.sum() / pool.scheduler.token_budget
    alone = 2.0 * len(work) + float(parts)
    if max(p.table.stages for p in fleet.pools) > 1:
        in_flight = work.concurrency or min(len(work), pool.scheduler.max_requests)
        return max(alone, float(work.output.sum()) / max(in_flight / pool.table.stages, 1.0))
    return alone


def _stuck(state: State) -> str:
    waiting = sum(1 for x in state.request[r.STANDING] if x != r.OVER)
    dead = sum(1 for x in state.replica[r.ALIVE] if not x)
    why = f"{dead} replicas are lost and none comes back" if dead else "no replica can take them"
    return f"{waiting} requests are never answered: {why}."
