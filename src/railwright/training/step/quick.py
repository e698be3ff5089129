"""The length of a step and nothing else: `simulating.simulate`'s step, its passes placed by compiled code.

For those who ask for thousands of layouts; `tests/twin/test_training_quick.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.lanes.contention import NICS, Uses
from railwright.training.lanes.tasks import LANES, Task
from railwright.training.layers.communication import Prices
from railwright.training.layers.cost_model import CostModel
from railwright.training.layers.costs import KernelTime
from railwright.training.layout.route import Kind, Route, Unit
from railwright.training.layout.schedule import order_name, route_of, schedule
from railwright.training.layout.sizes import microbatches
from railwright.training.software.eras import Pace, hides_sends
from railwright.training.software.host import AHEAD, launched_ahead
from railwright.training.step.endings import endings_of
from railwright.training.step.simulating import stages_of
from railwright.training.step.stage import Begins, PassBook, Stage

Arrays = tuple[NDArray[Any], ...]
KINDS: dict[Kind, int] = {kind: i for i, kind in enumerate(get_args(Kind))}
"""Numbers of kinds of passes."""

_LANE = {lane: i for i, lane in enumerate(LANES)}


def step_seconds(
    job: TrainingJob, arch: Transformer, prices: Prices, kernel: KernelTime, pace: Pace, book: PassBook
) -> float:
    """`simulate(...).step_time` of a job that passed `plan.check`, whether or not it fits. [s]

    prices, kernel, pace  as `simulate` has them
    book  tasks of the job's passes; jobs that differ in data parallelism alone may share one
    """
    stages, send = stages_of(job, arch, prices, lambda _: book)
    finish = _finish(job, stages, send, prices)
    costs = CostModel(prices, kernel, pace)
    return max(e.end for e in endings_of(job, arch, costs, stages, finish))


def pass_times(tasks: list[Task], *slowdowns: float) -> tuple[tuple[float, float], ...]:
    """Duration of a pass with nothing beside it, and the end of its last compute, under every slowdown:
    `tasks.run`'s. [s]"""
    from railwright.training.step.kernel_step import alone

    arrays, _ = _tasks([tasks])
    found = tuple(alone(*arrays, slowdown) for slowdown in slowdowns)
    assert all(duration >= 0.0 for duration, _ in found), "tasks wait for each other"
    return found


def _finish(job: TrainingJob, stages: list[Stage], send: float, prices: Prices) -> list[float]:
    """When the last pass of each stage (and its blocking send) is over; stages are left as after it. [s]"""
    from railwright.training.step.kernel_step import play

    layout, count = job.layout, microbatches(job, prices.groups.sizes.data)
    route = route_of(layout)
    ptr, kind, chunk, microbatch, other, back = _orders(layout.pipeline, route.chunks, count, order_name(job))
    templates = _Templates()
    quiet, begins = np.empty(len(kind), np.int64), np.full(len(kind), -1)
    early = np.zeros((len(kind), 2))
    for s, stage in enumerate(stages):
        here = slice(ptr[s], ptr[s + 1])
        passes = kind[here], chunk[here], back[here]
        _assign(stage, templates, passes, early[here], quiet[here], begins[here])
    tasks, first = templates.arrays()
    begun = np.diff(first)[np.maximum(begins, 0)] * (begins >= 0)
    most = max(len(stage.gathers) + int(begun[ptr[s] : ptr[s + 1]].sum()) for s, stage in enumerate(stages))
    waiting, waiting_wire = np.zeros((len(stages), most + 1)), np.zeros((len(stages), most + 1))
    waiting_uses = np.zeros((len(stages), most + 1, 2))
    tag = np.zeros((len(stages), most + 1), np.int64)
    low, high = np.zeros(len(stages), np.int64), np.zeros(len(stages), np.int64)
    layers = max(len(c.layers) for stage in stages for c in stage.chunks)
    gate = np.full((len(stages), route.chunks, layers + 2), -1)
    for s, stage in enumerate(stages):
        if not stage.data.hides_gathers or stage.data.late:
            continue
        high[s] = len(stage.gathers)
        for q, task in enumerate(stage.gathers):
            waiting[s, q], waiting_wire[s, q], tag[s, q] = task.duration - task.wire, task.wire, q
            waiting_uses[s, q] = task.uses
        for c, needed in enumerate(stage.needed):
            for layer, bucket in needed.items():
                gate[s, c, layer + 1] = bucket
    finish, now, left = (np.zeros(len(stages)) for _ in range(3))
    placed = play(
        *tasks, first, ptr, kind, chunk, microbatch, other, back, early, quiet, begins,
        *_route(route), count,
        waiting, waiting_wire, waiting_uses, tag, low, high, gate,
        stages[0].book.slowdown, send, not hides_sends(job), finish, now, left,
        *templates.launches(), np.array([stage.waits_for_launches for stage in stages]),
    )  # fmt: skip
    assert placed, "the schedule deadlocks"
    for stage, at, rest in zip(stages, now, left, strict=True):
        stage.resume(float(at), float(rest))
    return [float(f) for f in finish]


def finish_times(
    route: Route, count: int, name: str, seconds: NDArray[np.float64], send: float, blocking: bool
) -> NDArray[np.float64]:
    """When the last pass of each stage (and its blocking send) is over, every pass as long as is said. [s]

    seconds  of every stage, chunk and kind of pass in the order of KINDS; 'FB' by its forward chunk
    """
    from railwright.training.step.kernel_step import play

    ptr, kind, chunk, microbatch, other, back = _orders(route.stages, route.chunks, count, name)
    stage = np.repeat(np.arange(route.stages), np.diff(ptr))
    each, stages = seconds.size, route.stages
    empty, none = np.zeros((stages, 1)), np.zeros(stages, np.int64)
    finish, now, left = (np.zeros(stages) for _ in range(3))
    placed = play(
        np.zeros(each, np.int8), np.ascontiguousarray(seconds, float).ravel(), np.zeros(each),
        np.zeros((each, 2)), np.zeros(each, np.int64), np.zeros(each + 1, np.int64), np.empty(0, np.int64),
        np.arange(each + 1),
        ptr, kind, chunk, microbatch, other, back, np.zeros((len(kind), 2)),
        (stage * route.chunks + chunk) * len(KINDS) + kind, np.full(len(kind), -1),
        *_route(route), count, empty, empty, np.zeros((stages, 1, 2)), np.zeros((stages, 1), np.int64),
        none, none,
        np.full((stages, route.chunks, 1), -1), 1.0, send, blocking, finish, now, left,
        np.zeros(each, np.bool_), np.zeros(each), np.zeros(stages, np.bool_),
    )  # fmt: skip
    assert placed, "the schedule deadlocks"
    return finish


@lru_cache(maxsize=64)
def _route(route: Route) -> Arrays:
    """Pieces of every stage; of every piece its stage, and whether it is the first or the last."""
    pieces = range(route.pieces)
    return (
        np.array([[route.piece(s, c) for c in range(route.chunks)] for s in range(route.stages)]),
        np.array([route.stage(q) for q in pieces]),
        np.array([route.first(q) for q in pieces]),
        np.array([route.last(q) for q in pieces]),
    )


class _Templates:
    """Task lists of passes, each once, as arrays one after the other."""

    def __init__(self) -> None:
        self.number: dict[Any, int] = {}
        self.lists: list[list[Task]] = []

    def add(self, key: Any, stage: Stage, unit: Unit, begins: Begins | None) -> int:
        """Number of a unit's tasks, with the dp tasks it begins."""
        if key not in self.number:
            self.number[key] = len(self.lists)
            self.lists.append(stage.with_dp(unit, stage.chunks_of(unit), begins))
        return self.number[key]

    def arrays(self) -> tuple[Arrays, NDArray[np.int64]]:
        """All lists one after the other, as `_tasks` gives them."""
        return _tasks(self.lists)

    def launches(self) -> Arrays:
        """Which tasks are of a host that could be ahead, and how long they take in every list. [s]"""
        every = [task.name in AHEAD for tasks in self.lists for task in tasks]
        return np.array(every, np.bool_), np.array([launched_ahead(tasks) for tasks in self.lists], float)


def _assign(stage: Stage, templates: _Templates, passes: Arrays, early: Any, quiet: Any, begins: Any) -> None:
    """Templates of one stage's units and when their results are there, in place.

    passes  their kinds, chunks and chunks of backwards
    """
    kind, chunk, back = passes
    chunks = len(stage.chunks)
    code = (kind * chunks + chunk) * (chunks + 1) + back + 1
    _, firsts = np.unique(code, return_index=True)
    # a step's first microbatch finds no gradients on the host to be added to
    first = {u for u in stage.order if u.microbatch == 0 and u.kind != "F"} if stage.data.adds else set()
    apart = stage.finishing | first | stage.making | stage.fetching
    finishing = {unit: i for i, unit in enumerate(stage.order) if unit in apart}
    for i in firsts.tolist():
        unit = stage.order[i]
        alike = code == code[i]
        quiet[alike] = templates.add((stage.chunks_of(unit), unit.kind), stage, unit, None)
        early[alike] = stage.early(unit)
        usual = next(
            (u for u in (stage.order[n] for n in np.flatnonzero(alike).tolist()) if u not in finishing), None
        )
        begun = stage.begins(usual) if usual is not None else None
        if begun is not None and usual is not None:
            begins[alike] = templates.add(_key(stage, usual, begun), stage, usual, begun)
    for unit, i in finishing.items():
        begun = stage.begins(unit)
        begins[i] = templates.add(_key(stage, unit, begun), stage, unit, begun) if begun is not None else -1


def _key(stage: Stage, unit: Unit, begun: Begins) -> Any:
    """What decides a pass with the dp tasks it begins."""
    return stage.chunks_of(unit), unit.kind, begun, stage.sent(unit, begun)


def _tasks(lists: list[list[Task]]) -> tuple[Arrays, NDArray[np.int64]]:
    """Lane, time alone and on shared links, which, layer, and what each waits for (pointers, indices in its
    list)."""
    every = [task for tasks in lists for task in tasks]
    lanes, _, _, durations, afters, layers, _, wires, uses = zip(*every, strict=True) if every else ((),) * 9
    wire = np.array(wires, float)
    ptr = np.zeros(len(every) + 1, np.int64)
    np.cumsum([*map(len, afters)], out=ptr[1:])
    arrays = (
        np.array([*map(_LANE.__getitem__, lanes)], np.int8),
        np.array(durations, float) - wire,
        wire,
        _used(uses),
        np.array(layers, np.int64),
        ptr,
        np.array([*chain.from_iterable(afters)], np.int64),
    )
    first = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(tasks) for tasks in lists], out=first[1:])
    return arrays, first


def _used(uses: Sequence[Uses]) -> NDArray[np.float64]:
    """(tasks, 2) what each task uses; nearly always NICs alone, which need not be looked at one by one."""
    if uses.count(NICS) == len(uses):
        found = np.empty((len(uses), 2))
        found[:] = NICS
        return found
    return np.array(uses, float).reshape(-1, 2)


@lru_cache(maxsize=64)
def _orders(stages: int, chunks: int, count: int, name: str) -> Arrays:
    """Where each stage's units begin; kind, chunk, microbatch, other microbatch and its chunk of each."""
    orders = schedule(stages, chunks, count, name)
    ptr = np.zeros(stages + 1, np.int64)
    np.cumsum([len(order) for order in orders], out=ptr[1:])
    flat = [(KINDS[u.kind], u.chunk, u.microbatch, u.other, u.back) for order in orders for u in order]
    return (ptr, *np.ascontiguousarray(np.array(flat, np.int64).T))
