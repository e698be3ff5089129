"""A chain of tasks in which each waits for the one before it, except where communication runs beside compute.

The ways a tensor-parallel collective is hidden behind the product next to it are here, as tasks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate, compress, pairwise
from types import MappingProxyType
from typing import Literal

from railwright.training.lanes.contention import NICS, Uses
from railwright.training.lanes.tasks import Task
from railwright.training.lanes.timeline import Lane
from railwright.training.layers.communication import Comm

NO_COPIES: Mapping[int, Task] = MappingProxyType({})

FINDING = "finding rows"
"""Name of the tasks in which the GPU waits for a host that has waited for it, for an expert's tokens."""

BEFORE = -1
"""What a part of a chain waits for at its beginning: the tail of the chain it is added to."""


class Chain:
    """Tasks of one microbatch through one chunk, in order.

    Adjacent compute of one name is one task.  `cuts` come after each expert all-to-all, so that two passes
    can take turns.
    """

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.tail: tuple[int, ...] = ()
        self.cuts: list[int] = []
        self.layer = -1
        self._name, self._kind, self._seconds = "", "", 0.0

    @classmethod
    def part(cls) -> Chain:
        """An empty part of chains that are still to come (`add`)."""
        found = cls()
        found.tail = (BEFORE,)
        return found

    def add(self, part: Chain) -> None:
        """The tasks of a part, in the layer the chain is at."""
        self.flush()
        part.flush()
        here, layer, tail = len(self.tasks), self.layer, self.tail

        def moved(after: tuple[int, ...]) -> tuple[int, ...]:
            if BEFORE in after:
                return tuple(n for d in after for n in (tail if d == BEFORE else (here + d,)))
            return tuple([here + d for d in after])

        self.tasks += [
            Task(lane, name, kind, seconds, moved(after), layer, size, wire, uses)
            for lane, name, kind, seconds, after, _, size, wire, uses in part.tasks
        ]
        self.cuts += [here + cut for cut in part.cuts]
        self.tail = moved(part.tail)

    def compute(self, name: str, kind: str, seconds: float) -> None:
        """Compute that waits for all before it."""
        if self._seconds and (name, kind) != (self._name, self._kind):
            self.flush()
        self._name, self._kind = name, kind
        self._seconds += seconds

    def communicate(self, comm: Comm) -> None:
        """Communication that blocks the chain."""
        if comm.seconds <= 0:
            return
        self.flush()
        self.tail = (self._send(comm, self.tail),)

    def gather_into(self, comm: Comm, name: str, kind: str, seconds: float, parts: int) -> None:
        """An all-gather sent in shards, each multiplied as it arrives; the local shard needs no transfer.

        parts  shards = ranks of the group
        Source: Wang et al., ASPLOS 2023 ("Overlap communication with dependent computation via
        decomposition"), as in Transformer Engine's user buffers.
        """
        if comm.seconds <= 0:
            self.compute(name, kind, seconds)
            return
        first = comm._replace(seconds=comm.seconds / (parts - 1), wire=comm.wire / (parts - 1))
        rest = [first._replace(size=0.0)] * (parts - 2)
        self._as_they_arrive([first, *rest], name, kind, seconds)

    def ring(self, comm: Comm, name: str, kind: str, seconds: float, parts: int) -> None:
        """Compute in blocks whose inputs travel round a ring of `parts` ranks: `comm` is one hop.

        The own block is computed at once; every other one waits for its hop, and a hop for the one before.
        Source: Liu et al., Ring Attention (arXiv 2310.01889), section 3; Transformer Engine,
        pytorch/attention, context_parallel (zig-zag order: all blocks are equally long under a causal mask).
        """
        if comm.seconds <= 0:
            self.compute(name, kind, seconds)
            return
        self._as_they_arrive([comm] * (parts - 1), name, kind, seconds)

    def reduce_out_of(self, comm: Comm, name: str, kind: str, seconds: float, parts: int) -> None:
        """A product computed in shards, each reduced while the next is computed (as in `gather_into`)."""
        if comm.seconds <= 0:
            self.compute(name, kind, seconds)
            return
        self.flush()
        before, sent, made = self.tail, -1, -1
        part = comm._replace(seconds=comm.seconds / parts, wire=comm.wire / parts)
        for i in range(parts):
            made = self._put("compute", name, kind, seconds / parts, before)
            sent = self._send(part if i == 0 else part._replace(size=0.0), (made,))
        self.tail = (made, sent)

    def beside(self, comm: Comm, name: str, kind: str, seconds: float) -> None:
        """Communication and compute that do not need each other: both start now, the chain waits for both.

        Megatron-LM, core/tensor_parallel/layers.py (gather beside the input gradient, reduction beside the
        weight gradient).
        """
        if comm.seconds <= 0:
            self.compute(name, kind, seconds)
            return
        self.flush()
        before = self.tail
        sent = self._send(comm, before)
        made = (self._put("compute", name, kind, seconds, before),) if seconds else ()
        self.tail = (*made, sent)

    def launched(self, seconds: float, before: tuple[int, ...], name: str = "launching") -> None:
        """The host needs `seconds` to launch what follows tasks `before`; the chain waits for it too."""
        self.flush()
        if seconds > 0:
            self.tail = (*self.tail, self._put("host", name, "launch", seconds, before))

    def launched_around(self, seconds: float, place: int) -> None:
        """As `launched`, from the chain's beginning on, where the host waits for the GPU at task `place`:
        what it launches before and behind that is shared out by compute.

        Else all would be launched behind the wait, since the host does one thing after the other.
        """
        self.flush()
        if seconds <= 0:
            return
        times = [task.duration if task.lane == "compute" else 0.0 for task in self.tasks]
        first = seconds * sum(times[:place]) / sum(times) if any(times) else seconds

        def moved(after: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(n if n == BEFORE else n + 1 for n in after)

        before, self.tail = self.tail, ()
        found = [task.behind(moved(task.after)) for task in self.tasks]
        self.tasks = []
        self.launched(first, (BEFORE,))
        self.tasks += found
        self.cuts, self.tail = [cut + 1 for cut in self.cuts], moved(before)
        self.launched(seconds - first, (place + 1,))

    def unlaunched(self) -> Chain:
        """The chain without what the host launches for it."""
        kept = [task.lane != "host" for task in self.tasks]
        place = [0, *accumulate(kept)]  # of a task, and of what follows the last

        def moved(after: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(place[n] for n in after if kept[n])

        found = Chain()
        found.tasks = [task.behind(moved(task.after)) for task in compress(self.tasks, kept)]
        found.cuts, found.tail, found.layer = [place[cut] for cut in self.cuts], moved(self.tail), self.layer
        return found

    def cut(self) -> None:
        """End a segment: here another pass may take its turn."""
        self.flush()
        self.cuts.append(len(self.tasks))

    def flush(self) -> None:
        """Turn gathered compute into a task."""
        if self._seconds:
            seconds, self._seconds = self._seconds, 0.0
            self.tail = (self._put("compute", self._name, self._kind, seconds, self.tail),)

    def at_layer(self, layer: int) -> None:
        """Everything from here on belongs to `layer`."""
        self.flush()
        self.layer = layer

    def _as_they_arrive(self, sent: Sequence[Comm], name: str, kind: str, seconds: float) -> None:
        """Compute in equal parts: the first is here, every other one waits for what brings it."""
        self.flush()
        before, each = self.tail, seconds / (len(sent) + 1)
        last = self._put("compute", name, kind, each, before)
        for comm in sent:
            last = self._put("compute", name, kind, each, (self._send(comm, before),))
        self.tail = (last,)

    def _send(self, comm: Comm, after: tuple[int, ...]) -> int:
        return self._put(
            comm.lane, comm.purpose, comm.op, comm.seconds, after, comm.size, comm.wire, comm.uses
        )

    def _put(
        self,
        lane: Lane,
        name: str,
        kind: str,
        seconds: float,
        after: tuple[int, ...],
        size: float = 0.0,
        wire: float = 0.0,
        uses: Uses = NICS,
    ) -> int:
        self.tasks.append(Task(lane, name, kind, seconds, after, self.layer, size, wire, uses))
        return len(self.tasks) - 1


def take_turns(chains: list[Chain]) -> list[Task]:
    """One task list in which chains alternate segment by segment, layer beside layer; the longer ones end
    alone, those of a layer as those of all.

    While one chain is in its all-to-all, the compute lane runs the other one: batch-level overlap as in
    DeepSeek-V3's DualPipe (arXiv 2412.19437, section 3.2.1) and DeepEP.
    """
    for chain in chains:
        chain.cut()
    if len(chains) == 1:
        return chains[0].tasks
    merged: list[Task] = []
    places: list[list[int]] = [[] for _ in chains]
    starts = [0] * len(chains)
    turns = sorted((*turn, which, end) for which, chain in enumerate(chains) for turn, end in _turns(chain))
    for _layer, _segment, which, end in turns:
        place = places[which]
        segment = chains[which].tasks[starts[which] : end]
        for lane, name, kind, seconds, after, layer, size, wire, uses in segment:
            place.append(len(merged))
            moved = tuple([place[d] for d in after])
            merged.append(Task(lane, name, kind, seconds, moved, layer, size, wire, uses))
        starts[which] = end
    return merged


def _turns(chain: Chain) -> list[tuple[tuple[int, int], int]]:
    """Of every segment, in order: how many layers with all-to-alls were before its own and how many segments
    of that, and its end.

    A layer that is computed again in a backward pass has twice the all-to-alls of a forward one.
    """
    found: list[tuple[tuple[int, int], int]] = []
    layers, segments, last = -1, 0, None
    for end in chain.cuts:
        layer = chain.tasks[end - 1].layer if end else chain.layer
        layers, segments = (layers, segments + 1) if found and layer == last else (layers + 1, 0)
        found.append(((layers, segments), end))
        last = layer
    return found


FETCH, REDUCE, RETURN, GATHER = range(4)
"""What goes beside a pass, in the order of issue where it begins at the same instant."""


def woven(
    tasks: Sequence[Task],
    order: Sequence[int],
    gathers: Mapping[int, tuple[Task, ...]],
    reduces: Mapping[int, tuple[Task, ...]],
    ahead: int,
    fetches: Mapping[int, Task] = NO_COPIES,
    returns: Mapping[int, Task] = NO_COPIES,
    waiting: Literal["", "reduced", "returned"] = "",
    reached: bool = False,
) -> list[Task]:
    """A pass with tasks of other lanes beside it, in order of issue.

    order    units (layers) as the pass meets them
    gathers  tasks that a unit's compute waits for, issued `ahead` units early
    reduces  tasks that follow a unit
    fetches, returns  a copy that a unit's gathers wait for, and one that waits for its reductions
    waiting  'reduced': the next unit is computed only when these reductions are over; 'returned': it is also
             launched only then, when the copy that returns is
    reached  gathers are issued as the host reaches their unit, `ahead` of the GPU by units in which it does
             not wait (FINDING)
    A unit is over when it is computed and launched; copies to and from the host run beside it.
    """
    places: dict[int, list[int]] = {}
    for i, task in enumerate(tasks):
        if task.lane != "copy":
            places.setdefault(task.layer, []).append(i)
    issued: list[tuple[tuple[int, ...], int, int, Task]] = []
    for place, unit in enumerate(order):
        here = places.get(unit, [])
        before = places.get(order[place - 1 - ahead], []) if place > ahead else []
        trigger = _ends(tasks, before[: bisect_left(before, here[0])]) if here else ()
        if reached:
            between = [i for one in order[max(place - ahead, 0) : place] for i in places.get(one, ())]
            trigger += tuple(i for i in between if tasks[i].name == FINDING)[-1:]
        over = _ends(tasks, here)
        issued += [(trigger, FETCH, unit, fetches[unit])] if unit in fetches else []
        issued += [(trigger, GATHER, unit, task) for task in gathers.get(unit, ())]
        issued += [(over, REDUCE, unit, task) for task in reduces.get(unit, ())]
        issued += [(over, RETURN, unit, returns[unit])] if unit in returns else []
    found = list(tasks)
    last: list[dict[int, int]] = [{} for _ in range(4)]
    # by the last of what each waits for: a search of rows may come behind the end of another unit
    for after, what, unit, task in sorted(issued, key=lambda one: (max(one[0], default=-1), one[1])):
        behind = {GATHER: FETCH, RETURN: REDUCE}.get(what)
        if behind is not None and unit in last[behind]:
            after = (*after, last[behind][unit])
        last[what][unit] = len(found)
        found.append(task.behind(after))
    gate = {unit: (place,) for unit, place in (last[FETCH] | last[GATHER]).items()}
    awaited = last[RETURN if waiting == "returned" else REDUCE] if waiting else {}
    gone = {after: (awaited[unit],) for unit, after in pairwise(order) if unit in awaited}
    waits = {"compute": {u: (*gate.get(u, ()), *gone.get(u, ())) for u in gate | gone}}
    waits["host"] = gone if waiting == "returned" else {}
    for i, task in enumerate(tasks):
        if more := waits.get(task.lane, {}).get(task.layer):
            found[i] = task.behind((*task.after, *more))
    return found


def _ends(tasks: Sequence[Task], places: Sequence[int]) -> tuple[int, ...]:
    """The last of some tasks; where that is the host's launching, which may be over before what it launched,
    the last of the others too."""
    others = next((i for i in reversed(places) if tasks[i].lane != "host"), None)
    return tuple(dict.fromkeys((places[-1], *(() if others is None else (others,))))) if places else ()
