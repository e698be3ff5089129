"""SimAI's workloads, the text that AICB writes: one stage of a step as rows of forward and backward work.

Format: aliyun/aicb, workload_generator/SimAI_training_workload_generator.py (Work_Item, dump_file), and
SimAI, astra-sim/workload/Workload.cc: a head of group sizes, the number of rows, and per row a name, a
dependency (-1), then time [ns], collective and bytes of the forward pass, of the input gradient and of the
weight gradient, and an update time.  SimAI walks the rows down, then up: forward and input-gradient
collectives block, weight-gradient ones run beside what follows.  Collectives of the first two run over the
tensor group, of the last over the data-parallel one, with '_EP' over the expert group and with '_DP_EP' over
the replicas of an expert.
"""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from railwright.collectives.prediction import Op
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.spec.training import TrainingJob
from railwright.traces.graph import ALONE, Group, Node, StepTrace
from railwright.traces.reading import content
from railwright.traces.refusal import wrong
from railwright.traffic.demand import Communicator
from railwright.training import Event, StepResult, place
from railwright.training.lockstep import MAXIMA
from railwright.training.placement import GroupKind
from railwright.training.result import ADAM
from railwright.training.schedule import TOGETHER, order_name
from railwright.training.sizes import Sizes, job_gpus
from railwright.training.timeline import WAITS

POLICY = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
KINDS = (POLICY, "HYBRID_TRANSFORMER", "MICRO")
"""First words of the workloads that are read."""
COMM: dict[Op, str] = {
    "all_reduce": "ALLREDUCE",
    "all_gather": "ALLGATHER",
    "reduce_scatter": "REDUCESCATTER",
    "all_to_all": "ALLTOALL",
}
UPDATE = 100
"""Update time of every row, as AICB writes it [ns]; a replay leaves it out."""

MOST_BETWEEN = 2**31 - 1
"""Workload.cc reads `pp_comm` by `std::stoi`, which throws beyond it [byte]."""

_OPS = {name: op for op, name in COMM.items()}
_HEAD = re.compile(
    r"(?<!\w)(model_parallel_NPU_group|ep|pp|vpp|ga|all_gpus|checkpoints|checkpoint_initiates):\s*(\S*)"
)
_SIZES = ("model_parallel_NPU_group", "ep", "pp", "ga")
_COLUMNS = 12
_COUNT = re.compile(r"[0-9]{1,18}")
_BYTES = re.compile(r"[0-9]{1,18}(\.0*)?")
_SIZE = re.compile(r"[0-9]{1,18}(\.[0-9]*)?")
"""Numbers below 10^18: nanoseconds of 30 years, an exabyte."""


@dataclass(frozen=True)
class Part:
    """Compute [s], then a collective: SimAI's name of it ('' for none) and its size [byte]."""

    seconds: float = 0.0
    comm: str = ""
    size: float = 0.0


@dataclass(frozen=True)
class Row:
    """One row: forward, input gradient, weight gradient."""

    name: str
    forward: Part = Part()
    gradient: Part = Part()
    weight: Part = Part()


@dataclass(frozen=True)
class Workload:
    """A workload: sizes of the groups, microbatches, GPUs, bytes between stages, rows from top to bottom."""

    tensor: int
    expert: int
    pipeline: int
    microbatches: int
    gpus: int
    between: int
    rows: tuple[Row, ...]


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
    optimizer = sum(e.end - e.start for e in events if e.kind in ("optimizer", ADAM))
    last.append(Row("optimizer", weight=Part(optimizer)))
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
    return Workload(layout.tensor, layout.expert, layout.pipeline, len(passes), gpus, between, rows)


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


def write(work: Workload) -> str:
    """The text SimAI reads."""
    head = (
        f"{POLICY} model_parallel_NPU_group: {work.tensor} ep: {work.expert} pp: {work.pipeline} "
        f"vpp: {len(work.rows)} ga: {work.microbatches} all_gpus: {work.gpus} checkpoints: 0 "
        f"checkpoint_initiates: 0 pp_comm: {work.between}\n{len(work.rows)}\n"
    )
    return head + "".join(_line(row) for row in work.rows)


def is_workload(file: Path) -> bool:
    """Whether a file begins as a workload does."""
    kinds = tuple(kind.encode() for kind in KINDS)
    return file.is_file() and content(file).removeprefix(codecs.BOM_UTF8).startswith(kinds)


def read(file: str | Path, gpus: int | None = None) -> Workload:
    """A workload from its text.

    gpus  where the head does not say all_gpus, as AICB's older ones do not
    Raises SpecError naming file and line.
    """
    path = Path(file)
    lines = content(path).decode("utf-8-sig", errors="replace").splitlines()
    head = lines[0].split() if lines else []
    if not head or head[0] not in KINDS:
        raise wrong(path, "line 1", f"no workload of SimAI that is known: it begins with {', '.join(KINDS)}.")
    said = dict(_HEAD.findall(lines[0]))
    strange = next((key for key, value in said.items() if not _COUNT.fullmatch(value)), None)
    if strange is not None:
        shown = said[strange][:20]
        raise wrong(path, "line 1", f"its {strange} is '{shown}', no whole number below 10^18.")
    known = {key: int(value) for key, value in said.items()}
    if known.get("checkpoints", 0) or known.get("checkpoint_initiates", 0):
        raise wrong(path, "line 1", "its checkpoints (recomputed layers) are not understood; AICB writes 0.")
    number = lines[1].strip() if len(lines) > 1 else ""
    if not _COUNT.fullmatch(number):
        raise wrong(path, "line 2", f"'{number[:20]}' is not the number of rows.")
    rows = [_row(path, at, line) for at, line in enumerate(lines[2:], 3) if line.strip()]
    if len(rows) != int(number):
        raise wrong(
            path, f"line {len(lines)}", f"{len(rows)} rows where line 2 says {number}; is it cut off?"
        )
    none = next((key for key in (*_SIZES, "all_gpus") if known.get(key) == 0), None)
    if none is not None:
        raise wrong(path, "line 1", f"its {none} is 0; groups have a rank or more.")
    ranks = known.get("all_gpus", gpus)
    if ranks is None:
        raise wrong(path, "line 1", "it says no all_gpus; give the number of GPUs.")
    tensor, expert, pipeline, microbatches = (known.get(key, 1) for key in _SIZES)
    if ranks % (tensor * pipeline) or ranks // (tensor * pipeline) % expert:
        raise wrong(
            path,
            "line 1",
            f"{ranks} GPUs do not divide into tensor {tensor}, pipeline {pipeline} and expert {expert}.",
        )
    between = re.search(r"pp_comm:?\s*(\S+)", lines[0])
    if between and not _SIZE.fullmatch(between[1]):
        raise wrong(path, "line 1", f"its pp_comm is '{between[1][:20]}', not a number of bytes.")
    sent = round(float(between[1])) if between else 0
    return Workload(tensor, expert, pipeline, microbatches, ranks, sent, tuple(rows))


def step_trace(work: Workload, name: str) -> StepTrace:
    """A workload as nodes: all ranks run all rows, as in SimAI."""
    groups = _groups(work)
    of_rank: list[dict[str, str]] = [{} for _ in range(work.gpus)]
    for group in groups.values():
        for rank in group.ranks:
            of_rank[rank][group.family] = group.name
    notes = []
    if work.pipeline > 1:
        notes.append(
            "A SimAI workload has the rows of one stage: this is its time, without the bubble of "
            f"{work.pipeline} stages and {work.microbatches} microbatches."
        )
    if any(
        _op(p.comm) is None for row in work.rows for p in (row.forward, row.gradient, row.weight) if p.comm
    ):
        notes.append("Its BROADCAST is left out, as SimAI does.")

    def nodes(rank: int) -> tuple[Node, ...]:
        return tuple(_nodes(work, of_rank[rank]))

    return StepTrace(name, work.gpus, nodes, groups, tuple(range(work.gpus)), tuple(notes), alike=True)


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
            for cut in (c for c in cuts if now < c < start):
                yield cut, Row(label, Part(cut - now))
                now = cut
            yield start, Row(label, Part(max(0.0, start - now), _comm(event), event.size))
            now = max(now, end)
        end = max(event.end for event in one)
        for cut in (c for c in cuts if now < c < end):
            yield cut, Row(name or "rest", Part(cut - now))
            now = cut
        if end > now:
            yield end, Row(name or "rest", Part(end - now))


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


def _line(row: Row) -> str:
    cells = [row.name, "-1"]
    for part in (row.forward, row.gradient, row.weight):
        cells += [str(round(part.seconds * 1e9)), part.comm or "NONE", str(round(part.size))]
    return "\t".join([*cells, str(UPDATE)]) + "\n"


def _row(path: Path, at: int, line: str) -> Row:
    cells = line.split()
    if len(cells) != _COLUMNS:
        raise wrong(path, f"line {at}", f"{len(cells)} columns where a row has {_COLUMNS}.")
    parts = []
    for i in (2, 5, 8):
        for cell, form in ((cells[i], _COUNT), (cells[i + 2], _BYTES)):
            if not form.fullmatch(cell):
                raise wrong(path, f"line {at}", f"'{cell[:20]}' is not a whole number below 10^18.")
        comm = "" if cells[i + 1] == "NONE" else cells[i + 1]
        if comm and _op(comm) is None and comm != "BROADCAST":
            raise wrong(
                path, f"line {at}", f"'{comm}' is no collective of SimAI; known are {', '.join(_OPS)}."
            )
        parts.append(Part(int(cells[i]) * 1e-9, comm, float(cells[i + 2])))
    return Row(cells[0], *parts)


def _op(comm: str) -> Op | None:
    return _OPS.get(comm.removesuffix("_DP_EP").removesuffix("_EP"))


def _groups(work: Workload) -> dict[str, Group]:
    """Megatron's order, as in SimAI's MockNcclGroup: tensor fastest, then data, then pipeline."""
    found: dict[str, Group] = {}
    count: dict[str, int] = defaultdict(int)
    data = work.gpus // (work.tensor * work.pipeline)

    def add(family: str, ranks: list[int]) -> None:
        name = f"{family} {count[family]}"
        count[family] += 1
        found[name] = Group(name, tuple(ranks), family)

    for p in range(work.pipeline):
        for d in range(data):
            add("tp", [t + work.tensor * (d + data * p) for t in range(work.tensor)])
        for t in range(work.tensor):
            line = [t + work.tensor * (d + data * p) for d in range(data)]
            add("dp", line)
            for first in range(0, data, work.expert):
                add("ep", line[first : first + work.expert])
            for e in range(work.expert):
                add("expert dp", line[e :: work.expert])
    return found


def _nodes(work: Workload, groups: dict[str, str]) -> Iterator[Node]:
    number = 0
    before: tuple[int, ...] = ()
    for row in work.rows:
        for node in _part(number, row.name, row.forward, before, groups, "tp"):
            yield node
            number, before = node.index + 1, (node.index,)
    for row in reversed(work.rows):
        for node in _part(number, f"{row.name} gradient", row.gradient, before, groups, "tp"):
            yield node
            number, before = node.index + 1, (node.index,)
        for node in _part(number, f"{row.name} weights", row.weight, before, groups, "dp"):
            yield node
            number = node.index + 1
            if node.kind == "compute":
                before = (node.index,)


def _part(
    number: int, name: str, part: Part, before: tuple[int, ...], groups: dict[str, str], usual: str
) -> Iterator[Node]:
    if part.seconds:
        yield Node(number, name, "compute", before, part.seconds)
        number, before = number + 1, (number,)
    op = _op(part.comm)
    if op is not None and part.size:
        family = "expert dp" if part.comm.endswith("_DP_EP") else "ep" if part.comm.endswith("_EP") else usual
        yield Node(number, f"{name} {part.comm}", "collective", before, 0.0, op, part.size, groups[family])
