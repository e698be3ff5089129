"""CPU time of `network.solve` for all-to-all on real fabrics, and what merging and compiling are worth.

.venv/bin/python benchmarks/network.py [GPUs ...]        (default 64 240 512 1024)
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from railwright.catalog import load_catalog
from railwright.fabric import build
from railwright.fabric.graph import Fabric
from railwright.network import Network, solve
from railwright.network.fluid.symmetry import flow_system, without_twins
from railwright.network.maxmin import compiled_rates, finish_times
from railwright.network.routing.paths import find_routes
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator, all_to_all


def cluster(gpus: int, family: Any) -> Fabric:
    """8 H100 per server, QM9700 switches, groups of at most 32 servers."""
    network = ComputeNetwork(family=family, switch="qm9700", servers_per_group=min(gpus // 8, 32))
    return build(Cluster(servers=gpus // 8, server="dgx-h100", compute=network), load_catalog())


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds, because other work on the machine stretches wall time."""
    begin = time.process_time()
    answer = work()
    return time.process_time() - begin, answer


def equal_sizes(gpus: int, family: str, pxn: bool, routing: Any) -> None:
    fabric = cluster(gpus, family)
    world = Communicator(np.arange(gpus, dtype=np.int32))
    traffic = all_to_all(fabric, world, 1e6, pxn)
    whole, answer = timed(lambda: solve(Network(fabric, routing), traffic))
    routes = find_routes(Network(fabric, routing), traffic)
    unmerged = ""
    if gpus <= 512:
        system = flow_system(routes, traffic.size, fabric.capacity)
        numpy_s, slow = timed(lambda: finish_times(system))
        numba_s, fast = timed(lambda: finish_times(system, rates=compiled_rates))
        worst = np.abs(np.array([fast.max(), answer.time]) / slow.max() - 1).max()
        unmerged = f"{numpy_s:9.3f} {numba_s:9.3f} {numpy_s / numba_s:7.1f}x {worst:9.1e}"
    print(
        f"{gpus:5d} {family:15s} {'on' if pxn else 'off':4s}{routing:9s}{len(traffic):10,d} {whole:8.3f} "
        f"{unmerged:40s} {answer.engine}"
    )


def mixed_sizes(gpus: int, routing: Any) -> None:
    fabric = cluster(gpus, "fat-tree")
    sizes = np.random.default_rng(0).uniform(0.5e6, 1.5e6, (gpus, gpus))
    traffic = all_to_all(fabric, Communicator(np.arange(gpus, dtype=np.int32)), sizes, True)
    whole, answer = timed(lambda: solve(Network(fabric, routing), traffic))
    line = f"{gpus:5d} {routing:9s}{len(traffic):10,d} {whole:8.3f}"
    if len(traffic) <= 5_000:
        routes = without_twins(find_routes(Network(fabric, routing), traffic), fabric.capacity)
        system = flow_system(routes, traffic.size, fabric.capacity)
        exact_s, exact = timed(lambda: finish_times(system))
        coarse_s, coarse = timed(lambda: finish_times(system, 0.005))
        line += (
            f"   NumPy exact {exact_s:.2f} s, coarse {coarse_s:.2f} s, {coarse.max() / exact.max() - 1:+.2%}"
        )
    print(line, answer.engine)


if __name__ == "__main__":
    wanted = [int(x) for x in sys.argv[1:]] or [64, 240, 512, 1024]
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    print(f"{versions}, {os.cpu_count()} cores, {platform.machine()}")
    compile_s, _ = timed(lambda: __import__("railwright.network.compiled.kernel_maxmin"))
    print(f"kernel: {compile_s:.2f} s to compile or load from the cache\n")
    print("all-to-all, one size; unmerged columns are finish_times alone [s]")
    print(
        " GPUs family         PXN routing     demands  solve,s     NumPy     numba   ratio  rel.diff  engine"
    )
    for gpus in wanted:
        for family, pxn in (("rail-optimised", True), ("rail-optimised", False), ("fat-tree", False)):
            for routing in ("adaptive", "ecmp", "static"):
                equal_sizes(gpus, family, pxn, routing)
    print("\nall-to-all, a random size for every pair, fat tree\n GPUs routing     demands  solve,s")
    for gpus in [g for g in wanted if g <= 256]:
        for routing in ("adaptive", "ecmp"):
            mixed_sizes(gpus, routing)
