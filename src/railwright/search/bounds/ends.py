"""What follows the passes of a stage: gradients, optimizer and parameters, at least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import Prices, gradient_bytes, weight_bytes
from railwright.training.layers.stages import StageShape
from railwright.training.layers.unhidden import hides_parameters
from railwright.training.layout.schedule import SHARED, SPLIT, schedule_name
from railwright.training.optimizer.buckets import gather_tasks, reduce_tasks
from railwright.training.optimizer.packed import buckets_of
from railwright.training.software.eras import era_of
from railwright.training.step.shards import Units
from railwright.training.step.simulating import sharded_units

Optimizer = Callable[[int, int], float]
"""(ranks that share dense parameters, ranks that share experts) -> seconds of an optimizer's step."""


@dataclass(frozen=True)
class Ends:
    """What data parallelism and the optimizer cost one stage, at least [s].

    Once per step:
    reduce    all gradients reduced, one bucket after the other
    last      the bucket that is not full before the last backward pass has ended
    gather    all parameters gathered, one bucket after the other
    first     the bucket that the first forward pass waits for
    optimizer its length
    In every microbatch (ZeRO 2 and 3):
    forward, backward  per chunk, what a pass waits for
    lane      all that goes over the data-parallel lane
    waited    of that, what is over before the passes are
    beside    whether any of it runs beside passes
    sharded   whether passes wait for parameters: then only compute is known not to run meanwhile
    """

    reduce: float
    last: float
    gather: float
    first: float
    optimizer: float
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    lane: float
    waited: float
    beside: bool
    sharded: bool


def ends_of(job: TrainingJob, shape: StageShape, prices: Prices, optimizer: Optimizer) -> Ends:
    """Gradients, optimizer and parameters of one stage."""
    find = _sharded if job.layout.zero == 3 else _bucketed
    return _sure(find(job, shape, prices, optimizer), schedule_name(job.layout))


def silent_ends(zero: int, overlapped: bool, chunks: int, optimizer: float) -> Ends:
    """The same for any stage as if its communication took no time, its optimizer `optimizer` seconds."""
    none = (0.0,) * chunks
    lane = 1e-30 if zero >= 2 else 0.0
    return Ends(
        reduce=0.0,
        last=0.0,
        gather=0.0,
        first=0.0,
        optimizer=optimizer,
        forward=none,
        backward=none,
        lane=lane,
        waited=0.0,
        beside=overlapped or zero >= 2,
        sharded=zero == 3,
    )


def _bucketed(job: TrainingJob, shape: StageShape, prices: Prices, optimizer: Optimizer) -> Ends:
    """ZeRO 0, 1 and 2: gradients in buckets, after the last backward pass or (2) after every one."""
    layout, sizes = job.layout, prices.groups.sizes
    zero, each, weight = layout.zero, gradient_bytes(job), weight_bytes(job)
    buckets, scatters = buckets_of(job, shape, sizes), not era_of(job).zero_engine
    reduces = [
        [t.duration for t in reduce_tasks(held, prices, each, zero, scatters=scatters)] for held in buckets
    ]
    gathers = [[t.duration for t in gather_tasks(held, prices, weight)] for held in buckets] if zero else []
    # Adapters have no bucket of the embedding, and none of layers without them: what computes there waits for
    # no parameters, and what is computed there last is behind the last bucket.
    starts = [-1 if chunk.embedding else 0 for chunk in shape.chunks]
    ends = [0 if job.lora else start for start in starts]
    last = [
        found[-1] if held and min(b.first for b in held) <= end else 0.0
        for found, held, end in zip(reduces, buckets, ends, strict=True)
    ]
    gated = zero and buckets[0] and buckets[0][0].first == starts[0]
    total, repeated = sum(map(sum, reduces)), zero == 2 and layout.reduce_each
    gathered, waiting = sum(map(sum, gathers)), zero == 2 and not job.overlap.dp
    behind = job.overlap.dp and not hides_parameters(job)
    return Ends(
        reduce=0.0 if zero == 2 else total,
        last=0.0 if repeated else last[0],
        gather=0.0 if behind else gathered,
        first=gathers[0][0] if gated and not behind else 0.0,
        optimizer=optimizer(*sizes.over(zero)) + (gathered if behind else 0.0),
        forward=(0.0,) * len(last),
        backward=tuple(last) if repeated and waiting else (0.0,) * len(last),
        lane=total if repeated else 0.0,
        waited=total if repeated and waiting else 0.0,
        beside=job.overlap.dp or zero == 2,
        sharded=False,
    )


def _sharded(job: TrainingJob, shape: StageShape, prices: Prices, optimizer: Optimizer) -> Ends:
    """ZeRO 3: parameters gathered in every forward pass, and in every backward one where they were dropped;
    or once a step."""
    layout, overlapped = job.layout, job.overlap.dp
    units = [sharded_units(job, shape, c, prices) for c in range(len(shape.chunks))]
    gathers = [[sum(t.duration for t in u.gathers[n]) for n in u.order] for u in units]
    again = [
        [sum(t.duration for t in u.gathers[n]) for n in u.order[:-1] if n >= 0] if layout.reshard else []
        for u in units
    ]
    reduces = [[sum(t.duration for t in u.reduces[n]) for n in u.order] for u in units]
    each = layout.reduce_each
    once = [sum(map(sum, gathers)), gathers[0][0]] if layout.gathers_once else [0.0, 0.0]
    if layout.gathers_once:
        gathers = [[0.0] * len(found) for found in gathers]
    gathered = sum(map(sum, gathers)) + sum(map(sum, again))
    lane = gathered + (sum(map(sum, reduces)) if each else 0.0)
    sizes = prices.groups.sizes
    return Ends(
        reduce=0.0,
        last=0.0,
        gather=once[0],
        first=once[1],
        optimizer=optimizer(*sizes.over(layout.zero)),
        forward=tuple(found[0] if overlapped else sum(found) for found in gathers),
        backward=tuple(
            0.0 if overlapped else sum(found) + (_behind(sent, u, layout.reshard) if each else 0.0)
            for found, sent, u in zip(again, reduces, units, strict=True)
        ),
        # Where nothing is sent in every microbatch, passes are disturbed all the same.
        lane=max(lane, 1e-30),
        waited=gathered if overlapped else lane,
        beside=True,
        sharded=True,
    )


def _behind(reduces: Sequence[float], units: Units, gathered: bool) -> float:
    """Reductions that a backward pass waits for where nothing is overlapped: each is sent before the next
    unit's parameters, but an embedding needs none. [s]"""
    if not gathered:
        return reduces[0]
    return sum(reduces) - (reduces[1] if units.order[0] == -1 and len(reduces) > 1 else 0.0)


def _sure(ends: Ends, schedule: str) -> Ends:
    """Without what is only known of a backward pass in one piece, or of passes that run one by one."""
    none = (0.0,) * len(ends.forward)
    if schedule in SPLIT:
        return replace(ends, last=0.0, backward=none)
    if schedule in SHARED:
        lane = 0.0 if ends.sharded else ends.lane
        return replace(ends, last=0.0, forward=none, backward=none, lane=lane, first=0.0)
    return ends
