"""Tasks and what launches them, from one place where the host waits for the GPU to the next."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.training.lanes.tasks import Task
from railwright.training.passes.chain import Chain
from railwright.training.software.host import LaunchTimes, launching


class Queue:
    """Launches of the layers of a backward pass behind one in which the host waited, and before the next.

    before  tasks at whose end it began
    first   number of the first task that it launches
    """

    def __init__(self, before: tuple[int, ...] = (), first: int = 0) -> None:
        self.before, self.first = before, first
        self.seconds = 0.0
        self.known: LaunchTimes | None = None

    def put(self, known: LaunchTimes, whole: bool, again: float) -> None:
        """A layer's backward pass, or of its inputs alone, and `again` for what is computed again. [s]"""
        self.known = known
        self.seconds += (known.backward if whole else known.input) + again

    def empty(self, chain: Chain) -> None:
        """The chain waits until all is launched, where that takes longer than to run it."""
        chain.flush()
        if self.known is not None:
            tasks = chain.tasks[self.first :]
            chain.launched(launching(self.known, self.seconds, tasks), self.before)


def behind_launches(
    tasks: Sequence[Task], stretch: Sequence[int | None], seconds: Sequence[float]
) -> list[Task]:
    """Two passes at once, their compute no faster than it is launched.

    stretch  for each task the number of its stretch, at whose end the host waits for the GPU; None: launched
             in no time
    seconds  host time of each stretch; 0 where launches take no longer than its compute [s]
    A stretch's host time is shared out by compute, so that one with hardly more of it than of compute hardly
    waits.  Inside a stretch the host runs ahead, also while the GPU waits for the network.  Where nothing of
    a stretch computes, its launches go beside all of its tasks; where it has none, behind everything.
    """
    if not any(seconds):
        return list(tasks)
    shares = _shares(tasks, stretch, seconds)
    found: list[Task] = []
    place: list[int] = []
    launch: list[int] = []
    computed, host, here = -1, -1, None
    for task, share, where in zip(tasks, shares, stretch, strict=True):
        after = [place[n] for n in task.after]
        after += [launch[n] for n in task.after if launch[n] >= 0]
        computes = task.lane == "compute"
        if computes and host >= 0 and host not in after:
            after.append(host)
        place.append(len(found))
        found.append(task.behind(tuple(after)))
        launch.append(len(found) if share else -1)
        if share:
            waits = (computed,) if here is not None and where != here else ()
            host = len(found)
            found.append(Task("host", "launching", "launch", share, waits, task.layer))
        if computes:
            computed, here = place[-1], here if where is None else where
    missing = sum(s for n, s in enumerate(seconds) if n not in stretch)
    if missing > 0:
        found.append(Task("host", "launching", "launch", missing))
    return found


def _shares(tasks: Sequence[Task], stretch: Sequence[int | None], seconds: Sequence[float]) -> list[float]:
    """Host time of each task: of its stretch's by its compute, or evenly where none computes. [s]"""
    weights = [
        (where, task.duration if task.lane == "compute" else 0.0)
        for task, where in zip(tasks, stretch, strict=True)
    ]
    compute, count = [0.0] * len(seconds), [0] * len(seconds)
    for where, weight in weights:
        if where is not None:
            compute[where] += weight
            count[where] += 1
    return [
        0.0 if n is None else seconds[n] * (weight / compute[n] if compute[n] else 1.0 / count[n])
        for n, weight in weights
    ]
