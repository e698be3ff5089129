"""Everything the search asks the training room, each once: passes, sends, gradients, optimizer, memory.

Legend: a class is what decides the passes of a chunk (everything but the number of stages and replicas); a
law is a way to bound a pass from below that adds up over layers, so that one table serves chunks of every
length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.collectives import predict as network_predict
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import CollectivePrediction, Op
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.pattern import kinds_present
from railwright.search.bounds.ends import Ends, ends_of
from railwright.search.bounds.laws import ENDS, LONE, Floats, compute_alone, measure, sending
from railwright.search.space.axes import SHARDING, Block, apply
from railwright.spec.training import TrainingJob
from railwright.traffic.demand import Communicator
from railwright.training.lanes.tasks import LANES, Task
from railwright.training.layers.communication import Prices, gradient_bytes, stage_size
from railwright.training.layers.stages import StageShape, shapes_of, tied_parameters
from railwright.training.layout.placement import GroupKind, Groups, place
from railwright.training.layout.route import Kind
from railwright.training.layout.schedule import FOLDED, SHARED, SPLIT, in_pairs, schedule_name
from railwright.training.layout.sizes import job_gpus
from railwright.training.memory.activations import layers_away
from railwright.training.passes.lockstep import in_step, without_waits
from railwright.training.passes.offload import layer_copies
from railwright.training.passes.updates import stage_update
from railwright.training.passes.work import Work
from railwright.training.software.constants import constant
from railwright.training.software.eras import attention_kernels, pace_of
from railwright.training.software.formats import amax_over
from railwright.training.software.host import relieved
from railwright.training.step.quick import pass_times
from railwright.training.step.simulating import kernel_timer
from railwright.training.step.stage import PassBook, Passed
from railwright.training.whatif.machine import in_no_time

SHAPING = ("tensor", "context", "context_kind", "expert", "expert_tensor", "schedule")
"""Structure that decides the tasks of a pass, beside the groups it runs on."""

STAGING = ("tensor", "pipeline", "virtual_pipeline", "expert", "expert_tensor")
"""Structure that decides what a stage holds, beside whether the schedule folds the model (`folding`)."""

PASSING = ("micro_batch", "sequence_parallel", "recompute", "overlap_tp", "overlap_ep", "overlap_cp")
"""Choices that do."""

PAIRING = "overlap_ep"
"""The one of them that does so only where whole passes run in pairs (`schedule.in_pairs`)."""

COMPUTING = ("micro_batch", "sequence_parallel", "recompute")
"""Those that change its compute; they come first."""

_INSIDE_PASSES: tuple[GroupKind, ...] = ("tp", "cp", "ep")
"""Groups whose collectives are tasks of a pass; what else runs there lies inside these."""

MOST_BOOKS = 128
"""Layouts whose tasks are kept: those of deep stages take a megabyte."""


@dataclass(frozen=True)
class Placed:
    """One pass [s]: as it runs undisturbed, with nothing slowing it, when its last compute ends, its compute,
    and with nothing slowing it where no host is ahead of it."""

    long: float
    short: float
    last: float
    compute: float
    launched: float


@dataclass
class Pricer:
    """Prices of one job on one machine; every answer is remembered.

    asked  collectives priced by the network, passes  classes of passes placed in time
    """

    job: TrainingJob
    arch: Transformer
    machine: Machine
    asked: int = 0
    passes: int = 0
    _predicted: dict[tuple[Op, float, bytes], CollectivePrediction] = field(default_factory=dict)
    _signatures: dict[int, tuple[Sequence[Communicator], bytes]] = field(default_factory=dict)
    _groups: dict[tuple[Any, ...], Groups] = field(default_factory=dict)
    _shapes: dict[tuple[Any, ...], tuple[StageShape, ...]] = field(default_factory=dict)
    _free: dict[Groups, Prices] = field(default_factory=dict)
    _kernels: dict[Operator, float] = field(default_factory=dict)
    _times: dict[tuple[Any, ...], Floats] = field(default_factory=dict)
    _computes: dict[tuple[Any, ...], Floats] = field(default_factory=dict)
    _placed: dict[tuple[Any, ...], dict[tuple[Passed, Kind], tuple[Placed, Placed]]] = field(
        default_factory=dict
    )
    _books: dict[tuple[Any, ...], PassBook] = field(default_factory=dict)
    _ends: dict[tuple[Any, ...], Ends] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slowdown = constant("compute_slowdown_in_overlap")
        gpus = job_gpus(self.job, self.machine.network.fabric)
        self.pace = pace_of(self.job, self.machine.gpu, gpus)
        self._timed = kernel_timer(self.machine, self.pace, attention_kernels(self.job, self.machine.gpu))
        self.kinds = kinds_present(self.arch)

    def predict(
        self, machine: Machine, op: Op, size: float, groups: Sequence[Communicator]
    ) -> CollectivePrediction:
        """The network's price of a collective, asked once for all placements that form the same groups."""
        key = (op, size, self._sign(groups))
        if key not in self._predicted:
            self.asked += 1
            self._predicted[key] = network_predict(machine, op, size, groups)
        return self._predicted[key]

    def kernel(self, operator: Operator) -> float:
        """Seconds of one operator in a step."""
        if operator not in self._kernels:
            self._kernels[operator] = self._timed(operator)
        return self._kernels[operator]

    def prices(self, job: TrainingJob) -> Prices:
        """Prices on the groups of a layout. Raises PlanError where it cannot be placed."""
        layout = job.layout
        key = (
            *(getattr(layout, axis) for axis in SHAPING),
            layout.pipeline,
            layout.placement,
            layout.shard,
        )
        if key not in self._groups:
            self._groups[key] = place(job, self.machine.network.fabric)
        return Prices.shared(self.machine, self._groups[key], self.predict)

    def laws(self, block: Block, wanted: NDArray[np.bool_], alone: bool = False) -> Floats:
        """(X, pass, part, law) seconds of one layer of each kind, then of the `ENDS`. [s]

        Where some layers of a piece are computed again and others keep all, of one of each (`_parts`).
        wanted  which of the block's X classes of passes; the others are NaN
        alone   no pass runs beside another, as where parameters are sharded
        A chunk takes at least the sum of its parts under every law.
        """
        first = {**block.at((0,) * len(block.choices)), "recompute_layers": None}
        groups = self._crossings(self.prices(apply(self.job, first)))
        structure, zeros = _shaping(block.structure), sending(self.job, block.of("zero"))
        values = [block.of(axis) for axis in PASSING]
        ways = self._ways(block)
        found = np.full((wanted.size, 3, len(ways) * len(self.kinds) + ENDS, LONE + 1), np.nan)
        pairs = self.pairs(block) & (not alone)
        for x, index in enumerate(np.ndindex(*(len(v) for v in values))):
            if not wanted[x]:
                continue
            chosen = dict(zip(PASSING, (v[i] for v, i in zip(values, index, strict=True)), strict=True))
            if alone:
                chosen[PAIRING] = False
            tables = []
            for way in ways:
                chosen |= way
                asked = (chosen[axis] for axis in PASSING if axis != PAIRING)
                key = (*structure, *asked, *groups, bool(pairs[x]), zeros)
                if key not in self._times:
                    self.passes += 1
                    works = self._works(first | chosen, zeros)
                    each = [measure(work, self.kinds, self.slowdown) for work in works]
                    self._times[key] = np.minimum.reduce(each)
                tables.append(self._times[key])
            found[x] = self._parts(tables)
        return found

    def _works(
        self, setting: Mapping[str, Any], zeros: Sequence[int], free: Prices | None = None
    ) -> list[Work]:
        """Passes with parameters on every rank, under each of some values of `zero` or the setting's."""
        each = zeros or (min(setting["zero"], 2),)
        jobs = [apply(self.job, {**setting, "zero": zero}) for zero in each]
        return [Work(job, self.arch, free or self.prices(job), self.kernel, self.pace) for job in jobs]

    def _ways(self, block: Block) -> tuple[Mapping[str, Any], ...]:
        """How layers of one piece differ: not at all, or computed again and not."""
        if block.structure["recompute_layers"] is None:
            return ({},)
        return {"recompute": "full"}, {"recompute": "none"}

    def _parts(self, tables: Sequence[Floats]) -> Floats:
        """(pass, part, law) of layers of each kind in each of the `_ways`, then of the ends."""
        layers = [table[:, : len(self.kinds)] for table in tables]
        return np.concatenate([*layers, tables[0][:, len(self.kinds) :]], axis=1)

    def pairs(self, block: Block) -> NDArray[np.bool_]:
        """(X,) classes of a block that run forwards and backwards together, unless parameters are sharded."""
        shape, hidden = [len(block.of(axis)) for axis in PASSING], block.of(PAIRING)
        first = block.at((0,) * len(block.choices))
        asked = apply(self.job, {**first, PAIRING: True, "zero": min(first["zero"], 2)})
        if not any(hidden) or not in_pairs(asked):
            return np.zeros(prod(shape), bool)
        along = [1] * len(shape)
        along[PASSING.index(PAIRING)] = -1
        return np.broadcast_to(np.array(hidden, bool).reshape(along), shape).reshape(-1)

    def compute(self, block: Block, wanted: NDArray[np.bool_]) -> Floats:
        """(X, pass, part, law) seconds that the compute of a layer and of the ends takes; NaN for classes not
        wanted, of which there is one at least. [s]

        The same whatever communication costs and however it is hidden, so there are few of them.
        """
        # The other choices of a pass, its overlaps, do not change its compute.
        alike = prod(len(block.of(axis)) for axis in PASSING if axis not in COMPUTING)
        found: list[Floats | None] = []
        choices = product(*(block.of(axis) for axis in COMPUTING))
        for choice, asked in zip(choices, wanted.reshape(-1, alike), strict=True):
            chosen = dict(zip(COMPUTING, choice, strict=True))
            ways = self._ways(block) if asked.any() else ()
            found.append(
                self._parts([self._alone(block, {**chosen, **way}) for way in ways]) if ways else None
            )
        none = np.full_like(next(one for one in found if one is not None), np.nan)
        return np.repeat([none if one is None else one for one in found], alike, axis=0)

    def _alone(self, block: Block, chosen: Mapping[str, Any]) -> Floats:
        """(pass, part, law) seconds of compute under some choices of COMPUTING. [s]"""
        zeros = sending(self.job, block.of("zero"))
        key = (*_shaping(block.structure), *chosen.values(), zeros)
        if key not in self._computes:
            bare = {axis: False for axis in PASSING if axis.startswith("overlap_")}
            first = {**block.at((0,) * len(block.choices)), "recompute_layers": None}
            setting = {**first, **bare, **chosen}
            groups = self.prices(apply(self.job, setting)).groups
            if groups not in self._free:
                self._free[groups] = Prices(self.machine, groups, in_no_time)
            works = self._works(setting, zeros, self._free[groups])
            self._computes[key] = np.minimum.reduce([compute_alone(work, self.kinds) for work in works])
        return self._computes[key]

    def book(self, setting: Mapping[str, Any]) -> PassBook:
        """Tasks of the passes of a layout, which others that differ in data parallelism share."""
        return self._book(apply(self.job, setting), self._shared(setting))

    def passes_of(self, setting: Mapping[str, Any]) -> Callable[[Passed, Kind], Placed]:
        """Passes of a layout as the training room runs them undisturbed, by their chunks and their kind.

        Where data-parallel ranks exchange beside passes, these can take so long that the host is ahead of all
        that it launches in others.
        """
        shared, beside = self._shared(setting), setting["zero"] >= 2 or setting["overlap_dp"]
        known = self._placed.setdefault(shared, {})

        def placed(chunks: Passed, kind: Kind) -> Placed:
            if (chunks, kind) not in known:
                book = self._book(apply(self.job, setting), shared)
                tasks = book.tasks(chunks, kind)
                alone = eased = self._place(tasks, kind)
                if book.launched(chunks, kind):
                    eased = replace(self._place(relieved(tasks, inf), kind), launched=alone.short)
                known[chunks, kind] = alone, eased
            return known[chunks, kind][beside]

        return placed

    def _place(self, tasks: list[Task], kind: Kind) -> Placed:
        (long, last), (quick, _) = pass_times(tasks, self.slowdown, 1.0)
        if len(own := without_waits(tasks)) < len(tasks):
            ((_, last),) = pass_times(own, self.slowdown)  # gradients wait for no other rank's pass
        taken = dict.fromkeys(LANES, 0.0)
        for task in tasks:
            taken[task.lane] += task.duration
        whole, sent = taken["compute"], max(taken["tp"], taken["cp"], taken["ep"])
        short = max(quick, whole + (1 - 1 / self.slowdown) * sent)
        # Behind a backward pass's own compute gradients may be on their way while other ranks are waited for.
        alone = whole if kind == "F" else sum(task.duration for task in own if task.lane == "compute")
        short = min(short, long)
        return Placed(long, short, last, alone, launched=short)

    def _shared(self, setting: Mapping[str, Any]) -> tuple[Any, ...]:
        """What decides the tasks of passes."""
        job = apply(self.job, setting)
        groups = self.prices(job).groups
        crossings = self._crossings(self.prices(job))
        agreeing = self._sign(groups.of("stage")) if amax_over(job) == "stage" else b""
        copied = layers_away(job, self.arch.layers + self.arch.mtp_layers + 1)
        waiting = in_step(job, groups.sizes), agreeing, in_pairs(job)
        passing = (setting[axis] for axis in (*PASSING, "recompute_layers") if axis != PAIRING)
        sent = sending(self.job, (setting["zero"],))
        return (*_shaping(setting), *passing, *crossings, copied, *waiting, sent)

    def _book(self, job: TrainingJob, shared: tuple[Any, ...]) -> PassBook:
        if shared not in self._books:
            if len(self._books) >= MOST_BOOKS:
                del self._books[next(iter(self._books))]
            copies = layer_copies(job, self.arch, self.machine)
            work = Work(job, self.arch, self.prices(job), self.kernel, self.pace, copies)
            self._books[shared] = PassBook(work)
        return self._books[shared]

    def shapes(self, setting: Mapping[str, Any]) -> tuple[StageShape, ...]:
        """Stages of a layout."""
        key = (*(setting[axis] for axis in STAGING), folding(setting["schedule"]))
        if key not in self._shapes:
            self._shapes[key] = shapes_of(apply(self.job, setting), self.arch)
        return self._shapes[key]

    def send(self, setting: Mapping[str, Any]) -> float:
        """One transfer between neighbouring stages. [s]"""
        job = apply(self.job, setting)
        if job.layout.pipeline == 1:
            return 0.0
        return self.prices(job).time("pp", "pp send", "sendrecv", stage_size(job, self.arch), "pp")

    def tied(self, setting: Mapping[str, Any]) -> float:
        """The all-reduce of a tied embedding between first and last stage. [s]"""
        job = apply(self.job, setting)
        size = tied_parameters(self.arch, job.layout) * gradient_bytes(job)
        if not size or job.lora:
            return 0.0
        return self.prices(job).time("dp", "tied embedding gradients", "all_reduce", size, "embedding")

    def mirror(self, setting: Mapping[str, Any], shapes: Sequence[StageShape]) -> float:
        """DualPipe: the longest all-reduce between two stages with the same layers, at least. [s]"""
        job = apply(self.job, setting)
        if schedule_name(job.layout) != "dualpipe":
            return 0.0
        prices = self.prices(job)
        sizes = prices.groups.sizes
        held = min(shape.trained_shard(*sizes.over(job.layout.zero)) for shape in shapes)
        size = held * gradient_bytes(job)
        return prices.time("dp", "gradients of the other copy", "all_reduce", size, "mirror")

    def ends(self, setting: Mapping[str, Any], shape: StageShape) -> Ends:
        """Gradients, optimizer and parameters of one stage."""
        job = apply(self.job, setting)
        prices = self.prices(job)
        sizes = prices.groups.sizes
        key = (
            *_shaping(setting),
            setting["zero"],
            setting["overlap_dp"],
            setting["placement"],
            *(setting[axis] for axis in SHARDING),
            tuple(what for what in setting["offload"] if what != "activations"),
            sizes,
            shape,
        )
        if key not in self._ends:
            self._ends[key] = ends_of(job, shape, prices, partial(self._optimizer, job, shape, prices))
        return self._ends[key]

    def _optimizer(
        self, job: TrainingJob, shape: StageShape, prices: Prices, over: int, expert_over: int
    ) -> float:
        host, own = stage_update(job, self.arch, shape, prices, self.kernel, self.pace, over, expert_over)
        return host.seconds + own.seconds + self.pace.step

    def _crossings(self, prices: Prices) -> tuple[bytes, ...]:
        """The groups that the collectives of a pass run on."""
        found = []
        for kind in _INSIDE_PASSES:
            groups = prices.groups.of(kind)
            if groups and len(groups[0]) > 1:
                found.append(self._sign(groups))
        return tuple(found)

    def _sign(self, groups: Sequence[Communicator]) -> bytes:
        known = self._signatures.get(id(groups))
        if known is None:
            flat = np.concatenate([g.gpus for g in groups])
            known = groups, len(groups).to_bytes(4, "little") + flat.tobytes()
            self._signatures[id(groups)] = known
        return known[1]


def folding(schedule: str) -> str:
    """The schedule, as in the study, where it decides which pieces of the model a stage has; else ''."""
    return schedule if schedule in FOLDED else ""


def _shaping(setting: Mapping[str, Any]) -> tuple[Any, ...]:
    """What decides the tasks of a pass; of schedules, only how they cut a backward pass."""
    name = setting["schedule"]
    cut = "split" if name in SPLIT else "shared" if name in SHARED else ""
    return (*(setting[a] for a in SHAPING if a != "schedule"), cut)
