"""ASTRA-sim's analytical networks: one crossbar with queues, and the levels of a fabric without.

Formats: astra-sim, examples/network/analytical/*.yml and examples/system/native_collectives/*.json; Chakra
traces (`crosscheck.chakra`); astra-network-analytical, congestion_aware/network/Link.cpp (a link takes one
message after the other, whole) and common/NetworkFunction (its GB are 2**30 bytes).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np

from railwright.crosscheck import chakra
from railwright.crosscheck.outcome import Answer, Failed, Found
from railwright.crosscheck.problem import Problem
from railwright.crosscheck.programs import run
from railwright.errors import PlanError
from railwright.export import render
from railwright.fabric.graph import Role
from railwright.units import GIB

FOLDER = "RAILWRIGHT_ASTRA"
PROGRAMS = {
    "astra-sim crossbar": "AstraSim_Analytical_Congestion_Aware",
    "astra-sim levels": "AstraSim_Analytical_Congestion_Unaware",
}
HOW = (
    "build github.com/astra-sim/astra-sim (build/astra_analytical/build.sh; needs cmake and protobuf); "
    f"put its bin folder on PATH, or {FOLDER}=/folder/with/it"
)
ENDPOINT_DELAY = 10
"""Nanoseconds before a message, as in ASTRA-sim's examples; with 0 its event queue stops."""

_FINISHED = re.compile(r"sys\[\d+\] finished, (\d+) cycles")


def write(problem: Problem) -> dict[str, str | bytes]:
    """crossbar.yml, levels.yml (where all GPUs take part), a system file for each, and a trace per rank.

    An all-to-all is one collective, sent 'direct'; other patterns are sends and receives.
    Raises PlanError for relays (PXN), and where a rank sends several messages: ASTRA-sim sends one at a time.
    """
    problem_is_plain(problem)
    ranks = len(problem.ranks)
    files: dict[str, str | bytes] = {
        "crossbar.yml": _crossbar(problem),
        "crossbar.json": _system(1),
        "memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}) + "\n",
    }
    if problem.everyone:
        levels = render(problem.fabric, "astra-sim", problem.name, problem.catalog)["network.yml"]
        files |= {"levels.yml": levels, "levels.json": _system(_dimensions(levels))}
    for rank in range(ranks):
        files[f"workload.{rank}.et"] = chakra.trace(_nodes(problem, rank))
    return files


def problem_is_plain(problem: Problem) -> None:
    """Raise PlanError where ASTRA-sim's workload cannot say these demands."""
    if problem.pattern == "pxn":
        raise PlanError("ASTRA-sim's analytical networks have no relays, so PXN cannot be said")
    if problem.pattern != "all-to-all":
        most = max(Counter(problem.traffic.src.tolist()).values())
        if most > 1:
            raise PlanError(
                f"a rank sends {most} messages at once here, and ASTRA-sim sends one after the other"
            )


def find() -> list[Found]:
    """ASTRA-sim's two programs: in the folder named by the environment, else on PATH."""
    where = os.environ.get(FOLDER)
    found = ((name, shutil.which(program, path=where)) for name, program in PROGRAMS.items())
    return [Found(name, str(Path(program).resolve())) for name, program in found if program]


def solve(problem: Problem, found: Found, folder: Path, limit: float) -> Answer:
    """When ASTRA-sim's last rank has finished, beside ours: on its crossbar, or, for levels, on the fabric.

    Raises Failed where it fails or a rank does not finish, PlanError for levels of a part of the GPUs.
    """
    kind = found.name.split()[-1]
    if not (folder / f"{kind}.yml").exists():
        raise PlanError("its levels are those of the whole fabric; ask for all GPUs")
    command = [
        found.program, "--workload-configuration=workload", f"--system-configuration={kind}.json",
        "--remote-memory-configuration=memory.json", f"--network-configuration={kind}.yml",
    ]  # fmt: skip
    ran = run(command, folder, limit)
    cycles = [int(c) for c in _FINISHED.findall(ran.output.read_text(errors="replace"))]
    if len(cycles) != len(problem.ranks):
        raise Failed(f"{len(cycles)} of {len(problem.ranks)} ranks finished: {ran.last_line()}")
    if kind == "crossbar":
        notes = (
            "every GPU on one crossbar at its NIC's rate, also inside servers; messages are stored whole",
        )
        return Answer(max(cycles) * 1e-9, crossbar_time(problem), "one crossbar", ran, notes)
    notes = (
        "its formula per level: links of different messages are not shared, switches not oversubscribed",
    )
    return Answer(max(cycles) * 1e-9, problem.answer[0].time, "fluid", ran, notes)


def crossbar_time(problem: Problem) -> float:
    """Time of the demands on one crossbar, `stored_whole` at its busiest port [s].

    The bytes on a port are a bound that first-come service meets where, as in an all-to-all, a ring or a
    shift, every port has the same to do.
    """
    traffic = problem.traffic
    busiest = max(
        np.bincount(traffic.src, weights=traffic.size).max(),
        np.bincount(traffic.dst, weights=traffic.size).max(),
    )
    return stored_whole(float(busiest), float(traffic.size.max()), _rate(problem), _latency(problem))


def stored_whole(busiest: float, message: float, rate: float, latency: float) -> float:
    """A port sends all its bytes; the last message then leaves the crossbar once more [s].

    busiest  bytes of the busiest port, message  bytes of the last message [byte]
    rate     of a link [byte/s], latency  of each of the two links of a way [s]
    Source: astra-network-analytical, congestion_aware/network/Link.cpp.
    """
    return (busiest + message) / rate + 2 * latency


def _nodes(problem: Problem, rank: int) -> list[bytes]:
    traffic = problem.traffic
    if problem.pattern == "all-to-all":
        per_rank = int(traffic.size[0]) * len(problem.ranks)
        return [
            chakra.node(0, "all-to-all", chakra.COLLECTIVE, comm_type=chakra.ALL_TO_ALL, comm_size=per_rank)
        ]
    nodes: list[bytes] = []
    for kind, name, ends in ((chakra.SEND, "send", traffic.src), (chakra.RECEIVE, "receive", traffic.dst)):
        for i in np.flatnonzero(ends == rank).tolist():
            message = {
                "comm_src": int(traffic.src[i]), "comm_dst": int(traffic.dst[i]),
                "comm_tag": i, "comm_size": int(traffic.size[i]),
            }  # fmt: skip
            nodes.append(chakra.node(len(nodes), name, kind, **message))
    return nodes


def _crossbar(problem: Problem) -> str:
    return (
        f"# {problem.name}: every GPU at its NIC's rate; GB/s of 2**30 byte; ns\n"
        "topology: [ Switch ]\n"
        f"npus_count: [ {len(problem.ranks)} ]\n"
        f"bandwidth: [ {_rate(problem) / GIB:.9f} ]\n"
        f"latency: [ {_latency(problem) * 1e9:.1f} ]\n"
    )


def _system(dimensions: int) -> str:
    """Everything sent at once and in one piece: no chunks, no reduction, no compute."""
    system = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": ENDPOINT_DELAY,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        **{
            f"{op}-implementation": ["ring"] * dimensions
            for op in ("all-reduce", "all-gather", "reduce-scatter")
        },
        "all-to-all-implementation": ["direct"] * dimensions,
        "collective-optimization": "localBWAware",
        "local-mem-bw": 1600,
        "boost-mode": 0,
        "roofline-enabled": 0,
        "peak-perf": 900,
    }
    return json.dumps(system, indent=1) + "\n"


def _rate(problem: Problem) -> float:
    """What one GPU sends through its NIC [byte/s]."""
    fabric = problem.fabric
    users = Counter(fabric.nic_of_gpu.tolist())
    per_nic = np.bincount(fabric.a, weights=np.where(fabric.role == Role.NODE_LEAF, fabric.rate, 0.0))
    return min(float(per_nic[nic]) / users[nic] for nic in users)


def _latency(problem: Problem) -> float:
    """Of one of the two links of a way: half of the longest [s]."""
    return problem.wire_latency / 2


def _dimensions(network: str) -> int:
    return next(line for line in network.splitlines() if line.startswith("topology")).count("Switch")
