"""A measured step beside the predicted one: every share of both, which is off, and every collective.

Both columns add up to their step.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median
from typing import get_args

from railwright.catalog.names import is_another_gpu
from railwright.collectives import predict
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import Op
from railwright.errors import PlanError, RailwrightError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.traces.expected import COMPUTE, COPY, IDLE, OTHER, expected, label_of
from railwright.traces.measured import Collective, Step
from railwright.traces.step import MOST_EVENTS
from railwright.traffic.demand import Communicator
from railwright.training import Groups, StepResult, place, simulate
from railwright.training.lanes.result import UsedCollective
from railwright.training.lanes.tasks import LANES
from railwright.training.lanes.timeline import Lane
from railwright.training.layout.placement import GroupKind
from railwright.training.layout.sizes import job_gpus

NOTABLE = 0.02
"""Part of a step from which on a difference is told."""
_OF_KIND = {
    "expert_dp": "dp", "embedding": "dp", "shard": "dp", "expert_shard": "dp", "copies": "dp",
    "expert_copies": "dp", "mirror": "dp", "ep_local": "ep", "ep_rail": "ep", "etp": "tp", "stage": "tp",
}  # fmt: skip
"""Lane of a kind of groups where it has another name."""


@dataclass(frozen=True)
class Row:
    """One share of the step: seconds of it measured and predicted."""

    share: str
    measured: float
    predicted: float


@dataclass(frozen=True)
class CollectiveRow:
    """One collective of the measured step.

    kind     'tp', 'ep', … where its group is one of the layout's, else ''
    size     nccl-tests' S, 0 where it was not recorded [byte]
    lowest, middle  of the times of its kernels; they run from when their rank has come, so the lowest is
             nearest to the transfer [s]
    predicted  [s], None where group or size are not known
    """

    op: Op | None
    kind: str
    ranks: int
    size: float
    count: int
    lowest: float
    middle: float
    predicted: float | None


@dataclass(frozen=True)
class Comparison:
    """A measured step beside the predicted one.

    stage    the pipeline stage whose shares are predicted
    measured, predicted  time of the step [s]
    rows     shares in a fixed order; each column adds up to its step
    words    which shares are off, the largest difference first
    """

    file: str
    rank: int | None
    stage: int
    measured: float
    predicted: float
    rows: tuple[Row, ...]
    collectives: tuple[CollectiveRow, ...]
    words: tuple[str, ...]


def compare(
    steps: Sequence[Step], job: TrainingJob, arch: Transformer, machine: Machine
) -> tuple[Comparison, StepResult]:
    """The measured step that waits least, of one or several ranks, beside the predicted one of its stage.

    Of a profile without a rank that is the stage that waits least, as training's own shares are.
    Raises PlanError as `training.simulate` does, for a profile of another number of ranks, and for two
    profiles of one rank.
    """
    _refuse_twice(steps, job)
    _refuse_another_job(steps, job, machine)
    step = min(
        steps, key=lambda s: (s.exposed.get("communication", 0.0) + s.exposed.get("idle", 0.0), s.file)
    )
    groups = place(job, machine.network.fabric)
    stage = None if step.rank is None else stage_of(step.rank, groups)
    predicted = simulate(
        job, arch, machine, most_events=MOST_EVENTS, end_events=MOST_EVENTS // 2, stage=stage
    )
    families = [_family(one, groups, predicted.collectives) for one in step.collectives]
    kinds = ["" if found is None else _OF_KIND.get(found, found) for found in families]
    measured: dict[str, float] = defaultdict(float)
    for name, label in COMPUTE.items():
        measured[label] = step.exposed.get(name, 0.0)
    # of several at once the first of LANES has the instant, as in a predicted step; what is not known, last
    order = [*LANES, ""]
    for numbers, seconds in step.exposed_calls.items():
        measured[label_of(min((kinds[n] for n in numbers), key=order.index))] += seconds
    measured[IDLE] = step.exposed.get("idle", 0.0)
    measured[COPY] = step.exposed.get("copy", 0.0)
    foreseen = expected(predicted, job, arch, machine)
    labels = [*COMPUTE.values(), *(label_of(lane) for lane in _lanes()), OTHER, COPY, IDLE]
    rows = tuple(
        Row(label, measured.get(label, 0.0), foreseen.get(label, 0.0))
        for label in labels
        if measured.get(label, 0.0) or foreseen.get(label, 0.0)
    )
    result = Comparison(
        step.file, step.rank, predicted.stage, step.seconds, predicted.step_time, rows,
        tuple(_collectives(step, kinds, families, groups, machine)),
        (*_words(step, predicted, rows, machine, len(groups.grid)), *_strangers(step, families, groups, job)),
    )  # fmt: skip
    return result, predicted


def _refuse_twice(steps: Sequence[Step], job: TrainingJob) -> None:
    """Two profiles of one rank are of two times of the job, or one file named twice."""
    seen: dict[object, str] = {}
    for step in steps:
        key = step.rank if step.rank is not None else str(Path(step.file).resolve())
        if key in seen:
            twice = f"{step.file} is named twice"
            if seen[key] != step.file:
                twice = f"{seen[key]} and {step.file} are both of rank {step.rank}"
            raise PlanError(f"{job.name}: {twice}; name one profile of each rank, all of the same steps.")
        seen[key] = step.file


def _refuse_another_job(steps: Sequence[Step], job: TrainingJob, machine: Machine) -> None:
    gpus = job_gpus(job, machine.network.fabric)
    for step in steps:
        if step.world is not None and step.world != gpus:
            raise PlanError(
                f"{job.name}: {step.file} is of a job of {step.world:,} ranks (its distributedInfo), and "
                f"this one has {gpus:,} GPUs; name the job that was profiled, or give this one its gpus."
            )
        if step.rank is not None and not 0 <= step.rank < gpus:
            raise PlanError(
                f"{job.name}: {step.file} is of rank {step.rank:,} (its distributedInfo), and this job has "
                f"ranks 0 to {gpus - 1:,}."
            )


def stage_of(rank: int, groups: Groups) -> int:
    """The pipeline stage of a rank: stages are blocks of neighbouring ranks, as Megatron-LM, torchtitan and
    DeepSpeed number them."""
    return rank // int(groups.grid[0].size)


def _lanes() -> list[str]:
    return [lane for lane in get_args(Lane) if lane not in ("compute", "host", "copy")]


def _family(one: Collective, groups: Groups, used: Sequence[UsedCollective]) -> GroupKind | None:
    """The layout's name of a collective's group: by its ranks, else by its size where one kind has it; where
    nothing was recorded, by the library whose kernel it is."""
    rank_of = {int(gpu): rank for rank, gpu in enumerate(groups.grid.reshape(-1))}
    formed = [(kind, m) for kind in get_args(GroupKind) if (m := groups.of(kind)) and len(m[0]) > 1]
    # All ranks of a stage only agree on fp8 maxima: never the one kind that an unnamed group must be.
    named: list[tuple[GroupKind, Sequence[Communicator]]] = [one for one in formed if one[0] != "stage"]
    call = one.call
    if call is None and one.serves:
        return next((name for name, _ in named if name == one.serves), None)
    if call is None:
        alike = [name for name, _ in named if name == {"all_to_all": "ep", "sendrecv": "pp"}.get(str(one.op))]
        return alike[0] if alike else _only([name for name, _ in named])
    usual = {"all_to_all": ("ep",), "sendrecv": ("pp",)}.get(str(one.op), ("tp", "dp", "expert_dp"))
    ranks = frozenset(int(text) for text in re.findall(r"\d+", call.members))
    if ranks and "..." not in call.members:
        same: list[GroupKind] = [
            name
            for name, members in [*named, *(one for one in formed if one[0] == "stage")]
            if any(frozenset(rank_of[int(g)] for g in m.gpus) == ranks for m in members)
        ]
        if same:
            return _likeliest(same, one, used, usual)
    sized = [name for name, members in named if len(members[0]) == call.ranks]
    return _only([name for name in sized if name in usual] or sized)


def _likeliest(
    same: Sequence[GroupKind], one: Collective, used: Sequence[UsedCollective], usual: Sequence[str]
) -> GroupKind:
    """Of kinds of groups that have the same ranks (context and data parallelism of one copy of the model,
    two stages and their tied embedding): that of the predicted collective of this op whose size is nearest,
    else the first that usually calls it."""
    size = _size(one)
    alike = [u for u in used if u.groups in same and u.prediction.op == one.op and u.prediction.size > 0]
    if size and alike:
        nearest = min(alike, key=lambda u: abs(log(u.prediction.size / size)))
        return next(name for name in same if name == nearest.groups)
    return next((name for name in same if name in usual), same[0])


def _only(kinds: Sequence[GroupKind]) -> GroupKind | None:
    """The first of kinds of groups that all serve one parallelism; of several nothing says which it is."""
    return kinds[0] if len({_OF_KIND.get(kind, kind) for kind in kinds}) == 1 else None


def _size(one: Collective) -> float:
    """nccl-tests' S of a collective, 0 where it was not recorded. [byte]"""
    if one.call is None:
        return 0.0
    shards = one.op in ("all_gather", "reduce_scatter")
    return max(one.call.bytes_in, one.call.bytes_out) if shards else one.call.bytes_in


def _collectives(
    step: Step,
    kinds: Sequence[str],
    families: Sequence[GroupKind | None],
    groups: Groups,
    machine: Machine,
) -> list[CollectiveRow]:
    found = []
    for one, kind, family in zip(step.collectives, kinds, families, strict=True):
        if not one.times:
            continue
        call, size = one.call, _size(one)
        expected = None
        if one.op is not None and size and family is not None:
            try:
                expected = predict(machine, one.op, size, groups.of(family)).time
            except RailwrightError:
                expected = None
        ranks = call.ranks if call is not None else 0
        found.append(
            CollectiveRow(
                one.op, kind, ranks, size, len(one.times), min(one.times), median(one.times), expected
            )
        )
    return sorted(found, key=lambda row: -row.middle * row.count)


def _strangers(
    step: Step, families: Sequence[GroupKind | None], groups: Groups, job: TrainingJob
) -> tuple[str, ...]:
    """A sentence where collectives run over a number of ranks that neither job nor layout has."""
    sizes = {len(m[0]) for kind in get_args(GroupKind) if (m := groups.of(kind))} | {groups.grid.size}
    busy: dict[int, float] = defaultdict(float)
    for one, family in zip(step.collectives, families, strict=True):
        if family is None and one.call is not None and one.call.ranks > 1 and one.call.ranks not in sizes:
            busy[one.call.ranks] += sum(one.times)
    layout = ", ".join(str(size) for size in sorted(sizes) if size > 1)
    return tuple(
        f"Collectives over {ranks} ranks run for {seconds * 1e3:.2f} ms, and '{job.name}' has groups of "
        f"{layout}: the profiled job was laid out otherwise (jobs[].layout)."
        for ranks, seconds in sorted(busy.items())
        if seconds >= NOTABLE * step.seconds
    )


def _words(
    step: Step, predicted: StepResult, rows: Sequence[Row], machine: Machine, stages: int
) -> tuple[str, ...]:
    ratio = step.seconds / predicted.step_time
    shown = f"{ratio:.2f}" if ratio > 0.1 else f"{ratio:.2g}"
    words = [
        f"The measured step takes {step.seconds * 1e3:.2f} ms, {shown} times the predicted "
        f"{predicted.step_time * 1e3:.2f} ms"
        + (
            "; that is inside the prediction's 80 % band."
            if predicted.error_low <= ratio <= predicted.error_high
            else f"; the prediction's 80 % band is {predicted.error_low:.2f} to {predicted.error_high:.2f}."
        )
    ]
    if stages > 1:
        words.append(_beside(step, predicted.stage, stages))
    if not step.on_gpu:
        words.append(
            "No GPU is in this profile, so what its CPU ran stands beside the predicted kernels: of a job on "
            "GPUs these are launches (profile with ProfilerActivity.CUDA)."
        )
    if is_another_gpu(step.gpu, machine.gpu.name):
        words.append(
            f"The profile is of a GPU '{step.gpu}', and the study's are {machine.gpu.name}: name the server "
            "that ran it (cluster.server)."
        )
    words += step.notes
    told = len(words)
    for row in sorted(rows, key=lambda r: -abs(r.measured - r.predicted)):
        off = row.measured - row.predicted
        if abs(off) < NOTABLE * predicted.step_time:
            continue
        more = "more" if off > 0 else "less"
        words.append(
            f"{row.share[0].upper()}{row.share[1:]}: {row.measured * 1e3:.2f} ms of the step, "
            f"{abs(off) * 1e3:.2f} ms {more} than the predicted {row.predicted * 1e3:.2f} ms."
        )
    if len(words) == told:
        words.append("No share is off by more than 2 % of the step.")
    return tuple(words)


def _beside(step: Step, stage: int, stages: int) -> str:
    """Which of several stages the predicted column is, and why that one."""
    said = f"pipeline stage {stage} (of 0 to {stages - 1})"
    if step.rank is not None:
        return f"Rank {step.rank:,} is of {said}, so the predicted shares are that stage's."
    return (
        f"The profile does not say its rank (distributedInfo): the predicted shares are those of {said}, "
        "which waits least."
    )
