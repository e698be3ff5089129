"""A lower bound of peak memory for all layouts of a block at once.

The training room's own tensors (states of a stage, activations of one layer) are asked for once per class and
added up for the first, the second and the last stage, at the first of the moments at which a stage holds
most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from railwright.fabric.graph import Fabric
from railwright.model.architecture import Transformer
from railwright.model.operators import Layer
from railwright.search.pricing import SHAPING, Floats
from railwright.search.space import Block, apply
from railwright.spec.study import TrainingJob
from railwright.training.kept import StageActivations, stage_activations
from railwright.training.memory import SYSTEM, peak_memory
from railwright.training.plan import data_parallel
from railwright.training.stages import StageShape
from railwright.training.states import COPY, state_parts
from railwright.training.work import Chunk

MEMORY = ("micro_batch", "sequence_parallel", "recompute", "zero", "offload")
"""Choices that change memory."""


def held_first(schedule: str, stages: int, chunks: int, stage: int, microbatches: int) -> tuple[int, ...]:
    """Passes of each chunk that a stage holds when its first backward pass begins.

    schedule  as in the study; 'auto' is 1F1B, or interleaved with several chunks
    """
    if schedule == "gpipe":
        return (microbatches,)
    if schedule == "zb-h1":
        return (min(stages, microbatches),)
    if schedule == "dualpipe":
        inner = min(stage, stages - 1 - stage)
        near = 2 * (stages // 2 - 1 - inner) + inner + 1
        return (near, inner + 1) if stage < stages // 2 else (inner + 1, near)
    if chunks == 1:
        return (min(stages - stage, microbatches),)
    passes = min(2 * (stages - stage - 1) + (chunks - 1) * stages + 1, chunks * microbatches)
    groups, rest = divmod(passes, chunks * stages)
    return tuple(groups * stages + min(max(rest - c * stages, 0), stages) for c in range(chunks))


@dataclass
class Footprint:
    """Memory of one job's layouts; every answer of the training room is remembered."""

    job: TrainingJob
    arch: Transformer
    fabric: Fabric
    _bounds: dict[tuple[Any, ...], Floats] = field(default_factory=dict)
    _kept: dict[tuple[Any, ...], StageActivations] = field(default_factory=dict)
    _system: dict[tuple[Any, ...], float] = field(default_factory=dict)

    def bound(self, block: Block, shapes: tuple[StageShape, ...]) -> Floats:
        """Bytes that each layout of a block needs at least; its shape broadcasts to the block's."""
        structure = tuple(v for a, v in block.structure.items() if a != "placement")
        key = (structure, tuple(block.of(a) for a in MEMORY))
        if key not in self._bounds:
            self._bounds = {key: self._bound(block, shapes)}
        return self._bounds[key]

    def _bound(self, block: Block, shapes: tuple[StageShape, ...]) -> Floats:
        first = block.at((0,) * len(block.choices))
        replicas = data_parallel(apply(self.job, first), self.fabric) * block.structure["context"]
        system = self._of_system(first, replicas)
        sizes = [len(block.of(a)) for a in ("micro_batch", "sequence_parallel", "recompute")]
        zeros, offloads = block.of("zero"), block.of("offload")
        found = np.zeros((*sizes, 1, 1, 1, len(zeros), len(offloads), 1, 1))
        for stage in sorted({0, min(1, len(shapes) - 1), len(shapes) - 1}):
            shape = shapes[stage]
            states = np.zeros((len(zeros), len(offloads), 2))
            for z, zero in enumerate(zeros):
                for o, offload in enumerate(offloads):
                    parts = state_parts(
                        apply(self.job, {**first, "zero": zero, "offload": offload}), shape, replicas
                    )
                    copy = parts.pop(COPY, 0.0)
                    states[z, o] = sum(parts.values()), copy
            for index in np.ndindex(*sizes):
                setting = {**first}
                for axis, i in zip(("micro_batch", "sequence_parallel", "recompute"), index, strict=True):
                    setting[axis] = block.of(axis)[i]
                count = self.job.global_batch // (block.data * setting["micro_batch"])
                held = held_first(block.structure["schedule"], len(shapes), len(shape.chunks), stage, count)
                known: dict[tuple[bool, bool], tuple[float, float]] = {}
                at = (*index, 0, 0, 0, slice(None), slice(None), 0, 0)
                moving, resting = np.zeros((2, len(zeros), len(offloads)))
                for (z, zero), (o, offload) in product(enumerate(zeros), enumerate(offloads)):
                    which = (zero == 3, "activations" in offload)
                    if which not in known:
                        setting["zero"] = zero
                        known[which] = self._moments(setting, offload, shape, held)
                    moving[z, o], resting[z, o] = known[which]
                total = system + np.maximum(states[..., 0] + moving, states.sum(-1) + resting)
                found[at] = np.maximum(found[at], total)
        return found

    def _moments(
        self, setting: Mapping[str, Any], offload: tuple[str, ...], shape: StageShape, held: tuple[int, ...]
    ) -> tuple[float, float]:
        """Activations at the fullest backward pass, and what is left of them at the optimizer's
        step. [byte]"""
        kinds: tuple[Layer, ...] = tuple(dict.fromkeys(k for c in shape.chunks for k in c.layers))
        one = self._layers(setting, offload, kinds)
        each = dict(zip(kinds, one.chunks, strict=True))
        chunks = [sum(each[k] * chunk.layers.count(k) for k in kinds) for chunk in shape.chunks]
        if "activations" in offload:
            chunks = list(self._sent(setting, offload, shape))
        kept = sum(n * size for n, size in zip(held, chunks, strict=True))
        always = sum(one.always.values())
        moments = [kept + sum(one.layer_backward.values())]
        if any(chunk.head for chunk in shape.chunks):
            moments.append(kept + sum(one.head_backward.values()))
        if any(chunk.embedding for chunk in shape.chunks):
            moments.append(kept - chunks[0] + sum(one.embedding_backward.values()))
        return always + max(moments), always

    def _layers(
        self, setting: Mapping[str, Any], offload: tuple[str, ...], kinds: tuple[Layer, ...]
    ) -> StageActivations:
        """Activations of a stage with one layer of each kind as a chunk of its own, and both ends."""
        axes = ("micro_batch", "sequence_parallel", "recompute")
        key = (*(setting[a] for a in (*SHAPING, *axes)), setting["zero"] == 3, offload, kinds)
        if key not in self._kept:
            last = len(kinds) - 1
            chunks = tuple(Chunk((k,), embedding=i == 0, head=i == last) for i, k in enumerate(kinds))
            none = tuple((0.0,) for _ in kinds)
            shape = StageShape(chunks, tuple(range(len(kinds))), none, none, 0.0, 0.0)
            job = apply(self.job, {**setting, "offload": offload})
            self._kept[key] = stage_activations(job, self.arch, shape)
        return self._kept[key]

    def _sent(
        self, setting: Mapping[str, Any], offload: tuple[str, ...], shape: StageShape
    ) -> tuple[float, ...]:
        """What stays of a pass of each chunk where activations go to the host; it does not add up
        over layers."""
        axes = ("micro_batch", "sequence_parallel", "recompute")
        key = (*(setting[a] for a in (*SHAPING, *axes)), offload, shape.chunks)
        if key not in self._kept:
            job = apply(self.job, {**setting, "offload": offload})
            self._kept[key] = stage_activations(job, self.arch, shape)
        return self._kept[key].chunks

    def _of_system(self, setting: Mapping[str, Any], replicas: int) -> float:
        """What no tensor takes, as the training room says for the same kinds of groups. [byte]"""
        tensor, expert = setting["tensor"], setting["expert"]
        inside = setting["expert_tensor"] or tensor
        sizes = (tensor, setting["pipeline"], setting["context"], expert, replicas)
        key = (*(n > 1 for n in sizes), replicas * tensor // (expert * inside) > 1)
        if key not in self._system:
            job = apply(self.job, setting)
            unit = data_parallel(job, self.fabric) * job.micro_batch
            small = job.model_copy(update={"global_batch": unit * 2 * job.layout.pipeline})
            self._system[key] = peak_memory(small, self.arch, self.fabric, 0.0).parts[SYSTEM]
        return self._system[key]
