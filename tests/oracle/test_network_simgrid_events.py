"""SimGrid's fluid model, without its latency and bandwidth corrections, gives the same finish times."""

from __future__ import annotations

import json
import runpy
import subprocess
from pathlib import Path

import numpy as np
import pytest

from railwright.network import Network, simulate, together
from railwright.network.routing.paths import find_routes

PYTHON = "/usr/bin/python3"


def test_500_coupled_flows_on_a_fat_tree(tmp_path: Path) -> None:
    there = Path(PYTHON).exists() and subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True)
    if not there or there.returncode:
        pytest.skip("python3-simgrid is not installed for /usr/bin/python3")
    bench = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "explicit.py"))
    network, traffic = Network(bench["fat_tree"](8), "ecmp"), bench["random_pairs"](8, 500)
    routes = find_routes(network, traffic)
    file = tmp_path / "problem.json"
    file.write_text(
        json.dumps(
            {
                "hosts": network.fabric.num_gpus,
                "capacity": network.fabric.capacity.tolist(),
                "src": traffic.src.tolist(),
                "dst": traffic.dst.tolist(),
                "size": traffic.size.tolist(),
                "route": [x.tolist() for x in np.split(routes.link, routes.ptr[1:-1])],
            }
        )
    )
    done = subprocess.run([PYTHON, "-c", bench["SIMGRID"], str(file)], capture_output=True, check=True)
    theirs = json.loads(done.stdout.splitlines()[-1])["finish"]
    assert simulate(network, together(traffic), "numba").finish == pytest.approx(theirs, rel=1e-9)
