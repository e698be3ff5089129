"""The explicit fluid engine beside SimGrid, and one large filling: CPU seconds, after warm-up.

.venv/bin/python benchmarks/explicit.py        (SimGrid: Debian's python3-simgrid, for /usr/bin/python3)
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from railwright.catalog import load_catalog
from railwright.fabric import build
from railwright.fabric.graph import Fabric, Role
from railwright.network import Network, simulate, solve, together
from railwright.network.maxmin import FluidSystem, compiled_rates
from railwright.network.routing.paths import find_routes
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator, Traffic, all_to_all

SIMGRID = """
import json, sys, time
from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone
p = json.load(open(sys.argv[1]))
wanted = ("network/model:CM02", "network/bandwidth-factor:1", "network/latency-factor:1",
          "network/weight-S:0", "network/TCP-gamma:1e20", "network/crosstraffic:0",
          "maxmin/precision:1e-6", "surf/precision:1e-12")
engine = Engine(["x", "--log=root.thres:error"] + ["--cfg=" + c for c in wanted])
zone = NetZone.create_full_zone("z")
hosts = [zone.create_host(str(i), 1e9) for i in range(p["hosts"])]
links = [zone.create_link("l%d" % i, c).set_latency(0).seal() for i, c in enumerate(p["capacity"])]
for s, d, route in zip(p["src"], p["dst"], p["route"]):
    zone.add_route(hosts[s].netpoint, hosts[d].netpoint, None, None, [LinkInRoute(links[x]) for x in route],
                   False)
zone.seal()
comms = []
def send():
    for s, d, size in zip(p["src"], p["dst"], p["size"]):
        comms.append(Comm.sendto_async(hosts[s], hosts[d], int(size)))
    Comm.wait_all(comms)
Actor.create("send", hosts[0], send)
begin = time.process_time()
engine.run()
print(json.dumps({"cpu": time.process_time() - begin, "finish": [c.finish_time for c in comms]}))
"""


def fat_tree(k: int, rate: float = 1e9) -> Fabric:
    """The k-ary fat tree: k^3/4 hosts of one GPU and one NIC, all switch cables of one rate [byte/s]."""
    half = k // 2
    hosts, edges = k * half * half, k * half
    leaf0 = 3 * hosts
    spine0, core0 = leaf0 + edges, leaf0 + 2 * edges
    g = np.arange(hosts)
    pod, i, j = (
        x.ravel() for x in np.meshgrid(np.arange(k), np.arange(half), np.arange(half), indexing="ij")
    )
    ends = [
        (g, 2 * hosts + g, 9 * rate, Role.SCALE_UP),
        (g, hosts + g, 2 * rate, Role.PCIE),
        (hosts + g, leaf0 + g // half, rate, Role.NODE_LEAF),
        (leaf0 + pod * half + i, spine0 + pod * half + j, rate, Role.LEAF_SPINE),
        (spine0 + pod * half + i, core0 + i * half + j, rate, Role.SPINE_CORE),
    ]
    a, b = (np.concatenate([e[x] for e in ends]).astype(np.int32) for x in (0, 1))
    rates = np.concatenate([np.full(len(e[0]), e[2]) for e in ends])
    role = np.concatenate([np.full(len(e[0]), e[3]) for e in ends]).astype(np.int32)
    kind = np.repeat(np.arange(6), [hosts, hosts, hosts, edges, edges, half * half]).astype(np.int32)
    server = np.concatenate([g, g, g, np.full(len(kind) - leaf0, -1)]).astype(np.int32)
    none, ports = np.full(len(kind), -1, np.int32), np.zeros(len(a), np.int32)
    return Fabric(
        f"{k}-ary fat tree", "clos", kind, server, none, none, a, b, ports, ports, rates, np.zeros(len(a)),
        role, np.repeat(rates, 2), np.arange(hosts, 2 * hosts, dtype=np.int32), np.zeros(len(kind)), {},
    )  # fmt: skip


def random_pairs(k: int, flows: int, seed: int = 0) -> Traffic:
    """Different pairs of hosts, sizes of 1 MB to 1 GB."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, k**3 // 4, (3 * flows, 2))
    pairs = rng.permutation(np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0))[:flows].astype(np.int32)
    sizes = rng.integers(10**6, 10**9, flows).astype(float)
    return Traffic(pairs[:, 0], pairs[:, 1], np.full(flows, -1, np.int32), sizes)


def spent(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds, wall seconds, and what came out."""
    begin, clock = time.process_time(), time.perf_counter()
    answer = work()
    return time.process_time() - begin, time.perf_counter() - clock, answer


def beside_simgrid(k: int, flows: int) -> dict[str, float] | None:
    """Our CPU seconds, SimGrid's, and the largest relative difference of finish times; None without it."""
    network, traffic = Network(fat_tree(k), "ecmp"), random_pairs(k, flows)
    simulate(network, together(traffic), "numba")
    ours, wall, run = spent(lambda: simulate(network, together(traffic), "numba"))
    print(f"{flows:,} flows, k={k}: {1e3 * ours:.1f} ms with routes, {run.solutions:,} solutions")
    routes = find_routes(network, traffic)
    problem = {
        "hosts": network.fabric.num_gpus, "capacity": network.fabric.capacity.tolist(),
        "src": traffic.src.tolist(), "dst": traffic.dst.tolist(), "size": traffic.size.tolist(),
        "route": [x.tolist() for x in np.split(routes.link, routes.ptr[1:-1])],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.json"
        file.write_text(json.dumps(problem))
        command = ["/usr/bin/python3", "-c", SIMGRID, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"  SimGrid did not run: {done.stderr.strip().splitlines()[-1]}")
        return None
    peer = json.loads(done.stdout.splitlines()[-1])
    worst = np.abs(run.finish / np.array(peer["finish"]) - 1).max()
    print(f"  SimGrid {peer['cpu']:.2f} s: {peer['cpu'] / ours:.0f}x; finish times differ by {worst:.1e}")
    return {"ours": ours, "wall": wall, "SimGrid": float(peer["cpu"]), "apart": float(worst)}


def one_solution(k: int, flows: int) -> tuple[float, float]:
    """CPU and wall seconds of the best of 5. Switch links alone, so that the k=32 tree has 49,152."""
    fabric, traffic = fat_tree(k), random_pairs(k, flows)
    routes = find_routes(Network(fabric, "ecmp"), traffic)
    row = np.repeat(np.arange(flows), np.diff(routes.ptr))
    stays = np.repeat(fabric.role, 2)[routes.link] >= Role.NODE_LEAF
    base = int(np.flatnonzero(np.repeat(fabric.role, 2) >= Role.NODE_LEAF)[0])
    ptr = np.concatenate([[0], np.cumsum(np.bincount(row[stays], minlength=flows))])
    link = (routes.link[stays] - base).astype(np.int32)
    system = FluidSystem(ptr, link, np.ones(len(link)), fabric.capacity[base:], traffic.size, np.ones(flows))
    best, wall, _ = min(
        (spent(lambda: compiled_rates(system, np.arange(flows), system.capacity)) for _ in range(5)),
        key=lambda run: run[0],
    )
    print(f"{flows:,} flows on {len(system.capacity):,} links, one solution: {1e3 * best:.0f} ms (best of 5)")
    return best, wall


def all_pairs(gpus: int) -> tuple[float, float, str]:
    """CPU and wall seconds of `solve`, best of 5 after a warm-up: all-to-all, one hashed path per flow."""
    network = ComputeNetwork(family="fat-tree", switch="qm9700", servers_per_group=32)
    fabric = build(Cluster(servers=gpus // 8, server="dgx-h100", compute=network), load_catalog())
    traffic = all_to_all(fabric, Communicator(np.arange(gpus, dtype=np.int32)), 1e6, False)
    runs = [spent(lambda: solve(Network(fabric, "ecmp"), traffic)) for _ in range(6)][1:]
    best, wall, answer = min(runs, key=lambda run: run[0])
    each = ", ".join(f"{seconds:.2f}" for seconds, *_ in runs)
    print(f"{len(traffic):,} flows, all-to-all, routes and report included: {each} s; {answer.engine}")
    return best, wall, answer.engine


if __name__ == "__main__":
    compile_s, *_ = spent(lambda: __import__("railwright.network.compiled.kernel_events"))
    print(f"{sys.version.split()[0]}, NumPy {np.__version__}; kernels {compile_s:.1f} s to compile or load")
    beside_simgrid(16, 4_000)
    one_solution(32, 100_000)
    all_pairs(1024)
