"""How many requests a second the simulator of serving takes, on one core, and one cold answer of the command.

500-token requests (250 in, 250 out, and 500 out) at concurrency 256 through one replica, interpreted and
compiled.  Run: python benchmarks/serving.py [requests]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from railwright.serving.clients.client import Workload, no_parts
from railwright.serving.engine.table import StepTable
from railwright.serving.simulator.fleet import Fleet, Pool, Scheduler
from railwright.serving.simulator.simulate import simulate

STUDY = Path(__file__).parent.parent / "examples" / "serving-llama-70b-users.yaml"


def table() -> StepTable:
    """Step times of about the size of a 70B model's on four H100."""
    tokens = np.array([1.0, 64.0, 256.0, 1024.0, 8192.0])
    requests, contexts = np.array([1.0, 16.0, 256.0]), np.array([0.0, 1024.0, 8192.0, 131072.0])
    chunks = np.array([1.0, 512.0, 8192.0])
    return StepTable(
        tokens, 12e-3 + 1e-5 * tokens, 12e-3 + 2e-5 * tokens, requests, contexts,
        2e-8 * requests[:, None] * contexts[None, :], chunks,
        1e-10 * chunks[:, None] * (chunks[:, None] / 2 + contexts[None, :]),
        1, 0.0, 400_000, 16, 1e-3, 1e-5, True, 2e-3,
    )  # fmt: skip


def closed_loop(num: int, prompt: int, output: int) -> Workload:
    """Lengths from 80 % on, 256 in flight."""
    draw = np.random.default_rng(0)
    return Workload(
        np.zeros(num), draw.integers(prompt * 4 // 5, prompt + 1, num),
        draw.integers(output * 4 // 5, output + 1, num), 256, False, 0, *no_parts(num), 0,
    )  # fmt: skip


def cold() -> None:
    """One answer of the command, before this process is large: a child begins as its copy."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = time.perf_counter()
    command = [sys.executable, "-m", "railwright.cli.main"]
    program = Path(sys.executable).with_name("railwright")
    command = [str(program)] if program.exists() else command
    subprocess.run([*command, "serve", str(STUDY)], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"railwright serve, cold: {time.perf_counter() - wall:.2f} s of wall, "
        f"{after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime:.2f} s of CPU, "
        f"{after.ru_maxrss / 1024:.0f} MB"
    )


def main() -> None:
    cold()
    num = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    fleet = Fleet((Pool(table(), Scheduler()),))
    for prompt, output in ((250, 250), (500, 500)):
        for engine, some in (("interpreted", num // 10), ("compiled", num)):
            work = closed_loop(some, prompt, output)
            if engine == "compiled":
                simulate(closed_loop(300, prompt, output), fleet, engine)
            wall, cpu = time.perf_counter(), time.process_time()
            run = simulate(work, fleet, engine)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print(
                f"{prompt} + {output} tokens, {engine:<11} {some:>7,} requests, {len(run.log):>7,} runs, "
                f"{run.end:7,.0f} s of traffic: {some / cpu:>8,.0f} requests/s of CPU, "
                f"{some / wall:>8,.0f} of wall"
            )


if __name__ == "__main__":
    main()
