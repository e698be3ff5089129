"""SimGrid: the same fluid, solved by another program; every flow has its route written out.

Format: SimGrid platform DTD 4.1 (simgrid.org, "The XML Reference Manual": zone with routing Full, host, link,
route with symmetrical NO).
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np

from railwright.crosscheck.outcome import Answer, Failed, Found
from railwright.crosscheck.problem import Problem, Ways
from railwright.crosscheck.programs import run
from railwright.export.sheet import xml_comment

PYTHON = "RAILWRIGHT_SIMGRID_PYTHON"
HOW = (
    "Debian and Ubuntu: apt install python3-simgrid; else pip install simgrid; "
    f"another Python that has it: {PYTHON}=/path/to/python"
)
PROBE_LIMIT = 20.0
"""Seconds a Python may take to say whether it has SimGrid: 0.1 s is usual."""


def write(problem: Problem) -> dict[str, str | bytes]:
    """platform.xml with a route per flow, flows.csv, and the driver that runs them.

    A host is a GPU; several ways between two GPUs are several hosts 'NAME.2', 'NAME.3', … at the same place,
    because SimGrid knows one route per pair of hosts.  A link is one direction; latencies are 0, as in ours.
    """
    ways, fabric = problem.ways, problem.fabric
    ends = _ends(problem, ways)
    used = np.unique(ways.link).tolist()
    lines = [
        "<?xml version='1.0'?>",
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        xml_comment(f"{problem.name}: {problem.pattern}, {len(problem.ranks)} ranks"),
        '<platform version="4.1">',
        '<zone id="fabric" routing="Full">',
        *(f'<host id="{name}" speed="1f"/>' for name in dict.fromkeys(n for pair in ends for n in pair)),
        *(f'<link id="{i}" bandwidth="{float(fabric.capacity[i])!r}Bps" latency="0s"/>' for i in used),
    ]
    for i, (a, b) in enumerate(ends):
        over = "".join(f'<link_ctn id="{x}"/>' for x in ways.link[ways.ptr[i] : ways.ptr[i + 1]].tolist())
        lines.append(f'<route src="{a}" dst="{b}" symmetrical="NO">{over}</route>')
    flows = "".join(f"{a},{b},{size:.0f}\n" for (a, b), size in zip(ends, ways.size.tolist(), strict=True))
    return {
        "platform.xml": "\n".join([*lines, "</zone>", "</platform>"]) + "\n",
        "flows.csv": flows,
        "simgrid_driver.py": files("railwright.crosscheck").joinpath("simgrid_driver.py").read_text("utf-8"),
    }


def find() -> list[Found]:
    """The Python that has SimGrid: the one named by the environment, ours, or the system's."""
    named = os.environ.get(PYTHON)
    tried = [named] if named else [sys.executable, shutil.which("python3"), "/usr/bin/python3"]
    for python in dict.fromkeys(p for p in tried if p and Path(p).exists()):
        try:
            said = subprocess.run(
                [python, "-c", "import simgrid; print(simgrid.simgrid_version)"],
                capture_output=True, text=True, timeout=PROBE_LIMIT,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            continue
        if said.returncode == 0:
            return [Found("simgrid", python, said.stdout.split()[-1])]
    return []


def solve(problem: Problem, found: Found, folder: Path, limit: float) -> Answer:
    """Finish times by SimGrid, beside ours for the same demands.

    Raises Failed where SimGrid fails or answers for another number of flows.
    """
    times = folder / "times.txt"
    times.unlink(missing_ok=True)
    command = [found.program, "simgrid_driver.py", "platform.xml", "flows.csv", times.name]
    ran = run(command, folder, limit)
    if not times.exists():
        raise Failed(f"SimGrid wrote no times: {ran.last_line()}")
    finish = [float(line) for line in times.read_text().split()]
    if len(finish) != len(problem.ways):
        raise Failed(f"SimGrid answered for {len(finish)} of {len(problem.ways)} flows")
    # A demand of several ways has finished with its last one.
    theirs = np.zeros(len(problem.traffic))
    np.maximum.at(theirs, problem.ways.demand, finish)
    ours = problem.answer[0]
    notes: list[str] = []
    if problem.routes.num_spreads:
        notes.append(
            "a spread demand is one flow per path here, each with a fair share of its own; "
            "in ours the parts keep their proportion"
        )
    else:
        apart = np.abs(theirs - ours.finish) / np.maximum(ours.finish, np.finfo(float).tiny)
        notes.append(f"finish times of single flows differ by at most {float(apart.max(initial=0.0)):.1e}")
    assert math.isfinite(ours.time)
    return Answer(max(finish), ours.time, "fluid", ran, tuple(notes))


def _ends(problem: Problem, ways: Ways) -> list[tuple[str, str]]:
    """Host names of both ends of every way; ways of one pair have different ones."""
    traffic, seen = problem.traffic, dict[tuple[int, int], int]()
    named = []
    for demand in ways.demand.tolist():
        pair = int(traffic.src[demand]), int(traffic.dst[demand])
        seen[pair] = seen.get(pair, 0) + 1
        tail = f".{seen[pair]}" if seen[pair] > 1 else ""
        a, b = (problem.fabric.device_name(gpu) for gpu in pair)
        named.append((a + tail, b + tail))
    return named
