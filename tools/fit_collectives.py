"""Fit launch, ramp and error bands of every family of collectives to the published curves.

Reads src/railwright/measure/data/collectives.yaml, prices each point on a healthy fabric with NCCL's own
model plus `launch + ramp pipeline_root(steps, bandwidth)`, writes
src/railwright/collectives/data/families.yaml and the tables of docs/collectives.md.
A family needs three points, and a quality-A curve or two others.  Curves of quality A weigh 1, B 1/2, C 1/4,
whatever their number of points; the error is of log(predicted / measured).  Single quoted numbers (C) are
plateaus: they test a fit and do not make it.  A family without sizes at which a launch is felt has none
longer than another algorithm of the same GPUs and transport.  Each curve left out in turn gives the honest
error beside the in-sample one, and the bands by size.  Nothing widens a band by hand: a band is
quantiles of left-out errors, and its coverage is nested: for each curve every fit and every error behind its
band are made again as if that curve had never been published.
Run: python tools/fit_collectives.py [--check]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from ruamel.yaml import YAML
from scipy.optimize import least_squares

from railwright.catalog import find, load_catalog
from railwright.collectives.choice import ALGORITHMS
from railwright.collectives.cost import on_healthy_fabric
from railwright.collectives.family import BANDS, families, pipeline_root
from railwright.collectives.group import Group, generation_of
from railwright.collectives.prediction import NcclSettings, Op
from railwright.collectives.rates import bus_factor
from railwright.measure.collectives import BANDS as REPLAYED
from railwright.measure.collectives import VIRTUAL, collective_rows
from railwright.measure.table import Row

ROOT = FilePath(__file__).parent.parent
PAGE = ROOT / "docs/collectives.md"
CURVES = ROOT / "src/railwright/measure/data/collectives.yaml"
FAMILIES = ROOT / "src/railwright/collectives/data/families.yaml"
SERVERS = {
    "V100": "dgx-1-v100", "A100": "dgx-a100", "A100-40": "dgx-a100", "H100": "dgx-h100", "H800": "hgx-h800",
    "H200": "dgx-h200", "B200": "dgx-b200", "B300": "dgx-b300", "GB200": "gb200-nvl72",
}  # fmt: skip
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
FORCED = {"RING forced": "ring", "NVLSTree": "nvlstree", "Ring": "ring", "Tree": "tree"}
TRANSPORTS = {"EFA": "efa", "p5": "efa", "p4de": "efa", "TCPXO": "tcpxo"}
WEIGHTS = {"A": 1.0, "B": 0.5, "C": 0.25}
"""Weight of a whole curve by the quality of its record."""
PRIOR = np.array([2e-4, 2e-2])
"""Pull of (launch [us], ramp) towards zero, so that curves without small sizes cannot invent a launch."""
HIGHEST = (1000.0, 4.0)
"""Upper bounds of the same two."""
POOLED = 1.0
"""Weight, in curves of quality A, that others have in a family's band: those of the same scope (inside a
node, or across) count as one more curve together, and those of the other scope as another."""
LEVEL, RARE = 0.8, 0.98
"""Shares of measured / predicted that the two bands of a family hold."""
Sample = tuple[float, float, float, float]
"""S [byte]; NCCL's terms, the root of the ramp, measured [s]."""
Fit = tuple[float, float]
"""launch [s], ramp."""
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
        group = _group(gpu, gpus, "ib", {})
        factor = bus_factor(op, gpus)
        times = [(alpha + k * sqrt(s) + factor * s / busbw / 1e3) * 1e-6 for s in SIZES]
        points = tuple(zip(SIZES.tolist(), times, strict=True))
        found.append(Curve(f"fit {gpu}x{gpus} {op}", op, group, NcclSettings(), points, "A"))
    return found


def samples(curve: Curve) -> list[tuple[str, Sample]]:
    """The family and the sample of each point; algorithms as NCCL chooses."""
    rows: list[tuple[str, Sample]] = []
    for size, measured in curve.points:
        cost = on_healthy_fabric(curve.op, size, curve.group, curve.settings)
        terms = {t.name: t.seconds for t in cost.terms}
        fixed = terms["steps"] + terms["bandwidth"] + terms.get("messages", 0.0)
        root = pipeline_root(cost.filling, terms["bandwidth"], curve.group.nodes > 1)
        family = f"{curve.group.generation} {curve.group.scope} {cost.algorithm}"
        rows.append((family, (size, fixed, root, measured)))
    return rows


def fit(parts: list[np.ndarray], shares: list[float], longest: float = inf) -> Fit:
    """Least squared log error; each curve's points share that curve's weight.

    longest  upper bound of the launch [s]
    """

    def residuals(x: np.ndarray) -> np.ndarray:
        how = (x[0] * 1e-6, x[1])
        logs = [errors(p, how) * sqrt(share / len(p)) for p, share in zip(parts, shares, strict=True)]
        return np.concatenate([*logs, PRIOR * x])

    top = min(HIGHEST[0], max(1e6 * longest, 0.01))
    bounds = ([0.0, 0.0], [top, HIGHEST[1]])
    answer = least_squares(residuals, [min(5.0, top / 2), 0.5], bounds=bounds, loss="soft_l1", f_scale=0.3)
    return round(float(answer.x[0]), 2) * 1e-6, round(float(answer.x[1]), 3)


def errors(part: np.ndarray, how: Fit) -> np.ndarray:
    """log(predicted / measured) of one curve."""
    _, fixed, root, measured = part.T
    return np.log((fixed + how[0] + how[1] * root) / measured)


@dataclass(frozen=True)
class Fitted:
    """One family: its curves, its fit, and log(measured / predicted) per curve with that curve left out.

    beside    the family whose launch bounds this one's, where none of its own sizes tells
    fits      fits already made, by the curves they have not seen
    """

    quality: dict[str, str]
    parts: dict[str, np.ndarray]
    beside: Fitted | None
    fits: dict[frozenset[str], Fit]

    @property
    def how(self) -> Fit:
        return self.without(frozenset())

    @property
    def small(self) -> bool:
        """Whether some size is one at which a launch is felt."""
        return any(bool(np.any(part[:, 0] <= BANDS[0])) for part in self.parts.values())

    @property
    def inside(self) -> dict[str, np.ndarray]:
        return {n: -errors(p, self.how) for n, p in self.parts.items()}

    def outside(self, unseen: str = "") -> dict[str, np.ndarray]:
        """Of each curve but `unseen`, errors of a fit that has seen neither; empty where none is left."""
        found = {}
        for name, part in self.parts.items():
            hidden = frozenset({name, unseen})
            if name != unseen and not set(self.parts) <= hidden:
                found[name] = -errors(part, self.without(hidden))
        return found

    def without(self, hidden: frozenset[str]) -> Fit:
        """The fit to the curves that are not hidden."""
        if hidden not in self.fits:
            kept = [n for n in self.parts if n not in hidden]
            kept = [n for n in kept if self.quality[n] != "C"] or kept
            longest = inf
            if self.beside is not None and not set(self.beside.parts) <= hidden:
                longest = self.beside.without(hidden)[0]
            shares = [WEIGHTS[self.quality[n]] for n in kept]
            self.fits[hidden] = fit([self.parts[n] for n in kept], shares, longest)
        return self.fits[hidden]

    def median(self, which: dict[str, np.ndarray]) -> float | None:
        """Median absolute relative error, every curve weighing as in the fit."""
        return (
            _median([-which[n] for n in which], [WEIGHTS[self.quality[n]] for n in which]) if which else None
        )


def fitted() -> dict[str, Fitted]:
    """Every family that the curves allow, by name."""
    by_family: dict[str, dict[str, list[Sample]]] = {}
    quality: dict[str, str] = {}
    for curve in curves():
        for family, sample in samples(curve):
            by_family.setdefault(family, {}).setdefault(curve.name, []).append(sample)
            quality[curve.name] = curve.quality
    table: dict[str, Fitted] = {}
    for family in sorted(by_family):
        parts = {n: np.array(p) for n, p in by_family[family].items()}
        if sum(len(p) for p in parts.values()) < 3 or (len(parts) == 1 and quality[next(iter(parts))] != "A"):
            continue
        table[family] = Fitted({n: quality[n] for n in parts}, parts, None, {})
    told = {family: of for family, of in table.items() if of.small and not family.endswith("p2p")}
    for family, of in table.items():
        near = [name for name in told if name.split()[:-1] == family.split()[:-1]]
        if not of.small and near:
            table[family] = replace(of, beside=told[near[0]])
    return table


def band(
    table: dict[str, Fitted], family: str, b: int, level: float, unseen: str = ""
) -> tuple[float, float]:
    """(low, high) of measured / predicted in size band b: quantiles of left-out errors.

    The family's own curves count by quality, those of each scope beside them as POOLED curves together.
    unseen  a curve that neither the errors nor any fit behind them has seen
    """
    mine = _residuals(table, [family], b, unseen)
    for inside in (True, False):
        rest = [f for f in table if ("one-node" in f) == inside and f != family]
        others = _residuals(table, rest, b, unseen)
        share = min(1.0, POOLED / max(sum(w for _, w in others), 1e-9))
        mine += [(v, share * w) for v, w in others]
    values = np.concatenate([v for v, _ in mine])
    weights = np.concatenate([np.full(len(v), w / len(v)) for v, w in mine])
    low, high = (_quantile(values, weights, q) for q in ((1 - level) / 2, (1 + level) / 2))
    return float(np.exp(min(low, -0.01))), float(np.exp(max(high, 0.01)))


def coverage(table: dict[str, Fitted], b: int, level: float) -> tuple[float, float, int, int]:
    """(share of left-out points inside bands made without their curve, share above, curves, points)."""
    inside = above = total = 0.0
    num_curves = num_points = 0
    for family, of in table.items():
        for name, ratios in of.outside().items():
            here = ratios[_in_band(of.parts[name][:, 0], b)]
            if not len(here):
                continue
            low, high = np.log(band(table, family, b, level, unseen=name))
            weight = WEIGHTS[of.quality[name]]
            inside += weight * float(np.mean((here >= low) & (here <= high)))
            above += weight * float(np.mean(here > high))
            total += weight
            num_curves, num_points = num_curves + 1, num_points + len(here)
    return inside / total, above / total, num_curves, num_points


def rows(table: dict[str, Fitted]) -> dict[str, dict[str, Any]]:
    """What families.yaml says of each family."""
    answer = {}
    for family, of in table.items():
        num = len(of.inside)
        out = of.median(of.outside())
        answer[family] = {
            "launch": float(f"{of.how[0]:.3g}"),
            "ramp": float(f"{of.how[1]:.3g}"),
            **{
                key: [[float(f"{v:.3g}") for v in band(table, family, b, level)] for b in range(len(BANDS))]
                for key, level in (("bands", LEVEL), ("rare", RARE))
            },
            "median_error_in_sample": float(f"{of.median(of.inside):.3f}"),
            "median_error_left_out": None if out is None else float(f"{out:.3f}"),
            "points": int(sum(len(e) for e in of.inside.values())),
            "basis": f"{num} published curve{'s' if num > 1 else ''}",
            "curves": list(of.inside),
        }
    return answer


def main(check: bool) -> int:
    """Write families.yaml and the page's tables; with --check say whether they are what the curves give."""
    table = fitted()
    found = rows(table)
    if check:
        text = YAML(typ="safe").load(FAMILIES.read_text(encoding="utf-8"))["families"]
        same = set(text) == set(found) and all(abs(text[k]["ramp"] - found[k]["ramp"]) < 0.02 for k in found)
        print(
            f"families.yaml {'is what the curves give' if same else 'differs: run tools/fit_collectives.py'}"
        )
        return 0 if same else 1
    with FAMILIES.open("w", encoding="utf-8") as out_file:
        out_file.write(
            "# Written by tools/fit_collectives.py from measure/data/collectives.yaml; do not edit.\n"
            "# launch [s]; ramp: coefficient of the pipeline's root;\n"
            "# bands: 80 % band of measured/predicted, left out, up to 256 KiB, up to 128 MiB, above;\n"
            "# rare: the 98 % band, likewise;\n"
            "# errors: median of |predicted/measured - 1| on the fit's own curves and on each curve left\n"
            "# out in turn (null: one curve only), curves weighing by quality.\n"
        )
        writer = YAML()
        writer.width = 1000
        writer.dump({"families": found}, out_file)
    families.cache_clear()  # the fit priced its curves with the families of before
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in (
        ("families", _family_lines(found)),
        ("coverage", _coverage_lines(table)),
        ("curves", _curve_lines()),
    ):
        before, _, rest = page.partition(f"<!-- {name} -->\n")
        _, mark, after = rest.partition(f"<!-- end of {name} -->")
        assert mark, f"docs/collectives.md has no part '{name}'"
        page = f"{before}<!-- {name} -->\n" + "".join(f"{line}\n" for line in lines) + mark + after
        print("\n".join(lines))
    PAGE.write_text(page, encoding="utf-8")
    return 0


def _family_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| family | launch | ramp | in sample | left out | small | mid | large | curves |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        out = row["median_error_left_out"]
        bands = " | ".join(f"{low:.2f}-{high:.2f}" for low, high in row["bands"])
        lines.append(
            f"| {name} | {row['launch'] * 1e6:.1f} | {row['ramp']:.2f} "
            f"| {row['median_error_in_sample']:.1%} | {'-' if out is None else f'{out:.1%}'} | {bands} "
            f"| {len(row['curves'])} |"
        )
    return lines


def _coverage_lines(table: dict[str, Fitted]) -> list[str]:
    lines = ["| size | in the 80 % band | slower than it | in the 98 % band | curves | points |"]
    lines.append("|---|---|---|---|---|---|")
    for b, name in enumerate(("up to 256 KiB", "up to 128 MiB", "above")):
        share, above, num_curves, num_points = coverage(table, b, LEVEL)
        rare = coverage(table, b, RARE)[0]
        lines.append(f"| {name} | {share:.0%} | {above:.0%} | {rare:.0%} | {num_curves} | {num_points} |")
    return lines


def _curve_lines() -> list[str]:
    """Median signed error of every record by size, as `railwright validate collectives` replays it."""
    bands: dict[str, dict[str, list[float]]] = {}
    reason: dict[str, str] = {}
    for row in collective_rows():
        if isinstance(row, Row):
            band = row.family.removeprefix(f"{VIRTUAL} ").removeprefix("collectives ")
            bands.setdefault(row.record, {}).setdefault(band, []).append(row.error)
            reason[row.record] = row.reason
    names = [name for _, name in REPLAYED]
    lines = [
        "| record | small | mid | large | worst | more than half off because |",
        "|---|---|---|---|---|---|",
    ]
    for record, mine in bands.items():
        medians = " | ".join(f"{float(np.median(mine[n])):+.0%}" if n in mine else "-" for n in names)
        worst = max((e for errors_ in mine.values() for e in errors_), key=abs)
        why = reason[record] if abs(worst) > 0.5 else ""
        lines.append(f"| {record} | {medians} | {worst:+.0%} | {why} |")
    return lines


def _curve(record: dict[str, Any]) -> Curve | None:
    timed = record["columns"] == ["bytes", "us"]
    if record["op"] not in OPS or record["gpu"] not in SERVERS or "gpus" not in record:
        return None
    if not timed and record["columns"] != ["bytes", "busbw_GBs"]:
        return None
    op, gpus = record["op"], record["gpus"]
    fabric = str(record.get("fabric", ""))
    transport = next((name for word, name in TRANSPORTS.items() if word in fabric), "ib")
    group = _group(record["gpu"], gpus, transport, record)
    settings = NcclSettings(algorithm=FORCED.get(record.get("algorithm", ""), "auto"))
    if settings.algorithm != "auto" and ALGORITHMS[settings.algorithm].unavailable(op, group, False):
        return None
    points = [
        (float(s), (v * 1e-6 if timed else bus_factor(op, gpus) * s / v / 1e9)) for s, v in record["points"]
    ]
    least = 2e9 * record.get("resolution", 0.0)  # a busbw read to half of itself and less says nothing
    smallest = BANDS[1] if record["quality"] == "C" else 0.0  # single quoted numbers are plateaus
    points = [p for p in points if p[0] > smallest and bus_factor(op, gpus) * p[0] / p[1] > least]
    if not points or record.get("virtual"):
        return None
    return Curve(record["id"], op, group, settings, tuple(points), record["quality"])


def _group(gpu: str, gpus: int, transport: str, record: dict[str, Any]) -> Group:
    """The communicator of a record; {}: packed on the GPU's usual servers."""
    catalog = load_catalog()
    server = find(catalog.servers, SERVERS[gpu])
    domains = ceil(gpus / server.gpus)
    if "nodes" in record and server.gpus <= 16:
        domains = record["nodes"]
    part = find(catalog.gpus, server.gpu)
    local = ceil(gpus / domains)
    rate = find(catalog.nics, server.nic).rate
    of_node = record.get("nics", server.nics)
    if "nic_gbps" in record:
        rate = record["nic_gbps"] * 1e9 / 8 * server.gpus / of_node
    used = record.get("of_node", range(local))
    nics = len({gpu * of_node // server.gpus for gpu in used})
    return Group(
        gpus, domains, nics, rate, part.scale_up_bandwidth, generation_of(part), server.cpu, transport
    )


def _residuals(
    table: dict[str, Fitted], names: list[str], b: int, unseen: str
) -> list[tuple[np.ndarray, float]]:
    """Left-out log(measured / predicted) in one size band, and the weight, of every curve but one."""
    found = []
    for of in (table[name] for name in names):
        for curve, ratios in of.outside(unseen).items():
            here = ratios[_in_band(of.parts[curve][:, 0], b)]
            if len(here):
                found.append((here, WEIGHTS[of.quality[curve]]))
    return found


def _in_band(sizes: np.ndarray, b: int) -> np.ndarray:
    return (sizes <= BANDS[b]) & (sizes > (BANDS[b - 1] if b else 0.0))


def _quantile(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(cumulative, q)])


def _median(parts: list[np.ndarray], shares: list[float]) -> float:
    """Median absolute relative error, every curve weighing as in the fit."""
    return _quantile(np.abs(np.expm1(np.concatenate(parts))), _weights(parts, shares), 0.5)


def _weights(parts: list[np.ndarray], shares: list[float]) -> np.ndarray:
    return np.concatenate([np.full(len(e), share / len(e)) for e, share in zip(parts, shares, strict=True)])


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
