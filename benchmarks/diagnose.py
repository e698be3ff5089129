"""Fault isolation against its bars, and whether its probabilities are true.

.venv/bin/python benchmarks/diagnose.py bars [trials]     512 servers x 8 rails, 1 to 3 faults, 3 % noise
.venv/bin/python benchmarks/diagnose.py calibration [trials] [file.svg]
.venv/bin/python benchmarks/diagnose.py speed             147,000 elements, 50,000 transfers

bars: faults leave 30 to 80 % of the rate of a NIC, a cable between switches, a leaf, or a spine or core; a
fault counts as found when its class (elements that no pair test tells apart, such as a NIC and its cable) is
among as many first suspects as there are faults.
calibration: faults from the prior itself, mild ones and one-way ones included, after one or two rounds, half
of them under ECMP, where much stays open; of all suspects given p, the part that is real.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np

from railwright.catalog import load_catalog
from railwright.cli.studies import open_study
from railwright.diagnose.constants import noise
from railwright.diagnose.elements import Elements, elements_of
from railwright.diagnose.evidence import Evidence
from railwright.diagnose.inference.classes import problem
from railwright.diagnose.inference.infer import infer
from railwright.diagnose.inference.likelihood import DEAD, GRID, SPAN
from railwright.diagnose.paths import Routing, crossed
from railwright.diagnose.plans.schedule import rounds
from railwright.diagnose.plans.simulate import Planted, hashed, measured
from railwright.diagnose.verdict import diagnose
from railwright.fabric import build
from railwright.fabric.graph import Fabric, Role
from railwright.spec import override

STATIC = Routing("static")
EXPECTED = 3.0
"""Faults drawn for the calibration, and expected by it."""
EDGES = (0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 1.0001)


def fabric_of(servers: int) -> Fabric:
    study = override(open_study("superpod-h100"), {"cluster.servers": servers})
    return build(study.cluster, load_catalog())


def bars(trials: int) -> None:
    fabric = fabric_of(512)
    elements = elements_of(fabric)
    plan = rounds(fabric, STATIC, 4)
    paths = [crossed(elements, STATIC, *one.transfers()) for one in plan]
    pools = _pools(elements, fabric)
    rng = np.random.default_rng(1)
    print(f"{len(elements):,} elements, {sum(len(r) for r in plan) * 2:,} transfers in 4 rounds")
    print("rounds  faults  kind    found   of      %")
    slowest = 0.0
    total: dict[tuple[int, str], list[bool]] = {}
    for count in (2, 4):
        for many in (1, 2, 3):
            found: dict[str, list[bool]] = {}
            for _ in range(trials):
                kinds = [list(pools)[i] for i in rng.integers(0, len(pools), many)]
                faults = [Planted(int(rng.choice(pools[k])), float(rng.uniform(0.3, 0.8))) for k in kinds]
                rates = tuple(measured(c, STATIC, faults, rng) for c in paths[:count])
                start = time.perf_counter()
                posed = problem(Evidence(rates), elements.weights(), elements.slows(), 1.0)
                answer = infer(posed)
                slowest = max(slowest, time.perf_counter() - start)
                first = np.argsort(-answer.probability, kind="stable")[:many]
                for kind, fault in zip(kinds, faults, strict=True):
                    hit = bool(posed.class_of[fault.element] in first)
                    found.setdefault(kind, []).append(hit)
                    total.setdefault((count, kind), []).append(hit)
            for kind in pools:
                hits = found.get(kind, [])
                print(f"{count:>6}  {many:>6}  {kind:<6} {sum(hits):>6} {len(hits):>5}  {_percent(hits):>6}")
    for (count, kind), hits in sorted(total.items()):
        bar = 95 if kind == "cable" else 98
        print(f"{count} rounds, {kind}: {_percent(hits)} % of {len(hits)} (bar {bar} %)")
    print(f"slowest inference {slowest:.2f} s")


def calibration(trials: int, file: str) -> None:
    fabric = fabric_of(64)
    elements = elements_of(fabric)
    weights = elements.weights()
    rng = np.random.default_rng(2)
    told: list[tuple[float, bool]] = []
    plans = rounds(fabric, STATIC, 8)
    for _ in range(trials):
        unknown = rng.random() < 0.5
        routing = Routing("ecmp") if unknown else STATIC
        faults = _drawn(elements, weights, rng)
        seen = []
        for place in rng.choice(len(plans), int(rng.integers(1, 3)), replace=False).tolist():
            src, dst = plans[place].transfers()
            known = crossed(elements, routing, src, dst)
            taken = hashed(elements, src, dst, int(rng.integers(2**31))) if unknown else None
            clean = measured(known, routing, faults, rng, sigma=1e-9, taken=taken)
            seen.append(
                replace(clean, y=_scattered(clean.y, rng), sigma=np.full(len(clean), noise().healthy))
            )
        posed = problem(Evidence(tuple(seen)), weights, elements.slows(), EXPECTED)
        answer = infer(posed)
        real = {int(posed.class_of[f.element]) for f in faults}
        told += [(float(p), k in real) for k, p in enumerate(answer.probability) if p >= EDGES[0]]
    rows = []
    print("probability     suspects  mean p   real")
    for low, high in pairwise(EDGES):
        mine = [(p, hit) for p, hit in told if low <= p < high]
        if mine:
            mean, real_part = np.mean([p for p, _ in mine]), np.mean([hit for _, hit in mine])
            rows.append((float(mean), float(real_part), len(mine)))
            print(f"{low:.2f} to {min(high, 1):.2f}  {len(mine):>8}  {mean:6.3f}  {real_part:6.3f}")
    gap = sum(n * abs(p - r) for p, r, n in rows) / sum(n for _, _, n in rows)
    print(f"expected calibration error {gap:.3f} over {len(told)} suspects in {trials} cases")
    if file:
        with open(file, "w", encoding="utf-8") as out:
            out.write(picture(rows, gap, len(told)))


def speed() -> None:
    study = open_study("clos-32k")
    fabric = build(study.cluster, load_catalog())
    elements = elements_of(fabric)
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, fabric.num_gpus, (2, 50_060))
    far = fabric.server[src] != fabric.server[dst]
    src, dst = src[far][:50_000], dst[far][:50_000]
    start = time.perf_counter()
    known = crossed(elements, STATIC, src, dst)
    print(f"paths of {len(src):,} transfers, tables made: {time.perf_counter() - start:.1f} s")
    kinds = np.array(elements.kind)
    # Transfers are drawn at random, so that some NICs are in one only: nobody can tell which end it is.
    often = np.bincount(known.element, minlength=len(elements)) >= 4
    pools = [np.flatnonzero((kinds == k) & often) for k in ("leaf", "nic", "spine")]
    faults = [Planted(int(rng.choice(pool)), 0.5) for pool in pools]
    evidence = Evidence((measured(known, STATIC, faults, rng),))
    start = time.perf_counter()
    answer = diagnose(elements, evidence, STATIC)
    took = time.perf_counter() - start
    print(f"diagnosis of {len(elements):,} elements: {took:.1f} s (bar 5), {len(answer.faults)} of 3 found")


def picture(rows: list[tuple[float, float, int]], gap: float, suspects: int) -> str:
    """The reliability diagram."""
    size, left, top = 320.0, 62.0, 20.0

    def at(p: float, r: float) -> tuple[float, float]:
        return left + p * size, top + (1 - r) * size

    marks = []
    for p, r, n in rows:
        x, y = at(p, r)
        half = 1.64 * (max(r * (1 - r), 0.25 / n) / n) ** 0.5 * size
        high, low = max(y - half, top), min(y + half, top + size)
        marks.append(f'<path d="M{x:.1f} {high:.1f}V{low:.1f}" stroke="#1b6ca8" stroke-width="1.5"/>')
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#1b6ca8"><title>{n} suspects</title></circle>'
        )
    ticks = []
    for v in (0, 0.25, 0.5, 0.75, 1):
        x, y = at(v, v)
        bottom = top + size
        ticks.append(f'<text x="{x:.0f}" y="{bottom + 16:.0f}" text-anchor="middle">{v:.0%}</text>')
        ticks.append(f'<text x="{left - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{v:.0%}</text>')
        ticks.append(f'<path d="M{left:.0f} {y:.1f}H{left + size:.0f}" stroke="#8884" fill="none"/>')
    (x0, y0), (x1, y1) = at(0, 0), at(1, 1)
    middle, half = left + size / 2, top + size / 2
    words = f"{suspects:,} suspects, mean gap {gap:.3f}; bars: 90 % of chance"
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 410" role="img" aria-label="Chart">'
    return f"""{head}
<rect width="400" height="410" fill="#fff"/>
<g font-family="system-ui, sans-serif" font-size="12" fill="#333">
{chr(10).join(ticks)}
<path d="M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}" stroke="#888" stroke-dasharray="4 4"/>
<text x="{middle:.0f}" y="{top + size + 36:.0f}" text-anchor="middle">probability told</text>
<text text-anchor="middle" transform="translate(14 {half:.0f}) rotate(-90)">part that is real</text>
<text x="{middle:.0f}" y="{top + size + 56:.0f}" text-anchor="middle" fill="#777">{words}</text>
</g>
{chr(10).join(marks)}
</svg>
"""


def _drawn(elements: Elements, weights: np.ndarray, rng: np.random.Generator) -> list[Planted]:
    """Faults as the prior has them: how many, which, how much is left, which way."""
    n = noise()
    prior, slows = weights / weights.sum(), elements.slows()
    faults = []
    for element in rng.choice(len(elements), rng.poisson(EXPECTED), p=prior, replace=False).tolist():
        draw = rng.random()
        left = float(np.exp(rng.uniform(GRID[-2], GRID[1]))) if draw > n.dead else 0.01
        left = left if rng.random() < slows[element] else 1.0
        way = "both" if rng.random() > n.one_way else str(rng.choice(["out", "in"]))
        faults.append(Planted(element, left, way))
    return faults


def _scattered(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Measurements with the scatter that the inference believes in, disturbed ones included."""
    n = noise()
    scale = np.where(y < -1e-3, np.hypot(n.healthy, n.faulty), n.healthy)
    scatter = rng.standard_t(n.tails, len(y)) * scale * np.sqrt((n.tails - 2) / n.tails)
    disturbed = rng.random(len(y)) < n.outlier
    return np.where(disturbed, rng.uniform(0.3 - SPAN, 0.3, len(y)), np.maximum(y, DEAD) + scatter)


def _pools(elements: Elements, fabric: Fabric) -> dict[str, np.ndarray]:
    kinds = np.array(elements.kind)
    between = elements.of_cable[(fabric.role >= Role.LEAF_SPINE) & (elements.of_cable >= 0)]
    return {
        "nic": np.flatnonzero(kinds == "nic"),
        "leaf": np.flatnonzero(kinds == "leaf"),
        "spine": np.flatnonzero(np.isin(kinds, ["spine", "core"])),
        "cable": between,
    }


def _percent(hits: list[bool]) -> str:
    return f"{100 * sum(hits) / len(hits):.1f}" if hits else "-"


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else "bars"
    if what == "bars":
        bars(int(sys.argv[2]) if len(sys.argv) > 2 else 60)
    elif what == "calibration":
        calibration(int(sys.argv[2]) if len(sys.argv) > 2 else 600, sys.argv[3] if len(sys.argv) > 3 else "")
    else:
        speed()
