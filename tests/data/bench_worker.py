"""One rank of the bench's test: every operation, splits, pairs and the rail probe, in one process group."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from railwright.measure.bench.collective import bench_collective
from railwright.measure.bench.operations import operation
from railwright.measure.bench.pairs import bench_pairs
from railwright.measure.bench.rails import bench_rails
from railwright.measure.bench.session import open_session

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")
SHORT = {"warmup": 1, "iterations": 2}

with open_session("gloo") as session:
    reports = [bench_collective(session, op, [8, 4096, 65536], **SHORT) for op in OPS]
    halves = bench_collective(session, "all_reduce", [4096], splitting="DIV 2", **SHORT)
    wide = bench_collective(session, "all_to_all", [4096], splitting="MOD 2", dtype="double", **SHORT)
    matrix = bench_pairs(session, 4096, **SHORT)
    probe = bench_rails(session, [65536], hosts=2, **SHORT)
    # A reduction that does nothing must be counted as wrong, or the check could not fail.
    idle = SimpleNamespace(all_reduce=lambda *_, **__: None)
    broken = operation(replace(session, dist=idle), "all_reduce", 100, "float", None, range(4)).wrong()
    if session.world.rank == 0:
        found = {
            "text": ["\n".join(r.lines()) + "\n" for r in [*reports, halves, wide]],
            "json": [r.as_json() for r in [*reports, halves, wide]],
            "matrix": matrix.as_json(),
            "csv": matrix.csv(),
            "probe": probe.as_json(),
            "broken": broken,
        }
        Path(sys.argv[1]).write_text(json.dumps(found))
