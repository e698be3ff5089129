"""What a comparison says: measured beside predicted at every size, suspects, findings; as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from railwright.fabric.finding import Finding
from railwright.measure.logs.curve import MeasuredCurve
from railwright.units import show_change, show_size

WIDTH = 80


@dataclass(frozen=True)
class ComparedPoint:
    """One size.

    measured, predicted, low, high   time, our prediction of it, and its 80 % band [s]
    busbw, predicted_busbw           [byte/s]
    bound_busbw                      what the wires alone allow, under NCCL's best algorithm [byte/s]
    algorithm, protocol              NCCL's choice as we predict it
    rare_low, rare_high              the 98 % band of the time [s]
    """

    size: float
    measured: float
    predicted: float
    low: float
    high: float
    busbw: float
    predicted_busbw: float
    bound_busbw: float
    algorithm: str
    protocol: str
    rare_low: float = 0.0
    rare_high: float = math.inf

    @property
    def ratio(self) -> float:
        """Measured over predicted time."""
        return self.measured / self.predicted

    @property
    def inside(self) -> bool:
        """Whether the measured time lies in the band."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class Suspect:
    """One thing that may be different from the study, and the curve we predict with it.

    key      'as-designed', 'pxn-off', 'ecmp', 'nic-missing', …
    times    predicted at the compared sizes [s]
    misfit   root mean square of ln(measured / times)
    """

    key: str
    name: str
    next_test: str
    times: tuple[float, ...]
    misfit: float


@dataclass(frozen=True)
class ComparedCurve:
    """One measured curve beside its prediction.

    suspects  'as-designed' and every other curve that was predicted, the best fit first
    """

    measured: MeasuredCurve
    ranks: int
    servers: int
    groups: int
    points: tuple[ComparedPoint, ...]
    suspects: tuple[Suspect, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """'all_reduce, 16 ranks on 2 servers, out of place'."""
        at_once = f"{self.groups} groups of " if self.groups > 1 else ""
        servers = f"{self.servers} server" + ("s" if self.servers != 1 else "")
        place = "in place" if self.measured.in_place else "out of place"
        return f"{self.measured.op}, {at_once}{self.ranks} ranks on {servers}, {place}"

    @property
    def best(self) -> Suspect:
        """The curve that fits best."""
        return self.suspects[0]


@dataclass(frozen=True)
class Comparison:
    """All curves of a log beside a study.

    findings  those of the curves, then those that need several curves; the surest first
    skipped   curves that were not compared, with the reason
    """

    study: str
    version: str
    curves: tuple[ComparedCurve, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The comparison as text of 80 columns."""
        out = list(_wrapped(f"# railwright {self.version}: measured against {self.study}", "", "# "))
        for curve in self.curves:
            out += ["", *_wrapped(f"{curve.title} ({curve.measured.file}:{curve.measured.line})", "", "  ")]
            out += _table(curve.points)
            for note in (*curve.measured.notes, *curve.notes):
                out += _wrapped(f"note: {note}", "  ", "    ")
        out += ["", *self._verdict()]
        for number, finding in enumerate(self.findings, 1):
            head = f"{number}. {finding.kind} ({finding.severity}, confidence {finding.confidence:.0%}): "
            out += _wrapped(head + finding.evidence, "", "   ")
            if finding.next_test:
                out += _wrapped(f"next: {finding.next_test}", "   ", "         ")
        for reason in self.skipped:
            out += _wrapped(f"left out: {reason}", "", "  ")
        return out

    def as_json(self) -> dict[str, Any]:
        """Plain values only: what `railwright compare --json` prints. SI units."""
        return {
            "railwright": self.version,
            "study": self.study,
            "curves": [_curve_json(c) for c in self.curves],
            "findings": [_finding_json(f) for f in self.findings],
            "skipped": list(self.skipped),
        }

    def _verdict(self) -> list[str]:
        total = sum(len(c.points) for c in self.curves)
        inside = sum(p.inside for c in self.curves for p in c.points)
        text = f"{inside} of {total} sizes lie in the 80 % band of the prediction"
        return list(_wrapped(text + ("." if not self.findings else ", and:"), "", ""))


def _table(points: Sequence[ComparedPoint]) -> list[str]:
    head = f"{'size':>9}{'time':>10}{'predicted':>11}{'busbw':>9}{'predicted':>11}{'80 % band':>16}{'off':>9}"
    units = f"{'':>9}{'(us)':>10}{'(us)':>11}{'(GB/s)':>9}{'(GB/s)':>11}{'(GB/s)':>16}{'':>9}"
    out = [head, units.rstrip()]
    for p in points:
        slow, fast = p.predicted_busbw * p.predicted / p.high, p.predicted_busbw * p.predicted / p.low
        band = f"{_short(slow / 1e9)}-{_short(fast / 1e9)}"
        mark = "" if p.inside else " low" if p.measured > p.high else " high"
        out.append(
            f"{show_size(p.size):>9}{_short(p.measured * 1e6):>10}{_short(p.predicted * 1e6):>11}"
            f"{_short(p.busbw / 1e9):>9}{_short(p.predicted_busbw / 1e9):>11}{band:>16}"
            f"{show_change(1 / p.ratio - 1, 0):>9}{mark}"
        )
    return out


def _short(value: float) -> str:
    if value >= 99_999:
        return f"{value:.2e}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _wrapped(text: str, first: str, rest: str) -> Iterator[str]:
    yield from wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _curve_json(curve: ComparedCurve) -> dict[str, Any]:
    measured = curve.measured
    return {
        "op": measured.op,
        "file": measured.file,
        "line": measured.line,
        "in_place": measured.in_place,
        "tool": measured.tool,
        "ranks": curve.ranks,
        "ranks_low": measured.ranks_low,
        "ranks_high": measured.ranks_high,
        "ranks_why": measured.ranks_why,
        "servers": curve.servers,
        "groups": curve.groups,
        "points": [
            {
                "size": p.size, "measured": p.measured, "predicted": p.predicted,
                "low": p.low, "high": p.high,
                "busbw": p.busbw, "predicted_busbw": p.predicted_busbw,
                "bound_busbw": p.bound_busbw if math.isfinite(p.bound_busbw) else None,
                "algorithm": p.algorithm, "protocol": p.protocol, "inside": p.inside,
                "rare_low": p.rare_low, "rare_high": p.rare_high if math.isfinite(p.rare_high) else None,
            }
            for p in curve.points
        ],
        "suspects": [
            {"key": s.key, "name": s.name, "misfit": s.misfit, "times": list(s.times)} for s in curve.suspects
        ],
        "notes": [*measured.notes, *curve.notes],
    }  # fmt: skip


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "element": finding.element,
        "expected": finding.expected,
        "found": finding.found,
        "evidence": finding.evidence,
        "confidence": round(finding.confidence, 3),
        "next_test": finding.next_test,
    }
