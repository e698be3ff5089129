"""The lifted engine: its bars, and how time and memory grow with GPUs and with failed links.

.venv/bin/python benchmarks/lifted.py [--bars] [--scaling] [--layouts]

Each case runs in a process of its own.  Seconds are those of building the fabric and solving, without
imports; memory is the process's peak, imports included.  `--scaling` writes docs/network/lifted-scaling.csv
and .svg.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from railwright.catalog import load_catalog
from railwright.fabric import build
from railwright.fabric.graph import Fabric, Role
from railwright.network import Network, solve
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator, Groups, ring, together

HERE = Path(__file__).resolve()
DOCS = HERE.parents[1] / "docs" / "network"
SEED = 7

BARS: list[tuple[str, dict[str, Any], float, float]] = [
    ("32,768 GPUs, direct, healthy", {"gpus": 32_768}, 1.0, 400),
    ("131,072 GPUs, direct, healthy", {"gpus": 131_072}, 3.0, 1000),
    ("32,768 GPUs, direct, 1 failed link", {"gpus": 32_768, "failed": 1}, 2.0, 0),
    ("32,768 GPUs, direct, 4 failed links", {"gpus": 32_768, "failed": 4}, 5.0, 0),
    ("32,768 GPUs, direct, 10 failed links", {"gpus": 32_768, "failed": 10}, 12.0, 0),
    ("131,072 GPUs, PXN, 4 failed links", {"gpus": 131_072, "failed": 4, "pxn": True}, 8.0, 0),
    (
        "131,072 GPUs on rails, PXN, 4 failed links",
        {"gpus": 131_072, "failed": 4, "pxn": True, "family": "rail-optimised"},
        8.0,
        0,
    ),
]
LAYOUTS: list[tuple[str, dict[str, Any]]] = [
    ("512 all-to-alls of 64", {"gpus": 32_768, "ep": 64}),
    ("64 rings of 512", {"gpus": 32_768, "ep": 0, "dp": 512}),
    ("512 all-to-alls of 64 and 64 rings of 512", {"gpus": 32_768, "ep": 64, "dp": 512}),
    ("the same with 1 failed link", {"gpus": 32_768, "ep": 64, "dp": 512, "failed": 1}),
]
GPUS = [2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072]
FAILED = [0, 1, 2, 4, 8, 16, 32, 64]


def fabric_of(gpus: int, family: str, failed: int) -> Fabric:
    """Three tiers of DGX H100, switches of 64 ports, or 128 from 65,536 GPUs; failed links among switches."""
    network = ComputeNetwork.model_validate(
        {"family": family, "switch": "qm9700" if gpus < 65_536 else "th5-400g", "tiers": 3}
    )
    fabric = build(Cluster(servers=gpus // 8, server="dgx-h100", compute=network), load_catalog())
    between = np.flatnonzero(fabric.role >= Role.LEAF_SPINE)
    cable = np.random.default_rng(SEED).choice(between, failed, replace=False)
    capacity = fabric.capacity.copy()
    capacity[2 * cable] = capacity[2 * cable + 1] = 0.0
    return replace(fabric, capacity=capacity)


def traffic_of(fabric: Fabric, ep: int, dp: int, pxn: bool) -> Groups:
    """Groups of `ep` GPUs in order (0: none; -1: all), and rings of `dp` servers for each GPU place."""
    gpus = np.arange(fabric.num_gpus, dtype=np.int32)
    rows = gpus.reshape(-1, ep if ep > 0 else len(gpus))
    parts: list[Any] = [] if ep == 0 else [Groups.all_to_all(rows, 1e6, pxn)]
    if dp:
        rows = gpus.reshape(-1, 8).T.reshape(-1, dp)
        parts += [ring(fabric, Communicator(row), 100e6) for row in rows]
    return together(parts)


def measure(
    gpus: int, family: str = "fat-tree", failed: int = 0, pxn: bool = False, ep: int = -1, dp: int = 0
) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    fabric = fabric_of(gpus, family, failed)
    traffic = traffic_of(fabric, ep, dp, pxn)
    answer = solve(Network(fabric), traffic, "lifted")
    return {
        "demands": len(traffic),
        "classes": len(answer.finish),
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "time_s": answer.time,
    }


def apart(case: dict[str, Any]) -> dict[str, Any]:
    answer = subprocess.run(
        [sys.executable, str(HERE), "--measure", json.dumps(case)], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def bars() -> None:
    print(
        "| case | demands | classes | wall | CPU | bar | peak memory | bar |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for name, case, seconds, memory in BARS:
        m = apart(case)
        room = f"{memory:,} MB" if memory else ""
        print(
            f"| {name} | {m['demands']:,} | {m['classes']:,} | {m['wall_s']:.2f} s | {m['cpu_s']:.2f} s | "
            f"{seconds:g} s | {m['peak_MB']:.0f} MB | {room} |",
            flush=True,
        )


def layouts() -> None:
    print("| 32,768 GPUs | demands | classes | wall | CPU | peak memory |\n|---|---|---|---|---|---|")
    for name, case in LAYOUTS:
        m = apart(case | {"pxn": True})
        print(
            f"| {name} | {m['demands']:,} | {m['classes']:,} | {m['wall_s']:.1f} s | {m['cpu_s']:.1f} s | "
            f"{m['peak_MB']:.0f} MB |",
            flush=True,
        )


def scaling() -> None:
    rows = [{"gpus": n, "failed": k} | apart({"gpus": n, "failed": k}) for n in GPUS for k in (0, 4)]
    rows += [{"gpus": 32_768, "failed": k} | apart({"gpus": 32_768, "failed": k}) for k in FAILED]
    DOCS.mkdir(exist_ok=True)
    with (DOCS / "lifted-scaling.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(
            {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows
        )
    (DOCS / "lifted-scaling.svg").write_text(drawing(rows))


def drawing(rows: list[dict[str, Any]]) -> str:
    """Four panels on logarithmic axes: CPU seconds and peak memory, against GPUs and against failed links."""
    by_gpus, by_failed = rows[: 2 * len(GPUS)], [r for r in rows[2 * len(GPUS) :] if r["failed"]]
    panels: list[str] = []
    for column, (key, unit) in enumerate((("cpu_s", "CPU seconds"), ("peak_MB", "peak memory, MB"))):
        healthy = [(r["gpus"], r[key]) for r in by_gpus if r["failed"] == 0]
        broken = [(r["gpus"], r[key]) for r in by_gpus if r["failed"] == 4]
        lines = [("healthy", "#1b6ca8", healthy), ("4 failed links", "#c1440e", broken)]
        panels.append(panel(column, 0, "GPUs", unit, lines))
        lines = [("32,768 GPUs", "#c1440e", [(r["failed"], r[key]) for r in by_failed])]
        panels.append(panel(column, 1, "failed links", unit, lines))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 560" font-family="sans-serif" '
        'font-size="11">\n<rect width="760" height="560" fill="white"/>\n' + "".join(panels) + "</svg>\n"
    )


def panel(
    column: int, row: int, across: str, up: str, lines: list[tuple[str, str, list[tuple[float, float]]]]
) -> str:
    left, top, width, height = 60 + 380 * column, 30 + 280 * row, 290, 200
    xs = np.log10([x for _, _, points in lines for x, _ in points])
    ys = np.log10([y for _, _, points in lines for _, y in points])
    low, high = np.floor(ys.min()), np.ceil(ys.max())

    def place(x: float, y: float) -> tuple[float, float]:
        right = (np.log10(x) - xs.min()) / (xs.max() - xs.min())
        rise = (np.log10(y) - low) / (high - low)
        return left + width * float(right), top + height * (1 - float(rise))

    parts = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>\n']
    for power in range(int(low), int(high) + 1):
        _, y = place(10 ** xs.min(), 10.0**power)
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>\n')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>\n')
    for value in sorted({x for _, _, points in lines for x, _ in points}):
        x, _ = place(value, 10.0**low)
        name = f"{value // 1024}k" if value >= 1024 else f"{value}"
        parts.append(f'<text x="{x:.1f}" y="{top + height + 15}" text-anchor="middle">{name}</text>\n')
    parts.append(
        f'<text x="{left + width / 2}" y="{top + height + 32}" text-anchor="middle">{across}</text>\n'
    )
    parts.append(f'<text x="{left}" y="{top - 8}">{up}</text>\n')
    for number, (name, colour, points) in enumerate(lines):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*p) for p in points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>\n')
        parts.append(f'<text x="{left + 10}" y="{top + 18 + 15 * number}" fill="{colour}">{name}</text>\n')
    return "".join(parts)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--measure")
    for part in ("bars", "layouts", "scaling"):
        options.add_argument(f"--{part}", action="store_true")
    chosen = options.parse_args()
    if chosen.measure:
        print(json.dumps(measure(**json.loads(chosen.measure))))
        return
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    every = not (chosen.bars or chosen.layouts or chosen.scaling)
    for wanted, part in ((chosen.bars, bars), (chosen.layouts, layouts), (chosen.scaling, scaling)):
        if wanted or every:
            part()


if __name__ == "__main__":
    main()
