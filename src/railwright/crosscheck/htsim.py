"""htsim: packets through a fat tree's queues, under a transport's congestion control.

Formats: htsim, sim/datacenter/connection_matrix.cpp (the `.cm` file: Nodes, Connections, then a line
'SRC->DST id N start PS size BYTES' each) and fat_tree_topology.cpp (the `.topo` file, by `export.htsim`).
Packet sizes: main_uec.cpp and main_eqds.cpp (MTU 4,150), uec.cpp and eqds.cpp (64 bytes of header inside it).
"""

from __future__ import annotations

import csv
import math
import os
import re
import shutil
from io import StringIO
from pathlib import Path

import numpy as np

from railwright.crosscheck.outcome import Answer, Failed, Found
from railwright.crosscheck.packets import Framing, in_packets
from railwright.crosscheck.problem import Problem
from railwright.crosscheck.programs import run
from railwright.errors import PlanError
from railwright.export import render
from railwright.fabric.graph import Role

FOLDER = "RAILWRIGHT_HTSIM"
PROGRAMS = ("htsim_uec", "htsim_eqds")
HOW = (
    "build htsim_uec of github.com/ultraethernet/uet-htsim (in htsim/sim: cmake -S . -B build; "
    "cmake --build build) or htsim_eqds of github.com/Broadcom/csg-htsim; "
    f"put it on PATH, or {FOLDER}=/folder/with/it"
)
MTU, HEADER = 4150, 64
"""Bytes of a full packet, and of its header within; htsim's own defaults."""

LARGEST_MESSAGE = 2**31 - 1
"""Bytes: htsim reads sizes with stoi."""

FRAMING = {"htsim_uec": Framing(MTU, HEADER), "htsim_eqds": Framing(MTU, HEADER, granted=0.99)}
"""main_eqds.cpp gives its receivers, EqdsPullPacer, 0.99 of their link."""

QUEUE = 100
"""Packets a port holds (415 kB).  htsim_uec's own choice, one round trip's worth, is 14 packets on a fabric
of 1 us, and then its recovery of trimmed packets is timed instead of the network."""

SLACK = 20.0
"""Simulated end time over our prediction: htsim stops without a word where flows take longer."""

_FINISHED = re.compile(r"finished at ([0-9.e+]+)")


def write(problem: Problem) -> dict[str, str | bytes]:
    """fabric.topo, hosts.csv (which NIC is which host) and traffic.cm: demands that cross a switch.

    A demand through a PXN relay starts at the relay's NIC; its hop over the scale-up switch is left out, and
    so are demands inside a server: htsim knows no scale-up network.
    Raises PlanError where htsim's fat tree cannot be this fabric, its routing, or its faults.
    """
    fabric, traffic = problem.fabric, problem.traffic
    network_links = np.repeat(fabric.role, 2) >= Role.NODE_LEAF
    if (fabric.capacity < np.repeat(fabric.rate, 2))[network_links].any():
        raise PlanError("htsim's fat-tree file has no failed or slow cables, and this fabric has some")
    if problem.network.routing not in ("adaptive", "ecmp"):
        raise PlanError(
            f"htsim has no forwarding tables, so routing '{problem.network.routing}' cannot be given to it; "
            "it knows adaptive and ecmp"
        )
    if not fabric.length[fabric.role >= Role.NODE_LEAF].min() > 0:
        raise PlanError("htsim takes no cable without a delay, and this fabric has cables of no length")
    files = render(fabric, "htsim", problem.name, problem.catalog)
    hosts = _hosts(files["hosts.csv"])
    sent = np.flatnonzero(problem.crossing)
    out = np.where(traffic.relay >= 0, traffic.relay, traffic.src)
    size = traffic.size[sent]
    if len(size) == 0:
        raise PlanError("no demand crosses a switch, and htsim has no scale-up network")
    if size.max() > LARGEST_MESSAGE:
        raise PlanError(
            f"htsim takes messages of at most {LARGEST_MESSAGE:,} bytes, and one has {size.max():,.0f}"
        )
    lines = [f"Nodes {_nodes(files['fabric.topo'])}", f"Connections {len(sent)}"]
    names = [fabric.device_name(int(nic)) for nic in fabric.nic_of_gpu]
    for number, i in enumerate(sent.tolist(), 1):
        a, b = hosts[names[out[i]]], hosts[names[traffic.dst[i]]]
        lines.append(f"{a}->{b} id {number} start 0 size {traffic.size[i]:.0f}")
    return {**files, "traffic.cm": "\n".join(lines) + "\n"}


def find() -> list[Found]:
    """htsim's programs: in the folder (or the very file) named by the environment, else on PATH."""
    named = os.environ.get(FOLDER)
    if named and Path(named).is_file():
        return [Found(Path(named).name, named)] if Path(named).name in PROGRAMS else []
    found = ((name, shutil.which(name, path=named)) for name in PROGRAMS)
    return [Found(name, str(Path(program).resolve())) for name, program in found if program]


def solve(problem: Problem, found: Found, folder: Path, limit: float) -> Answer:
    """When htsim's last flow has finished, beside ours in the same packets and with one round trip.

    Raises Failed where htsim fails or leaves flows unfinished.
    """
    ours = in_packets(problem, FRAMING[found.name])
    rate = round(float(problem.fabric.rate[problem.fabric.role == Role.NODE_LEAF][0]) * 8 / 1e6)
    end = math.ceil(ours * SLACK * 1e6)
    # One path per flow is what hashing without spraying does; its hash is not ours.
    paths = ["-paths", "1"] if problem.network.routing == "ecmp" else []
    command = [
        found.program, "-tm", "traffic.cm", "-topo", "fabric.topo", "-linkspeed", str(rate),
        "-end", str(end), "-o", "htsim.dat", "-q", str(QUEUE), *paths, *_window(problem, found, rate),
    ]  # fmt: skip
    ran = run(command, folder, limit)
    (folder / "htsim.dat").unlink(missing_ok=True)
    finished = [float(m) for m in _FINISHED.findall(ran.output.read_text(errors="replace"))]
    flows = int(np.count_nonzero(problem.crossing))
    if len(finished) != flows:
        raise Failed(
            f"{found.name} finished {len(finished)} of {flows} flows within {end} simulated us: "
            f"{ran.last_line()}"
        )
    notes = ["its own congestion control and spraying; ends when the last acknowledgement is back"]
    if problem.network.routing == "ecmp":
        notes.append("one path per flow, but by its own hash")
    if not problem.crossing.all():
        notes.append(f"{np.count_nonzero(~problem.crossing)} demands inside servers left out")
    return Answer(max(finished) * 1e-6, ours, "packets", ran, tuple(notes))


def _window(problem: Problem, found: Found, rate: int) -> list[str]:
    """EQDS sends a first window unasked; its default, 50 packets a flow, swamps a receiver of many flows.

    One round trip's worth, divided among the flows of a sender, at least a packet; `rate` in Mb/s.
    """
    if found.name != "htsim_eqds":
        return []
    out = np.where(problem.traffic.relay >= 0, problem.traffic.relay, problem.traffic.src)
    flows = int(np.bincount(out[problem.crossing]).max())
    packet = MTU * 8 / (rate * 1e6)
    trip = 2 * problem.wire_latency + (int(problem.routes.hops.max()) + 1) * packet
    return ["-cwnd", str(max(1, math.ceil(trip / packet / flows)))]


def _hosts(text: str) -> dict[str, int]:
    """NIC name -> htsim's host."""
    hosts: dict[str, int] = {}
    for row in csv.DictReader(StringIO(text)):
        if row["nic"] in hosts:
            raise PlanError("htsim's hosts have one port each, and the NICs of this fabric have several")
        hosts[row["nic"]] = int(row["host"])
    return hosts


def _nodes(topology: str) -> int:
    return next(int(line.split()[1]) for line in topology.splitlines() if line.startswith("Nodes "))
