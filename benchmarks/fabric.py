"""Time and memory of building fabrics, each in a process of its own.

.venv/bin/python benchmarks/fabric.py            bars: 131,072 GPUs in three tiers <= 3 s and <= 1 GB;
                                                 1,024 servers <= 0.5 s
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time

import numpy as np

CASES = {
    "1,024 servers, rail-optimised": (1024, "rail-optimised", "qm9700", {}),
    "1,024 servers, fat tree": (1024, "fat-tree", "qm9700", {}),
    "1,024 servers, dual-plane": (1024, "dual-plane", "th5-400g", {"breakout": 2}),
    "131,072 GPUs, rail-optimised, 3 tiers": (16384, "rail-optimised", "th5-400g", {"tiers": 3}),
    "131,072 GPUs, fat tree, 3 tiers": (16384, "fat-tree", "th5-400g", {"tiers": 3}),
    "131,072 GPUs, dual-plane, 3 tiers": (16384, "dual-plane", "th5-400g", {"tiers": 3, "breakout": 2}),
}


def measure(case: str) -> None:
    """Print one line: seconds to plan and wire, to count, and the process's peak memory, imports included."""
    from railwright.catalog import load_catalog
    from railwright.fabric import build, count
    from railwright.spec.study import Cluster, ComputeNetwork

    servers, family, switch, more = CASES[case]
    catalog = load_catalog()
    network = ComputeNetwork.model_validate({"family": family, "switch": switch, **more})
    cluster = Cluster(servers=servers, server="dgx-h100", compute=network)
    begin = time.perf_counter()
    fabric = build(cluster, catalog)
    built = time.perf_counter()
    counts = count(fabric, catalog)
    counted = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{case:38s} {built - begin:8.3f} {counted - built:8.3f} {peak:9.0f} {counts.switches:9,d} "
        f"{fabric.num_cables:10,d}"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        print(
            f"Python {platform.python_version()}, NumPy {np.__version__}, {os.cpu_count()} cores, "
            f"{platform.machine()}"
        )
        print(
            f"{'':38s} {'build,s':>8s} {'count,s':>8s} {'peak,MiB':>9s} {'switches':>9s} {'cables':>10s}",
            flush=True,
        )
        for name in CASES:
            subprocess.run([sys.executable, __file__, name], check=True)
