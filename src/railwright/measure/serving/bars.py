"""What is asked of predicted serving (issue 7): every bar with what is reached, by slice, model and GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import mean, median

from railwright.measure.serving.cases import Case, cases, engine_group, figure
from railwright.measure.table import Row, Skipped, quantile
from railwright.measure.training.bars import Reached

COVERAGE = 0.95
PEER = {"TTFT": "aic_ttft_ms", "TPOT": "aic_tpot_ms"}
"""Columns with what AIConfigurator 0.12.0 predicts of the same case."""


def reached(rows: Sequence[Row], skipped: Sequence[Skipped]) -> list[Reached]:
    """All bars on the serving rows."""
    by_id = {case["id"]: case for case in cases()}
    mine = [r for r in rows if r.family.startswith("serving ")]
    refused = [s for s in skipped if s.family.startswith("serving ")]
    found = [
        _mape("dense, online: TPOT", _of(mine, "dense", "TPOT"), 0.10),
        _mape("dense, online: TTFT", _of(mine, "dense", "TTFT"), 0.25),
        _mape("static batch: TTFT", _of(mine, "static", "TTFT"), 0.07),
        _mape("static batch: TPOT", _of(mine, "static", "TPOT"), 0.10),
        _mape("MoE and MLA, online: TPOT", _of(mine, "MoE", "TPOT"), 0.20),
    ]
    for what, bar in (
        ("TTFT", 0.08),
        ("TPOT", 0.08),
        ("throughput", 0.08),
        ("TTFT p99", 0.20),
        ("TPOT p99", 0.20),
    ):
        chosen = _of(mine, "replay", what)
        worst = max((abs(r.error) for r in chosen), default=float("nan"))
        found.append(Reached(f"per request: {what}, worst", f"{bar:.0%}", f"{worst:.1%}", worst <= bar))
    found += [
        _beside(group, metric, chosen, by_id) for (group, metric), chosen in _groups(mine, by_id).items()
    ]
    total = len({r.record for r in mine}) + len({s.record for s in refused})
    if total:
        share = len({r.record for r in mine}) / total
        found.append(Reached("cases predicted", f">= {COVERAGE:.0%}", f"{share:.1%}", share >= COVERAGE))
    return found


def lines(found: Sequence[Reached]) -> list[str]:
    """The bars as text of 80 columns."""
    head = f"{'bar of serving':<38}{'asked':<16}{'reached':<22}"
    return [head, *(f"{b.what:<38}{b.asked:<16}{b.reached:<22}{'met' if b.met else 'NOT'}" for b in found)]


def _of(rows: Sequence[Row], part: str, what: str) -> list[Row]:
    return [r for r in rows if r.family == f"serving {part}: {what}"]


def _mape(what: str, rows: Sequence[Row], bar: float) -> Reached:
    value = mean([abs(r.error) for r in rows] or [float("nan")])
    return Reached(what, f"{bar:.0%}", f"{value:.1%} of {len(rows)}", value <= bar)


def _groups(rows: Sequence[Row], by_id: Mapping[str, Case]) -> dict[tuple[str, str], list[Row]]:
    """(GPU and engine, metric) -> online rows that AIConfigurator predicts too."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for metric, column in PEER.items():
        for row in _of(rows, "dense", metric):
            if figure(by_id[row.record], column) is not None:
                found[engine_group(by_id[row.record]), metric].append(row)
    return dict(sorted(found.items()))


def _beside(group: str, metric: str, rows: Sequence[Row], by_id: Mapping[str, Case]) -> Reached:
    """Our MAPE beside AIConfigurator's on the same cases; both in the same unit."""
    ours = mean(abs(r.error) for r in rows)
    theirs = mean(abs(peer_error(by_id[r.record], metric)) for r in rows)
    return Reached(f"{group}: {metric}", f"< {theirs:.1%} (AIC)", f"{ours:.1%} of {len(rows)}", ours < theirs)


def peer_error(case: Case, metric: str) -> float:
    """Signed relative error of AIConfigurator's prediction of a case."""
    predicted, measured = figure(case, PEER[metric]), figure(case, f"{metric.lower()}_ms")
    assert predicted is not None
    assert measured is not None
    return predicted / measured - 1.0


def left_out(rows: Sequence[Row], group: Mapping[str, str]) -> tuple[float, float, float]:
    """(mean error as predicted, with a common factor in sample, with that factor fitted without the own
    group).

    No constant is fitted on these rows, so the first is out of sample already; the other two say what one
    factor for the whole slice would gain, and whether that gain carries over to a group it has not seen.

    group  record -> its model, or its GPU
    """
    if not rows:
        nan = float("nan")
        return nan, nan, nan
    plain = mean(abs(r.error) for r in rows)
    everything = _factor(rows)
    seen = mean(abs(r.predicted * everything / r.measured - 1.0) for r in rows)
    blind = []
    for name in dict.fromkeys(group[r.record] for r in rows):
        inside = [r for r in rows if group[r.record] == name]
        outside = [r for r in rows if group[r.record] != name]
        factor = _factor(outside) if outside else 1.0
        blind += [abs(r.predicted * factor / r.measured - 1.0) for r in inside]
    return plain, seen, mean(blind)


def _factor(rows: Sequence[Row]) -> float:
    """The factor that makes the median ratio 1."""
    return exp(median(log(r.measured / r.predicted) for r in rows))


def spread(rows: Sequence[Row], group: Mapping[str, str]) -> list[tuple[str, int, float, float]]:
    """(group, rows, mean absolute error, bias) of every model or GPU, the worst first."""
    parts: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        parts[group[row.record]].append(row)
    found = [
        (name, len(chosen), mean(abs(r.error) for r in chosen), mean(r.error for r in chosen))
        for name, chosen in parts.items()
    ]
    return sorted(found, key=lambda entry: -entry[2])


def band(rows: Sequence[Row], level: float = 0.8) -> tuple[float, float]:
    """Central band of measured / predicted that holds `level` of the rows."""
    ratios = [r.measured / r.predicted for r in rows]
    tail = (1.0 - level) / 2.0
    return quantile(ratios, tail), quantile(ratios, 1.0 - tail)
