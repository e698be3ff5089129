"""Unmodified gloo on the emulated fabric: one Python process with PyTorch per GPU, in its namespace."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

from railwright.emulate.namespaces import enter, private_tmpfs

SHARED = "/dev/shm"

START_WITHIN = 120
"""For all ranks to import PyTorch and to meet [s]: seconds of processor time each, on a busy machine."""

SCRIPT = """
import json, os, sys, time
import torch, torch.distributed as dist
rank, size, numel, repeats, within = (int(x) for x in sys.argv[1:6])
import datetime
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=sys.argv[6], rank=rank, world_size=size,
                        timeout=datetime.timedelta(seconds=within))
times, bad = [], 0
for repeat in range(repeats + 1):
    data = torch.full((numel,), float(rank + 1))
    dist.barrier()
    begin = time.monotonic()
    dist.all_reduce(data)
    end = time.monotonic()
    bad += int((data != size * (size + 1) / 2).sum())
    times.append([begin, end])
print(json.dumps({"times": times[1:], "bad": bad}), flush=True)
dist.barrier()
os._exit(0)
"""
"""What a rank runs.  It leaves without tearing gloo down: at the end of the interpreter one run in six or so
died of a thread of gloo's still joined to a peer ('terminate called without an active exception')."""


def run(spaces: list[int], order: dict[str, Any], ended: Callable[[float], bool]) -> dict[str, Any]:
    """An all-reduce of `bytes` on every GPU, `repeats` times after one to warm up.

    order  gpus, devices (name of each GPU's own), python, bytes, repeats, within
    Answers the times from the first rank's beginning to the last one's end [s], or what went wrong.
    """
    private_tmpfs(SHARED)
    ranks: list[subprocess.Popen[str]] = []
    for gpu in range(order["gpus"]):
        enter(spaces[gpu])
        arguments = [
            gpu,
            order["gpus"],
            order["bytes"] // 4,
            order["repeats"],
            START_WITHIN + int(order["within"]),
        ]
        ranks.append(
            subprocess.Popen(
                [order["python"], "-c", SCRIPT, *map(str, arguments), f"file://{SHARED}/rendezvous"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "GLOO_SOCKET_IFNAME": order["devices"][gpu], "OMP_NUM_THREADS": "1"},
            )
        )
    limit = time.monotonic() + START_WITHIN + (order["repeats"] + 1) * order["within"]
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < limit:
        if ended(0.02):
            os._exit(0)
        if any(rank.poll() not in (None, 0) for rank in ranks):
            break
    if any(rank.poll() != 0 for rank in ranks):
        for rank in ranks:
            rank.kill()
        failed = next((r for r in ranks if r.returncode not in (None, 0, -9)), None)
        text = failed.communicate()[1].strip().splitlines()[-1] if failed else "no answer in time"
        return {"failed": f"gloo: {text}"}
    said = [json.loads(rank.communicate()[0].splitlines()[-1]) for rank in ranks]
    times = [
        max(one["times"][r][1] for one in said) - min(one["times"][r][0] for one in said)
        for r in range(order["repeats"])
    ]
    return {"times": times, "bad": sum(one["bad"] for one in said)}
