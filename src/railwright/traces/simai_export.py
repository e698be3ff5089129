"""A predicted step as a workload of SimAI (`traces.simai`)."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.spec.training import TrainingJob
from railwright.traces.graph import ALONE
from railwright.traces.simai import COMM, Part, Row, Workload
from railwright.traffic.demand import Communicator
from railwright.training import Event, StepResult, place
from railwright.training.lanes.result import ADAM
from railwright.training.lanes.timeline import WAITS
from railwright.training.layout.placement import GroupKind
from railwright.training.layout.schedule import TOGETHER, order_name
from railwright.training.layout.sizes import Sizes, job_gpus
from railwright.training.passes.lockstep import MAXIMA

MOST_BETWEEN = 2**31 - 1
"""Workload.cc reads `pp_comm` by `std::stoi`, which throws beyond it [byte]."""


def workload(job: TrainingJob, step: StepResult, fabric: Fabric) -> Workload:
    """The first stage of a predicted step, whose collectives are that stage's.

    Its forward passes come first; the rows below them, walked upwards, are its backward passes.  A row ends
    where gradients left in the prediction, which leave with it; parameters are gathered behind the optimizer,
    where AICB has them.  Raises PlanError where the step has collectives that SimAI has no groups for, or
    gathers parameters inside its passes, where ranks are placed in another order, and where forwards and
    backwards run together, which its rows cannot say.
    """
    if order_name(job) in TOGETHER:
        raise PlanError(
            f"{job.name}: SimAI's rows run one after the other, and forwards and backwards of this job run "
            "together; set overlap.ep to false, or take another layout.schedule than dualpipe and dualpipe-v."
        )
    if job.layout.zero == 3:
        raise PlanError(
            f"{job.name}: SimAI's rows have data-parallel collectives behind weight gradients alone, and "
            "zero: 3 gathers parameters in every pass; set zero to 1 or 2, or export chakra."
        )
    _refuse_other_groups(job, step, fabric)
    events = [e for e in step.timeline.events if e.rank == 0 and e.kind not in (*WAITS, "send")]
    inside = [e for e in events if e.unit is not None and e.lane != "dp"]
    if step.timeline.coarse is not None:
        raise PlanError(f"{job.name}: its timeline has whole passes, not what is inside; lower global_batch.")
    shared = [e for e in events if e.lane == "dp"]
    gathers = [e for e in shared if e.kind == "all_gather"]
    reduced = [e for e in shared if e.kind != "all_gather"]
    forward = [row for _, row in _timed([e for e in inside if e.unit is not None and e.unit[0] == "F"])]
    backward: list[Row] = []
    for end, row in _timed([e for e in inside if e.unit is not None and e.unit[0] != "F"], tuple(reduced)):
        backward.append(replace(row, forward=Part(), gradient=row.forward))
        while reduced and reduced[0].start <= end:
            backward += _leaving(reduced.pop(0), backward)
    last = [row for event in reduced for row in _leaving(event)]
    last += _updating(events)
    last += [row for event in gathers for row in _leaving(event)]
    layout = job.layout
    gpus = job_gpus(job, fabric)
    passes = {e.unit[2] for e in events if e.unit is not None}
    between = next((round(c.prediction.size) for c in step.collectives if c.prediction.op == "sendrecv"), 0)
    if between > MOST_BETWEEN:
        raise PlanError(
            f"{job.name}: SimAI reads what stages send as a 32-bit number, and these send {between:,} bytes "
            "a microbatch; lower micro_batch, set sequence_parallel, or export chakra."
        )
    rows = (*reversed(last), *forward, *reversed(backward))
    return Workload(
        layout.tensor, layout.expert, layout.pipeline, len(passes), gpus, between, rows,
        layout.virtual_pipeline,
    )  # fmt: skip


def _refuse_other_groups(job: TrainingJob, step: StepResult, fabric: Fabric) -> None:
    """SimAI makes its groups of four numbers (`_groups`); others would be read as those without a word."""
    layout, sizes = job.layout, Sizes.of(job, fabric)
    packed = job.model_copy(update={"layout": layout.model_copy(update={"placement": "packed"})})
    if not np.array_equal(place(job, fabric).grid, place(packed, fabric).grid):
        raise PlanError(
            f"{job.name}: SimAI's workloads have no placement, its ranks fill servers in order; set "
            f"layout.placement to packed instead of {layout.placement}, or export chakra."
        )
    if sizes.expert_tensor != sizes.tensor:
        raise PlanError(
            f"{job.name}: SimAI cuts experts like the rest, but layout.expert_tensor is "
            f"{sizes.expert_tensor} and layout.tensor {sizes.tensor}; make them equal, or export chakra."
        )
    if sizes.shard != sizes.replicas:
        raise PlanError(
            f"{job.name}: SimAI has no groups of {sizes.shard} of {sizes.replicas} data-parallel ranks; "
            "leave layout.shard out, or export chakra."
        )
    if layout.context > 1:
        raise PlanError(
            f"{job.name}: SimAI has no context-parallel groups; set layout.context to 1, or export chakra."
        )
    groups = place(job, fabric)
    known: dict[str, tuple[GroupKind, ...]] = {"tp": ("tp",), "ep": ("ep",), "dp": ("dp", "expert_dp")}
    for one in step.collectives:
        ranks, here = one.prediction.ranks, groups.of(cast(GroupKind, one.groups))
        there = [groups.of(kind) for kind in known.get(one.kind, ())]
        if there and not any(_same(here, other) for other in there):
            raise PlanError(
                f"{job.name}: SimAI has no groups for '{one.purpose}' ({ranks} ranks), only those of "
                f"{sizes.tensor} tensor-, {sizes.expert} expert- and {sizes.replicas} data-parallel ranks, "
                f"and of the {sizes.expert_replicas} replicas of an expert; "
                + ("set amax_over to tensor or none, or " if one.purpose == MAXIMA else "")
                + ("leave expert_nodes out (NCCL's all-to-all), or " if one.kind == "ep" else "")
                + "export chakra."
            )


def _same(some: Sequence[Communicator], others: Sequence[Communicator]) -> bool:
    """Whether groups are of the same ranks, judged by the first of each."""
    return bool(some and others) and set(some[0].gpus.tolist()) == set(others[0].gpus.tolist())


def _updating(events: Sequence[Event]) -> list[Row]:
    """The optimizer's row, behind one for each collective of tensor ranks that hold parts of a momentum."""
    outside = [event for event in events if event.unit is None]
    exchanged = [e for e in outside if e.lane == "tp" and e.size]
    seconds = sum(e.end - e.start for e in outside if e.kind in ("optimizer", ADAM))
    rows = [Row(_plain(e.name), gradient=Part(0.0, _comm(e), e.size)) for e in exchanged]
    return [*rows, Row("optimizer", weight=Part(seconds))]


def _leaving(event: Event, rows: list[Row] | None = None) -> list[Row]:
    """A row with a data-parallel collective; none where the last of some rows can take it."""
    part = Part(0.0, _comm(event), event.size)
    if rows and not rows[-1].weight.comm:
        rows[-1] = replace(rows[-1], weight=part)
        return []
    return [Row(_plain(event.name), weight=part)]


def _timed(events: list[Event], beside: Sequence[Event] = ()) -> Iterator[tuple[float, Row]]:
    """(end, row) of passes: the time up to each collective, whatever it went to, and the collective; and up
    to the start of each of what runs `beside`, in order.

    SimAI has one kind of time that is no communication: waiting for launches counts as computing here.
    """
    cuts = sorted({event.start for event in beside})
    passes: dict[tuple[str, int, int] | None, list[Event]] = {}
    for event in events:
        passes.setdefault(event.unit, []).append(event)
    for one in passes.values():
        now = one[0].start
        name = ""
        sent: list[tuple[float, float, str, Event]] = []
        for event in one:
            if event.lane in ALONE:
                name = name or (_plain(event.name) if event.lane == "compute" else "")
            elif event.size or not sent:
                sent.append((event.start, event.end, name or _plain(event.name), event))
                name = ""
            else:
                sent[-1] = (sent[-1][0], event.end, *sent[-1][2:])
        for start, end, label, event in sent:
            pieces = _pieces(label, now, start, cuts)
            yield from pieces
            now = pieces[-1][0] if pieces else now
            yield start, Row(label, Part(max(0.0, start - now), _comm(event), event.size))
            now = max(now, end)
        end = max(event.end for event in one)
        pieces = _pieces(name or "rest", now, end, cuts)
        yield from pieces
        now = pieces[-1][0] if pieces else now
        if end > now:
            yield end, Row(name or "rest", Part(end - now))


def _pieces(label: str, begin: float, end: float, cuts: list[float]) -> list[tuple[float, Row]]:
    """(end, row) of compute up to each of the ascending `cuts` between two instants."""
    instants = [begin, *cuts[bisect_right(cuts, begin) : bisect_left(cuts, end)]]
    return [(cut, Row(label, Part(cut - since))) for since, cut in pairwise(instants)]


def _comm(event: Event) -> str:
    suffix = (
        "_EP" if event.lane == "ep" else "_DP_EP" if "expert" in event.name and event.lane == "dp" else ""
    )
    name = next((text for op, text in COMM.items() if op == event.kind), None)
    if name is None or event.lane not in ("tp", "ep", "dp"):
        raise PlanError(
            f"SimAI's workloads cannot say '{event.name}' ({event.kind} on lane {event.lane}); they have "
            f"{', '.join(COMM.values())} over tensor, expert and data-parallel groups."
        )
    return name + suffix


def _plain(name: str) -> str:
    """A name without blanks: columns are cut at them."""
    return re.sub(r"\W+", "_", name).strip("_")
