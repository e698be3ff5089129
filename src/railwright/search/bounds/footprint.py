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
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer
from railwright.search.bounds.laws import Floats
from railwright.search.bounds.pricing import SHAPING, STAGING, folding
from railwright.search.space.axes import SHARDING, Block, apply, sizes
from railwright.spec.training import TrainingJob
from railwright.training.layers.one_copy import weighs_one_byte
from railwright.training.layers.recompute import layers_again
from railwright.training.layers.stages import StageShape
from railwright.training.layout.route import Chunk
from railwright.training.layout.sizes import Sizes
from railwright.training.memory.activations import layers_away, stage_activations
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.training.memory.states import AT_STEP, IN_PASSES, state_parts
from railwright.training.memory.units import accumulates
from railwright.training.software.deepspeed import OUTPUTS, outputs_kept

MEMORY = ("micro_batch", "sequence_parallel", "recompute", "zero", "offload")
"""Choices that change memory."""


def held_first(schedule: str, stages: int, chunks: int, stage: int, microbatches: int) -> tuple[int, ...]:
    """Passes of each chunk that a stage holds when its first backward pass begins.

    schedule  as in the study; 'auto' is 1F1B, or interleaved with several chunks
    """
    if schedule == "gpipe":
        return (microbatches,)
    if schedule == "zb-h1":
        return (min(stages, microbatches),) * chunks
    if schedule == "zb-v":
        return min(2 * stages - stage - 1, microbatches), min(stage + 1, microbatches)
    if schedule == "dualpipe-v":
        return 2 * stages - stage - 1, stage + 1
    if schedule == "dualpipe":
        inner = min(stage, stages - 1 - stage)
        near = 2 * (stages // 2 - 1 - inner) + inner + 1
        return (near, inner + 1) if stage < stages // 2 else (inner + 1, near)
    if chunks == 1:
        return (min(stages - stage, microbatches),)
    passes = min(2 * (stages - stage - 1) + (chunks - 1) * stages + 1, chunks * microbatches)
    groups, rest = divmod(passes, chunks * stages)
    return tuple(groups * stages + min(max(rest - c * stages, 0), stages) for c in range(chunks))


def _sharded(zero: int) -> tuple[bool, bool]:
    """What of `zero` changes activations: units wait to be reduced under 3, and DeepSpeed runs pipelines,
    whose engine keeps tensors of its own, under 0 and 1."""
    return zero == 3, zero < 2


@dataclass(frozen=True)
class Held:
    """What a stage's activations are made of, per sequence parallelism and recomputation (i, j). [byte]

    layer_kij  kept by one layer of each kind k
    end_ij, first_ij, head_ij  kept beside its layers by a chunk, by the one with the embedding, and the head
    always_ij  tensors of fixed size
    layer_b_ij, head_b_ij, embedding_b_ij  what a backward pass needs beside what is kept
    """

    layer_kij: Floats
    end_ij: Floats
    first_ij: Floats
    head_ij: Floats
    always_ij: Floats
    layer_b_ij: Floats
    head_b_ij: Floats
    embedding_b_ij: Floats


@dataclass
class Footprint:
    """Memory of one job's layouts; every answer of the training room is remembered."""

    job: TrainingJob
    arch: Transformer
    fabric: Fabric
    _bounds: dict[tuple[Any, ...], Floats] = field(default_factory=dict)
    _held: dict[tuple[Any, ...], Held] = field(default_factory=dict)
    _states: dict[tuple[Any, ...], tuple[float, float, float, float]] = field(default_factory=dict)
    _system: dict[tuple[Any, ...], float] = field(default_factory=dict)

    def bound(self, block: Block, shapes: tuple[StageShape, ...]) -> Floats:
        """Bytes that each layout of a block needs at least; its shape broadcasts to the block's."""
        structure = tuple(v for a, v in block.structure.items() if a != "placement")
        key = (structure, tuple(block.of(a) for a in (*MEMORY, "overlap_dp")))
        if key not in self._bounds:
            self._bounds = {key: self._bound(block, shapes)}
        return self._bounds[key]

    def _bound(self, block: Block, shapes: tuple[StageShape, ...]) -> Floats:
        first = block.at((0,) * len(block.choices))
        first["overlap_dp"] = all(block.of("overlap_dp"))  # for which DeepSpeed has a second bucket
        groups = sizes(block.structure, block.data)
        system = self._of_system(first, groups)
        counts = [len(block.of(a)) for a in ("micro_batch", "sequence_parallel", "recompute")]
        zeros, offloads = block.of("zero"), block.of("offload")
        found = np.zeros((*counts, 1, 1, 1, len(zeros), len(offloads), 1, 1))
        stages = len(shapes)
        for stage in sorted({0, min(1, stages - 1), stages - 1}):
            shape = shapes[stage]
            for m, micro_batch in enumerate(block.of("micro_batch")):
                count = self.job.global_batch // (block.data * micro_batch)
                held = held_first(block.structure["schedule"], stages, len(shape.chunks), stage, count)
                known: dict[tuple[bool, ...], tuple[Floats, Floats]] = {}
                for (z, zero), (o, offload) in product(enumerate(zeros), enumerate(offloads)):
                    setting = {**first, "micro_batch": micro_batch, "zero": zero, "offload": offload}
                    which = (*_sharded(zero), "activations" in offload)
                    if which not in known:
                        known[which] = self._moments(setting, block, shape, held)
                    moving, resting = known[which]
                    states, shards, passing, copy = self._of_states(setting, stage, shape, groups.replicas)
                    if count > 1:
                        passing += shards
                    copy += shards
                    at = (m, slice(None), slice(None), 0, 0, 0, z, o, 0, 0)
                    total = system + states + np.maximum(passing + moving, copy + resting)
                    found[at] = np.maximum(found[at], total)
        return found

    def _moments(
        self, setting: Mapping[str, Any], block: Block, shape: StageShape, held: tuple[int, ...]
    ) -> tuple[Floats, Floats]:
        """(i, j) activations at the fullest backward pass, and what is left of them at the optimizer's
        step. [byte]"""
        kinds: tuple[Layer, ...] = tuple(dict.fromkeys(k for c in shape.chunks for k in c.layers))
        one = self._of_layers(setting, block, kinds)
        job = apply(self.job, setting)
        whole, work = None, self._at_work(setting, block, shape, one.layer_b_ij)
        if setting["recompute_layers"] is not None:
            whole = self._of_layers(setting, block, kinds, ("none",))
            work = whole.layer_b_ij + self._again(setting, block, job, shape)
        kept = first = np.zeros(one.end_ij.shape)
        for c, chunk in enumerate(shape.chunks):
            size: Floats = np.zeros(one.end_ij.shape)
            away = layers_away(job, len(chunk.layers))
            held_in = [(one, chunk.layers[away:])]
            if whole:
                again = layers_again(job, self.arch, chunk)
                held_in = [(one, chunk.layers[away:again]), (whole, chunk.layers[max(away, again) :])]
            for each, staying in held_in:
                for i, kind in enumerate(kinds):
                    size = size + staying.count(kind) * each.layer_kij[i]
            size = size + (one.head_ij if chunk.head else one.first_ij if chunk.embedding else one.end_ij)
            first = size if chunk.embedding else first
            kept = kept + held[c] * size
        always, fullest = one.always_ij, kept + work
        if any(chunk.head for chunk in shape.chunks):
            fullest = np.maximum(fullest, kept + one.head_b_ij)
            always = always + outputs_kept(job, self.arch)
        if any(chunk.embedding for chunk in shape.chunks):
            # with several chunks the first backward pass is another's: what is held when one reaches the
            # embedding is not known here
            left = kept - first if len(shape.chunks) == 1 else 0.0
            fullest = np.maximum(fullest, left + one.embedding_b_ij)
        return always + fullest, always

    def _at_work(
        self, setting: Mapping[str, Any], block: Block, shape: StageShape, most_ij: Floats
    ) -> Floats:
        """(i, j) what a layer's backward pass needs beside all activations, at least: what it does in layers
        of any kind without recomputation or offloaded layers, and in the last one of a chunk, when all are
        there. [byte]

        most_ij  in layers of any kind, all activations beside it
        """
        kinds = tuple(dict.fromkeys(k for c in shape.chunks for k in c.layers))
        if len(kinds) < 2:
            return most_ij
        found: Floats = np.zeros(most_ij.shape)
        if "activations" not in setting["offload"]:
            found = self._of_layers(setting, block, kinds, ("none",)).layer_b_ij
        for kind in dict.fromkeys(chunk.layers[-1] for chunk in shape.chunks if chunk.layers):
            found = np.maximum(found, self._of_layers(setting, block, (kind,)).layer_b_ij)
        return found

    def _again(self, setting: Mapping[str, Any], block: Block, job: TrainingJob, shape: StageShape) -> Floats:
        """(i, j) what the last of the layers that are computed again needs at work, less what those behind it
        have freed, beyond what one that keeps all needs (`chunk_kept.layer_at_work`). [byte]"""
        found: Floats = np.zeros((len(block.of("sequence_parallel")), 1))
        for chunk in shape.chunks:
            again = layers_again(job, self.arch, chunk)
            freed: Floats = np.zeros(found.shape)
            for kind in chunk.layers[again:]:
                freed = freed + self._of_layers(setting, block, (kind,), ("none",)).layer_kij[0]
            for kind in chunk.layers[:again][-1:]:
                one, whole = (self._of_layers(setting, block, (kind,), (how,)) for how in ("full", "none"))
                found = np.maximum(found, one.layer_b_ij - whole.layer_b_ij - freed)
        return found

    def _of_layers(
        self,
        setting: Mapping[str, Any],
        block: Block,
        kinds: tuple[Layer, ...],
        recompute: tuple[str, ...] = (),
    ) -> Held:
        """What the layers of one chunk of each kind, a chunk of none, and one with the head keep.

        recompute  its values, where they are not the block's; all layers are computed again
        """
        grid = [block.of("sequence_parallel"), recompute or block.of("recompute")]
        shaping = tuple(setting[a] for a in SHAPING if a != "schedule")
        alone = setting["pipeline"] == 1  # hands nothing to another stage
        key = (shaping, setting["micro_batch"], *grid, _sharded(setting["zero"]), alone, kinds)
        if key not in self._held:
            none = tuple((0.0,) for _ in range(len(kinds) + 3))
            chunks = (
                *(Chunk((k,), False, False) for k in kinds),
                Chunk((), False, False),
                Chunk((), True, False),
                Chunk((), False, True),
            )
            shape = StageShape(chunks, tuple(range(len(chunks))), none, none, 0.0, 0.0)
            rows = []
            for i, j in product(*grid):
                one = {**setting, "sequence_parallel": i, "recompute": j, "offload": ()}
                job = apply(self.job, {**one, "recompute_layers": None})
                whole = stage_activations(job, self.arch, shape)
                *layers, end, embedding, head = whole.chunks
                rows.append(
                    [
                        *(layer - end for layer in layers),
                        end,
                        embedding,
                        head,
                        # which stage has the head is not known here
                        sum(whole.always.values()) - whole.always[OUTPUTS],
                        sum(whole.layer_backward.values()),
                        sum(whole.head_backward.values()),
                        sum(whole.embedding_backward.values()),
                    ]
                )
            k = len(kinds)
            table = np.array(rows).T.reshape(-1, *(len(values) for values in grid))
            self._held[key] = Held(table[:k], *table[k:])
        return self._held[key]

    def _of_states(
        self, setting: Mapping[str, Any], stage: int, shape: StageShape, replicas: int
    ) -> tuple[float, float, float, float]:
        """Weights, gradients and optimizer states of a stage; gradients that are there from the second
        microbatch on; what is there in passes only; and what is made for the optimizer. [byte]"""
        cut = tuple(setting[a] for a in (*STAGING, *SHARDING, "context", "zero", "offload"))
        key = (*cut, folding(setting["schedule"]), stage)
        if key not in self._states:
            job = apply(self.job, setting)
            once = weighs_one_byte(job, self.fabric.generation)
            parts = state_parts(job, self.arch, shape, replicas, once)
            copy, passing = (sum(parts.pop(n, 0.0) for n in names) for names in (AT_STEP, IN_PASSES))
            shards = 0.0 if accumulates(job, 1, replicas) else parts.pop("gradients")
            self._states[key] = sum(parts.values()), shards, passing, copy
        return self._states[key]

    def _of_system(self, setting: Mapping[str, Any], of: Sizes) -> float:
        """What no tensor takes, as the training room says for the same kinds of groups. [byte]"""
        groups = (of.tensor, of.pipeline, of.context, of.expert, of.replicas, of.expert_replicas)
        # A communicator of two ranks takes less than a larger one.
        key = tuple(min(n, 3) for n in groups)
        if key not in self._system:
            job = apply(self.job, setting)
            unit = of.data * job.micro_batch
            small = job.model_copy(update={"global_batch": unit * 2 * job.layout.pipeline})
            self._system[key] = peak_memory(small, self.arch, self.fabric, 0.0).parts[SYSTEM]
        return self._system[key]
