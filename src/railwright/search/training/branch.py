"""Branch and bound: screen every layout, then evaluate the most promising until none left can be better.

Layouts are taken in the order of their lower bound; one is first bounded again with its own passes, then
simulated.  When the next bound exceeds the best exact time, everything that was not simulated is
slower: the bound of a layout never exceeds its exact time (docs/training/search.md, tests/property).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.search.bounds.allocator import Allocations
from railwright.search.bounds.blocks import Refusal, blocks
from railwright.search.bounds.footprint import MEMORY, Footprint
from railwright.search.bounds.impossible import impossible
from railwright.search.bounds.laws import Floats32, down
from railwright.search.bounds.pricing import PASSING, Pricer
from railwright.search.bounds.reach import where_reached
from railwright.search.bounds.screen import Screen
from railwright.search.space.axes import SHARDING, STRUCTURE, Block, Space, apply, setting_of
from railwright.search.space.changes import changed
from railwright.search.space.exact import exact_memory
from railwright.search.space.idle import without_idle
from railwright.search.space.network import most_sent
from railwright.search.training.frameworks import Framework, runs, runs_none
from railwright.search.training.front import BLOCK, CLASS, OWN, Entry, Group, Listed, Tried, rounded
from railwright.search.training.leaner import leaner, leanest
from railwright.search.training.result import Candidate
from railwright.search.training.stopped import none_can_work, none_fits
from railwright.spec.dataset import Data
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.lanes.result import StepResult
from railwright.training.software.eras import era_of
from railwright.training.step.quick import step_seconds

Progress = Callable[[str, float], None]

MOST_LAYOUTS = 100_000_000
"""A space above this is refused: its bounds alone would take more than 400 MB."""

GROUP = (*(a for a in STRUCTURE if a not in ("placement", *SHARDING)), "micro_batch", "recompute")
"""Axes that make a layout of its own in the list of the best; the others are variants of it."""

COMPUTE, PASSES, PRICED, STAGED = range(4)
"""How far a class has been looked into: its compute, all of its passes, all that its step sends, and its
commonest stage's passes in time."""

HIDING = ("overlap_dp", "overlap_pp")
"""Axes that say when something is sent, and change nothing of what is."""

LOOK_AHEAD = 1.01
"""Classes of a block whose bounds are within 1 % of the least are looked into together."""


@dataclass
class Run:
    """One search under way, as if no layout waited for its data.

    Legend: X classes of passes of a block, z, o, d, p its values of zero, offload, overlap_dp, overlap_pp.
    seconds  per block, shape (X, z, d, p): what its layouts take at least, as 32-bit floats rounded down
    depth    per block, shape (X,): how far that has been looked into (COMPUTE to STAGED)
    memory   per block, shape (X, z, o): bytes at least
    exact    layouts that were timed
    overfull  of these, which the allocator cannot hold, as far as that was asked
    apart    classes that the network cannot carry, as far as they were looked into
    """

    job: TrainingJob
    arch: Transformer
    machine: Machine
    space: Space
    tell: Progress
    only: Framework | None = None
    blocks: list[Block] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    seconds: list[Floats32] = field(default_factory=list)
    depth: list[NDArray[np.uint8]] = field(default_factory=list)
    memory: list[Floats32] = field(default_factory=list)
    exact: dict[tuple[int, int], Tried] = field(default_factory=dict)
    overfull: dict[tuple[int, int], Tried] = field(default_factory=dict)
    apart: list[Refusal] = field(default_factory=list)
    layouts: int = 0
    fitting: int = 0
    refined: int = 0
    _closer: dict[tuple[int, int], float] = field(default_factory=dict)
    _memory: dict[tuple[int, tuple[int, ...]], float] = field(default_factory=dict)
    _steps: dict[tuple[int, int], StepResult] = field(default_factory=dict)
    _traffic: dict[tuple[Any, ...], float] = field(default_factory=dict)
    _full: set[Group] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.fabric = self.machine.network.fabric
        self.pricer = Pricer(self.job, self.arch, self.machine)
        self.screener = Screen(self.pricer, Footprint(self.job, self.arch, self.fabric))
        self.allocations = Allocations(self.job, self.arch, self.fabric, self.machine.gpu.hbm_bytes)
        self.written = setting_of(self.job)

    def screen(self) -> None:
        """Bound every layout. Raises PlanError where none can work."""
        self.blocks, self.refused = blocks(self.space, self.job, self.arch, self.fabric)
        self.layouts = sum(block.size for block in self.blocks)
        if not self.layouts:
            raise PlanError(none_can_work(self.job, impossible(self.space, self.job, self.arch, self.fabric)))
        if self.layouts > MOST_LAYOUTS:
            raise PlanError(
                f"{self.job.name}: the space has {self.layouts:,} layouts, more than the {MOST_LAYOUTS:,} "
                "that are screened at once; give some of its axes fewer values (--space), or leave out what "
                "your framework does not run (--framework)."
            )
        capacity = self.machine.gpu.hbm_bytes
        for i, block in enumerate(self.blocks):
            self.tell(f"screening {self.layouts:,} layouts", 0.6 * i / len(self.blocks))
            able, memory = self._bounded(block)
            self.memory.append(memory)
            fits = self.memory[i] <= capacity
            self.fitting += int(fits.sum()) * block.shape[-1] * block.shape[-2]
            shape = (len(memory), len(block.of("zero")), block.shape[-2], block.shape[-1])
            self.depth.append(np.zeros(len(memory), np.uint8))
            least = self.screener.compute(block, np.any(fits, axis=(1, 2)))
            bounds = np.broadcast_to(down(least)[:, None, None, None], shape)
            self.seconds.append(np.where(able, bounds, np.float32(np.inf)))
        if self.only and all(np.isinf(memory).all() for memory in self.memory):
            raise PlanError(runs_none(self.only, self.blocks, self.job, self.arch))
        if not self.fitting:
            raise PlanError(self._none_fits(capacity))

    def _bounded(self, block: Block) -> tuple[NDArray[np.bool_], Floats32]:
        """(X, z, d, p) layouts of a block that the framework runs, and (X, z, o) bytes that they need at
        least; infinite where it runs none."""
        bound = np.broadcast_to(self.screener.memory(block), (*block.shape[:-2], 1, 1))
        memory = down(bound.reshape(prod(block.shape[: len(PASSING)]), *block.shape[len(PASSING) : -2]))
        if self.only is None:
            return np.ones((1, 1, 1, 1), bool), memory
        seconds, able = runs(self.only, block, self.job, self.arch)
        return seconds, np.where(able, memory, np.float32(np.inf))

    def _none_fits(self, capacity: float) -> str:
        """Why nothing does, by the leanest layout, and what can help."""
        i = int(np.argmin([memory.min() for memory in self.memory]))
        setting, need = leanest(self.blocks[i], self.memory[i], self.written)
        advice = leaner(self.space, self.job, self.arch, self.fabric, self._bounded, capacity)
        return none_fits(self.job, self.layouts, setting, need, capacity, advice)

    def leanest(self, top: int) -> tuple[list[Tried], float, float]:
        """`fastest` of those that need least memory; again, where the network cannot carry these."""
        while True:
            apart = len(self.apart)
            found = self.fastest(top, self.least_memory())
            if found[0] or len(self.apart) == apart:
                return found

    def fastest(self, top: int, capacity: float | None = None) -> tuple[list[Tried], float, float]:
        """The `top` fastest layouts within a memory that the allocator can hold, what every layout not
        evaluated takes at least [s], but for slower variants of these and such as cannot be held, and that
        memory [byte].

        capacity  of a layout; default: a GPU's

        The heap holds blocks, by the least bound of what is left of them, and single layouts, by that of
        their class and then by their own.  A block is looked into where its bound is least, until no bound of
        a class says more.  The allocator is asked last, of the layouts that would be told: where it cannot
        hold one, the search goes on.
        """
        listed, capacity = Listed(top), self.machine.gpu.hbm_bytes if capacity is None else capacity
        left: dict[int, Floats32] = {}
        heap: list[Entry] = []
        for i in range(len(self.blocks)):
            least = float(self._within(i, capacity).min())
            if least < np.inf:
                heap.append((least, BLOCK, i, 0))
        heapq.heapify(heap)
        while True:
            if not heap or rounded(heap[0][0]) > listed.limit:
                best = listed.best()
                full = [one for one in best if not self.holds(one)]
                if not full:
                    return best, heap[0][0] if heap else np.inf, capacity
                for one in full:
                    self.overfull[one.block, one.at] = one
                    self._full.add(one.group)
                    for entry in listed.drop(one):
                        heapq.heappush(heap, entry)
                continue
            bound, what, i, at = heapq.heappop(heap)
            if what != BLOCK:
                group = self._group(i, at)
                if self._known_full(i, at):
                    continue
                if listed.beats(group, bound):
                    listed.wait(group, (bound, what, i, at))
                elif what == OWN:
                    self.tell(
                        f"evaluating: {len(self.exact)} layouts so far",
                        0.6 + 0.3 * min(len(self.exact) / 50, 1),
                    )
                    listed.add(self._evaluate(i, at, bound))
                elif self._exact_memory(i, at) <= capacity:
                    heapq.heappush(heap, (max(bound, self._closer_bound(i, at)), OWN, i, at))
                continue
            rest = left.get(i)
            if rest is None:
                rest = left[i] = self._within(i, capacity)
            place = int(rest.argmin())
            if self.depth[i][place // rest[0].size] < STAGED:
                self._look_into(i, rest, bound)
            else:
                rest.flat[place] = np.inf
                for at in self._variants(i, place, capacity):
                    heapq.heappush(heap, (bound, CLASS, i, at))
            least = float(rest.min())
            if least < np.inf:
                heapq.heappush(heap, (least, BLOCK, i, 0))

    def holds(self, one: Tried) -> bool:
        """Whether the allocator can hold a layout."""
        return self.allocations.holds(self._setting(one.block, one.at), self._job(one.block, one.at))

    def _known_full(self, i: int, at: int) -> bool:
        """Whether the allocator is known to have no room for a layout, and its group has one in `overfull`:
        those of another group may have the same tensors, and are to be told too."""
        return self._group(i, at) in self._full and self.allocations.refused(self._setting(i, at))

    def _within(self, i: int, capacity: float) -> Floats32:
        """Bounds of a block, infinite where no variant fits; a copy. [s]"""
        fits = np.any(self.memory[i] <= capacity, axis=-1)
        found: Floats32 = np.where(fits[:, :, None, None], self.seconds[i], np.float32(np.inf))
        return found

    def _look_into(self, i: int, rest: Floats32, bound: float) -> None:
        """Take the classes of a block with the least bounds one step deeper, in place."""
        least = rest.reshape(len(rest), -1).min(1)
        depth = self.depth[i][least.argmin()]
        wanted = (least <= bound * LOOK_AHEAD) & (self.depth[i] == depth)
        deeper = (self.screener.passes, self.screener.priced, self.screener.staged)[depth]
        bounds, apart = where_reached(deeper, self.blocks[i], wanted, exchanged=depth >= PASSES)
        if depth < PRICED:  # what is refused then was refused before
            self.apart += [replace(one, example=self._said(one.example)) for one in apart]
        self.seconds[i][wanted] = np.maximum(self.seconds[i], down(bounds))[wanted]
        self.depth[i][wanted] += 1
        rest[wanted] = np.where(np.isinf(rest), rest, self.seconds[i])[wanted]

    def _said(self, no: str) -> str:
        return no.removeprefix(f"{self.job.name}: ")

    def _variants(self, i: int, place: int, capacity: float) -> list[int]:
        """Layouts at a place of a block's bounds that may fit, with all that may lie on the host."""
        x, z, d, p = np.unravel_index(place, self.seconds[i].shape)
        shape = *self.memory[i].shape, *self.blocks[i].shape[-2:]
        fitting = np.flatnonzero(self.memory[i][x, z] <= capacity).tolist()
        return [int(np.ravel_multi_index((x, z, o, d, p), shape)) for o in fitting]

    def least_memory(self) -> float:
        """The least memory of any layout that the allocator can hold, but for such as the network is known
        not to carry. [byte]"""
        best = self.machine.gpu.hbm_bytes
        within = [
            np.flatnonzero((memory <= best) & np.isfinite(seconds.min((2, 3)))[:, :, None])
            for memory, seconds in zip(self.memory, self.seconds, strict=True)
        ]
        bounds = np.concatenate([memory.flat[at] for memory, at in zip(self.memory, within, strict=True)])
        of_block = np.repeat(np.arange(len(within)), [len(at) for at in within])
        places = np.concatenate(within)
        for n in np.argsort(bounds, kind="stable").tolist():
            if bounds[n] > best:
                break
            i = int(of_block[n])
            hidden, sends = self.blocks[i].shape[-2:]
            for at in (int(places[n]) * hidden * sends + d * sends for d in range(hidden)):
                need = self._exact_memory(i, at)
                if need < best and self.allocations.holds(self._setting(i, at), self._job(i, at)):
                    best = need
        return best

    def own(self) -> tuple[Candidate | None, str]:
        """The job as written, or why it cannot run."""
        try:
            predict = self.pricer.predict
            step = simulate(_alone(self.job), self.arch, self.machine, predict=predict, most_events=1)
        except PlanError as no:
            return None, str(no)
        sent = self._sent(self.written)
        held = self.allocations.held(self.written, self.job)
        return Candidate(self.written, self.job, step, 0.0, sent, held), ""

    def _index(self, i: int, at: int) -> tuple[int, ...]:
        return tuple(int(n) for n in np.unravel_index(at, self.blocks[i].shape))

    def _setting(self, i: int, at: int) -> dict[str, Any]:
        return self.blocks[i].at(self._index(i, at))

    def _group(self, i: int, at: int) -> Group:
        setting = self._setting(i, at)
        return tuple(setting[a] for a in GROUP)

    def _closer_bound(self, i: int, at: int) -> float:
        if (i, at) not in self._closer:
            self.refined += 1
            self._closer[i, at] = self.screener.closer(self.blocks[i], self._index(i, at))
        return self._closer[i, at]

    def _exact_memory(self, i: int, at: int) -> float:
        """Peak memory as the training room counts it; infinite where it refuses the layout. [byte]

        The host's memory depends on the placement, which a block has one of.
        """
        index = self._index(i, at)
        # the first runs one more forward pass ahead, DeepSpeed's engine has a second bucket for the other
        axes = (*MEMORY, "overlap_ep", *("overlap_dp",) * era_of(self.job).zero_engine)
        kept = tuple(k for k, (axis, _) in zip(index, self.blocks[i].choices, strict=True) if axis in axes)
        if (i, kept) not in self._memory:
            job = apply(self.job, self.blocks[i].at(index))
            self._memory[i, kept] = exact_memory(job, self.arch, self.machine)
        return self._memory[i, kept]

    def _evaluate(self, i: int, at: int, bound: float) -> Tried:
        """A layout's exact time."""
        if (i, at) not in self.exact:
            job = self._job(i, at)
            prices, kernel, pace = self.pricer.prices(job), self.pricer.kernel, self.pricer.pace
            setting = self._setting(i, at)
            seconds = step_seconds(job, self.arch, prices, kernel, pace, self.pricer.book(setting))
            memory, changes = self._exact_memory(i, at), len(changed(self.written, setting))
            self.exact[i, at] = Tried(i, at, self._group(i, at), bound, seconds, memory, changes)
        return self.exact[i, at]

    def simulated(self, tried: Tried) -> Candidate:
        """A layout with all that the training room says of it."""
        job = self._job(tried.block, tried.at)
        key = (tried.block, tried.at)
        if key not in self._steps:
            predict, kernel = self.pricer.predict, self.pricer.kernel
            self._steps[key] = simulate(
                _alone(without_idle(job, self.arch)),
                self.arch,
                self.machine,
                predict=predict,
                kernel=kernel,
                most_events=1,
            )
        step = self._steps[key]
        setting, sent = self._setting(*key), self.sent(tried)
        return Candidate(setting, job, step, tried.bound, sent, self.allocations.held(setting, job))

    def sent(self, tried: Tried) -> float:
        """What a GPU of a layout sends per step in groups that span servers. [byte]"""
        return self._sent(self._setting(tried.block, tried.at))

    def _sent(self, setting: Mapping[str, Any]) -> float:
        """Whether buckets and sends are hidden moves no byte."""
        key = tuple((axis, value) for axis, value in setting.items() if axis not in HIDING)
        if key not in self._traffic:
            job = apply(self.job, setting)
            prices, kernel, pace = self.pricer.prices(job), self.pricer.kernel, self.pricer.pace
            book = self.pricer.book(setting)
            self._traffic[key] = most_sent(job, self.arch, prices, kernel, pace, book)
        return self._traffic[key]

    def _job(self, i: int, at: int) -> TrainingJob:
        return apply(self.job, self._setting(i, at))


def _alone(job: TrainingJob) -> TrainingJob:
    return job.model_copy(update={"data": Data()})
