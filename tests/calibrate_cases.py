"""Logs of machines whose constants are known: nccl-tests' text, made by our own prediction and noise."""

import random
from dataclasses import replace
from functools import cache

import numpy as np

from railwright.collectives import bus_factor, sweep
from railwright.collectives.profile import Overrides
from railwright.measure.study_machine import study_machine
from railwright.spec import load_study_text, override, template
from railwright.traffic.demand import Communicator

FULL = tuple(float(8 << i) for i in range(31))
"""8 B to 8 GiB."""
TREE = "hopper ib nvlstree"


@cache
def study(algorithm="nvlstree"):
    """240 H100 GPUs on rails, with one algorithm at every size, so that one family prices the whole curve."""
    return override(load_study_text(template("rail-240"), "rail-240"), {"nccl.algorithm": algorithm})


@cache
def machine(algorithm="nvlstree"):
    return study_machine(study(algorithm))


def log_text(
    launch=9e-6, ramp=1.5, usable=0.9, op="all_reduce", ranks=64, sizes=FULL, noise=0.03, seed=0,
    algorithm="nvlstree", family=TREE, shape=lambda size: 1.0,
):  # fmt: skip
    """What the machine would print with these constants and noise; one rank count, whole servers."""
    true = replace(machine(algorithm), profile={family: Overrides(launch, ramp, usable)})
    rng = random.Random(seed)
    test = {"all_to_all": "alltoall"}.get(op, op)
    lines = [f"# Collective test starting: {test}_perf", "# Using devices"]
    lines += [
        f"#  Rank {r:2d} Group  0 Pid {4000 + r} on node-{r // 8} device {r % 8} [0000:18:00] NVIDIA H100"
        for r in range(ranks)
    ]
    lines.append("#       size         count      type   redop    root     time   algbw   busbw #wrong")
    lines.append("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)")
    for p in sweep(true, op, sizes, (Communicator(np.arange(ranks, dtype=np.int32)),)):
        time = p.time * np.exp(rng.gauss(0, noise)) * shape(p.size) if noise else p.time * shape(p.size)
        alg = p.size / time
        lines.append(
            f"{int(p.size)} {max(1, int(p.size // 4))} float sum -1 {time * 1e6:.4f} {alg / 1e9:.5f} "
            f"{alg * bus_factor(op, ranks) / 1e9:.5f} 0"
        )
    return "\n".join(lines) + "\n"


def write_log(folder, name="all_reduce.log", **how):
    path = folder / name
    path.write_text(log_text(**how), encoding="utf-8")
    return path
