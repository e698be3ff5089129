"""All layouts of a space, bounded from below: what each takes and needs at least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.search.bounds.blocks import can_hide_sends
from railwright.search.bounds.bound import (
    OneByOne,
    Passes,
    chunk_laws,
    chunk_times,
    launched_time,
    shared_times,
    split_times,
    step_time,
)
from railwright.search.bounds.ends import Ends, silent_ends
from railwright.search.bounds.footprint import Footprint
from railwright.search.bounds.laws import Floats, ends_of
from railwright.search.bounds.pairs import Passed, work
from railwright.search.bounds.pairs import passes as ran_in_pairs
from railwright.search.bounds.pricing import PASSING, Pricer
from railwright.search.bounds.timed import (
    chunk_kinds,
    commonest,
    paired_seconds,
    seconds_one_by_one,
    unit_counts,
)
from railwright.search.space.axes import Block, apply
from railwright.training.layers.recompute import layers_again
from railwright.training.layers.stages import StageShape
from railwright.training.layout.route import Chunk, Kind, Route
from railwright.training.layout.schedule import FOLDED, SHARED, SPLIT, in_pairs, route_under

MARGIN = 1e-9
"""A bound is lowered by this share, so that rounding never lifts it above the exact figure."""

ENDING = ("zero", "overlap_dp", "overlap_pp")
"""Choices beside those of a pass that change a step's time; offload changes memory alone."""


@dataclass
class Screen:
    """Bounds of one job's layouts."""

    pricer: Pricer
    footprint: Footprint

    def memory(self, block: Block) -> Floats:
        """Bytes that every layout of a block needs at least; broadcasts to the block's shape."""
        return self.footprint.bound(block, self.shapes(block)) * (1 - MARGIN)

    def shapes(self, block: Block) -> tuple[StageShape, ...]:
        """Stages of a block."""
        return self.pricer.shapes(block.at((0,) * len(block.choices)))

    def compute(self, block: Block, wanted: NDArray[np.bool_]) -> Floats:
        """(X,) seconds that the compute of each class of a block takes at least, with its pipeline's idle
        time; infinite for classes not wanted."""
        found = np.full(wanted.size, np.inf)
        if not wanted.any():
            return found
        cut = tuple((axis, values[:1] if axis in ENDING else values) for axis, values in block.choices)
        alone = Block(block.structure, cut, block.data)
        least = self.pricer.compute(block, wanted)[wanted]
        bounds = self._bounds(alone, least, least, np.zeros(1), silent=True, wanted=wanted)
        found[wanted] = bounds[:, 0, 0, 0]
        return found

    def passes(self, block: Block, wanted: NDArray[np.bool_]) -> Floats:
        """(X, zero, overlap_dp, overlap_pp) seconds with what passes send; infinite for classes not
        wanted."""
        found = np.full((wanted.size, *_ending(block)), np.inf)
        laws = self._laws(block, wanted)
        found[wanted] = self._bounds(block, *laws, np.zeros(1), silent=True, wanted=wanted)
        return found

    def priced(self, block: Block, wanted: NDArray[np.bool_]) -> Floats:
        """(X, zero, overlap_dp, overlap_pp) seconds with all that a step sends; infinite for classes not
        wanted."""
        found = np.full((wanted.size, *_ending(block)), np.inf)
        sends = self._sends(block)[wanted]
        found[wanted] = self._bounds(block, *self._laws(block, wanted), sends, silent=False, wanted=wanted)
        return found

    def staged(self, block: Block, wanted: NDArray[np.bool_]) -> Floats:
        """The same with the passes of the commonest stage as the training room runs them; 0 for classes not
        wanted, and where that says little or nothing more. [s]

        Of a pass alone laws are nearly all there is to know.  Copies of activations to the host are in no
        class, and a stage may wait less for launches beside them.
        """
        found = np.zeros((wanted.size, *_ending(block)))
        together = self.pricer.pairs(block) | (block.structure["schedule"] in SHARED)
        copied = any("activations" in offload for offload in block.of("offload"))
        if not copied and (asked := wanted & together).any():
            laws, sends = self._laws(block, asked), self._sends(block)[asked]
            found[asked] = self._bounds(block, *laws, sends, silent=False, wanted=asked, staged=True)
        return found

    def _laws(self, block: Block, wanted: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Laws of the classes wanted, and where parameters are sharded, so that no passes run in pairs."""
        laws = self.pricer.laws(block, wanted)[wanted]
        if 3 in block.of("zero") and self.pricer.pairs(block).any():
            return laws, self.pricer.laws(block, wanted, alone=True)[wanted]
        return laws, laws

    def _bounds(
        self,
        block: Block,
        laws: Floats,
        laws_sharded: Floats,
        sends: Floats,
        silent: bool,
        wanted: NDArray[np.bool_],
        staged: bool = False,
    ) -> Floats:
        """(X, zero, overlap_dp, overlap_pp) bounds of classes with these laws, others where parameters are
        sharded. [s]

        sends   transfers between stages; silent  whether data-parallel communication is left out
        staged  whether the passes of the commonest stage are placed, unless parameters are sharded
        """
        shapes, name = self.shapes(block), block.structure["schedule"]
        route = _route(block.structure)
        kinds, kind_pv = chunk_kinds(shapes)
        counts, count = self._counts(block, kinds), self._microbatches(block)[wanted]
        pairs = self.pricer.pairs(block)[wanted]

        def passes_of(laws: Floats, pairs: NDArray[np.bool_]) -> Passes:
            chunks, each, together = chunk_laws(laws, counts), None, None
            times = chunk_times(chunks)
            if route is not None:
                shared = name in SHARED
                seconds = shared_times(chunks, kind_pv) if shared else split_times(*times[:2], kind_pv)
                each = OneByOne(route, seconds, _counted(name, route, count) if silent else None)
            if pairs.any():
                together = np.full((len(laws), len(shapes)), np.nan)
                together[pairs] = work(chunks[pairs], kind_pv, count[pairs])
            send = np.broadcast_to(sends, len(laws))
            return Passes(*times, kind_pv, send, count, name, each, together)

        usual = passes_of(laws, pairs)
        sharded = passes_of(laws_sharded, pairs & False) if pairs.any() and 3 in block.of("zero") else usual
        zeros, dps, pps = (block.of(axis) for axis in ENDING)
        able = can_hide_sends(self.pricer.job, block.structure)
        first = block.at((0,) * len(block.choices))
        found = np.zeros((len(laws), len(zeros), len(dps), len(pps)))
        # passes by what they depend on here: parameters sharded, or as the training room runs them
        ran: dict[tuple[bool, ...], Passes] = {(True,): sharded, (False,): usual}
        known: dict[tuple[Any, ...], Floats] = {}
        for z, zero in enumerate(zeros):
            for d, overlap_dp in enumerate(dps):
                setting = {**first, "zero": zero, "overlap_dp": overlap_dp}
                ends, tied, mirror = self._ends_anywhere(setting, shapes, silent, block.of("offload"))
                chosen: tuple[bool, ...] = (zero == 3,)
                if staged and zero < 3:
                    disturbed = any(one.beside for one in ends)
                    chosen = (zero == 2, overlap_dp, disturbed)
                    if chosen not in ran:
                        ran[chosen] = self._nearer(block, usual, setting, disturbed, wanted)
                for s, overlap_pp in enumerate(pps):
                    asked = (chosen, *ends, tied, mirror, overlap_dp, overlap_pp and able)
                    if asked not in known:
                        seconds = step_time(ran[chosen], ends, tied, mirror, overlap_dp, overlap_pp and able)
                        known[asked] = seconds * (1 - MARGIN)
                    found[:, z, d, s] = known[asked]
        return found

    def _nearer(
        self,
        block: Block,
        passes: Passes,
        setting: Mapping[str, Any],
        disturbed: bool,
        wanted: NDArray[np.bool_],
    ) -> Passes:
        """Passes of classes with those through the commonest stage's chunks as the training room runs them,
        where two run at once.

        setting  of what is no class; disturbed  data-parallel communication may run beside them
        """
        kinds, kind_pv = chunk_kinds(self.shapes(block))
        common, pairs = commonest(kind_pv), self.pricer.pairs(block)[wanted]
        alike = np.isin(kind_pv, common).all(1)
        paired, each = passes.paired_xp, passes.each
        together = None if paired is None else paired.copy()
        seconds = None if each is None else each.seconds_dxpvk.copy()
        sizes = [len(block.of(axis)) for axis in PASSING]
        for n, x in enumerate(np.flatnonzero(wanted).tolist()):
            place = zip(PASSING, np.unravel_index(x, sizes), strict=True)
            timed = self.pricer.passes_of({**setting, **{a: block.of(a)[i] for a, i in place}})
            count = int(passes.count_x[n])
            if together is not None and pairs[n]:
                ran = Passed(*(of[alike] for of in ran_in_pairs(*kind_pv.shape, count)))
                exact = paired_seconds(timed, kinds, kind_pv[alike], ran, disturbed)
                together[n, alike] = np.maximum(together[n, alike], exact)
            if each is not None and seconds is not None:
                units = unit_counts(passes.schedule, each.route, count)
                exact = seconds_one_by_one(timed, kinds, kind_pv, units, common)
                seconds[:, n] = np.maximum(seconds[:, n], exact)
        if each is not None and seconds is not None:
            each = OneByOne(each.route, seconds)
        return replace(passes, paired_xp=together, each=each)

    def closer(self, block: Block, index: tuple[int, ...]) -> float:
        """The bound of one layout from its own passes as the training room runs them. [s]"""
        setting = block.at(index)
        shapes = self.shapes(block)
        kinds, kind_pv = chunk_kinds(shapes)
        name, count = block.structure["schedule"], self._count(block, setting["micro_batch"])
        route, each, together = _route(block.structure), None, None
        ends, tied, mirror = self._ends(setting, shapes, silent=False)
        long, short, last, compute, launched = self._placed(setting, kinds)
        timed = self.pricer.passes_of(setting)
        if route is not None:
            units = unit_counts(name, route, count)
            each = OneByOne(route, seconds_one_by_one(timed, kinds, kind_pv, units)[:, None])
        if in_pairs(apply(self.pricer.job, setting)):
            ran = ran_in_pairs(*kind_pv.shape, count)
            disturbed = any(one.beside for one in ends)
            together = paired_seconds(timed, kinds, kind_pv, ran, disturbed)[None]
        send, counts = np.array([self.pricer.send(setting)]), np.array([float(count)])
        known = Passes(long, short, last, compute, kind_pv, send, counts, name, each, together)
        hidden = setting["overlap_pp"] and can_hide_sends(self.pricer.job, block.structure)
        seconds = step_time(known, ends, tied, mirror, setting["overlap_dp"], hidden)
        if name not in SHARED and known.paired_xp is None and (launched > short).any():
            waiting = replace(known, short_xbg=launched)
            seconds = np.maximum(seconds, launched_time(waiting, ends, mirror, setting["overlap_dp"]))
        return float(seconds[0]) * (1 - MARGIN)

    def _placed(self, setting: Mapping[str, Any], kinds: list[Chunk]) -> Floats:
        """(5, 1, pass, kind) long and short passes, last compute and compute of one layout, and short passes
        of which the host is not ahead. [s]"""
        found = np.zeros((5, 1, 3, len(kinds)))
        passes: tuple[Kind, ...] = ("F", "I", "W") if setting["schedule"] in SPLIT else ("F", "B")
        placed = self.pricer.passes_of(setting)
        for g, chunk in enumerate(kinds):
            for which, kind in enumerate(passes):
                one = placed((chunk,), kind)
                found[:, 0, which, g] = one.long, one.short, one.last, one.compute, one.launched
        return found

    def _ends(
        self, setting: Mapping[str, Any], shapes: tuple[StageShape, ...], silent: bool
    ) -> tuple[list[Ends], float, float]:
        if silent:
            chunks, step = len(shapes[0].chunks), self.pricer.pace.step
            alike = silent_ends(setting["zero"], setting["overlap_dp"], chunks, step)
            return [alike] * len(shapes), 0.0, 0.0
        known: dict[StageShape, Ends] = {}
        for shape in shapes:
            if shape not in known:
                known[shape] = self.pricer.ends(setting, shape)
        ends = [known[shape] for shape in shapes]
        return ends, self.pricer.tied(setting), self.pricer.mirror(setting, shapes)

    def _ends_anywhere(
        self,
        setting: Mapping[str, Any],
        shapes: tuple[StageShape, ...],
        silent: bool,
        offloads: Sequence[tuple[str, ...]],
    ) -> tuple[list[Ends], float, float]:
        """The ends of stages whose optimizer runs where it takes least, of where `offloads` lets it: few
        parameters take longer on the GPU, which launches kernels for them."""
        places = {tuple(sorted({*offload} - {"activations"})): offload for offload in offloads}.values()
        found = [self._ends({**setting, "offload": offload}, shapes, silent) for offload in places]
        if silent or len(found) == 1:
            return found[0]
        _, tied, mirror = found[0]
        ends = [min(one, key=lambda e: e.optimizer) for one in zip(*(f[0] for f in found), strict=True)]
        return ends, tied, mirror

    def _counts(self, block: Block, kinds: list[Chunk]) -> Floats:
        """(G, parts): how often each kind of chunk has each part of `Pricer.laws`."""
        job = apply(self.pricer.job, block.at((0,) * len(block.choices)))
        rows = []
        for chunk in kinds:
            ways = [chunk.layers]
            if block.structure["recompute_layers"] is not None:
                again = layers_again(job, self.pricer.arch, chunk)
                ways = [chunk.layers[:again], chunk.layers[again:]]
            layers = [way.count(kind) for way in ways for kind in self.pricer.kinds]
            rows.append([*layers, *ends_of(chunk)])
        return np.array(rows, float)

    def _sends(self, block: Block) -> Floats:
        first = block.at((0,) * len(block.choices))
        found = np.zeros([len(block.of(a)) for a in PASSING])
        for i, micro_batch in enumerate(block.of("micro_batch")):
            for j, shared in enumerate(block.of("sequence_parallel")):
                found[i, j] = self.pricer.send(
                    {**first, "micro_batch": micro_batch, "sequence_parallel": shared}
                )
        return found.reshape(-1)

    def _microbatches(self, block: Block) -> Floats:
        shape = [len(block.of(a)) for a in PASSING]
        counts = np.array([self._count(block, b) for b in block.of("micro_batch")], float)
        found: Floats = np.broadcast_to(counts.reshape(-1, *[1] * (len(shape) - 1)), shape).reshape(-1)
        return found

    def _count(self, block: Block, micro_batch: int) -> int:
        return self.pricer.job.global_batch // (block.data * micro_batch)


def _counted(name: str, route: Route, count_x: Floats) -> Floats:
    """(X, p, v, kind) passes of classes with these microbatches."""
    return np.array([unit_counts(name, route, int(count)) for count in count_x.tolist()], float)


def _route(structure: Mapping[str, Any]) -> Route | None:
    """Where pieces of the model lie, under schedules whose passes are bounded one by one; else None."""
    name, virtual = structure["schedule"], structure["virtual_pipeline"]
    if name not in FOLDED and not (name in SPLIT and virtual > 1):
        return None
    return route_under(name, structure["pipeline"], virtual)


def _ending(block: Block) -> tuple[int, ...]:
    return tuple(len(block.of(axis)) for axis in ENDING)
