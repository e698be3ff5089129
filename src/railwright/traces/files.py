"""Formats by name: a predicted step written to a folder, and a folder or file read for a replay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from railwright.collectives.machine import Machine
from railwright.errors import PlanError, among
from railwright.export.files import refuse_filled
from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.traces import chakra, chakra_read, goal, simai, simai_export
from railwright.traces.graph import StepTrace
from railwright.traces.outcome import on_one_processor
from railwright.traces.refusal import too_large, wrong
from railwright.traces.replaying import MOST_NODES, replay
from railwright.traces.step import MOST_EVENTS, step_trace
from railwright.training import StepResult, place, simulate

Files = Iterator[tuple[str, bytes]]

NOTABLE = 0.01
"""Part of a step above which a difference is told."""

_LONGEST = 60
"""Characters of a file's name; file systems take 255 bytes, and a character has up to four."""


def export(
    job: TrainingJob, arch: Transformer, machine: Machine, format: str, folder: str | Path
) -> tuple[list[Path], StepResult]:
    """Write the predicted step of a job in one of FORMATS; the files in order, and the prediction.

    Raises PlanError for an unknown format, a step that the format cannot say, and a folder that is there and
    not empty.  Nothing is left of a trace that could not be written whole.
    """
    if format not in FORMATS:
        raise PlanError(f"no trace format '{format}'{among(format, FORMATS)}")
    target = Path(folder)
    refuse_filled(target)
    files, step = FORMATS[format](job, arch, machine)
    written: list[Path] = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, content in files:
            path = target / name
            if path not in written:
                written.append(path)
            with path.open("ab") as out:
                out.write(content)
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise PlanError(f"cannot write '{target}': {error.strerror}; name another folder") from None
        raise
    return written, step


def unsaid(format: str, job: TrainingJob, fabric: Fabric) -> str:
    """A sentence where a format leaves out on which GPUs a job's ranks are, '' where it need not say it.

    Chakra files carry it for our own replay; GOAL and SimAI number ranks and no GPUs.
    """
    gpus = place(job, fabric).grid
    if format not in ("goal", "simai") or gpus.max() < gpus.size:
        return ""
    return (
        f"{format} does not say where ranks are, and this job leaves GPUs of the cluster out between them "
        "(servers, gpus_per_server); tell the tool that reads the file."
    )


def shortened(format: str, step: StepResult) -> str:
    """A sentence where what reads a format runs gradients beside the optimizer that the prediction exposes
    before it, '' where it does not, or where that is below 1 % of the step."""
    exposed = step.exposed("dp")
    if format != "simai" or exposed < NOTABLE * step.step_time:
        return ""
    return (
        "SimAI runs the optimizer beside gradients that are still being reduced, which the prediction waits "
        f"for: its step may be up to {exposed / step.step_time:.1%} shorter."
    )


def load(path: str | Path, gpus: int) -> StepTrace:
    """A folder of Chakra traces, or a SimAI workload (a file, or its folder), for `replay`.

    gpus  of the machine: a workload may not say how many it is for, and may not need more
    Raises SpecError for what is neither, or damaged, and PlanError for a workload of more GPUs.
    """
    where = _workload_in(Path(path))
    if where.is_file():
        if chakra_read.NAME.search(where.name):
            raise wrong(
                where,
                "",
                "a file of one rank; name the folder that holds a Chakra trace of every rank "
                "(`railwright trace compare` reads profiles of PyTorch).",
            )
        work = simai.read(where, gpus)
        # Its groups list every rank, so a wrong number of them is refused before they are made.
        if work.gpus > gpus:
            raise too_large(where.stem, work.gpus, work.gpus, gpus)
        return simai.step_trace(work, where.stem)
    return chakra_read.read(where)


def _workload_in(where: Path) -> Path:
    """The only SimAI workload of a folder without Chakra traces; else what was named."""
    if not where.is_dir() or any(chakra_read.NAME.search(path.name) for path in where.iterdir()):
        return where
    works = sorted(path for path in where.glob("*.txt") if simai.is_workload(path))
    if len(works) > 1:
        names = ", ".join(f"'{work.name}'" for work in works[:3]) + (", ..." if len(works) > 3 else "")
        raise wrong(where, "", f"{len(works)} workloads of SimAI ({names}); name one of them.")
    return works[0] if works else where


def _chakra(job: TrainingJob, arch: Transformer, machine: Machine) -> tuple[Files, StepResult]:
    trace, step = step_trace(job, arch, machine)
    written = chakra.write(trace)

    def files() -> Files:
        yield from written
        yield chakra.GROUP_FILE, chakra.group_file(trace).encode()

    return files(), step


def _goal(job: TrainingJob, arch: Transformer, machine: Machine) -> tuple[Files, StepResult]:
    trace, step = step_trace(job, arch, machine)
    if trace.num_nodes > MOST_NODES:
        raise PlanError(
            f"{job.name}: its step has {trace.num_nodes:,} nodes on {trace.ranks:,} ranks, and as GOAL at "
            f"most {MOST_NODES:,} are put in order; take a smaller cluster, fewer microbatches "
            f"(global_batch), or write Chakra, which takes {chakra.MOST_NODES:,}."
        )
    trace = on_one_processor(replay(trace, machine))
    return ((f"{_stem(job)}.goal", piece.encode()) for piece in goal.write(trace)), step


def _simai(job: TrainingJob, arch: Transformer, machine: Machine) -> tuple[Files, StepResult]:
    step = simulate(job, arch, machine, most_events=MOST_EVENTS, stage=0)
    text = simai.write(simai_export.workload(job, step, machine.network.fabric))
    return iter([(f"{_stem(job)}.txt", text.encode())]), step


def _stem(job: TrainingJob) -> str:
    """A job's name as that of a file in the folder that was asked for, whatever characters it has."""
    plain = re.sub(r"[^\w .+()-]", "-", job.name).strip(". ")
    return plain[:_LONGEST] or "step"


FORMATS: dict[str, Callable[[TrainingJob, Transformer, Machine], tuple[Files, StepResult]]] = {
    "chakra": _chakra,
    "goal": _goal,
    "simai": _simai,
}
"""What a step is written as: execution traces per rank, LogGOPSim's schedule, SimAI's workload."""
