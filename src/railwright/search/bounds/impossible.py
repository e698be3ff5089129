"""Which constraints keep all layouts of a space from working.

A space may hold thousands of layouts that a single value breaks, such as virtual stages of which a schedule
has none, beside others that do without: what stops most layouts is seldom what stops the space.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.search.bounds.blocks import Refusal, constraint, left_of, unchecked
from railwright.search.space.axes import OF_OVERLAP, Block, Space, apply
from railwright.spec.training import TrainingJob
from railwright.training.checks.plan import CHECKS, Check
from railwright.training.layout.placement import place
from railwright.training.layout.sizes import job_gpus

Broken = dict[str, str]
"""Constraint -> a sentence that it was refused with."""


@dataclass(frozen=True)
class Impossible:
    """Why no layout of a space works.

    gpus     of the job
    layouts  of those that divide them, or all where none does; uneven  whether others were left out
    by_all   constraints that every one of these breaks, in the training room's words
    by_some  where there is none: constraints of which each layout breaks one, none of them superfluous, with
             how many layouts break it and none before it
    """

    gpus: int
    layouts: int
    uneven: bool
    by_all: tuple[str, ...]
    by_some: tuple[Refusal, ...]


def impossible(space: Space, job: TrainingJob, arch: Transformer, fabric: Fabric) -> Impossible:
    """Why no layout of a space works, of a space of which none does.

    Layouts that do not divide the GPUs are what values come to that do not go together; of them is told only
    where there are no others.
    """
    gpus, blocks = job_gpus(job, fabric), list(unchecked(space, job, arch, fabric))
    even = [block for block in blocks if _divides(block, gpus)]
    counts: dict[tuple[str, ...], int] = {}
    told: Broken = {}
    for block in even or blocks:
        for layouts, broken in _broken(block, job, arch, fabric):
            counts[tuple(broken)] = counts.get(tuple(broken), 0) + layouts
            told = {**broken, **told}
    every = [one for one in told if all(one in broken for broken in counts)]
    some = [] if every else _cover(counts)
    return Impossible(
        gpus=gpus,
        layouts=sum(counts.values()),
        uneven=0 < len(even) < len(blocks),
        by_all=tuple(told[one] for one in every),
        by_some=tuple(Refusal(layouts, told[one]) for one, layouts in some),
    )


def _divides(block: Block, gpus: int) -> bool:
    of = block.structure
    return bool(gpus % (of["tensor"] * of["context"] * of["pipeline"]) == 0)


def _broken(
    block: Block, job: TrainingJob, arch: Transformer, fabric: Fabric
) -> Iterator[tuple[int, Broken]]:
    """Layouts of a block, and what they break: together what all of them do, else each part of them one."""

    def words(no: PlanError) -> Broken:
        text = str(no).removeprefix(f"{job.name}: ")
        return {constraint(text): text}

    by_all: Broken = {}
    failed: set[str] = set()
    for check in CHECKS:
        if failed & check.rests_on:
            continue
        if no := _always(check, block, job, arch, fabric):
            failed.add(check.name)
            by_all |= words(no)
    if by_all:
        yield block.size, by_all
        return
    choices, refused = left_of(block, job, arch, fabric)
    if not choices:
        yield from ((layouts, words(no)) for no, layouts in refused)
        return
    try:
        place(apply(job, block.at((0,) * len(block.shape))), fabric)
    except PlanError as no:
        yield block.size, words(no)


def _always(
    check: Check, block: Block, job: TrainingJob, arch: Transformer, fabric: Fabric
) -> PlanError | None:
    """What a check says of a block's first layout, where it refuses every one."""
    axes = [axis for axis, _ in block.choices if _field(axis) in check.reads]
    first, found = block.at((0,) * len(block.shape)), None
    for values in product(*(block.of(axis) for axis in axes)):
        try:
            check.refuse(apply(job, {**first, **dict(zip(axes, values, strict=True))}), arch, fabric)
        except PlanError as no:
            found = found or no
        else:
            return None
    return found


def _field(axis: str) -> str:
    """The field of a job or layout that a choice sets, as checks name it."""
    return "overlap" if axis in dict(OF_OVERLAP) else axis


def _cover(counts: Mapping[tuple[str, ...], int]) -> list[tuple[str, int]]:
    """Constraints of which every layout breaks one, and how many layouts break each and none before it.

    Each is the one that most of the layouts break that are left; what others make superfluous is taken out.

    counts  constraints that layouts break -> how many such layouts there are
    """
    chosen: list[str] = []
    while left := {broken: n for broken, n in counts.items() if not set(broken) & set(chosen)}:
        chosen.append(_most_broken(left))
    for one in reversed(chosen):
        others = [other for other in chosen if other != one]
        if all(set(broken) & set(others) for broken in counts):
            chosen = others
    found: list[tuple[str, int]] = []
    for i, one in enumerate(chosen):
        before = set(chosen[:i])
        found.append(
            (one, sum(n for broken, n in counts.items() if one in broken and not before & set(broken)))
        )
    return found


def _most_broken(counts: Mapping[tuple[str, ...], int]) -> str:
    """The constraint that most layouts break; of equal ones the first."""
    layouts: dict[str, int] = {}
    for broken, count in counts.items():
        for one in broken:
            layouts[one] = layouts.get(one, 0) + count
    return max(layouts, key=lambda one: layouts[one])
