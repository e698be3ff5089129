"""What hashing costs on fabrics like those that publish an effect; the tables of docs/network/ecmp.md.

.venv/bin/python benchmarks/ecmp_effects.py [fabric ...]        (default: all)
.venv/bin/python benchmarks/ecmp_effects.py --rounds            (what the order of an all-to-all costs)

Nothing is fitted: fabric, schedule and queue pairs go in, the slowdown against adaptive routing comes out.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from railwright.catalog import load_catalog
from railwright.fabric import build
from railwright.fabric.graph import Fabric
from railwright.network import Network
from railwright.network.ecmp import sampled as ecmp
from railwright.network.ecmp.rounds import all_to_all_rounds, channels_per_peer
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator, all_to_all, ring

SEEDS = range(12)
QPS = (1, 4, 8, 16)
CHANNELS = 32
NIC = 50e9

FABRICS: dict[str, tuple[int, dict[str, Any]]] = {
    # DGX H100 with 400 Gb/s NICs and QM9700-sized switches throughout; racks of two servers as Meta's RTSW.
    "racks 1:1": (32, {"family": "fat-tree", "servers_per_group": 2}),
    "racks 2x uplinks": (
        32,
        {"family": "fat-tree", "servers_per_group": 2, "spines": 16, "spare_spines": 16},
    ),
    "racks 1:1.125": (32, {"family": "fat-tree", "servers_per_group": 2, "spines": 16, "spare_spines": 2}),
    "rails, 240 GPUs": (30, {"family": "rail-optimised", "servers_per_group": 4}),
}


def fabric_of(name: str) -> Fabric:
    servers, shape = FABRICS[name]
    network = ComputeNetwork(switch="qm9700", **shape)
    return build(Cluster(servers=servers, server="dgx-h100", compute=network), load_catalog())


def row(label: str, fabric: Fabric, traffic: Any, stripes: int, rounds: Any, **how: Any) -> None:
    """One line: median slowdown and p10 to p90 per number of queue pairs."""
    cells, begin = [], time.process_time()
    for qps in QPS:
        answer = ecmp.sample(Network(fabric, qps=qps * stripes, **how), traffic, SEEDS, rounds)
        p = answer.percentiles
        cells.append(f"{p['p50']:.2f} ({p['p10']:.2f}-{p['p90']:.2f})" + ("" if answer.exact else " >="))
    print(f"| {label} | {' | '.join(cells)} |  <!-- {time.process_time() - begin:.0f} CPU s -->", flush=True)


def paces() -> None:
    """An all-to-all of 128 GPUs with few peers at a time: median time of both paces, and without order."""
    shape: Any = {"family": "fat-tree", "servers_per_group": 2}
    network = ComputeNetwork(switch="qm9700", **shape)
    fabric = build(Cluster(servers=16, server="dgx-h100", compute=network), load_catalog())
    world = Communicator(np.arange(128, dtype=np.int32))
    traffic = all_to_all(fabric, world, 1e6, False)
    at_once = ecmp.sample(Network(fabric), traffic, range(5))
    print(f"adaptive {at_once.adaptive * 1e3:.2f} ms, at once {np.median(at_once.time) * 1e3:.2f} ms")
    for channels in (1, 2, 4, 8):
        rounds = all_to_all_rounds(world, traffic, channels=channels)
        times = [
            np.median(ecmp.sample(Network(fabric), traffic, range(5), one).time) * 1e3
            for one in (rounds, replace(rounds, pace="pipelined"))
        ]
        print(
            f"{8 * channels:3d} peers: synchronised {times[0]:.2f} ms, pipelined {times[1]:.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["--rounds"]:
        paces()
        sys.exit()
    for name in sys.argv[1:] or FABRICS:
        fabric = fabric_of(name)
        world = Communicator(np.arange(fabric.num_gpus, dtype=np.int32))
        stripes = channels_per_peer(len(world), NIC, CHANNELS)
        rings = ring(fabric, world, 1e9)
        print(f"\n{name}: {fabric.num_gpus} GPUs\n| traffic | " + " | ".join(f"{q} QP" for q in QPS) + " |")
        print("|---" * (len(QPS) + 1) + "|")
        row("ring", fabric, rings, 1, None)
        row("ring, 2 channels per NIC", fabric, rings, 2, None)
        row("ring, addresses hashed only", fabric, rings, 1, None, entropy="address")
        direct = all_to_all(fabric, world, 1e6, False)
        row("all-to-all at once", fabric, direct, stripes, None)
        rounds = all_to_all_rounds(world, direct, channels=CHANNELS, per_peer=stripes)
        row("all-to-all in NCCL's rounds", fabric, direct, stripes, rounds)
        few = all_to_all_rounds(world, direct, channels=1, per_peer=1)
        row("all-to-all, 8 peers at a time", fabric, direct, 1, few)
        row("all-to-all at once, PXN", fabric, all_to_all(fabric, world, 1e6, True), stripes, None)
