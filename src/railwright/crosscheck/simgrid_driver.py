"""Run by a Python that has SimGrid, without Railwright: python simgrid_driver.py PLATFORM FLOWS TIMES.

PLATFORM  SimGrid platform file with a route for every flow
FLOWS     CSV: source host, destination host, bytes; all start at 0
TIMES     written: the finish time of each flow, one a line [s]

Max-min fluid without TCP: model CM02 with bandwidth and latency factors of 1, no window limit
(TCP-gamma 0), no traffic of acknowledgements (crosstraffic 0).
"""

import csv
import sys

import simgrid  # type: ignore[import-not-found,unused-ignore]

MODEL = {
    "network/model": "CM02",
    "network/bandwidth-factor": "1",
    "network/latency-factor": "1",
    "network/weight-S": "0",
    "network/TCP-gamma": "0",
    "network/crosstraffic": "0",
}
# The shortest time and the smallest part of a rate that SimGrid tells apart; version 3.33 renamed both.
PRECISION = (
    {"surf/precision": "1e-15", "maxmin/precision": "1e-12"},
    {"precision/timing": "1e-15", "precision/work-amount": "1e-12"},
)


def main(platform: str, flows: str, times: str) -> None:
    """Start all flows at once and write when each has arrived."""
    old = tuple(map(int, simgrid.simgrid_version.split(".")[:2])) < (3, 33)
    settings = {**MODEL, **PRECISION[0 if old else 1]}
    engine = simgrid.Engine(
        ["crosscheck", "--log=root.thres:error", *(f"--cfg={k}:{v}" for k, v in settings.items())]
    )
    engine.load_platform(platform)
    with open(flows, newline="") as file:
        rows = list(csv.reader(file))
    host = {name: engine.host_by_name(name) for row in rows for name in row[:2]}

    def send() -> None:
        started = [simgrid.Comm.sendto_async(host[a], host[b], int(size)) for a, b, size in rows]
        simgrid.Comm.wait_all(started)
        with open(times, "w") as out:
            out.writelines(f"{one.finish_time!r}\n" for one in started)

    simgrid.Actor.create("crosscheck", host[rows[0][0]], send)
    engine.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
