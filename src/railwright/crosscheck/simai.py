"""SimAI: Alibaba's workload and topology files; its analytical program is run, its packet simulator is not.

Formats: SimAI, docs/Tutorial.md and astra-sim-alibabacloud/astra-sim/workload/Workload.cc (first line: kind
of parallelism and group sizes; second: number of layers; then per layer a name, a dependency, and compute
time, collective and bytes of the forward pass, the input gradient and the weight gradient, and an update
time); the topology by `export.simai`; options of SimAI_analytical: system/AstraParamParse.hh.
"""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import numpy as np

from railwright.crosscheck.outcome import Answer, Failed, Found
from railwright.crosscheck.problem import Problem
from railwright.crosscheck.programs import run
from railwright.errors import PlanError
from railwright.export import render
from railwright.fabric.graph import Kind, Role

FOLDER = "RAILWRIGHT_SIMAI"
PROGRAM = "SimAI_analytical"
INPUTS = "astra-sim-alibabacloud"
HOW = (
    "build github.com/aliyun/SimAI (scripts/build.sh -c analytical); "
    f"{FOLDER}=/path/to/SimAI, the folder that holds bin/{PROGRAM} and {INPUTS}"
)


def write(problem: Problem) -> dict[str, str | bytes]:
    """simai.topo and workload.txt: one layer whose weight gradient is an all-to-all over all GPUs.

    Raises PlanError for another pattern, or where not all GPUs take part: SimAI's groups are the cluster's.
    """
    if problem.pattern not in ("all-to-all", "pxn"):
        raise PlanError(
            f"SimAI's workloads are collectives, and '{problem.pattern}' is none of them; take all-to-all"
        )
    if not problem.everyone:
        raise PlanError(
            f"SimAI's groups are cut from the whole cluster: {len(problem.ranks)} of "
            f"{problem.fabric.num_gpus} GPUs cannot be said; leave --ranks away or take a smaller study"
        )
    gpus = len(problem.ranks)
    size = int(problem.traffic.size[0]) * gpus
    workload = (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 1 pp: 1 vpp: 1 ga: 1 "
        f"all_gpus: {gpus} checkpoints: 0 checkpoint_initiates: 0\n"
        "1\n"
        f"exchange -1 1 NONE 0 1 NONE 0 1 ALLTOALL {size} 1\n"
    )
    return {**render(problem.fabric, "simai", problem.name, problem.catalog), "workload.txt": workload}


def find() -> list[Found]:
    """SimAI_analytical of the checkout named by the environment; its tables lie there."""
    named = os.environ.get(FOLDER)
    if not named or not (Path(named) / INPUTS).is_dir():
        return []
    program = shutil.which(PROGRAM, path=str(Path(named) / "bin")) or shutil.which(PROGRAM)
    return [Found("simai analytical", str(Path(program).resolve()))] if program else []


def solve(problem: Problem, found: Found, folder: Path, limit: float) -> Answer:
    """SimAI_analytical's exposed communication time, in whole microseconds, beside our fluid.

    Raises Failed where it fails or writes no result.
    """
    fabric = problem.fabric
    lanes = fabric.rate[fabric.role == Role.SCALE_UP]
    nics = int(np.count_nonzero(fabric.kind == Kind.NIC)) // fabric.num_servers
    per_nic = float(fabric.rate[fabric.role == Role.NODE_LEAF].sum()) / np.count_nonzero(
        fabric.kind == Kind.NIC
    )
    # It looks for its tables below the folder it runs in.
    tables = folder / INPUTS
    if not tables.exists():
        tables.symlink_to((Path(os.environ[FOLDER]) / INPUTS).resolve(), target_is_directory=True)
    (folder / "results").mkdir(exist_ok=True)
    command = [
        found.program, "-w", "workload.txt", "-g", str(fabric.num_gpus),
        "-g_p_s", str(fabric.gpus_per_server),
        "-nv", f"{float(lanes.max(initial=0.0)) / 1e9:g}", "-nic", f"{per_nic / 1e9:g}", "-n_p_s", str(nics),
        "-r", "crosscheck-",
    ]  # fmt: skip
    try:
        ran = run(command, folder, limit)
    finally:
        tables.unlink()
    notes = (
        "its bandwidth by formula and tables, without the fabric's wiring; whole microseconds; "
        "simai.topo is for its packet simulator, which is not run here",
    )
    return Answer(_microseconds(folder / "results") * 1e-6, problem.answer[0].time, "fluid", ran, notes)


def _microseconds(results: Path) -> float:
    """The column 'Total time' of its summary."""
    for file in sorted(results.glob("*EndToEnd.csv")):
        rows = list(csv.reader(file.read_text().splitlines()))
        if len(rows) > 1 and rows[0][-1].strip() == "Total time":
            return float(rows[1][-1])
    raise Failed("SimAI_analytical wrote no total time")
