"""All layouts of a space that the training room accepts, in blocks of one structure each.

Choices that would change nothing are left out: sequence parallelism without tensor parallelism, overlap of a
communication that does not happen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.search.space.axes import (
    CHOICES,
    OF_OVERLAP,
    PARTS,
    SERVERS,
    SHARDING,
    Block,
    Space,
    apply,
    copies,
    setting_of,
    whole_servers,
)
from railwright.search.space.changes import schedule_of
from railwright.spec.training import TrainingJob
from railwright.training.checks.plan import FIXED, READING, VARYING, refuse
from railwright.training.layers.stages import largest_piece
from railwright.training.layout.divisors import divisors
from railwright.training.layout.placement import place
from railwright.training.layout.schedule import SHARED, SPLIT
from railwright.training.layout.sizes import domain_of, job_gpus
from railwright.training.software.eras import era_of

TOKENS_PER_CONTEXT_RANK = 4096
"""By default context parallelism leaves a rank at least this many tokens of a sequence; below, attention is
too small a part of a layer for its exchange to pay, unless nothing else is left to share out."""

ALONE = ("auto", "1f1b")
"""Schedules that one stage is under: a pass after the other."""

MANY = ("auto", "interleaved", "zb-h1")
"""Schedules whose stages can have several virtual ones."""

ONCE_PER_STEP = (0, 1)
"""Default of `zero` with pipeline stages: 2 and 3 would exchange gradients or parameters in every
microbatch."""


WITH_FSDP = (0, 3)
"""Default of `zero` under FSDP2, which shards parameters, gradients and optimizer states together or none."""


Left = tuple[tuple[tuple[str, tuple[Any, ...]], ...], list[tuple[PlanError, int]]]
"""Choices of a block that are left, empty where none is; what was refused, and how many layouts with it."""

Told = dict[str, list[Any]]
"""A refusal without its numbers -> how many layouts, and the sentence."""


@dataclass(frozen=True)
class Refusal:
    """A constraint that layouts broke: how many, and one of the sentences it was refused with."""

    layouts: int
    example: str


def blocks(
    space: Space, job: TrainingJob, arch: Transformer, fabric: Fabric
) -> tuple[list[Block], list[Refusal]]:
    """All blocks of a space whose layouts the training room accepts, and what it refused, most first.

    Whether a layout can work at all is `training.checks.plan.refuse`'s to say; it is asked once for every
    structure and microbatch, and once for every other choice of a structure, of what that choice can change.
    """
    found: list[Block] = []
    refused: Told = {}
    known: dict[Any, Left] = {}
    for asked in unchecked(space, job, arch, fabric):
        block = _checked(asked, job, arch, fabric, known, refused)
        if block is not None and block.structure["placement"] != "packed":
            packed = "packed" in (space.of_axis("placement") or ())
            block = _placed(block, job, fabric, refused, packed)
        if block is not None:
            found.append(block)
    reasons = [Refusal(count, example) for count, example in refused.values()]
    return found, sorted(reasons, key=lambda r: (-r.layouts, r.example))


def unchecked(space: Space, job: TrainingJob, arch: Transformer, fabric: Fabric) -> Iterator[Block]:
    """All blocks of a space, whether the training room accepts their layouts or not."""
    gpus = job_gpus(job, fabric)
    for structure in _structures(space, job, arch, gpus, domain_of(job, fabric)):
        data = gpus // (structure["tensor"] * structure["context"] * structure["pipeline"])
        choices = _choices(space, job, structure, data)
        if choices["zero"]:
            yield Block(structure, tuple(choices.items()), data)


def _structures(
    space: Space, job: TrainingJob, arch: Transformer, gpus: int, server: int
) -> Iterator[dict[str, Any]]:
    """Every structure of a space on so many GPUs, `server` of them on one server."""
    for tensor in space.of_axis("tensor") or [t for t in divisors(gpus) if arch.heads % t == 0]:
        for context in space.of_axis("context") or _contexts(job, gpus):
            left = gpus // (tensor * context)
            for pipeline in space.of_axis("pipeline") or [p for p in divisors(left) if p <= arch.layers]:
                base = {"tensor": tensor, "context": context, "pipeline": pipeline}
                kinds = space.of_axis("context_kind") or ()
                for kind in kinds if context > 1 else kinds[:1]:
                    for cut in _cuts(space, arch, pipeline):
                        for experts in _experts(space, arch, gpus // pipeline, tensor):
                            structure = {**base, "context_kind": kind, **cut, **experts}
                            for sharding in _shardings(space, job, structure, left // pipeline, server):
                                for layers in _layers_again(space, job, arch, structure):
                                    yield {**structure, **sharding, "recompute_layers": layers}


def _contexts(job: TrainingJob, gpus: int) -> list[int]:
    """Context sizes by default: more where GPUs outnumber the sequences of a step, which then have to be cut
    or to pass through stages, and up to the job's own."""
    most = max(job.sequence // TOKENS_PER_CONTEXT_RANK, gpus // job.global_batch, job.layout.context)
    return [c for c in divisors(gpus) if c <= most or c == 1]


def _cuts(space: Space, arch: Transformer, pipeline: int) -> Iterator[dict[str, Any]]:
    """Virtual stages and schedules; 'auto' is 1F1B with one chunk per stage and interleaved with several."""
    # Where layers do not divide, stages have one more or one less; 126 on 16 stages are mostly 8 each.
    fewest, most = max(arch.layers // pipeline, 1), max(-(-arch.layers // pipeline), 1)
    chunks = space.of_axis("virtual_pipeline") or sorted({*divisors(fewest), *divisors(most)})
    for virtual in chunks:
        names = space.of_axis("schedule") or ()
        if not arch.is_moe and "schedule" not in space.values:
            # Without expert exchanges passes that run together have nothing to hide: ZB-V has less to wait
            # for, and one copy of the weights.
            names = tuple(name for name in names if name not in SHARED)
        if space.fsdp and "schedule" not in space.values:
            # They do not combine with zero 3 here, and FSDP2 has nothing else for a pipeline.
            names = tuple(name for name in names if name not in (*SPLIT, *SHARED))
        if pipeline == 1:
            names = tuple(name for name in names if name in ALONE)[: 1 if virtual == 1 else 0]
        for name in names:
            # Of schedules that are asked for, the training room says what they want.
            if virtual == 1 or name in MANY or "schedule" in space.values:
                yield {"virtual_pipeline": virtual, "schedule": name}


def _experts(space: Space, arch: Transformer, stage: int, tensor: int) -> Iterator[dict[str, Any]]:
    """Expert-parallel sizes, tensor sizes inside an expert, and placements."""
    listed = space.of_axis("placement") or ()
    if not arch.is_moe:
        # What is asked of experts is refused by the training room, which counts it.
        for expert in space.of_axis("expert") or (1,):
            for placement in listed:
                if placement != "expert-across":
                    yield {"expert": expert, "expert_tensor": None, "placement": placement}
        return
    for expert in space.of_axis("expert") or [e for e in divisors(arch.experts) if stage % e == 0]:
        widths = space.of_axis("expert_tensor") or ()
        for inside in widths:
            if inside == tensor and None in widths:
                continue  # as the rest is cut
            for placement in listed:
                if placement == "expert-across" and (expert == 1 or inside not in (None, tensor)):
                    continue
                yield {"expert": expert, "expert_tensor": inside, "placement": placement}


def _shardings(
    space: Space, job: TrainingJob, structure: Mapping[str, Any], data: int, server: int
) -> Iterator[dict[str, Any]]:
    """How parameters and gradients that are sharded are shared, kept and reduced.

    FSDP2: all ranks or groups of whole servers; parameters dropped or kept; gradients reduced once per step
    in a pipeline and after every microbatch without.
    """
    listed: dict[str, tuple[Any, ...]] = {axis: (getattr(job.layout, axis),) for axis in SHARDING}
    if space.fsdp:
        staged = structure["pipeline"] > 1
        listed = {"shard": (None, SERVERS), "reshard": (True, False), "reduce_each": (not staged,)}
    listed |= {axis: values for axis in SHARDING if (values := space.of_axis(axis))}
    if SERVERS in listed["shard"]:
        words: dict[Any, list[int]] = {SERVERS: whole_servers(structure, data, server)}
        listed["shard"] = tuple(dict.fromkeys(n for one in listed["shard"] for n in words.get(one, [one])))
    for chosen in product(*(listed[axis] for axis in SHARDING)):
        yield dict(zip(SHARDING, chosen, strict=True))


def _layers_again(
    space: Space, job: TrainingJob, arch: Transformer, structure: Mapping[str, Any]
) -> Iterator[int | None]:
    """How many layers of every piece full recomputation is for; None for all, and where there is none.

    As many as the largest piece has are all of them, but for multi-token prediction.  The default is all, and
    the job's own number where pieces are as large.
    """
    asked, own = space.of_axis("recompute_layers"), job.layout.recompute_layers
    listed = asked or (None, own)
    if _recomputed(space, None):
        yield None
    if listed == (None, None) or not _recomputed(space, 1):
        return
    most = largest_piece(arch, apply(job, {**structure, "recompute_layers": None}).layout)
    numbers = (n for one in listed for n in (PARTS[one](most) if one in PARTS else (one,)))
    for layers in dict.fromkeys(n for n in numbers if n is not None):
        twin = layers == most and None in listed and not arch.mtp_layers
        # Of numbers that are asked for the training room says which are too many.
        if not twin and (layers <= most or asked):
            yield layers


def _recomputed(space: Space, layers: int | None) -> tuple[Any, ...]:
    """Values of `recompute` where so many layers of a piece are computed again, or all (None)."""
    listed = space.of_axis("recompute") or ()
    if layers is not None:
        return tuple(how for how in listed if how == "full")
    every = None in (space.of_axis("recompute_layers") or (None,))
    return tuple(how for how in listed if how != "full" or every)


def _sharing(space: Space, structure: Mapping[str, Any]) -> int:
    """The ZeRO stage from which a structure's sharding is another than that of the axes' first values."""

    def other(axis: str) -> bool:
        if axis == "shard":
            return structure[axis] is not None
        values = space.of_axis(axis) or ((True,) if axis == "reshard" and space.fsdp else ())
        return bool(values) and structure[axis] != values[0]

    return max((zero for axis, zero in SHARDING.items() if other(axis)), default=0)


def _choices(
    space: Space, job: TrainingJob, structure: Mapping[str, Any], data: int
) -> dict[str, tuple[Any, ...]]:
    """Values of every choice; one without effect keeps its first value, or False where True is refused or
    means nothing.  How states are shared changes memory even where no rank has a copy of them."""
    local = job.global_batch // data if data else 0
    shared = copies(structure, data) > 1
    effective = {
        "sequence_parallel": structure["tensor"] > 1,
        "overlap_tp": structure["tensor"] > 1,
        "overlap_ep": structure["expert"] > 1,
        "overlap_cp": structure["context"] > 1,
        "overlap_dp": shared,
        "overlap_pp": structure["pipeline"] > 1 and can_hide_sends(job, structure),
    }
    found: dict[str, tuple[Any, ...]] = {}
    for axis in CHOICES:
        values = space.of_axis(axis)
        if values is None:
            values = tuple(divisors(local)) or (1,)
        if axis == "zero":
            values = _zeros(space, structure)
        if axis == "recompute":
            values = _recomputed(space, structure["recompute_layers"])
        if axis == "offload" and "offload" not in space.values:
            values = tuple(dict.fromkeys((*values, job.layout.offload)))
        off = False in values and (
            job.launch_blocking or axis in ("sequence_parallel", "overlap_tp", "overlap_ep")
        )
        found[axis] = values if effective.get(axis, True) else (False,) if off else values[:1]
    return found


def _zeros(space: Space, structure: Mapping[str, Any]) -> tuple[int, ...]:
    """ZeRO stages under which a structure is no other one's twin; all that are asked for where none lets
    groups share a copy: the training room says what they want."""
    listed, least = space.of_axis("zero") or (), _sharing(space, structure)
    if "zero" not in space.values:
        once = structure["pipeline"] > 1 and least < 2
        listed = WITH_FSDP if space.fsdp else ONCE_PER_STEP if once else listed
    found = tuple(zero for zero in listed if zero >= least)
    return found or (listed if structure["shard"] is not None else ())


def can_hide_sends(job: TrainingJob, structure: Mapping[str, Any]) -> bool:
    """Whether the job's software can hide pipeline sends under the schedule of a structure."""
    return era_of(job).can_hide_sends(schedule_of(structure))


def _checked(
    block: Block, job: TrainingJob, arch: Transformer, fabric: Fabric, known: dict[Any, Left], refused: Told
) -> Block | None:
    """The block without the values that are refused; None where nothing is left.

    What the choices of a structure change is the same for all placements and kinds of context parallelism.
    """
    first = {axis: values[0] for axis, values in block.choices}
    try:
        refuse(apply(job, {**block.structure, **first}), arch, fabric, FIXED)
    except PlanError as no:
        _count(refused, job, no, block.size)
        return None
    alike = tuple(v for axis, v in block.structure.items() if axis not in ("placement", "context_kind"))
    key = (alike, block.choices)
    if key not in known:
        known[key] = left_of(block, job, arch, fabric)
    choices, without = known[key]
    for why, layouts in without:
        _count(refused, job, why, layouts)
    return Block(block.structure, choices, block.data) if choices else None


def left_of(block: Block, job: TrainingJob, arch: Transformer, fabric: Fabric) -> Left:
    """What a block's choices come to; no check that they do not change is asked.

    Where none is left, what was refused is every layout of the block, each once.
    """
    refused: list[tuple[PlanError, int]] = []
    first, works = _start(block, job, arch, fabric)
    start = apply(job, {**block.structure, **first})
    for at, axis in enumerate(CHOICES):
        kept = []
        choices = dict(block.choices)
        others = block.size // len(choices[axis])
        asked = READING[_field(axis)] if works else VARYING
        for value in choices[axis]:
            if value == first[axis] and (works or at):
                kept.append(value)  # the layout that an earlier axis was checked with
                continue
            try:
                refuse(apply(start, {axis: value}), arch, fabric, asked)
            except PlanError as no:
                refused.append((no, others))
            else:
                kept.append(value)
        if not kept:
            return (), refused
        if first[axis] not in kept:
            first[axis] = kept[0]
            start = apply(start, {axis: kept[0]})
        works = True
        block = Block(block.structure, tuple({**choices, axis: tuple(kept)}.items()), block.data)
    return block.choices, refused


def _field(axis: str) -> str:
    """The field of a job or layout that an axis of CHOICES sets (`training.checks.plan.READ`)."""
    return "overlap" if axis in dict(OF_OVERLAP) else axis


def _start(block: Block, job: TrainingJob, arch: Transformer, fabric: Fabric) -> tuple[dict[str, Any], bool]:
    """A value of every choice, from which one is changed at a time, and whether it is not refused.

    The first ones, or where those are refused the job's own (`layout.shard` allows only values like its
    own), or its own with nothing hidden (which is all that `launch_blocking` allows).
    """
    first = {axis: values[0] for axis, values in block.choices}
    asked = setting_of(job)
    own = {axis: asked[axis] for axis, values in block.choices if asked[axis] in values}
    own = {**first, **own, CHOICES[0]: first[CHOICES[0]]}
    exposed = {axis: False for axis, _ in OF_OVERLAP if False in block.of(axis)}
    for start in (first, own, {**own, **exposed}):
        try:
            refuse(apply(job, {**block.structure, **start}), arch, fabric, VARYING)
        except PlanError:
            continue
        return start, True
    return first, False


def _placed(block: Block, job: TrainingJob, fabric: Fabric, refused: Told, packed: bool) -> Block | None:
    """The block, or None where its ranks cannot be put on GPUs as asked, or where that puts every rank where
    `packed` does and that is in the space too."""
    first = block.at((0,) * len(block.choices))
    try:
        found = place(apply(job, first), fabric)
    except PlanError as no:
        _count(refused, job, no, block.size)
        return None
    same = packed and np.array_equal(
        found.grid, place(apply(job, {**first, "placement": "packed"}), fabric).grid
    )
    return None if same else block


def _count(refused: Told, job: TrainingJob, no: PlanError, layouts: int) -> None:
    text = str(no).removeprefix(f"{job.name}: ")
    entry = refused.setdefault(constraint(text), [0, text])
    entry[0] += layouts


def constraint(text: str) -> str:
    """What a refusal is of: those that differ in their numbers alone are one."""
    return re.sub(r"[\d.,]+", "#", text)[:60]
