"""The bench measured for real: four processes, gloo on CPUs; skipped where torch is absent."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from railwright.measure.logs import read_log

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed; the bench needs it"
)
WORKER = Path(__file__).parent.parent / "data" / "bench_worker.py"
RANKS = 4


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "out.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    done = subprocess.run(
        [*command, str(WORKER), str(out)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(out.read_text())


def test_every_operation_is_right_and_readable(measured):
    ops = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv"]
    for op, text, values in zip(ops, measured["text"], measured["json"], strict=False):
        assert "# Out of bounds values : 0 OK" in text
        for curve in (*read_log(text), *read_log(json.dumps(values))):
            assert (curve.op, curve.ranks, curve.tool) == (op, RANKS, "railwright")
            assert len(curve.points) == 3
            assert all(p.wrong == 0 and p.time > 0 for p in curve.points)


def test_splits_run_at_the_same_time(measured):
    halves, wide = measured["json"][6:]
    assert halves["groups"] == [[0, 1], [2, 3]]
    assert wide["groups"] == [[0, 2], [1, 3]]
    assert wide["results"][0]["type"] == "double"
    assert halves["out_of_bounds"]["count"] == wide["out_of_bounds"]["count"] == 0


def test_the_check_counts_what_is_wrong(measured):
    """A reduction that does nothing leaves each rank's own data; only chance zeros of the sum agree."""
    assert measured["broken"] > 90


def test_the_matrix_has_every_pair(measured):
    bandwidth = measured["matrix"]["bandwidth"]
    for a in range(RANKS):
        for b in range(RANKS):
            assert (bandwidth[a][b] > 0) == (a != b)
    assert measured["csv"].count("\n") == RANKS + 1


def test_rail_first_moves_the_same_data_as_flat(measured):
    probe = measured["probe"]
    assert (probe["hosts"], probe["ranks"]) == (2, RANKS)
    assert all(row["wrong"] == 0 and row["flat"] > 0 for row in probe["rows"])
