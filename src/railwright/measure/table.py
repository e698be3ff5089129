"""What a validation says: predicted, measured, error; by record, by family, in total; and what it left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, median


@dataclass(frozen=True)
class Row:
    """One published figure beside our prediction.

    family     the set it belongs to; bars are stated per family
    predicted, measured   same unit, named in `unit`
    """

    family: str
    record: str
    what: str
    predicted: float
    measured: float
    unit: str
    source: str

    @property
    def error(self) -> float:
        """Signed relative error of the prediction."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Skipped:
    """One record that this stage does not predict, with the reason."""

    family: str
    record: str
    reason: str


@dataclass(frozen=True)
class Bar:
    """What a family must meet: median absolute error at most `median_abs` (0 = exact), and why that."""

    median_abs: float
    why: str


@dataclass(frozen=True)
class FamilySummary:
    """Errors of one family, as fractions."""

    family: str
    records: int
    skipped: int
    median_abs: float
    mean_abs: float
    p90_abs: float
    bias: float
    worst: float
    bar: Bar | None

    @property
    def passed(self) -> bool:
        return self.bar is None or self.median_abs <= self.bar.median_abs + 1e-12


def quantile(values: Sequence[float], q: float) -> float:
    """Linear-interpolated quantile of a non-empty sequence."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


@dataclass(frozen=True)
class ValidationTable:
    """All rows and all records left out."""

    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    bars: dict[str, Bar]

    @property
    def passed(self) -> bool:
        """Whether every family meets its bar."""
        return all(s.passed for s in self.families())

    def families(self) -> tuple[FamilySummary, ...]:
        """One summary per family, in order of appearance."""
        names = list(dict.fromkeys([r.family for r in self.rows] + [s.family for s in self.skipped]))
        return tuple(self._family(name) for name in names)

    def _family(self, name: str) -> FamilySummary:
        errors = [r.error for r in self.rows if r.family == name]
        skipped = sum(s.family == name for s in self.skipped)
        sizes = [abs(e) for e in errors]
        if not errors:
            nan = float("nan")
            return FamilySummary(name, 0, skipped, nan, nan, nan, nan, nan, None)
        worst = max(errors, key=abs)
        return FamilySummary(
            name,
            len(errors),
            skipped,
            median(sizes),
            mean(sizes),
            quantile(sizes, 0.9),
            mean(errors),
            worst,
            self.bars.get(name),
        )

    def band(self, family: str, level: float = 0.8) -> tuple[float, float]:
        """Central band of measured / predicted over a family, e.g. (0.9, 1.2)."""
        ratios = [1 / (1 + r.error) for r in self.rows if r.family == family]
        tail = (1 - level) / 2
        return quantile(ratios, tail), quantile(ratios, 1 - tail)

    def lines(self, detail: bool = False) -> list[str]:
        """The table as text; with `detail` every record, worst first, and the reasons of those left out."""
        out = [
            f"{'family':<34}{'records':>8}{'left out':>9}{'median':>8}{'mean':>8}{'p90':>8}{'bias':>8}{'worst':>8}  bar"
        ]
        for s in self.families():
            if not s.records:
                out.append(f"{s.family:<34}{0:>8}{s.skipped:>9}")
                continue
            bar = "" if s.bar is None else f"{'met' if s.passed else 'MISSED'} (median ≤ {s.bar.median_abs:.0%})"
            figures = "".join(f"{v:>8.1%}" for v in (s.median_abs, s.mean_abs, s.p90_abs))
            out.append(
                f"{s.family:<34}{s.records:>8}{s.skipped:>9}{figures}{s.bias:>+8.1%}{s.worst:>+8.1%}  {bar}".rstrip()
            )
        if detail:
            for s in self.families():
                out += ["", f"{s.family}:"]
                mine = sorted((r for r in self.rows if r.family == s.family), key=lambda r: -abs(r.error))
                out += [
                    f"  {r.error:>+7.1%}  {r.predicted:>11.5g} predicted  {r.measured:>11.5g} measured  "
                    f"{r.unit:<10} {r.record}: {r.what}"
                    for r in mine
                ]
                reasons: dict[str, int] = {}
                for left in self.skipped:
                    if left.family == s.family:
                        reasons[left.reason] = reasons.get(left.reason, 0) + 1
                out += [f"  left out ({n}): {why}" for why, n in sorted(reasons.items(), key=lambda kv: -kv[1])]
        return out


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Rank correlation of (predicted, measured) pairs; ties get their mean rank."""
    ranks = [_ranks([p[i] for p in pairs]) for i in (0, 1)]
    centred = [[r - mean(side) for r in side] for side in ranks]
    cross = sum(a * b for a, b in zip(*centred, strict=True))
    norm = sqrt(sum(a * a for a in centred[0]) * sum(b * b for b in centred[1]))
    return cross / norm if norm else float("nan")


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for i in order[at : end + 1]:
            ranks[i] = (at + end) / 2
        at = end + 1
    return ranks
