"""Traces read by the programs they are for: ASTRA-sim (Chakra), LogGOPSim (GOAL), SimAI's analytical program.

Each takes computing as it is written, so computing is what must agree; their networks are their own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from railwright.crosscheck import astra
from railwright.spec.training import Overlap, TrainingJob
from railwright.traces import export, replay, simai, step_trace
from railwright.traces.graph import StepTrace
from railwright.traces.outcome import on_one_processor
from training_cases import DENSE, MOE, job, machine, priced

LOGGOPSIM = "RAILWRIGHT_LOGGOPSIM"
"""Folder with LogGOPSim and txt2bin (github.com/spcl/LogGOPSim)."""
SIMAI = os.environ.get("RAILWRIGHT_SIMAI")

_ASTRA = {found.name: found.program for found in astra.find()}
_ON_PATH = {name: shutil.which(name, path=os.environ.get(LOGGOPSIM)) for name in ("txt2bin", "LogGOPSim")}
_ANALYTICAL = shutil.which("SimAI_analytical", path=f"{SIMAI}/bin" if SIMAI else None)

CASES: dict[str, tuple[bool, TrainingJob]] = {
    "tensor and pipeline": (False, job(batch=16, sequence=512, tensor=2, pipeline=2)),
    "experts": (True, job(batch=16, sequence=512, expert=4)),
    "stages that wait for launches": (False, job(batch=16, sequence=512, pipeline=4)),
    "not overlapped": (False, job(batch=16, sequence=512, tensor=4, overlap=Overlap(dp=False, pp=False))),
}


def made(name: str) -> StepTrace:
    moe, one = CASES[name]
    return step_trace(one, MOE if moe else DENSE, machine(2))[0]


@pytest.mark.skipif("astra-sim levels" not in _ASTRA, reason=f"no ASTRA-sim here; {astra.HOW}")
@pytest.mark.parametrize("name", CASES)
def test_astra_sim_runs_all_ranks_and_computes_as_long(name: str, tmp_path: Path) -> None:
    """All 16 ranks finish; total minus exposed communication is computing and waiting for the host.

    Chakra has whole microseconds, so nodes below half of one count as one nanosecond: 1 us a node at most.
    """
    moe, one = CASES[name]
    export(one, MOE if moe else DENSE, machine(2), "chakra", tmp_path / "et")
    (tmp_path / "net.yml").write_text(
        "topology: [ Switch ]\nnpus_count: [ 16 ]\nbandwidth: [ 46.57 ]\nlatency: [ 500.0 ]\n"
    )
    (tmp_path / "memory.json").write_text(json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}))
    (tmp_path / "sys.json").write_text(astra._system(1))
    ran = subprocess.run(
        [
            _ASTRA["astra-sim levels"], "--workload-configuration=et/workload",
            "--comm-group-configuration=et/comm_groups.json", "--system-configuration=sys.json",
            "--remote-memory-configuration=memory.json", "--network-configuration=net.yml",
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    # It may abort after it has reported, while it clears up; what it reported is what counts.
    found = re.findall(r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (\d+) cycles", ran.stdout)
    assert sorted(int(rank) for rank, _, _ in found) == list(range(16))
    trace = made(name)
    for rank, cycles, exposed in found:
        nodes = [n for n in trace.nodes(int(rank)) if n.kind == "compute"]
        computed = (int(cycles) - int(exposed)) * 1e-9
        assert computed == pytest.approx(sum(n.seconds for n in nodes), abs=1e-6 + 1e-9 * len(nodes))


@pytest.mark.skipif(None in _ON_PATH.values(), reason=f"no LogGOPSim here; name its folder in {LOGGOPSIM}")
@pytest.mark.parametrize("name", CASES)
def test_loggopsim_on_a_free_network_takes_as_long_as_ours(name: str, tmp_path: Path) -> None:
    """With L = o = g = G = O = 0 its last rank ends when ours does with free collectives, to 1 ns a node."""
    moe, one = CASES[name]
    export(one, MOE if moe else DENSE, machine(2), "goal", tmp_path / "goal")
    subprocess.run(
        [str(_ON_PATH["txt2bin"]), "-i", "goal/case.goal", "-o", "case.bin"],
        cwd=tmp_path, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    ran = subprocess.run(
        [
            str(_ON_PATH["LogGOPSim"]), "-f", "case.bin", "-S", "1000000000",
            "-L", "0", "-o", "0", "-g", "0", "-G", "0", "-O", "0",
        ],
        cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    ends = {int(rank): int(end) * 1e-9 for rank, end in re.findall(r"Host (\d+): (\d+)", ran.stdout)}
    ours = replay(on_one_processor(replay(made(name), machine(2))), machine(2), priced(0.0))
    assert sorted(ends) == list(range(16))
    nodes = max(len(runs) for runs in ours.runs)
    assert max(ends.values()) == pytest.approx(ours.time, abs=1e-9 * nodes)


@pytest.mark.skipif(_ANALYTICAL is None, reason="no SimAI_analytical here; RAILWRIGHT_SIMAI=/path/to/SimAI")
@pytest.mark.parametrize("name", CASES)
def test_simai_reads_every_row_and_finishes(name: str, tmp_path: Path) -> None:
    moe, one = CASES[name]
    export(one, MOE if moe else DENSE, machine(2), "simai", tmp_path / "work")
    file = tmp_path / "work" / "case.txt"
    (tmp_path / "results").mkdir()
    (tmp_path / "astra-sim-alibabacloud").symlink_to(Path(str(SIMAI)) / "astra-sim-alibabacloud")
    ran = subprocess.run(
        [
            str(_ANALYTICAL), "-w", str(file), "-r", "case-",
            "-g", "16", "-g_p_s", "8", "-nv", "450", "-nic", "50", "-n_p_s", "8",
        ],
        cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    rows = simai.read(file).rows
    assert ran.stdout.count(" , depen: -1 ") == len(rows)
    assert "SimAI-Analytical finished" in ran.stdout
    ended = re.search(r"all passes finished at time: (\d+)", ran.stdout)
    assert ended is not None
    written = sum(part.seconds for row in rows for part in (row.forward, row.gradient, row.weight))
    # Its clock has the computing and a nanosecond a row and phase; communication is reported beside it.
    assert int(ended[1]) * 1e-9 == pytest.approx(written, abs=1e-8 * len(rows))
    # Its bubble [us] is 1F1B's: a microbatch's part of the rows' time for every other stage.
    line = (tmp_path / "results" / "case-EndToEnd.csv").read_text().splitlines()[1]
    bubble = float(line.split(", ")[6].split()[0]) * 1e-6
    stages, passes = CASES[name][1].layout.pipeline, simai.read(file).microbatches
    assert written * (stages - 1) / passes == pytest.approx(bubble, rel=0.05)
