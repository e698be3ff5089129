"""Time and peak memory of large networks, this version beside another one, each case in a process of its own.

.venv/bin/python benchmarks/network_large.py [--before SRC] [CASE ...]

SRC is the `src` folder of another version (`git worktree add FOLDER REVISION`).  The two versions take turns,
case by case, so that they see the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from railwright.catalog import load_catalog
from railwright.collectives import Machine, NcclSettings
from railwright.fabric import build
from railwright.fabric.graph import Fabric
from railwright.model import load_model
from railwright.network import Network, solve
from railwright.spec import load_study, load_study_text
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator, Traffic, all_to_all, join, ring
from railwright.training import simulate

HERE = Path(__file__).resolve()


def dgx(servers: int, family: Any, **network: Any) -> Fabric:
    """DGX H100 behind QM9700."""
    plan = ComputeNetwork(family=family, switch="qm9700", **network)
    return build(Cluster(servers=servers, server="dgx-h100", compute=plan), load_catalog())


def every(fabric: Fabric, step: int, begin: int = 0) -> Communicator:
    return Communicator(np.arange(begin, fabric.num_gpus, step, dtype=np.int32))


def example_240() -> Callable[[], Any]:
    fabric = dgx(30, "rail-optimised")
    return lambda: solve(Network(fabric), all_to_all(fabric, every(fabric, 1), 1e6, False))


def three_tiers_1024() -> Callable[[], Any]:
    fabric = dgx(128, "fat-tree", tiers=3, servers_per_group=1, groups_per_pod=16)
    return lambda: solve(Network(fabric), all_to_all(fabric, every(fabric, 1), 1e6, True))


def ring_4096() -> Callable[[], Any]:
    fabric = dgx(512, "fat-tree", tiers=3, servers_per_group=2, groups_per_pod=16)
    return lambda: solve(Network(fabric), ring(fabric, every(fabric, 1), 1e6))


def one_per_leaf(leaves: int) -> Callable[[], Any]:
    fabric = dgx(leaves, "fat-tree", tiers=3, servers_per_group=1, groups_per_pod=16)
    return lambda: solve(Network(fabric), all_to_all(fabric, every(fabric, 8), 1e6, True))


def bound_8192() -> Callable[[], Any]:
    fabric = dgx(1024, "fat-tree", tiers=3)

    def groups() -> Traffic:
        return join([all_to_all(fabric, every(fabric, 16, g), 1e6, False) for g in range(16)])

    return lambda: solve(Network(fabric), groups())


def simulate_32k() -> Callable[[], Any]:
    file = Path("clos-32k.yaml")
    if not file.exists():
        subprocess.run(["railwright", "init", "--template", "clos-32k", str(file)], check=True)
    study = load_study(file)
    job = study.jobs[0]
    machine = Machine.of(study.cluster, load_catalog(), NcclSettings.of(study.nccl))
    return lambda: simulate(job, load_model(job.model), machine)


HASHED = """
railwright: 1
name: hashed
cluster:
  servers: {servers}
  server: dgx-h100
  compute: {{family: clos, routing: ecmp, switch: th5-400g, oversubscription: 1, tiers: 3}}
jobs:
  - name: pretrain
    model: llama-3.1-405b
    sequence: 8192
    global_batch: {batch}
    micro_batch: 1
    tokens: 15e12
    layout:
      {{tensor: 8, pipeline: 16, virtual_pipeline: 8, sequence_parallel: true, zero: 1, recompute: full}}
"""


def simulate_hashed(servers: int) -> Callable[[], Any]:
    """A 405B job over tensor 8, pipeline 16 and the rest data-parallel, its routes hashed."""
    study = load_study_text(HASHED.format(servers=servers, batch=2 * servers))
    job = study.jobs[0]
    machine = Machine.of(study.cluster, load_catalog(), NcclSettings.of(study.nccl))
    return lambda: simulate(job, load_model(job.model), machine)


CASES: dict[str, tuple[str, Callable[[], Callable[[], Any]]]] = {
    "example-240": ("240 GPUs, rails, all-to-all without PXN", example_240),
    "three-tiers-1024": ("1,024 GPUs, 128 leaves, 3 tiers, all-to-all", three_tiers_1024),
    "ring-4096": ("4,096 GPUs, 256 leaves, 3 tiers, ring", ring_4096),
    "one-per-leaf-128": ("one GPU on each of 128 leaves, 3 tiers, all-to-all", lambda: one_per_leaf(128)),
    "one-per-leaf-256": ("one GPU on each of 256 leaves, 3 tiers, all-to-all", lambda: one_per_leaf(256)),
    "simulate-32k": ("first `simulate` of the clos-32k starter's job", simulate_32k),
    "hashed-50k": ("first `simulate` of 405B on 49,920 GPUs under ECMP", lambda: simulate_hashed(6240)),
    "hashed-100k": ("first `simulate` of 405B on 99,840 GPUs under ECMP", lambda: simulate_hashed(12480)),
    "bound-8192": ("8,192 GPUs, 256 leaves, 3 tiers, 16 all-to-alls of 512 (4.2 million)", bound_8192),
}


def measure(case: str) -> dict[str, float]:
    work = CASES[case][1]()
    begin = time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    return {"s": seconds, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}


def elsewhere(case: str, src: Path, folder: Path) -> dict[str, float]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    answer = subprocess.run(
        [sys.executable, str(HERE), "--measure", case],
        env=os.environ | {"PYTHONPATH": str(src.resolve()), "PATH": path},
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--before", type=Path)
    options.add_argument("--measure", choices=CASES)
    options.add_argument("cases", nargs="*", choices=[*CASES, []], default=[])
    chosen = options.parse_args()
    if chosen.measure:
        print(json.dumps(measure(chosen.measure)))
        return
    import tempfile

    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {os.cpu_count()} cores")
    print("| case | before | now | ratio | memory before | now |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen.cases or CASES:
            old = elsewhere(case, chosen.before, Path(folder)) if chosen.before else None
            new = elsewhere(case, HERE.parents[1] / "src", Path(folder))
            before = [f"{old['s']:.2f} s", f"{old['MB']:.0f} MB"] if old else ["", ""]
            ratio = f"{old['s'] / new['s']:.1f}x" if old else ""
            name = CASES[case][0]
            now = f"{new['s']:.2f} s | {ratio} | {before[1]} | {new['MB']:.0f} MB"
            print(f"| {name} | {before[0]} | {now} |", flush=True)


if __name__ == "__main__":
    main()
