"""What training frameworks run of a layout: schedules, overlaps and combinations that they do not have.

Only what changes a step's time or memory, or is refused, counts; names, placements and notes are the exports'
matter (`exports.megatron`, `exports.nemo`, `exports.torchtitan`, with the versions that were read).  The
rules are in `exports.lacks_megatron` and `exports.lacks_torchtitan`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.errors import RailwrightError, nearest
from railwright.model.shape.architecture import Transformer
from railwright.search.bounds.pricing import PASSING
from railwright.search.exports.lacks_megatron import megatron_lacks, nemo_lacks
from railwright.search.exports.lacks_torchtitan import torchtitan_lacks
from railwright.search.space.axes import Block, Space, apply, setting_of
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training.layout.sizes import Sizes
from railwright.training.software.eras import era_of

Bools = NDArray[np.bool_]
Rule = Callable[[Mapping[str, Any], TrainingJob, Transformer], list[str]]
"""(axis -> value, job, model) -> what a framework has not, in words.  Of a layout it looks at the axes of
STRUCTURE and CHOICES alone, of numbers whether they are 1, 2 or more, and at `replicas` (ranks with the same
dense parameters), `copies` (the same, or those with the same experts), `splits_context` (whether the groups
of `shard` hold some context-parallel ranks of a sequence and not others), `folds` (whether experts are cut,
and into another number of parts than the rest) and STEPS; of the job at what is no axis."""

STRUCTURE = (
    "schedule",
    "virtual_pipeline",
    "pipeline",
    "tensor",
    "context",
    "context_kind",
    "expert",
    "expert_tensor",
    "placement",
    "reshard",
    "reduce_each",
    "recompute_layers",
)
PASSES = ("sequence_parallel", "recompute", "overlap_tp", "overlap_ep", "overlap_cp")
STEPS = ("accumulates", "starved")
"""Whether a step has several microbatches on a rank, and whether it has fewer than there are stages."""

CHOICES = (*PASSES, "zero", "offload", "overlap_dp", "overlap_pp")
"""Axes that a `Rule` may look at."""

MANY = 3
"""Numbers from here on are alike to every rule."""


@dataclass(frozen=True)
class Framework:
    """A framework by its name, and what it lacks for a layout.

    eras      the `framework` of the software eras that are its own
    software  the era of today, which a job with another framework's is searched with
    fsdp      whether it shards as FSDP2 does (`Space.fsdp`)
    """

    title: str
    rule: Rule
    eras: str
    software: str
    fsdp: bool = False

    def runs_era_of(self, job: TrainingJob) -> bool:
        """Whether a job's software is one of this framework's."""
        return era_of(job).framework == self.eras

    def job(self, job: TrainingJob) -> TrainingJob:
        """A job with this framework's software: its own, or where that is another's, today's."""
        return job if self.runs_era_of(job) else job.model_copy(update={"software": self.software})

    def space(self, space: Space) -> Space:
        """A space with this framework's defaults."""
        return replace(space, fsdp=self.fsdp)

    def lacks(self, job: TrainingJob, arch: Transformer, data: int) -> list[str]:
        """What of a job's layout the framework has not, in words; `data` its data-parallel size."""
        sizes = Sizes.under(job.layout, data)
        counts = {
            "replicas": sizes.replicas,
            "copies": sizes.copies,
            "splits_context": _splits_context(setting_of(job)),
            "folds": _folds(setting_of(job)),
            **dict(zip(STEPS, _steps(job, data, job.layout.pipeline, job.micro_batch), strict=True)),
        }
        return self.rule(_few({**setting_of(job), **counts}), job, arch)

    def lacks_always(self, job: TrainingJob, arch: Transformer) -> list[str]:
        """What it has not of a job's model, number formats, adapters or optimizer: of the plainest layouts
        too, data parallelism sharded as it shards, hidden or not, experts on one GPU or not."""
        layouts = [Layout(zero=3 if self.fsdp else 1, expert=n) for n in ((1, MANY) if arch.is_moe else (1,))]
        plain = [
            self.job(job).model_copy(update={"layout": layout, "overlap": Overlap(dp=hidden)})
            for layout, hidden in product(layouts, (True, False))
        ]
        lacking = [self.lacks(one, arch, MANY) for one in plain]
        return [lack for lack in lacking[0] if all(lack in others for others in lacking)]


def framework_named(name: str) -> Framework:
    """A framework of FRAMEWORKS. Raises RailwrightError for one that is not known."""
    if name not in FRAMEWORKS:
        hint = nearest(name, FRAMEWORKS) or f"; choose one of {', '.join(FRAMEWORKS)}"
        raise RailwrightError(f"there is no framework '{name}'{hint}")
    return FRAMEWORKS[name]


def runs(framework: Framework, block: Block, job: TrainingJob, arch: Transformer) -> tuple[Bools, Bools]:
    """Which layouts of a block a framework runs: (X, zero, overlap_dp, overlap_pp) whatever goes to the host,
    and (X, zero, offload) whatever of sending is hidden; the two do not depend on each other.

    job  whose other fields count; its own layout does not
    """
    counts = {
        "replicas": block.data * block.structure["context"],
        "copies": block.copies,
        "splits_context": _splits_context(block.structure),
        "folds": _folds(block.structure),
    }
    few = _few({**{a: block.structure[a] for a in STRUCTURE}, **counts})
    values = tuple(block.of(axis) for axis in CHOICES)
    stages = block.structure["pipeline"]
    steps = [_steps(job, block.data, stages, size) for size in block.of("micro_batch")]
    kinds = tuple(sorted(set(steps)))
    able = _able(framework, tuple(few.items()), (kinds, *values), job, arch)
    able = able[[kinds.index(one) for one in steps]]
    # every axis of a class of passes, then zero, offload, overlap_dp and overlap_pp
    places = {axis: i for i, axis in enumerate(("micro_batch", *CHOICES))}
    last = ("zero", "offload", "overlap_dp", "overlap_pp")
    shape = [len(block.of(axis)) if axis in places else 1 for axis in PASSING]
    order = [places[axis] for axis in PASSING if axis in places]
    spread = able.transpose(*order, *(places[axis] for axis in last))
    spread = spread.reshape(*shape, *spread.shape[-4:])
    full = np.broadcast_to(spread, (*(len(block.of(axis)) for axis in PASSING), *spread.shape[-4:]))
    flat = full.reshape(-1, *spread.shape[-4:])
    return np.any(flat, axis=2), np.any(flat, axis=(3, 4))


def runs_nothing(framework: Framework, job: TrainingJob, arch: Transformer) -> str:
    """That a framework runs no layout of a job whatever its space, and which others do; '' where it does."""
    if not (always := framework.lacks_always(job, arch)):
        return ""
    able = [name for name, one in FRAMEWORKS.items() if not one.lacks_always(job, arch)]
    others = f" ({' and '.join(able)} {'has' if len(able) == 1 else 'have'} it)" if able else ""
    return (
        f"{job.name}: {framework.title} runs no layout of this job, for what it lacks: {'; '.join(always)}"
        f"{others}. Leave that out of the job, or search without a framework."
    )


def runs_none(framework: Framework, space: Sequence[Block], job: TrainingJob, arch: Transformer) -> str:
    """That a framework runs no layout of a space, with what it lacks most often for the first of a block."""
    firsts = [(apply(job, block.at((0,) * len(block.shape))), block.data) for block in space]
    lacking = Counter(lack for first, data in firsts for lack in framework.lacks(first, arch, data))
    most = "; ".join(lack for lack, _ in lacking.most_common(3))
    count = sum(block.size for block in space)
    none = "does not run the only layout" if count == 1 else f"runs none of the {count:,} layouts"
    return (
        f"{job.name}: {framework.title} {none} of the space; it lacks {most}. Give the job and the space "
        "what the framework has, or search without one."
    )


def _few(setting: Mapping[str, Any]) -> dict[str, Any]:
    """The same with numbers from MANY on alike, so that many structures share what is found for one."""
    counts = (*STRUCTURE, "replicas", "copies")
    return {k: min(v, MANY) if k in counts and isinstance(v, int) else v for k, v in setting.items()}


@lru_cache(maxsize=1024)
def _able(
    framework: Framework,
    structure: tuple[tuple[str, Any], ...],
    values: tuple[tuple[Any, ...], ...],
    job: TrainingJob,
    arch: Transformer,
) -> Bools:
    """Whether a framework runs each choice of STEPS and CHOICES under a structure."""
    able = [
        not framework.rule(
            {
                **dict(structure),
                **dict(zip(STEPS, steps, strict=True)),
                **dict(zip(CHOICES, choice, strict=True)),
            },
            job,
            arch,
        )
        for steps, *choice in product(*values)
    ]
    return np.array(able).reshape([len(v) for v in values])


def _splits_context(setting: Mapping[str, Any]) -> bool:
    """Whether groups that share a copy hold some context-parallel ranks of a sequence and not the others."""
    return setting["shard"] is not None and setting["shard"] % setting["context"] > 0


def _steps(job: TrainingJob, data: int, stages: int, micro_batch: int) -> tuple[bool, bool]:
    """Values of STEPS."""
    unit = data * micro_batch
    return job.global_batch > unit, job.global_batch < stages * unit


def _folds(setting: Mapping[str, Any]) -> bool:
    """Whether tensor-parallel ranks of experts are neither one nor those of the rest."""
    return setting["expert_tensor"] not in (None, 1, setting["tensor"])


FRAMEWORKS = {
    "megatron": Framework("Megatron-LM", megatron_lacks, "megatron", "megatron-2025"),
    "nemo": Framework("NeMo", nemo_lacks, "megatron", "megatron-2025"),
    "torchtitan": Framework("torchtitan 0.2", torchtitan_lacks, "torchtitan", "fsdp-2026", fsdp=True),
}
