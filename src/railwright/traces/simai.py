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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from railwright.collectives.prediction import Op
from railwright.traces.graph import Group, Node, StepTrace
from railwright.traces.reading import content
from railwright.traces.refusal import wrong

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
    """A workload: sizes of the groups, microbatches, GPUs, bytes between stages, rows from top to bottom.

    pieces  of the model on a stage: SimAI divides the bubble by them and sends so many times (Layer.cc)
    """

    tensor: int
    expert: int
    pipeline: int
    microbatches: int
    gpus: int
    between: int
    rows: tuple[Row, ...]
    pieces: int = 1


def write(work: Workload) -> str:
    """The text SimAI reads."""
    head = (
        f"{POLICY} model_parallel_NPU_group: {work.tensor} ep: {work.expert} pp: {work.pipeline} "
        f"vpp: {work.pieces} ga: {work.microbatches} all_gpus: {work.gpus} checkpoints: 0 "
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
    return Workload(tensor, expert, pipeline, microbatches, ranks, sent, tuple(rows), known.get("vpp", 1))


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
