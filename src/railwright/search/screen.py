"""All layouts of a space, bounded from below: what each takes and needs at least."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.search.bound import Passes, chunk_times, step_time
from railwright.search.footprint import Footprint
from railwright.search.pricing import BACKWARD, FORWARD, PASSING, WEIGHTS, Ends, Floats, Pricer
from railwright.search.space import Block
from railwright.training.stages import StageShape
from railwright.training.work import Chunk

MARGIN = 1e-9
"""A bound is lowered by this share, so that rounding never lifts it above the exact figure."""


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

    def time(self, block: Block, fits: NDArray[np.bool_], priced: bool = True) -> Floats:
        """Seconds that every layout of a block takes at least; infinite where it does not fit.

        fits    of the block's shape: which layouts are asked for
        priced  whether sends and data-parallel communication are counted; without, the bound is lower and
                quick
        """
        found = np.full(block.shape, np.inf)
        width = len(PASSING)
        wanted = fits.any(axis=tuple(range(width, fits.ndim))).reshape(-1)
        if not wanted.any():
            return found
        shapes = self.shapes(block)
        kinds, kind_pv = _kinds(shapes)
        passes = Passes(
            *chunk_times(
                self.pricer.laws(block, wanted)[wanted], self._counts(kinds), block.structure["schedule"]
            ),
            kind_pv,
            self._sends(block)[wanted] if priced else np.zeros(int(wanted.sum())),
            self._microbatches(block)[wanted],
            block.structure["schedule"],
        )
        flat = found.reshape(wanted.size, *block.shape[width:])
        for z, zero in enumerate(block.of("zero")):
            for d, overlap_dp in enumerate(block.of("overlap_dp")):
                ends, tied, mirror = self._ends(block, shapes, zero, overlap_dp, priced)
                for s, overlap_pp in enumerate(block.of("overlap_pp")):
                    seconds = step_time(passes, ends, tied, mirror, overlap_dp, overlap_pp) * (1 - MARGIN)
                    flat[wanted, z, :, d, s] = seconds[:, None]
        found[~fits] = np.inf
        return found

    def closer(self, block: Block, index: tuple[int, ...]) -> float:
        """The bound of one layout from its own passes as the training room runs them. [s]"""
        setting = block.at(index)
        shapes = self.shapes(block)
        kinds, kind_pv = _kinds(shapes)
        schedule = block.structure["schedule"]
        if schedule == "dualpipe":
            return 0.0
        found = np.zeros((4, 1, 3, len(kinds)))
        for g, chunk in enumerate(kinds):
            for which in (FORWARD, BACKWARD, WEIGHTS) if schedule == "zb-h1" else (FORWARD, BACKWARD):
                one = self.pricer.chunk(setting, chunk, which)
                found[:, 0, which, g] = one.long, one.short, one.last, one.compute
        passes = Passes(
            found[0],
            found[1],
            found[2],
            found[3],
            kind_pv,
            np.array([self.pricer.send(setting)]),
            np.array([float(self._count(block, setting["micro_batch"]))]),
            schedule,
        )
        ends, tied, mirror = self._ends(block, shapes, setting["zero"], setting["overlap_dp"])
        seconds = step_time(passes, ends, tied, mirror, setting["overlap_dp"], setting["overlap_pp"])
        return float(seconds[0]) * (1 - MARGIN)

    def _ends(
        self, block: Block, shapes: tuple[StageShape, ...], zero: int, overlap_dp: bool, priced: bool = True
    ) -> tuple[list[Ends], float, float]:
        setting = {**block.at((0,) * len(block.choices)), "zero": zero, "overlap_dp": overlap_dp}
        if not priced:
            silent = self.pricer.silent_ends(setting, shapes)
            return [silent] * len(shapes), 0.0, 0.0
        known: dict[StageShape, Ends] = {}
        for shape in shapes:
            if shape not in known:
                known[shape] = self.pricer.ends(setting, shape)
        ends = [known[shape] for shape in shapes]
        return ends, self.pricer.tied(setting), self.pricer.mirror(setting, shapes)

    def _counts(self, kinds: list[Chunk]) -> Floats:
        """(G, parts): how often each kind of chunk has each part of `Pricer.laws`."""
        return np.array(
            [[*(c.layers.count(k) for k in self.pricer.kinds), c.embedding, c.head] for c in kinds], float
        )

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


def _kinds(shapes: tuple[StageShape, ...]) -> tuple[list[Chunk], NDArray[np.int64]]:
    """Every different chunk, and which of them each stage has at each place."""
    known: dict[Chunk, int] = {}
    places = [[known.setdefault(chunk, len(known)) for chunk in shape.chunks] for shape in shapes]
    return list(known), np.array(places, np.int64)
