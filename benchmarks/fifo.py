"""The chunk FIFO beside measured and simulated packets: times, errors, CPU seconds, growth with the cluster.

.venv/bin/python benchmarks/fifo.py
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from railwright.catalog import load_catalog
from railwright.fabric import build
from railwright.fabric.graph import Fabric, Role
from railwright.network import Network, solve
from railwright.network.fifo.run import FLUID, ROCE, simulate
from railwright.network.fifo_order import order_sensitivity
from railwright.network.routing.latency import stretched
from railwright.network.routing.latency_parts import by_distance, haul, of_pattern
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator, Traffic, all_to_all
from railwright.traffic.order import ORDERS, places

PACKETS = [
    ("SimGrid 3.32 (fluid)", 64, 1, 347.8, 0.09),
    ("SimGrid 3.32 (fluid)", 256, 1, 352.0, 18.0),
    ("htsim EQDS", 64, 1, 350.2, 7.0),
    ("htsim EQDS", 256, 1, 357.6, 789.0),
    ("SimAI ns-3", 16, 8, 177.0, 2.0),
    ("SimAI ns-3", 32, 8, 261.6, 3.0),
    ("SimAI ns-3", 64, 8, 309.6, 7.0),
]
"""Simulator, ranks, GPUs per node, time [us], CPU time [s]. Source: issue 4, orientation table."""


def cluster(gpus: int, per_server: int, family: Any) -> Fabric:
    """DGX H100 cut to so many GPUs and NICs, QM9700, four groups."""
    parts = load_catalog()
    server = replace(parts.servers["dgx-h100"], gpus=per_server, nics=per_server)
    servers = gpus // per_server
    network = ComputeNetwork(family=family, switch="qm9700", servers_per_group=max(servers // 4, 1))
    cluster = Cluster(servers=servers, server="dgx-h100", compute=network)
    return build(cluster, replace(parts, servers={**parts.servers, "dgx-h100": server}))


def world(fabric: Fabric, size: float, pxn: bool = False) -> Traffic:
    gpus = np.arange(fabric.num_gpus, dtype=np.int32)
    return all_to_all(fabric, Communicator(gpus), size / fabric.num_gpus, pxn)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    answer = work()
    return time.process_time() - begin, answer


def real_packets() -> None:
    """The settings of tests/oracle/test_network_fifo_measured.py."""
    tests = Path(__file__).parent.parent / "tests"
    sys.path[:0] = [str(tests), str(tests / "oracle")]
    from test_network_fifo_measured import BENCH, TCP, bench

    print(
        "namespace bench, 4 hosts x 4 GPUs, 25 Mbit/s, 64 KiB per pair, 4 spines; one message at a time [ms]"
    )
    print("fabric  over  measured    fluid   err     FIFO   err   to peer 0 first")
    for kind, measured in BENCH.items():
        for over, ms in measured.items():
            fabric, traffic = bench(kind, over, 4)
            fluid = solve(Network(fabric), traffic).time * 1e3
            good, bad = (
                simulate(
                    Network(fabric), traffic, places(fabric, traffic, order), TCP.payload, 1, done="sent",
                    relay="message", framing=TCP,
                ).time * 1e3
                for order in ("host-rail-shift", "by-rank")
            )  # fmt: skip
            print(
                f"{kind:7s} {over}:1 {ms:9d} {fluid:8.0f} {fluid / ms - 1:+5.0%} {good:8.0f} "
                f"{good / ms - 1:+5.0%} {bad / good:12.2f}x"
            )
    print()


def packet_simulators() -> None:
    print("all-to-all, 16 MiB per rank, 50 GB/s per rank; NCCL's order, all in flight; RoCE headers, latency")
    print(
        "simulator               ranks    us  CPU,s | fluid us   err | chunks  FIFO us   err  CPU,s   ratio"
    )
    for name, ranks, per_server, theirs, cpu in PACKETS:
        fabric = cluster(ranks, per_server, "rail-optimised" if per_server > 1 else "fat-tree")
        traffic = world(fabric, 16 * 2.0**20)
        fluid = solve(Network(fabric), traffic).time * 1e6
        for chunks in (1, 4, 8):
            chunk = float(traffic.size.max()) / chunks
            place = places(fabric, traffic, "nccl")
            simulate(Network(fabric), traffic, place, chunk, framing=ROCE)  # caches, and the kernel
            spent, answer = timed(
                lambda t=traffic, f=fabric, p=place, c=chunk: simulate(Network(f), t, p, c, framing=ROCE)
            )
            us = answer.time * 1e6
            print(
                f"{name:22s} {ranks:6d} {theirs:6.1f} {cpu:5.2f} | {fluid:7.1f} {fluid / theirs - 1:+6.1%} | "
                f"{chunks:4d} {us:9.1f} {us / theirs - 1:+6.1%} {spent:7.3f} {cpu / spent:6.0f}x"
            )


def orders() -> None:
    print("\norders, all-to-all of 16 MiB per rank, rails without PXN and with it, fat tree: over the fluid")
    print(f"GPUs family          PXN  in flight      {'  '.join(f'{o:>15s}' for o in ORDERS)}")
    for gpus in (64, 128):
        for family, pxn in (("rail-optimised", False), ("rail-optimised", True), ("fat-tree", False)):
            fabric = cluster(gpus, 8, family)
            traffic = world(fabric, 16 * 2.0**20, pxn)
            for window in (1, 8, None):
                found = order_sensitivity(Network(fabric), traffic, window=window)
                line = "  ".join(f"{found.times[o] / found.fluid:15.2f}" for o in ORDERS)
                print(f"{gpus:4d} {family:15s} {'on' if pxn else 'off':4s} {window or 'all'!s:10s}    {line}")


def growth() -> None:
    print("\ntime of one run, all-to-all on rails without PXN, four chunks per message, all in flight")
    for gpus in (64, 128, 256, 512):
        fabric = cluster(gpus, 8, "rail-optimised")
        traffic = world(fabric, 16 * 2.0**20)
        chunk = float(traffic.size.max()) / 4
        for buffer in (None, 8 * chunk):
            spent, answer = timed(
                lambda f=fabric, t=traffic, c=chunk, b=buffer: simulate(
                    Network(f), t, places(f, t, "nccl"), c, buffer=b, framing=FLUID
                )
            )
            kind = "unlimited" if buffer is None else "8 chunks"
            print(
                f"{gpus:4d} GPUs, buffers {kind:9s} {spent:7.2f} CPU s  {answer.time * 1e6:8.1f} us  "
                f"{answer.solution.engine}"
            )


def distances() -> None:
    print("\nlatency by distance, 128 GPUs on rails; then with spines 2 km away")
    fabric = cluster(128, 8, "rail-optimised")
    for place in (fabric, stretched(fabric, {Role.LEAF_SPINE: 2000.0})):
        for reach in by_distance(of_pattern(Network(place), world(place, 1.0))):
            print(
                f"{reach.hops} switches {reach.demands:7,d} pairs {reach.metres:7.0f} m "
                f"{reach.mean * 1e6:8.3f} us"
            )
    for metres in (3, 50, 500, 2e3, 10e3, 80e3, 1e6):
        run = haul(metres, 50e9)
        print(
            f"{metres:9,.0f} m {run.one_way * 1e6:10.3f} us one way {run.in_flight / 1e6:9.3f} MB in flight"
        )


if __name__ == "__main__":
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    print(f"{versions}, {os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}\n")
    compile_s, _ = timed(lambda: __import__("railwright.network.compiled.kernel_fifo"))
    print(f"kernel: {compile_s:.2f} CPU s to compile or load from the cache\n")
    real_packets()
    packet_simulators()
    orders()
    growth()
    distances()
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")
