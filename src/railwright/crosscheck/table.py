"""Every simulator in one table, and the check itself: write, run those installed, compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from railwright.crosscheck import astra, htsim, simai, simgrid
from railwright.crosscheck.outcome import Answer, CrossCheck, Failed, Found, Row, Status
from railwright.crosscheck.problem import Problem
from railwright.errors import PlanError, among


@dataclass(frozen=True)
class Simulator:
    """write: its files; find: what of it is installed; solve: run one of them; how: to get it, one line."""

    write: Callable[[Problem], dict[str, str | bytes]]
    find: Callable[[], list[Found]]
    solve: Callable[[Problem, Found, Path, float], Answer]
    how: str


SIMULATORS: Mapping[str, Simulator] = {
    "simgrid": Simulator(simgrid.write, simgrid.find, simgrid.solve, simgrid.HOW),
    "htsim": Simulator(htsim.write, htsim.find, htsim.solve, htsim.HOW),
    "astra-sim": Simulator(astra.write, astra.find, astra.solve, astra.HOW),
    "simai": Simulator(simai.write, simai.find, simai.solve, simai.HOW),
}
"""Name -> how it is written, found and run.  A new simulator is one module and one row here."""

LIMIT = 600.0
"""Seconds one simulator may take where nothing else is asked for."""


def crosscheck(
    problem: Problem,
    folder: Path,
    only: Sequence[str] = (),
    limit: float = LIMIT,
    force: bool = False,
) -> CrossCheck:
    """Write a problem for every simulator, run those that are installed, and put their times beside ours.

    folder  gets one folder per simulator
    only    names of SIMULATORS; empty: all
    limit   seconds each may take
    force   write into a folder that holds something
    Raises PlanError for an unknown name or a folder that is not empty.
    """
    for name in only:
        if name not in SIMULATORS:
            raise PlanError(f"no simulator '{name}'{among(name, SIMULATORS)}")
    if folder.exists() and not folder.is_dir():
        raise PlanError(f"'{folder}' is a file; name a folder")
    if folder.exists() and not force and any(folder.iterdir()):
        raise PlanError(
            f"'{folder}' is not empty and nothing in it is overwritten; name another folder or add --force"
        )
    solution, cpu = problem.answer
    rows: list[Row] = []
    for name in only or SIMULATORS:
        rows += _rows(problem, name, folder / name, limit)
    return CrossCheck(
        study=problem.name,
        fabric=problem.fabric.name,
        pattern=problem.pattern,
        routing=problem.network.routing,
        ranks=len(problem.ranks),
        size=problem.size,
        demands=len(problem.traffic),
        time=solution.time,
        latency=float(solution.latency.max(initial=0.0)),
        engine=solution.engine,
        cpu=cpu,
        folder=str(folder),
        rows=tuple(rows),
    )


def _rows(problem: Problem, name: str, folder: Path, limit: float) -> list[Row]:
    simulator = SIMULATORS[name]
    try:
        contents = simulator.write(problem)
    except PlanError as error:
        return [_without(name, "", "not expressible", (), (str(error),))]
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
    files = tuple(f"{name}/{file}" for file in contents)
    installed = simulator.find()
    if not installed:
        return [_without(name, "", "not installed", files, (simulator.how,))]
    rows = []
    for found in installed:
        try:
            answer = simulator.solve(problem, found, folder, limit)
        except (Failed, PlanError) as error:
            status: Status = "failed" if isinstance(error, Failed) else "not expressible"
            rows.append(_without(found.name, found.version, status, files, (str(error),)))
            continue
        rows.append(
            Row(
                found.name, found.version, "ran", answer.time, answer.ours, answer.counts,
                answer.ours / answer.time - 1 if answer.time else None,
                answer.ran.cpu, answer.ran.wall, answer.ran.memory, files, answer.notes,
            )
        )  # fmt: skip
    return rows


def _without(name: str, version: str, status: Status, files: tuple[str, ...], notes: tuple[str, ...]) -> Row:
    """A row without a time."""
    return Row(name, version, status, None, None, "", None, None, None, None, files, notes)
