"""SimAI: Alibaba's topology and workload files, for its packet simulator (ns-3) and its analytical program.

Formats: SimAI, docs/Tutorial.md and astra-sim-alibabacloud/astra-sim/workload/Workload.cc (first line: kind
of parallelism and group sizes; second: number of layers; then per layer a name, a dependency, and compute
time, collective and bytes of the forward pass, the input gradient and the weight gradient, and an update
time); the topology by `export.simai`; inputs/config/SimAI.conf; options: network_frontend/ns3/
AstraSimNetwork.cc and system/AstraParamParse.hh.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from pathlib import Path

import numpy as np

from railwright.crosscheck.outcome import Answer, Failed, Found
from railwright.crosscheck.packets import Framing, in_packets
from railwright.crosscheck.problem import Problem
from railwright.crosscheck.programs import Ran, run
from railwright.errors import PlanError
from railwright.export import render
from railwright.fabric.graph import Kind, Role

FOLDER = "RAILWRIGHT_SIMAI"
PROGRAMS = {"simai ns-3": "SimAI_simulator", "simai analytical": "SimAI_analytical"}
INPUTS = "astra-sim-alibabacloud"
HOW = (
    "build github.com/aliyun/SimAI (scripts/build.sh -c ns3 and -c analytical); "
    f"{FOLDER}=/path/to/SimAI, the folder that holds bin and {INPUTS}"
)

SEND_LATENCY = 6
"""Microseconds before a send, AS_SEND_LAT: SimAI's default (docs/Tutorial.md)."""

FRAMING = Framing(9000 + 48, 48, start=SEND_LATENCY * 1e-6)
"""PACKET_PAYLOAD_SIZE 9000 (SimAI.conf); PPP 14, IPv4 20, UDP 8 and SimpleSeqTsHeader 6 bytes
(ns-3-alibabacloud, rdma-hw.cc, GetNxtPacket, and the headers' GetSerializedSize)."""

_THRESHOLDS = {"KMIN_MAP": 800 / 400e9, "KMAX_MAP": 3200 / 400e9}
"""ECN thresholds [kB per bit/s]: SimAI.conf's for 400 Gb/s, in proportion to the rate."""


def write(problem: Problem) -> dict[str, str | bytes]:
    """simai.topo and workload.txt: one layer whose weight gradient is an all-to-all over all GPUs.

    Cables between the same two devices are one link of their summed rate: SimAI keeps the last of several.
    Raises PlanError for another pattern, or where not all GPUs take part: SimAI's groups are the cluster's.
    """
    if problem.pattern not in ("all-to-all", "pxn"):
        raise PlanError(
            f"SimAI's workloads are collectives, and '{problem.pattern}' is none of them; take all-to-all"
        )
    if not problem.everyone:
        raise PlanError(
            f"SimAI's groups are cut from the whole cluster: {len(problem.ranks)} of "
            f"{problem.fabric.num_gpus} GPUs cannot be said; take all of them, or a smaller study"
        )
    gpus = len(problem.ranks)
    size = int(problem.traffic.size[0]) * gpus
    workload = (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 1 pp: 1 vpp: 1 ga: 1 "
        f"all_gpus: {gpus} checkpoints: 0 checkpoint_initiates: 0\n"
        "1\n"
        f"exchange -1 1 NONE 0 1 NONE 0 1 ALLTOALL {size} 1\n"
    )
    topology = render(problem.fabric, "simai", problem.name, problem.catalog)["simai.topo"]
    return {"simai.topo": topology, "workload.txt": workload}


def find() -> list[Found]:
    """SimAI's programs, of the checkout named by the environment; their tables and settings lie there."""
    named = os.environ.get(FOLDER)
    if not named or not (Path(named) / INPUTS).is_dir():
        return []
    where = os.pathsep.join([str(Path(named) / "bin"), os.environ.get("PATH", "")])
    found = ((name, shutil.which(program, path=where)) for name, program in PROGRAMS.items())
    return [Found(name, str(Path(program).resolve())) for name, program in found if program]


def solve(problem: Problem, found: Found, folder: Path, limit: float) -> Answer:
    """SimAI's time, beside ours: of its packet simulator, or its analytical program.

    Raises Failed where it fails or writes no result.
    """
    for old in [*folder.glob("*EndToEnd.csv"), *folder.glob("results/*EndToEnd.csv")]:
        old.unlink()
    if found.name == "simai ns-3":
        ran = _simulate(found, folder, limit)
        notes = ["hashed paths, DCQCN"]
        if problem.pattern == "pxn":
            notes.append("AS_PXN_ENABLE=1, which does not change its all-to-all")
        return Answer(
            _microseconds(folder) * 1e-6, in_packets(problem, FRAMING), "packets", ran, tuple(notes)
        )
    ran = _calculate(problem, found, folder, limit)
    note = "its bandwidth by formula and tables, without the fabric's wiring; whole microseconds"
    return Answer(_microseconds(folder / "results") * 1e-6, problem.answer[0].time, "fluid", ran, (note,))


def config(theirs: str, topology: str) -> str:
    """SimAI.conf with its files in the folder it runs in, and ECN thresholds for every rate of a topology.

    A rate without thresholds, as a bundle's, would be marked at once, and DCQCN would stand still.
    """
    text = theirs.replace("/etc/astra-sim/simulation/", "simulation/")
    rates = sorted({round(float(line.split()[2][:-4]) * 1e9) for line in topology.splitlines()[2:]})
    for name, share in _THRESHOLDS.items():
        pairs = " ".join(f"{rate} {max(1, int(rate * share))}" for rate in rates)
        text = re.sub(rf"(?m)^{name} .*$", f"{name} {len(rates)} {pairs}", text)
    return re.sub(r"(?m)^PMAX_MAP .*$", f"PMAX_MAP {len(rates)} " + " ".join(f"{r} 0.2" for r in rates), text)


def _simulate(found: Found, folder: Path, limit: float) -> Ran:
    home = Path(os.environ[FOLDER]) / INPUTS / "inputs/config/SimAI.conf"
    if not home.is_file():
        raise Failed(f"'{home}' is not there, and holds the settings of SimAI's transport")
    (folder / "SimAI.conf").write_text(config(home.read_text(), (folder / "simai.topo").read_text()))
    (folder / "simulation").mkdir(exist_ok=True)
    for empty in ("flow1.txt", "trace1.txt"):
        (folder / "simulation" / empty).touch()
    command = [found.program, "-t", "1", "-w", "workload.txt", "-n", "simai.topo", "-c", "SimAI.conf"]
    return run(command, folder, limit, {"AS_SEND_LAT": str(SEND_LATENCY), "AS_PXN_ENABLE": "1"})


def _calculate(problem: Problem, found: Found, folder: Path, limit: float) -> Ran:
    fabric = problem.fabric
    lanes = fabric.rate[fabric.role == Role.SCALE_UP]
    nics = int(np.count_nonzero(fabric.kind == Kind.NIC))
    per_nic = float(fabric.rate[fabric.role == Role.NODE_LEAF].sum()) / nics
    # It looks for its tables below the folder it runs in.
    tables = folder / INPUTS
    if not tables.exists():
        tables.symlink_to((Path(os.environ[FOLDER]) / INPUTS).resolve(), target_is_directory=True)
    (folder / "results").mkdir(exist_ok=True)
    command = [
        found.program, "-w", "workload.txt", "-g", str(fabric.num_gpus),
        "-g_p_s", str(fabric.gpus_per_server), "-nv", f"{float(lanes.max(initial=0.0)) / 1e9:g}",
        "-nic", f"{per_nic / 1e9:g}", "-n_p_s", str(nics // fabric.num_servers), "-r", "crosscheck-",
    ]  # fmt: skip
    try:
        return run(command, folder, limit)
    finally:
        tables.unlink()


def _microseconds(folder: Path) -> float:
    """The time of communication that SimAI's summary ends with, or has in its column 'total exposed comm'."""
    for file in sorted(folder.glob("*EndToEnd.csv")):
        rows = [[cell.strip() for cell in row] for row in csv.reader(file.read_text().splitlines()) if row]
        for row in rows:
            if row[0] == "total exposed comm":
                return float(row[1])
        if len(rows) > 1 and "total exposed comm" in (head := [cell.lower() for cell in rows[0]]):
            return float(rows[1][head.index("total exposed comm")].split()[0])
    raise Failed("SimAI wrote no time of communication")
