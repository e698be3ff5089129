"""How long the simulated runs take: one year of 32,768 GPUs, 1,000 samples, in at most 10 s.

.venv/bin/python benchmarks/reliability.py
"""

from __future__ import annotations

import platform
import time
from dataclasses import replace

from railwright.reliability import spares, stepfun
from railwright.reliability.constants import constant
from railwright.reliability.formulas import job_mtti
from railwright.reliability.montecarlo import Fault, Process, simulate
from railwright.reliability.protection import Checkpoints, Elastic
from railwright.reliability.replay import shortage
from railwright.units import DAY, YEAR

NODES = 4096
RATE = 3.789
BAR = 10.0


def main() -> None:
    """Print one line per case; exit 1 where the bar is missed."""
    mtti = job_mtti(NODES, RATE)
    faults = (
        Fault(0.84, 700.0),
        Fault(0.15, 330.0),
        Fault(0.007, 700.0, spoiled=3600.0),
        Fault(0.003, 700.0, survives=0.0),
    )
    plain = Process(mtti, (Fault(1.0, 600.0),), Checkpoints(0.5, 100.0))
    saving = Checkpoints(0.5, 100.0, lag=20.0, stored=800.0, reload=60.0)
    full = Process(mtti, faults, saving, shape=constant("gap_shape").value, spread=0.8, varies=0.4)
    elastic = replace(full, elastic=Elastic(1 / 128, 900.0))
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    print(
        f"one year of {8 * NODES:,} GPUs, 1,000 samples, {YEAR / mtti:,.0f} interruptions each; bar {BAR:g} s"
    )
    worst = 0.0
    for name, process in (("exponential", plain), ("all effects", full), ("elastic", elastic)):
        begin, busy = time.perf_counter(), time.process_time()
        runs = simulate(process, YEAR, samples=1000)
        took, busy = time.perf_counter() - begin, time.process_time() - busy
        worst = max(worst, took)
        print(
            f"{name:<14} {took:5.2f} s ({busy:.2f} s of processor)   "
            f"training {100 * runs.ettr.mean():.2f} % of the time"
        )
    begin = time.perf_counter()
    wanted = spares(stepfun(), NODES, RATE, 0.99)
    shortage(stepfun(), NODES, RATE, wanted.replayed, 300 * DAY, 1000)
    print(f"{'trace replay':<14} {time.perf_counter() - begin:5.2f} s   {wanted.replayed} spares for 99 %")
    raise SystemExit(worst > BAR)


if __name__ == "__main__":
    main()
