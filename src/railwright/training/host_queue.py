"""What the host launches of a backward pass since it last waited for the GPU."""

from __future__ import annotations

from railwright.training.chain import Chain
from railwright.training.host import LaunchTimes, launching


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
