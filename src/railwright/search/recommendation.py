"""Where the tables of a recommendation job lie best: every sharding of a small space, simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

from pydantic import ValidationError

from railwright.collectives.machine import Machine
from railwright.errors import Mistake, PlanError, SpecError, nearest
from railwright.model.recommendation.dlrm import Recommender
from railwright.spec.check import flaw_of
from railwright.spec.recommendation import RecommendationJob
from railwright.training.lanes.result import StepResult
from railwright.training.recommendation.dlrm import simulate_recommendation, tables_of
from railwright.units import parse

AXES = ("sharding", "column_shards", "replicate_below", "global_batch")

SHARDS = (2, 4, 8, 16)
"""Pieces of a table by columns that are tried beside the job's own where the space does not say."""

SMALL = ("1 MiB", "16 MiB", "128 MiB")
"""Tables up to these sizes on every GPU, beside none and what the job says."""

MOST = 10_000
"""Steps that are simulated at most; one takes milliseconds."""

Space = dict[str, tuple[Any, ...]]
"""Axis -> values, as a study writes them."""


@dataclass(frozen=True)
class Placed:
    """One layout of the tables and its step.

    changed  fields that differ from the job as written, with their values
    balance  busiest GPUs' memory traffic over the mean
    """

    job: RecommendationJob
    changed: Mapping[str, Any]
    step: StepResult
    balance: float


@dataclass(frozen=True)
class Placements:
    """What a search found: the best first; `own` as written, or why it cannot run.

    tried    layouts of the space, those that do the same once
    refused  why layouts cannot work -> how many
    """

    best: tuple[Placed, ...]
    own: Placed | None
    own_refused: str
    tried: int
    refused: Mapping[str, int]


def space_of(given: Any, file: str = "the space") -> Space:
    """Axes and values of a file. Raises SpecError for those that are none."""
    if not isinstance(given, Mapping):
        raise SpecError([Mistake(file, 0, 0, "", "must map axes to lists, like 'sharding: [row-wise]'")])
    mistakes, found = [], Space()
    for axis, values in given.items():
        if axis not in AXES:
            said = f"not an axis of a recommendation job's search; axes are {', '.join(AXES)}"
            mistakes.append(Mistake(file, 0, 0, str(axis), said + nearest(str(axis), AXES)))
        elif not isinstance(values, list | tuple) or not values:
            mistakes.append(Mistake(file, 0, 0, axis, f"must be a list of values, not {values!r}"))
        else:
            mistakes += [Mistake(file, 0, 0, axis, flaw) for value in values if (flaw := _flaw(axis, value))]
            found[axis] = tuple(dict.fromkeys(values))
    if mistakes:
        raise SpecError(mistakes)
    return found


def search_recommendation(
    job: RecommendationJob,
    model: Recommender,
    machine: Machine,
    space: Space | None = None,
    *,
    objective: str = "time",
) -> Placements:
    """Every layout of the tables, simulated: samples a second, or memory of the fullest GPU, decide.

    space  which values; default: every kind of sharding, SHARDS columns, tables of SMALL on every GPU, each
           beside what the job says

    Raises PlanError where none can work, with why most cannot.
    """
    asked = _asked(job, space or {})
    if len(asked) > MOST:
        raise PlanError(
            f"{job.name}: the space has {len(asked):,} layouts, more than the {MOST:,} that are simulated; "
            "give its axes fewer values."
        )
    found: dict[tuple[object, ...], Placed] = {}
    refused: dict[str, int] = {}
    for one in asked:
        try:
            placed = _placed(one, job, model, machine)
        except PlanError as no:
            said = str(no).removeprefix(f"{job.name}: ")
            refused[said] = refused.get(said, 0) + 1
            continue
        tables = tables_of(one, model, machine)
        # shardings that put the same on every GPU are one layout, told by the fewest changes
        key = (one.global_batch, tables)
        if key not in found or len(placed.changed) < len(found[key].changed):
            found[key] = placed
    if not found:
        why, count = max(refused.items(), key=lambda one: one[1])
        raise PlanError(f"{job.name}: no layout of the space can work; most ({count}) are refused: {why}")
    order = {
        "time": lambda p: (-round(p.step.tokens_per_second, 3), len(p.changed), p.step.memory.total),
        "memory": lambda p: (round(p.step.memory.total), -p.step.tokens_per_second, len(p.changed)),
    }
    try:
        own, said = _placed(job, job, model, machine), ""
    except PlanError as no:
        own, said = None, str(no)
    return Placements(tuple(sorted(found.values(), key=order[objective])), own, said, len(asked), refused)


def _asked(job: RecommendationJob, space: Space) -> list[RecommendationJob]:
    """Jobs of a space; columns matter to one kind of sharding only."""
    kinds = space.get("sharding", get_args(RecommendationJob.model_fields["sharding"].annotation))
    columns = space.get("column_shards", (*SHARDS, job.column_shards))
    small = space.get("replicate_below", ("0 B", job.replicate_below, *SMALL))
    found: dict[tuple[object, ...], RecommendationJob] = {}
    for kind, below, batch in product(kinds, small, space.get("global_batch", (job.global_batch,))):
        bytes_below = parse(below, "size") if isinstance(below, str) else below
        cut = columns if kind == "column-wise" else (job.column_shards,)
        for pieces in cut:
            changed = dict(zip(AXES, (kind, pieces, bytes_below, batch), strict=True))
            found.setdefault(tuple(changed.values()), job.model_copy(update=changed))
    return list(found.values())


def _placed(one: RecommendationJob, job: RecommendationJob, model: Recommender, machine: Machine) -> Placed:
    changed = {axis: getattr(one, axis) for axis in AXES if getattr(one, axis) != getattr(job, axis)}
    step = simulate_recommendation(one, model, machine)
    return Placed(one, changed, step, tables_of(one, model, machine).balance)


def _flaw(axis: str, value: Any) -> str:
    """What is wrong with a value of an axis; '' where nothing is."""
    given = {"name": "x", "model": "x", "global_batch": 1, "samples": 1.0, axis: value}
    try:
        RecommendationJob(**given)
    except ValidationError as no:
        return flaw_of(dict(no.errors(include_url=False)[0])).message
    return ""
