"""What each second of a step went to, read off the placed passes of one stage.

Every instant belongs to compute, to one communication the stage waits for, or to waiting for other stages;
so the exposed shares add up to the step time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from railwright.training.lanes.result import ADAM, UsedCollective
from railwright.training.lanes.tasks import LANES, Pass
from railwright.training.lanes.timeline import Share
from railwright.training.layers.communication import Prices
from railwright.training.layout.pipeline import Placed
from railwright.training.optimizer.muon import exchange_time
from railwright.training.step.endings import Ending
from railwright.training.step.stage import Stage

Seconds = defaultdict[str, float]


def critical(
    stages: Sequence[Stage],
    placed: Sequence[Sequence[Placed]],
    endings: Sequence[Ending],
    step_time: float,
) -> int:
    """The stage that waits least for others: the one that sets the step's pace; the first of equals."""
    waits = [
        sum(p.bubble for p in placed[s]) + _end_bubble(endings[s]) + step_time - endings[s].end
        for s in range(len(stages))
    ]
    least = min(waits)
    return next(s for s, wait in enumerate(waits) if wait <= least + 1e-9 * step_time)


def shares(
    stage: Stage, placed: Sequence[Placed], ending: Ending, step_time: float, overlapped_sends: bool
) -> tuple[Share, ...]:
    """Busy and exposed seconds by kind on one stage; the exposed ones add up to `step_time`."""
    busy, exposed = spent((one for _, _, one in stage.passes), placed, overlapped_sends)
    busy["dp"] = sum(s.end - s.start for s in stage.dp_spans)
    exposed["dp"] += (ending.reduced - ending.finish) + (ending.ready - ending.tied_start)
    exposed["bubble"] += _end_bubble(ending)
    moved = {
        "compute": ending.on_gpu,
        "copy": ending.host.down + ending.host.up,
        ADAM: ending.host.adam,
        "tp": exchange_time(ending.exchanged),
    }
    for kind, seconds in moved.items():
        exposed[kind] += seconds
        busy[kind] += seconds
    busy["copy"] += ending.host.hidden
    exposed["dp"] += ending.end - (ending.barrier + ending.optimizer)  # exactly 0 where nothing is gathered
    exposed["bubble"] += step_time - ending.end
    busy["bubble"] = exposed["bubble"]
    always = ("compute", "tp", "ep", "pp", "dp", "bubble")
    kinds = [k for k in (*LANES, "bubble", ADAM) if k in always or busy[k]]
    return tuple(Share(kind, busy[kind], exposed[kind]) for kind in kinds)


def spent(
    passes: Iterable[Pass], placed: Sequence[Placed], overlapped_sends: bool
) -> tuple[Seconds, Seconds]:
    """Busy and exposed seconds by kind in passes and around them; the dp lane, which runs on, is never busy.

    placed  passes whose waits and sends count
    """
    exposed: Seconds = defaultdict(float)
    busy: Seconds = defaultdict(float)
    for one_pass, count in _times_run(passes):
        for lane, seconds in one_pass.exposed.items():
            exposed[lane] += seconds * count
        for span in one_pass.spans:
            if span.task.lane != "dp":
                busy[span.task.lane] += (span.end - span.start) * count
    for p in placed:
        exposed["bubble"] += p.bubble
        exposed["pp"] += p.transfer + (0.0 if overlapped_sends else p.sent)
        busy["pp"] += p.transfer + p.sent
    return busy, exposed


def used(
    stage: Stage, placed: Sequence[Placed], ending: Ending, prices: Prices
) -> tuple[UsedCollective, ...]:
    """Every collective of one stage with its count per step, in order of first pricing."""
    counts: Counter[tuple[str, str, float]] = Counter()
    for one_pass, count in _times_run(one for _, _, one in stage.passes):
        for span in one_pass.spans:
            task = span.task
            if task.size and task.lane != "dp":
                counts[(task.name, task.kind, task.size)] += count
    for span in stage.dp_spans:
        counts[(span.task.name, span.task.kind, span.task.size)] += 1
    for one in ending.exchanged:
        counts[(one.purpose, one.op, one.size)] += one.times
    sends = sum(len(p.sends) for p in placed if p.sent)
    found = []
    for key, priced in prices.known.items():
        count = sends if priced.lane == "pp" else counts[key]
        if count:
            kind, crosses = priced.groups, prices.crosses_servers(priced.groups)
            found.append(
                UsedCollective(priced.purpose, priced.lane, float(count), priced.prediction, kind, crosses)
            )
    return tuple(found)


def _times_run(passes: Iterable[Pass]) -> list[tuple[Pass, int]]:
    """Each different pass with how often it ran."""
    counts: dict[int, int] = {}
    different: dict[int, Pass] = {}
    for one in passes:
        counts[id(one)] = counts.get(id(one), 0) + 1
        different[id(one)] = one
    return [(different[key], count) for key, count in counts.items()]


def _end_bubble(ending: Ending) -> float:
    return (ending.tied_start - ending.reduced) + (ending.barrier - ending.ready)
