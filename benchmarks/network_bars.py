"""Every bar of the network engine, measured: one table.

.venv/bin/python benchmarks/network_bars.py [--no-emulation] [part of a row's name ...]

Each row is a process of its own: CPU and wall seconds are those of what the row names, imports left out and
kernels loaded from the cache; memory is the peak of the whole process and its children.  A bar stated in
seconds is held against CPU seconds, because wall time waits for whatever else runs; both are shown.
The cases are those of the benchmarks and tests beside this file.
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

HERE = Path(__file__).resolve()
ROOT = HERE.parents[1]
sys.path[:0] = [
    str(HERE.parent),
    str(ROOT / "tests"),
    str(ROOT / "tests" / "property"),
    str(ROOT / "tests" / "validation"),
]

Found = dict[str, Any]
"""cpu, wall [s]; ok: whether what is not time or memory is as asked; note: figures for people."""


def timed(work: Callable[[], Any]) -> tuple[Found, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    answer = work()
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}, answer


def lifted(number: int) -> Found:
    import lifted as benchmark

    found = benchmark.measure(**benchmark.BARS[number][1])
    return {
        "cpu": found["cpu_s"],
        "wall": found["wall_s"],
        "note": f"{found['demands']:,} demands, {found['classes']:,} classes",
    }


def simgrid() -> Found:
    import explicit

    found, peer = timed(lambda: explicit.beside_simgrid(16, 4_000))
    if peer is None:
        return found | {"ok": None, "note": "python3-simgrid is not installed"}
    ratio = peer["SimGrid"] / peer["ours"]
    note = f"SimGrid {peer['SimGrid']:.1f} s: {ratio:.0f}x; finish times apart {peer['apart']:.0e}"
    return found | {
        "cpu": peer["ours"],
        "wall": peer["wall"],
        "ok": ratio >= 80 and peer["apart"] <= 1e-9,
        "note": note,
    }


def one_solution() -> Found:
    import explicit

    __import__("railwright.network.compiled.kernel_maxmin")
    best, wall = explicit.one_solution(32, 100_000)
    return {"cpu": best, "wall": wall, "note": "best of 5"}


def all_pairs() -> Found:
    import explicit

    best, wall, engine = explicit.all_pairs(1024)
    return {"cpu": best, "wall": wall, "note": f"best of 5; {engine}"}


def hashed(case: str) -> Found:
    """The whole process, as `benchmarks/ecmp.py` runs it."""
    command = [sys.executable, str(HERE.parent / "ecmp.py"), "--here", case]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    flows, cpu, wall, whole, peak, slowdown = done.stdout[26:].split()[:6]
    note = f"{flows} flows, slowdown {slowdown}; whole process {whole} CPU s"
    return {"cpu": float(cpu), "wall": float(wall), "note": note, "MB": float(peak)}


def lifted_equals_listed(cases: int) -> Found:
    from test_network_lifted import compare

    import lifted_cases

    def all_of_them() -> int:
        compared, seed = 0, 20_000_000
        while compared < cases:
            drawn = lifted_cases.case(seed)
            if drawn is not None:
                compare(*drawn)
                compared += 1
            seed += 1
        return compared

    found, compared = timed(all_of_them)
    return found | {"ok": compared >= cases, "note": f"{compared:,} cases, finish, loads, latency, hops"}


def grid(cases: int, most_gpus: int) -> Found:
    from test_network_grid import look

    import network_grid

    def all_of_them() -> tuple[int, int]:
        solved = answers = 0
        for number in range(cases):
            case = network_grid.case(number, most_gpus)
            if case is not None:
                found = network_grid.answers(case)
                look(case, found, number)
                assert network_grid.digest(network_grid.answers(case)) == network_grid.digest(found)
                solved += not isinstance(found["auto"], str)
                answers += len(found)
        return solved, answers

    found, (solved, answers) = timed(all_of_them)
    return found | {"ok": True, "note": f"{solved:,} problems solved, {answers:,} answers, each twice"}


def packets(number: int) -> Found:
    """The fluid with packet headers and one round trip, as `crosscheck` puts it beside packet simulators."""
    import fifo as benchmark
    from test_crosscheck_simulators import HTSIM, SIMAI, flat, rails

    from railwright.crosscheck.packets import in_packets

    name, ranks, per_server, theirs, cpu = benchmark.PACKETS[number]
    build, framing = (rails, SIMAI) if per_server > 1 else (flat, HTSIM["htsim_eqds"])
    problem = build(ranks)
    found, ours = timed(lambda: in_packets(problem, framing))
    whole, _ = timed(lambda: build(ranks))
    error, ratio = ours * 1e6 / theirs - 1, cpu / (found["cpu"] + whole["cpu"])
    note = f"{ours * 1e6:.1f} against {theirs} us ({error:+.1%}); {ratio:.0f}x less CPU than {name}"
    return {
        "cpu": found["cpu"] + whole["cpu"],
        "wall": found["wall"] + whole["wall"],
        "ok": abs(error) <= 0.05 and ratio >= 100,
        "note": note,
    }


def by_fifo(number: int) -> Found:
    """The same by the chunk FIFO, in NCCL's order."""
    import fifo as benchmark

    from railwright.network import Network
    from railwright.network.fifo import run as fifo
    from railwright.traffic.order import places

    _, ranks, per_server, theirs, cpu = benchmark.PACKETS[number]
    fabric = benchmark.cluster(ranks, per_server, "rail-optimised" if per_server > 1 else "fat-tree")
    traffic = benchmark.world(fabric, 16 * 2.0**20)
    place, chunk = places(fabric, traffic, "nccl"), float(traffic.size.max()) / 4

    def run() -> Any:
        return fifo.simulate(Network(fabric), traffic, place, chunk, framing=fifo.ROCE)

    run()
    found, answer = timed(run)
    error, ratio = answer.time * 1e6 / theirs - 1, cpu / found["cpu"]
    note = f"{answer.time * 1e6:.1f} against {theirs} us ({error:+.1%}); {ratio:.0f}x less CPU"
    return found | {"ok": abs(error) <= 0.05 and ratio >= 100, "note": note}


def emulation(variant: str) -> Found:
    """Real packets; 'Rails 1:1' is the study as it stands."""
    command = [
        str(Path(sys.executable).parent / "railwright"), "emulate", str(ROOT / "examples/emulate-16.yaml"),
        "--json", *([] if variant == "Rails 1:1" else ["--variant", variant]),
    ]  # fmt: skip
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"cpu": spent.ru_utime + spent.ru_stime, "wall": time.perf_counter() - begin}
    if done.returncode:
        return found | {"ok": None, "note": f"did not run: {(done.stderr or done.stdout).strip()[-120:]}"}
    told = json.loads(done.stdout)
    errors = {p["engine"]: p["error"] for p in told["predictions"]}
    note = ", ".join(f"{engine} {error:+.1%}" for engine, error in errors.items())
    note += f"; measured {told['measured']:.2f} s"
    return found | {"ok": all(abs(error) <= 0.15 for error in errors.values()), "note": note}


def rows() -> list[tuple[str, str, Callable[[], Found], float | None, float | None]]:
    """Name, bar in words, measurement, most CPU seconds, most MB."""
    import ecmp
    import fifo
    import lifted as benchmark

    table: list[tuple[str, str, Callable[[], Found], float | None, float | None]] = []
    for number, (name, _, seconds, memory) in enumerate(benchmark.BARS):
        bar = f"≤ {seconds:g} s" + (f", {memory / 1000:g} GB" if memory else "")
        table.append((f"lifted: {name}", bar, lambda n=number: lifted(n), seconds, memory or None))
    table += [
        ("explicit: 4,000 coupled flows, k=16", "≥ 80x SimGrid, equal to 1e-9", simgrid, None, None),
        ("explicit: 100,000 flows on 49,152 links", "≤ 50 ms", one_solution, 0.05, None),
        ("explicit: 1,024 GPUs all-to-all, one path", "≤ 0.5 s after warm-up", all_pairs, 0.5, None),
    ]
    for case, (*_, limits) in ecmp.CASES.items():
        if limits is not None:
            bar = f"≤ {limits[0]:g} s, {limits[1]:g} MB" if case.startswith("1024") else f"≤ {limits[0]:g} s"
            table.append((f"ECMP: {case}", bar, lambda c=case: hashed(c), *limits))
    table += [
        (
            "lifted = listed, random fabrics",
            "≥ 2,000, to 1e-9",
            lambda: lifted_equals_listed(2_000),
            None,
            None,
        ),
        ("grid: bounds, bytes, agreement", "never below, no crash", lambda: grid(2_000, 48), None, None),
    ]
    for number, (name, ranks, *_) in enumerate(fifo.PACKETS):
        if "fluid" not in name:
            for how, work in (("fluid in packets", packets), ("chunk FIFO", by_fifo)):
                what = f"{how}: {name}, {ranks} ranks"
                table.append((what, "5 %, ≥ 100x less CPU", lambda w=work, n=number: w(n), None, None))
    for family in ("Rails", "ToR"):
        for over in ("1:1", "2:1", "4:1"):
            variant = f"{family} {over}"
            table.append(
                (f"emulation: {variant}", "fluid and FIFO 15 %", lambda v=variant: emulation(v), None, None)
            )
    return table


def measured(name: str) -> None:
    """One row, here; prints JSON."""
    work = next(work for row, _, work, _, _ in rows() if row == name)
    found = work()
    own, children = (
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(json.dumps({"MB": max(own, children) / 1024, "ok": True, "note": ""} | found))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--no-emulation", action="store_true")
    options.add_argument("--row")
    options.add_argument("parts", nargs="*")
    chosen = options.parse_args()
    if chosen.row:
        measured(chosen.row)
        return
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}\n\n| what | bar | CPU | wall | peak | | |\n"
        "|---|---|---|---|---|---|---|"
    )
    for name, bar, _, seconds, memory in rows():
        if chosen.no_emulation and name.startswith("emulation"):
            continue
        if chosen.parts and not any(part in name for part in chosen.parts):
            continue
        command = [sys.executable, str(HERE), "--row", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no words"])[-1]
            print(f"| {name} | {bar} | | | | **failed** | {last[:160]} |", flush=True)
            continue
        found = json.loads(done.stdout.strip().splitlines()[-1])
        met = found["ok"]
        if met is not None:
            met = (
                met
                and (seconds is None or found["cpu"] <= seconds)
                and (memory is None or found["MB"] <= memory)
            )
        verdict = "not measured" if met is None else "met" if met else "**missed**"
        wall = f"{found['wall']:.2f} s" if found["wall"] >= 0.1 else f"{1e3 * found['wall']:.0f} ms"
        cpu = f"{1e3 * found['cpu']:.0f} ms" if found["cpu"] < 0.1 else f"{found['cpu']:.2f} s"
        print(
            f"| {name} | {bar} | {cpu} | {wall} | {found['MB']:.0f} MB | {verdict} | {found['note']} |",
            flush=True,
        )
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
