"""Fit launch and ramp of every family of collectives to the published curves; write them with their errors.

Reads src/railwright/measure/data/collectives.yaml, prices each point on a healthy fabric with NCCL's own
model plus `launch + ramp sqrt(steps x bandwidth)`, and writes src/railwright/collectives/data/families.yaml.
A family needs three points, and a quality-A curve or two others.  Curves of quality A weigh 1, B 1/2, C 1/4,
whatever their number of points; the error is of log(predicted / measured).  A curve left out in turn gives
the honest error beside the in-sample one.  Run: python tools/fit_collectives.py [--check]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from ruamel.yaml import YAML
from scipy.optimize import least_squares

from railwright.catalog import find, load_catalog
from railwright.collectives.choice import ALGORITHMS
from railwright.collectives.cost import on_healthy_fabric, selected
from railwright.collectives.group import Group, generation_of
from railwright.collectives.prediction import NcclSettings, Op
from railwright.collectives.rates import bus_factor

ROOT = FilePath(__file__).parent.parent
CURVES = ROOT / "src/railwright/measure/data/collectives.yaml"
FAMILIES = ROOT / "src/railwright/collectives/data/families.yaml"
SERVERS = {
    "V100": "dgx-1-v100", "A100": "dgx-a100", "A100-40": "dgx-a100", "H100": "dgx-h100", "H200": "dgx-h200",
    "B200": "dgx-b200", "B300": "dgx-b300", "GB200": "gb200-nvl72",
}  # fmt: skip
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
FORCED = {"RING forced": "ring", "NVLSTree": "nvlstree", "Ring": "ring", "Tree": "tree"}
TRANSPORTS = {"EFA": "efa", "p5": "efa", "p4de": "efa", "TCPXO": "tcpxo"}
WEIGHTS = {"A": 1.0, "B": 0.5, "C": 0.25}
"""Weight of a whole curve by the quality of its record."""
PRIOR = np.array([2e-4, 2e-2])
"""Pull of (launch [us], ramp) towards zero, so that curves without small sizes cannot invent a launch."""
SIZES = 2.0 ** np.arange(10, 31)


@dataclass(frozen=True)
class Curve:
    """One published curve and the machine it was measured on."""

    name: str
    op: Op
    group: Group
    settings: NcclSettings
    points: tuple[tuple[float, float], ...]  # (S [byte], time [s])
    quality: str


def curves() -> list[Curve]:
    """Every record of a plain collective with sizes and times, and the one-node fits at powers of two."""
    content = YAML(typ="safe").load(CURVES.read_text(encoding="utf-8"))
    found = [c for c in map(_curve, content["records"]) if c is not None]
    for gpu, op, gpus, alpha, busbw, k, _error, _version in content["one_node_fits"]["rows"]:
        group = _group(gpu, gpus, None, "ib")
        factor = bus_factor(op, gpus)
        times = [(alpha + k * sqrt(s) + factor * s / busbw / 1e3) * 1e-6 for s in SIZES]
        points = tuple(zip(SIZES.tolist(), times, strict=True))
        found.append(Curve(f"fit {gpu}x{gpus} {op}", op, group, NcclSettings(), points, "A"))
    return found


def samples(curve: Curve) -> list[tuple[str, float, float, float]]:
    """(family, NCCL's terms, ramp's root, measured) of each point, in seconds; algorithms as NCCL chooses."""
    rows: list[tuple[str, float, float, float]] = []
    for size, measured in curve.points:
        algorithm, _ = selected(curve.op, size, curve.group, curve.settings)
        terms = {
            t.name: t.seconds for t in on_healthy_fabric(curve.op, size, curve.group, curve.settings).terms
        }
        fixed = terms["steps"] + terms["bandwidth"] + terms.get("messages", 0.0)
        root = sqrt(terms["steps"] * terms["bandwidth"])
        rows.append((f"{curve.group.generation} {curve.group.scope} {algorithm}", fixed, root, measured))
    return rows


def fit(parts: list[np.ndarray], shares: list[float]) -> tuple[float, float]:
    """(launch [s], ramp) of least squared log error; each curve's points share that curve's weight."""

    def residuals(x: np.ndarray) -> np.ndarray:
        logs = [
            np.log((p[:, 0] + x[0] * 1e-6 + x[1] * p[:, 1]) / p[:, 2]) * sqrt(share / len(p))
            for p, share in zip(parts, shares, strict=True)
        ]
        return np.concatenate([*logs, PRIOR * x])

    answer = least_squares(
        residuals, [5.0, 0.5], bounds=([0.0, 0.0], [1000.0, 4.0]), loss="soft_l1", f_scale=0.3
    )
    return round(float(answer.x[0]), 2) * 1e-6, round(float(answer.x[1]), 3)


def errors(part: np.ndarray, launch: float, ramp: float) -> np.ndarray:
    """log(predicted / measured) of one curve."""
    return np.log((part[:, 0] + launch + ramp * part[:, 1]) / part[:, 2])


def fitted() -> dict[str, dict[str, Any]]:
    """Every family: launch, ramp, errors in sample and left out, 80 % band, curves."""
    by_family: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    quality: dict[str, str] = {}
    for curve in curves():
        for family, fixed, root, measured in samples(curve):
            by_family.setdefault(family, {}).setdefault(curve.name, []).append((fixed, root, measured))
            quality[curve.name] = curve.quality
    table: dict[str, dict[str, Any]] = {}
    for family in sorted(by_family):
        named = {n: np.array(p) for n, p in by_family[family].items()}
        if sum(len(p) for p in named.values()) < 3 or (len(named) == 1 and quality[next(iter(named))] != "A"):
            continue
        parts = list(named.values())
        shares = [WEIGHTS[quality[n]] for n in named]
        launch, ramp = fit(parts, shares)
        inside = [errors(p, launch, ramp) for p in parts]
        outside = [
            errors(p, *fit(_without(parts, i), _without(shares, i))) if len(parts) > 1 else inside[i]
            for i, p in enumerate(parts)
        ]
        weights = _weights(outside, shares)
        ratios = np.exp(-np.concatenate(outside))
        low, high = (_quantile(ratios, weights, q) for q in (0.1, 0.9))
        table[family] = {
            "launch": float(f"{launch:.3g}"),
            "ramp": float(f"{ramp:.3g}"),
            "error_low": float(f"{low:.3g}"),
            "error_high": float(f"{high:.3g}"),
            "median_error_in_sample": float(f"{_median(inside, shares):.3f}"),
            "median_error_left_out": float(f"{_median(outside, shares):.3f}") if len(parts) > 1 else None,
            "points": int(sum(len(p) for p in parts)),
            "basis": f"{len(parts)} published curve{'s' if len(parts) > 1 else ''}",
            "curves": list(named),
        }
    return table


def main(check: bool) -> int:
    """Print the table; write it, or with --check say whether the file is what the curves give."""
    table = fitted()
    print(f"{'family':<26}{'launch us':>10}{'ramp':>7}{'in':>7}{'out':>7}{'band':>14}  curves")
    for name, row in table.items():
        out = row["median_error_left_out"]
        band = f"{row['error_low']:.2f}-{row['error_high']:.2f}"
        print(
            f"{name:<26}{row['launch'] * 1e6:>10.1f}{row['ramp']:>7.2f}{row['median_error_in_sample']:>7.1%}"
            f"{'-' if out is None else f'{out:.1%}':>7}{band:>14}  {row['basis']}"
        )
    text = (
        YAML(typ="safe").load(FAMILIES.read_text(encoding="utf-8"))["families"] if FAMILIES.exists() else {}
    )
    if check:
        same = set(text) == set(table) and all(abs(text[k]["ramp"] - table[k]["ramp"]) < 0.02 for k in table)
        print(
            "families.yaml is what the curves give"
            if same
            else "families.yaml differs: run tools/fit_collectives.py"
        )
        return 0 if same else 1
    with FAMILIES.open("w", encoding="utf-8") as out_file:
        out_file.write(
            "# Written by tools/fit_collectives.py from measure/data/collectives.yaml; do not edit.\n"
            "# launch [s]; ramp: coefficient of sqrt(steps x bandwidth); errors: median of\n"
            "# |predicted/measured - 1| on the fit's own curves and on each curve left out in turn\n"
            "# (null: one curve only); error_low, error_high: 80 % band of measured/predicted, left out,\n"
            "# curves weighing by quality.\n"
        )
        writer = YAML()
        writer.width = 1000
        writer.dump({"families": table}, out_file)
    return 0


def _curve(record: dict[str, Any]) -> Curve | None:
    timed = record["columns"] == ["bytes", "us"]
    if record["op"] not in OPS or record["gpu"] not in SERVERS or "gpus" not in record:
        return None
    if not timed and record["columns"] != ["bytes", "busbw_GBs"]:
        return None
    op, gpus = record["op"], record["gpus"]
    fabric = str(record.get("fabric", ""))
    transport = next((name for word, name in TRANSPORTS.items() if word in fabric), "ib")
    group = _group(record["gpu"], gpus, record.get("nic_gbps"), transport, record.get("nodes"))
    settings = NcclSettings(algorithm=FORCED.get(record.get("algorithm", ""), "auto"))
    if settings.algorithm != "auto" and ALGORITHMS[settings.algorithm].unavailable(op, group, False):
        return None
    points = [
        (float(s), (v * 1e-6 if timed else bus_factor(op, gpus) * s / v / 1e9)) for s, v in record["points"]
    ]
    points = [p for p in points if p[0] >= 1024]
    return Curve(record["id"], op, group, settings, tuple(points), record["quality"])


def _group(gpu: str, gpus: int, nic_gbps: float | None, transport: str, nodes: int | None = None) -> Group:
    catalog = load_catalog()
    server = find(catalog.servers, SERVERS[gpu])
    domains = ceil(gpus / server.gpus)
    if nodes is not None and server.gpus <= 16:
        domains = nodes
    part = find(catalog.gpus, server.gpu)
    local = ceil(gpus / domains)
    rate = find(catalog.nics, server.nic).rate if nic_gbps is None else nic_gbps * 1e9 / 8
    nics = local
    if rate < 12.5e9:  # NICs of 100 Gb/s and more: several GPUs share one
        nics, rate = max(1, round(local * rate / 12.5e9)), 12.5e9
    return Group(
        gpus, domains, nics, rate, part.scale_up_bandwidth, generation_of(part), server.cpu, transport
    )


def _quantile(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(cumulative, q)])


def _median(parts: list[np.ndarray], shares: list[float]) -> float:
    """Median absolute relative error, every curve weighing as in the fit."""
    return _quantile(np.abs(np.expm1(np.concatenate(parts))), _weights(parts, shares), 0.5)


def _weights(parts: list[np.ndarray], shares: list[float]) -> np.ndarray:
    return np.concatenate([np.full(len(e), share / len(e)) for e, share in zip(parts, shares, strict=True)])


def _without(items: list[Any], i: int) -> list[Any]:
    return items[:i] + items[i + 1 :]


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
