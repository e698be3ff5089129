"""Ways to bound a pass from below that add up over layers: one table serves chunks of every length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from railwright.model.shape.pattern import Layer
from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import Task
from railwright.training.layout.route import Chunk
from railwright.training.layout.schedule import SHARED, SPLIT, schedule_name
from railwright.training.passes.exchange import RECEIVED
from railwright.training.passes.lockstep import without_waits
from railwright.training.passes.work import Work
from railwright.training.software.eras import era_of
from railwright.training.step.quick import pass_times

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

CHAIN, LANE, HOST, ALONE, SLOWED, BARE, COMPUTE, LONE = range(8)
"""Laws.  chain: the pass as the training room runs it, without launches that only the end of a pass waits
for; lane: one kind of communication alone; host: its launches alone; alone: the pass with nothing slowing it;
slowed: its compute, slowed as long as that communication lasts; bare: as alone without launches, which is
when its last compute ends; compute: its compute with nothing between; lone: where two passes run at once, the
pass with no other beside it, and nothing slowing it."""

SURE = (LANE, HOST, ALONE, SLOWED)
"""Laws that hold for a pass with data-parallel communication beside it, too."""

FORWARD, BACKWARD, WEIGHTS = range(3)
INPUTS = WEIGHTS
"""Passes: where all are split the second is a backward pass's input gradients, the third the rest; DualPipe
and DualPipeV split few of them: the second is a whole one, the third input gradients alone."""

ENDS = 4
"""Parts of a chunk beside its layers: embedding, head, its input where that comes from another piece of the
model, and its output's gradient where that does (`Exchange.received`)."""


def ends_of(chunk: Chunk) -> list[bool]:
    """Which of the parts beside its layers a chunk has."""
    return [chunk.embedding, chunk.head, not chunk.embedding, not chunk.head]


def sending(job: TrainingJob, zeros: Sequence[int]) -> tuple[int, ...]:
    """Of some values of `zero` those whose passes differ though nothing is sharded in them: DeepSpeed's ZeRO
    engine handles gradients before it sends them, each in its own way (`with_sent_gradients`).  Elsewhere
    none."""
    return tuple(zeros) if era_of(job).zero_engine else ()


def makers(work: Work) -> dict[int, Callable[[Chunk], list[Task]]]:
    """What makes the tasks of each pass of a job's schedule."""
    if schedule_name(work.job.layout) in SPLIT:
        return {
            FORWARD: work.forward,
            BACKWARD: partial(work.backward, gradients="input"),
            WEIGHTS: partial(work.backward, gradients="weight"),
        }
    found: dict[int, Callable[[Chunk], list[Task]]] = {FORWARD: work.forward, BACKWARD: work.backward}
    if schedule_name(work.job.layout) in SHARED:
        found[INPUTS] = partial(work.backward, gradients="input")
    return found


def measure(work: Work, kinds: Sequence[Layer], slowdown: float) -> Floats:
    """(pass, part, law) seconds of one layer of each kind, then of the `ENDS`. [s]

    Where the host may be waited for, a layer is what a second one adds.
    """
    found = np.zeros((3, len(kinds) + ENDS, LONE + 1))
    for which, make in makers(work).items():
        for i, kind in enumerate(kinds):
            tasks = _between(make(Chunk((kind,), False, False)))
            found[which, i] = _laws(tasks, work, slowdown)
            if any(t.lane == "host" and t.duration for t in tasks):
                second = _laws(_between(make(Chunk((kind, kind), False, False))), work, slowdown)
                found[which, i] = second - found[which, i]
        for i, chunk in enumerate((Chunk((), True, False), Chunk((), False, True)), len(kinds)):
            found[which, i] = _laws(_between(make(chunk)), work, slowdown)
    if not work.together:  # where two passes run at once, one computes while the other gathers
        received = work.exchange.received().seconds
        for which, part in ((FORWARD, 2), (BACKWARD, 3)):
            found[which, len(kinds) + part, [CHAIN, ALONE, SLOWED, BARE]] = received
    return found


def _between(tasks: list[Task]) -> list[Task]:
    """What a chunk's layers or its ends add to a pass: without its input's gather, and what follows it."""
    kept = without_waits(tasks)
    return [t._replace(duration=0.0, wire=0.0) if t.name == RECEIVED else t for t in kept]


def compute_alone(work: Work, kinds: Sequence[Layer]) -> Floats:
    """The same with compute and launches alone: what no overlap and no network can shorten. [s]

    Overlap cuts products in parts that add up to the whole, so the sum is the same under all of it.
    """
    found = np.zeros((3, len(kinds) + ENDS, LONE + 1))
    parts = [
        *(Chunk((kind,), False, False) for kind in kinds),
        Chunk((), True, False),
        Chunk((), False, True),
    ]
    for which, make in makers(work).items():
        for i, chunk in enumerate(parts):
            tasks = without_waits(make(chunk))
            seconds = sum(t.duration for t in tasks if t.lane == "compute")
            found[which, i, [CHAIN, ALONE, SLOWED, BARE, COMPUTE]] = seconds
            found[which, i, HOST] = _launched(tasks, work)
            found[which, i, LONE] = _lone(tasks, work)
    return found


def _laws(tasks: list[Task], work: Work, slowdown: float) -> Floats:
    launched, lone = _launched(tasks, work), _lone(tasks, work)
    tasks = _layered(tasks)
    total = {"compute": 0.0, "tp": 0.0, "ep": 0.0, "host": 0.0}
    for task in tasks:
        total[task.lane] = total.get(task.lane, 0.0) + task.duration
    compute = total["compute"]
    if work.turns:
        # Compute done in T: at full speed, or slowed while messages are sent, for `sent` at least.
        sent = total["ep"]
        slowed = compute + (1 - 1 / slowdown) * sent
        return np.array([slowed, sent, launched, compute, slowed, compute, compute, lone])
    overlap = work.job.overlap
    if all(i - 1 in task.after for i, task in enumerate(tasks) if i):
        # Nothing runs beside anything: a chain is as long as its parts.
        alone = bare = sum(total.values())
    else:
        alone = bare = _length(tasks, 1.0)
    silent = tasks
    if total["host"]:
        silent = [t._replace(duration=0.0) if t.lane == "host" else t for t in tasks]
        bare = _length(silent, 1.0)
    if schedule_name(work.job.layout) in SHARED:
        # A forward that runs with a backward begins behind its last compute, launches or not.
        tasks, alone = silent, bare
    chain = _length(tasks, slowdown) if work.beside or overlap.cp else alone
    beside = total["tp"] if work.beside else total.get("cp", 0.0) if overlap.cp else 0.0
    slowed = compute + (1 - 1 / slowdown) * beside
    return np.array([chain, 0.0, launched, alone, slowed, bare, compute, lone])


def _lone(tasks: list[Task], work: Work) -> float:
    """A pass that runs with no other where two can at once, slowed by nothing, at least. [s]"""
    if not work.together:
        return 0.0
    return _length(_layered(tasks), 1.0)


def _length(tasks: list[Task], slowdown: float) -> float:
    return pass_times(tasks, slowdown)[0][0]


def _layered(tasks: list[Task]) -> list[Task]:
    """Without what the host needs for a whole pass: it does not add up over layers, and only makes a pass
    longer."""
    return [t._replace(duration=0.0) if t.lane == "host" and not t.after else t for t in tasks]


def _launched(tasks: list[Task], work: Work) -> float:
    """What the host needs to launch a layer's part of a pass, and the pass takes at least. [s]

    It is a task only where it is longer than the compute, of the layer or of the whole pass.  Where it is one
    of a layer and not of the pass, the pass computes for at least as long.  Where the host runs ahead over
    both passes, what the forward one takes is taken off for the whole pass, so layers do not add up.
    """
    return sum(t.duration for t in tasks if t.lane == "host" and (t.after or not work.ahead))


def down(values: Floats) -> Floats32:
    """32-bit floats that are never above the values."""
    near = values.astype(np.float32)
    return np.where(near > values, np.nextafter(near, np.float32(0.0)), near)
