"""What a validation says: predicted, measured, error; by record and by family; and what it left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

WORST = 20
"""Records shown in a table of misses, the worst first."""
WORTH_A_REASON = 0.25
"""Absolute error from which the reason is printed."""


HEADS = ("median", "mean", "p90", "bias")


@dataclass(frozen=True)
class Row:
    """One published figure beside our prediction.

    family     the set it belongs to; bars are stated per family
    predicted, measured   same unit, named in `unit`
    reason     why the two differ by much, where that is known
    no_effect  of an effect, the value that means none: 1 of a ratio, 0 of a share or a bandwidth
    left_out   our prediction with constants that have not seen this record, where it was made
    launches   share of a predicted step in which its GPU waits for launches
    """

    family: str
    record: str
    what: str
    predicted: float
    measured: float
    unit: str
    source: str
    reason: str = ""
    no_effect: float | None = None
    left_out: float | None = None
    launches: float = 0.0

    @property
    def reproduced(self) -> bool:
        """Of an effect: whether ours has the sign of the measured gain and is within half of it."""
        base = self.no_effect or 0.0
        return abs(self.predicted - self.measured) <= 0.5 * abs(self.measured - base)

    @property
    def error_left_out(self) -> float | None:
        """Signed relative error of the prediction that has not seen this record."""
        return None if self.left_out is None else self.left_out / self.measured - 1

    @property
    def error(self) -> float:
        """Signed relative error of the prediction; of a published zero, 0 when met and infinite when not."""
        if self.measured == 0:
            return 0.0 if self.predicted == 0 else float("inf")
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Skipped:
    """One record that this stage does not predict, with the reason."""

    family: str
    record: str
    reason: str


@dataclass(frozen=True)
class Bar:
    """What a family must meet, and why that.

    median_abs  largest median absolute error (0 = exact)
    reproduced  least share of effects that must have the right sign and lie within half of the gain
    left_out    largest median absolute error with each record left out
    """

    median_abs: float
    why: str
    reproduced: float = 0.0
    left_out: float = float("inf")

    def lines(self) -> str:
        """In words."""
        text = f"median at most {self.median_abs:.1%}"
        if self.left_out != float("inf"):
            text += f", {self.left_out:.1%} with each record left out"
        if self.reproduced:
            text += f", {self.reproduced:.0%} of effects with the right sign and within half of the gain"
        return f"{text}; {self.why}"


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
    reproduced: float = 1.0
    left_out: float = 0.0

    @property
    def passed(self) -> bool:
        bar = self.bar
        return bar is None or (
            self.median_abs <= bar.median_abs + 1e-12
            and self.reproduced >= bar.reproduced - 1e-12
            and self.left_out <= bar.left_out + 1e-12
        )


def quantile(values: Sequence[float], q: float) -> float:
    """Linear-interpolated quantile of a non-empty sequence."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


@dataclass(frozen=True)
class ValidationTable:
    """All rows and all records left out; `asked` are lines about bars over several families."""

    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    bars: dict[str, Bar]
    asked: tuple[str, ...] = ()

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
            return FamilySummary(
                family=name,
                records=0,
                skipped=skipped,
                median_abs=nan,
                mean_abs=nan,
                p90_abs=nan,
                bias=nan,
                worst=nan,
                bar=None,
            )
        worst = max(errors, key=abs)
        effects = [r.reproduced for r in self.rows if r.family == name and r.no_effect is not None]
        unseen = [abs(e) for r in self.rows if r.family == name and (e := r.error_left_out) is not None]
        return FamilySummary(
            family=name,
            records=len(errors),
            skipped=skipped,
            median_abs=median(sizes),
            mean_abs=mean(sizes),
            p90_abs=quantile(sizes, 0.9),
            bias=mean(errors),
            worst=worst,
            bar=self.bars.get(name),
            reproduced=mean(effects) if effects else 1.0,
            left_out=median(unseen) if unseen else 0.0,
        )

    def band(self, family: str, level: float = 0.8) -> tuple[float, float]:
        """Central band of measured / predicted over a family, e.g. (0.9, 1.2)."""
        ratios = [1 / (1 + r.error) for r in self.rows if r.family == family]
        tail = (1 - level) / 2
        return quantile(ratios, tail), quantile(ratios, 1 - tail)

    def lines(self, detail: bool = False) -> list[str]:
        """The table as text of 80 columns; with `detail` the worst records and why others were skipped."""
        out = [
            f"{'family':<27}{'points':>7}{'skip':>5}" + "".join(f"{h:>7}" for h in HEADS) + f"{'worst':>8}"
        ]
        for s in self.families():
            line = f"{s.family:<27}{s.records:>7}{s.skipped:>5}"
            if s.records:
                line += "".join(f"{_percent(v, 7):>7}" for v in (s.median_abs, s.mean_abs, s.p90_abs))
                line += f"{_percent(s.bias, 7, '+'):>7}{_percent(s.worst, 8, '+'):>8}"
            if s.bar is not None:
                line += "  met" if s.passed else " MISS"
            out.append(line)
        if self.asked:
            out += ["", *self.asked]
        if detail:
            for s in self.families():
                out += ["", *self._detail(s)]
        return out

    def _detail(self, s: FamilySummary) -> list[str]:
        """A family's bar, its worst records and why others were skipped."""
        out = [f"{s.family}:"]
        if s.bar is not None:
            out.append(f"  bar: {s.bar.lines()}")
            if s.bar.reproduced:
                out.append(f"  within half of the measured gain, with its sign: {s.reproduced:.0%}")
        if s.left_out:
            out.append(f"  median where the fit has not seen the record: {s.left_out:.1%}")
        mine = sorted((r for r in self.rows if r.family == s.family), key=lambda r: -abs(r.error))
        out += [
            f"  {r.error:>+7.1%}  {r.predicted:>11.5g} predicted  {r.measured:>11.5g} measured  "
            f"{r.unit:<10} {r.record}: {r.what}"
            + (f" ({r.reason})" if abs(r.error) > WORTH_A_REASON and r.reason else "")
            for r in mine[:WORST]
        ]
        if len(mine) > WORST:
            out.append(f"  … and {len(mine) - WORST} more, all closer")
        reasons = Counter(left.reason for left in self.skipped if left.family == s.family)
        return out + [f"  skipped ({n}): {why}" for why, n in reasons.most_common()]


def _percent(value: float, width: int, sign: str = "") -> str:
    """'-12.3%'; without the decimal where that would fill the column and run into the one before."""
    text = f"{value:{sign}.1%}"
    return text if len(text) < width else f"{value:{sign}.0%}"
