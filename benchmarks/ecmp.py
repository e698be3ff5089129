"""Hashed ECMP against its bars: CPU time and peak memory of one sample, each case in a process of its own.

.venv/bin/python benchmarks/ecmp.py [case ...]        (default: all; CASES names them)

CPU seconds are user plus system of making the demands and one sample of them (paths, hashing, rates), kernels
loaded from the cache; the whole process, imports and fabric included, stands beside them.  Memory is the peak
of the whole process.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

CASES: dict[str, tuple[int, str, int, bool, tuple[float, float] | None]] = {
    # name: (GPUs, family, failed uplinks, fluid, bar as (CPU s, MB))
    "1024 fat-tree": (1024, "fat-tree", 0, True, (2.0, 300.0)),
    "1024 fat-tree, 4 failed": (1024, "fat-tree", 4, True, (2.0, 300.0)),
    "1024 rails": (1024, "rail-optimised", 0, True, (2.0, 300.0)),
    "1024 rails, 4 failed": (1024, "rail-optimised", 4, True, (2.0, 300.0)),
    "1024 fat-tree, bound": (1024, "fat-tree", 0, False, (2.0, 300.0)),
    "1024 fat-tree, listed": (1024, "fat-tree", 0, True, None),
    "4096 fat-tree": (4096, "fat-tree", 0, False, (60.0, 1000.0)),
    "4096 fat-tree, 10 failed": (4096, "fat-tree", 10, False, (60.0, 1000.0)),
    "4096 rails": (4096, "rail-optimised", 0, False, (60.0, 1000.0)),
}


def run(name: str) -> None:
    """One case, here; prints one line."""
    from railwright.catalog import load_catalog
    from railwright.fabric import build
    from railwright.fabric.graph import Role
    from railwright.network import Network
    from railwright.network.ecmp import sampled as ecmp
    from railwright.network.ecmp.flows import all_to_all_stream
    from railwright.spec.study import Cluster, ComputeNetwork
    from railwright.traffic import Communicator, all_to_all

    gpus, family, failed, fluid, bar = CASES[name]
    shape: Any = ComputeNetwork(family=family, switch="qm9700", servers_per_group=32)
    fabric = build(Cluster(servers=gpus // 8, server="dgx-h100", compute=shape), load_catalog())
    if failed:
        from dataclasses import replace

        uplinks = np.flatnonzero(fabric.role >= Role.LEAF_SPINE)
        lost = np.random.default_rng(0).choice(uplinks, failed, replace=False)
        capacity = fabric.capacity.copy()
        capacity[np.concatenate([2 * lost, 2 * lost + 1])] = 0
        fabric = replace(fabric, capacity=capacity)
    world = Communicator(np.arange(gpus, dtype=np.int32))
    __import__("railwright.network.compiled.kernel_ecmp")
    network = Network(fabric, "ecmp")
    begin, clock = time.process_time(), time.perf_counter()
    traffic: Any = (all_to_all if "listed" in name else all_to_all_stream)(fabric, world, 1e6, False)
    answer = ecmp.sample(network, traffic, [0], measure="auto" if fluid else "busiest link")
    cpu, wall = time.process_time() - begin, time.perf_counter() - clock
    usage = resource.getrusage(resource.RUSAGE_SELF)
    whole, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    verdict = "" if bar is None else ("met" if cpu <= bar[0] and peak <= bar[1] else "MISSED")
    print(
        f"{name:26s}{len(traffic):12,d}{cpu:8.2f}{wall:8.2f}{whole:8.2f}{peak:8.0f}"
        f"{answer.slowdown[0]:9.3f}  {answer.exact!s:6s}{verdict}"
    )


if __name__ == "__main__":
    wanted = sys.argv[1:]
    if wanted[:1] == ["--here"]:
        run(wanted[1])
    else:
        versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
        print(f"{versions}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print("case                             flows   cpu,s  wall,s all,cpu      MB slowdown  exact bar")
        for name in wanted or CASES:
            subprocess.run([sys.executable, __file__, "--here", name], check=True)
