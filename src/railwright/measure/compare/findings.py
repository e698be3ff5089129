"""What the difference between a measured and a predicted curve looks like: findings with evidence and a test.

The shape tells mechanisms apart: latencies act on small sizes, wires on the plateau, protocols at one size,
spines on all-to-all alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from railwright.fabric.finding import Finding, Severity
from railwright.measure.compare.result import ComparedCurve, ComparedPoint, Suspect
from railwright.measure.compare.suspects import DESIGNED, misfit
from railwright.units import show_rate, show_share, show_size

SMALL = 256 * 1024.0
"""Sizes up to this are all latency. [byte]"""
PLATEAU = 64 * 2.0**20
"""Sizes from this on are (almost) all bandwidth. [byte]"""
CLIFF = 1.4
"""A step of measured / predicted time between sizes at most four times apart that is no noise."""
SHEER = 2.0
"""A step that is a cliff even where the bus bandwidth still rises over it."""
BOUND = 1.03
"""Bus bandwidth above the wires' by less than this is rounding and header bytes."""
CLEAR = 0.6
"""A suspect is named where its misfit is at most this part of the design's."""
FEWEST = 3
"""Sizes from which a suspect can be named: one or two are met by some suspect always."""
FAR = 0.25
"""A suspect further off than this explains nothing, however wrong the design is."""
_TESTS = {
    "all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf", "broadcast": "broadcast_perf", "sendrecv": "sendrecv_perf",
}  # fmt: skip


def findings_of(curve: ComparedCurve) -> tuple[Finding, ...]:
    """Everything one curve tells, in the order: can it be believed, is it possible, what is slow."""
    found = [*_believable(curve), *_too_fast(curve), *_cliffs(curve)]
    small = [p for p in curve.points if p.size <= SMALL]
    plateau = [p for p in curve.points if p.size >= PLATEAU]
    middle = [p for p in curve.points if SMALL < p.size < PLATEAU]
    found += _plateau(curve, plateau)
    found += _small(curve, small, bool(plateau) and _side(plateau) == "slow", _explained(curve, plateau))
    if middle and _side(middle) == "slow" and not any(_side(ps) == "slow" for ps in (small, plateau) if ps):
        found.append(_middle(curve, middle))
    return tuple(found)


def across(curves: Sequence[ComparedCurve]) -> list[Finding]:
    """What only several curves tell together: an all-to-all that is slow where the all-reduce is not."""
    found = []
    for slow in curves:
        plateau = [p for p in slow.points if p.size >= PLATEAU]
        if slow.measured.op != "all_to_all" or slow.servers < 2 or not plateau or _side(plateau) != "slow":
            continue
        for sound in curves:
            if sound.measured.op not in ("all_reduce", "all_gather", "reduce_scatter"):
                continue
            large = [p for p in sound.points if p.size >= PLATEAU]
            if not large or sound.ranks != slow.ranks or _side(large) == "slow":
                continue
            fits = ", ".join(
                f"{s.name} ({100 * s.misfit:.0f} % off)"
                for s in [s for s in slow.suspects if s.key in ("pxn-off", "ecmp", "static", "pxn-off+ecmp")][
                    :3
                ]
            )
            why = (
                f"all_to_all reaches {_reach(plateau)} of its predicted plateau while {sound.measured.op} "
                "over the "
                f"same {slow.ranks} ranks reaches {_reach(large)}: NICs, cables and rails are sound, so "
                "it is what "
                "only an all-to-all needs, the spines and PXN" + (f"; by fit: {fits}" if fits else "")
            )
            test = (
                "run `railwright bench rails` (flat against rail-first) and alltoall_perf with "
                "NCCL_PXN_DISABLE=1: no change means PXN did not work before; then look at the spines' port "
                "counters"
            )
            found.append(_finding(slow, "spines or PXN", "warning", plateau, why, 0.7, test))
            break
    return found


def _believable(curve: ComparedCurve) -> list[Finding]:
    out = []
    marks = (
        ("statement is wrong", "wrong rank count", "the header or the launch command; trust the rank "
        "count of the numbers"),
        ("made up", "impossible numbers", "ask for the untouched log"),
        ("different rank counts", "mixed rows", "ask for the untouched log"),
        ("failed the check", "wrong results", "run dcgmi diag -r 3 on every host, then halve the hosts "
        "until it is gone"),
        ("size over time is", "contradictory row", "ask for the untouched log"),
    )  # fmt: skip
    for note in curve.measured.notes:
        for mark, kind, test in marks:
            if mark in note:
                severity: Severity = "fault" if kind == "wrong results" else "warning"
                out.append(_finding(curve, kind, severity, curve.points[:1], note, 0.9, test))
                break
    return out


def another_machine(curve: ComparedCurve, others: str) -> list[Finding]:
    """That the log is of other GPUs than the study's (`place.other_gpus`), where it says so."""
    test = "name the server that ran in the study (cluster.server), and compare again"
    why = f"{others}: what else is found here compares two machines"
    return [_finding(curve, "another machine", "warning", curve.points, why, 0.95, test)] if others else []


def _too_fast(curve: ComparedCurve) -> list[Finding]:
    """Measured above what the wires of the study allow under any algorithm."""
    over = [p for p in curve.points if p.size >= SMALL and p.busbw > BOUND * p.bound_busbw]
    if not over:
        return []
    worst = max(over, key=lambda p: p.busbw / p.bound_busbw)
    why = (
        f"{show_rate(worst.busbw)} at {show_size(worst.size)} is {worst.busbw / worst.bound_busbw:.2f} times "
        f"what the study's wires carry under any algorithm ({show_rate(worst.bound_busbw)})"
    )
    if curve.servers == 1:
        why += ": the study's GPUs or NVLink are not those of the log"
    else:
        why += f": fewer servers than {curve.servers} took part, or the study's NICs are slower than the "
        "real ones"
    test = "compare the log's devices and ibstat's rates with the study's cluster.server"
    return [_finding(curve, "faster than possible", "warning", over, why, 0.8, test)]


def _cliffs(curve: ComparedCurve) -> list[Finding]:
    """Sizes from which on the curve stays lower than its shape should be; and sizes that are slow alone."""
    out = []
    jagged: list[ComparedPoint] = []
    fit = _fit(curve, [i for i, p in enumerate(curve.points) if p.size > SMALL])
    times = fit.best.times if fit is not None and fit.named else [p.predicted for p in curve.points]
    for i, (before, after) in enumerate(zip(curve.points, curve.points[1:], strict=False)):
        # A step that the best suspect's own curve has too is explained by it.
        step = min(after.ratio / before.ratio, after.measured / times[i + 1] * times[i] / before.measured)
        if step < CLIFF or after.size > 4.01 * before.size or after.size <= before.size or after.inside:
            continue
        if after.busbw > before.busbw and step < SHEER:
            continue
        following = curve.points[i + 2 : i + 4]
        if following and min(p.ratio for p in following) < 0.5 * (1 + CLIFF) * before.ratio:
            jagged.append(after)
            continue
        later = [p for p in curve.points if p.size > after.size]
        heals = bool(later) and median(p.ratio for p in later) < after.ratio / 1.2
        switched = _switch_near(curve, after)
        why = (
            f"measured bus bandwidth goes from {show_rate(before.busbw)} at {show_size(before.size)} to "
            f"{show_rate(after.busbw)} at {show_size(after.size)}, where {show_rate(before.predicted_busbw)} "
            f"to {show_rate(after.predicted_busbw)} is expected"
            + ("; larger sizes recover" if heals else "")
            + (
                f"; NCCL changes {switched} there"
                if switched
                else "; no change of NCCL's choice is expected there"
            )
            + ": the wrong algorithm or protocol is chosen from this size on"
        )
        top = show_size(after.size).replace(" ", "")
        test = (
            f"{_TESTS[curve.measured.op]} around {top} with NCCL_PROTO=Simple, then LL128, then "
            "NCCL_ALGO=Ring, Tree; NCCL_DEBUG_SUBSYS=TUNING prints its choice, and /etc/nccl.conf or a tuner "
            "plugin may force it"
        )
        confidence = min(0.9, 0.4 + 0.25 * (step - 1))
        out.append(_finding(curve, "cliff", "warning", [after], why, confidence, test))
    return [*out, *_jagged(curve, jagged)]


def _jagged(curve: ComparedCurve, points: list[ComparedPoint]) -> list[Finding]:
    """Sizes that are slow while their neighbours are not: noise, until it is measured again."""
    if not points:
        return []
    why = (
        f"{len(points)} size(s) are slow while the next ones are not (first: {show_size(points[0].size)}, "
        f"{points[0].ratio:.1f} times the predicted time): other traffic, a busy CPU or too few iterations"
    )
    test = "measure again on an idle machine with -n 100 -w 20; what stays is real"
    return [_finding(curve, "uneven sizes", "note", points, why, min(0.9, 0.3 + 0.1 * len(points)), test)]


def _plateau(curve: ComparedCurve, plateau: list[ComparedPoint]) -> list[Finding]:
    if not plateau:
        return []
    side = _side(plateau)
    reach = _reach(plateau)
    if side == "fast":
        top = max(p.busbw / p.bound_busbw for p in plateau)
        if top > BOUND:
            return []  # told by _too_fast
        why = f"the plateau is {reach} of the predicted one, still within what the wires carry"
        if curve.servers == 2:
            why += "; two servers are special: trees and NVLSTree cross the network once instead of twice"
        test = "measure on four servers or more before trusting the figure for a larger cluster"
        return [_finding(curve, "plateau high", "note", plateau, why, 0.5, test)]
    if side == "inside":
        return _within(curve, plateau)
    loss = f"{100 * (1 - _busbw_ratio(plateau)):.0f} % low"
    fit = _fit(curve, [i for i, p in enumerate(curve.points) if p.size > SMALL])
    sizes, alone, doubt = f"from {show_size(plateau[0].size)} on", "", 1.0
    if fit is not None and not fit.named:
        large = _fit(curve, [i for i, p in enumerate(curve.points) if p.size >= PLATEAU])
        if large is not None and large.named:
            fit, alone, doubt = large, ", on the plateau alone (smaller sizes do not fit)", 0.5
    if fit is None or not fit.named:
        why = (
            f"the plateau is {loss} {sizes} (the median; at {show_size(plateau[-1].size)} "
            f"{show_rate(plateau[-1].busbw)} of bus bandwidth, predicted "
            f"{show_rate(plateau[-1].predicted_busbw)}), and no known cause fits well"
            + (f"; nearest: {fit.best.name}, {show_share(fit.misfit, 0)} off" if fit else "")
        )
        test = (
            'one rail at a time with NCCL_TESTS_SPLIT="MOD 8", then `railwright bench pairs` for a slow one'
        )
        if _rare(plateau):
            return [_finding(curve, "plateau low", "warning", plateau, why, 0.4, test)]
        why += "; one sound machine in ten is this slow, and nothing speaks for a fault yet"
        return [_finding(curve, "plateau a little low", "note", plateau, why, 0.2, test)]
    second = f"; next best: {fit.second.name}, {show_share(fit.second_misfit, 0)}" if fit.second else ""
    why = (
        f"the plateau is {loss} {sizes}; looks like this: {fit.best.name} (its curve is "
        f"{show_share(fit.misfit, 0)} off, as designed {show_share(fit.design, 0)}{second}){alone}"
    )
    return [
        _finding(curve, "plateau low", "warning", plateau, why, doubt * fit.confidence, fit.best.next_test)
    ]


def _explained(curve: ComparedCurve, plateau: list[ComparedPoint]) -> str:
    """Key of the suspect that the plateau's finding names, or ''."""
    fit = _fit(curve, [i for i, p in enumerate(curve.points) if p.size > SMALL])
    return fit.best.key if plateau and _side(plateau) == "slow" and fit is not None and fit.named else ""


def _within(curve: ComparedCurve, plateau: list[ComparedPoint]) -> list[Finding]:
    """Inside the band, yet so like the curve of a suspect that it should be looked at."""
    fit = _fit(curve, [i for i, p in enumerate(curve.points) if p.size > SMALL])
    lost = 1 - _busbw_ratio(plateau)
    if fit is None or lost < 0.08 or not fit.named:
        return []
    why = (
        f"the plateau is {100 * lost:.0f} % low from {show_size(plateau[0].size)} on: within the expected "
        f"error of the prediction, but it also looks like this: {fit.best.name} ("
        f"{show_share(fit.misfit, 0)} off, as designed {show_share(fit.design, 0)})"
    )
    return [_finding(curve, "plateau a little low", "note", plateau, why, 0.3, fit.best.next_test)]


def _small(
    curve: ComparedCurve, small: list[ComparedPoint], plateau_slow: bool, explained: str
) -> list[Finding]:
    if not small or _side(small) == "inside":
        return []
    times = median(p.ratio for p in small)
    if times < 1:
        why = f"small sizes take {times:.2f} of the predicted time; this machine launches faster"
        return [_finding(curve, "small sizes fast", "note", small, why, 0.5, "none needed")]
    at = [i for i, p in enumerate(curve.points) if p.size <= SMALL]
    fit = _fit(curve, at)
    if fit is not None and fit.named and fit.best.key == explained:
        return []
    why = f"sizes up to {show_size(small[-1].size)} take {times:.1f} times the predicted time"
    if fit is not None and fit.named and fit.best.next_test:
        off, design = show_share(fit.misfit, 0), show_share(fit.design, 0)
        why += f", and fit this: {fit.best.name} ({off} off, as designed {design})"
        return [
            _finding(curve, "small sizes slow", "warning", small, why, fit.confidence, fit.best.next_test)
        ]
    if curve.servers > 1:
        why += (
            ", with the plateau low too: data may go through host memory or sockets" if plateau_slow
            else ", and the plateau is as it should be: the way to the wire is long, not narrow (EFA "
            "instead of "
            "InfiniBand, no GPUDirect, LL and LL128 switched off, CPU frequency or NUMA binding)"
        )  # fmt: skip
    test = (
        "ib_write_lat between two hosts (about 2 us), then NCCL_DEBUG=INFO for /GDRDMA, then cpupower "
        "frequency-info"
        if curve.servers > 1
        else "nvidia-smi -q -d CLOCK,PERFORMANCE and cpupower frequency-info; then NCCL_PROTO unset"
    )
    return [_finding(curve, "small sizes slow", "warning", small, why, min(0.8, 0.3 + 0.2 * times), test)]


def _middle(curve: ComparedCurve, middle: list[ComparedPoint]) -> Finding:
    why = (
        f"only the middle sizes ({show_size(middle[0].size)} to {show_size(middle[-1].size)}) are slow, "
        f"{median(p.ratio for p in middle):.1f} times the predicted time: too few channels or the wrong "
        "protocol there"
    )
    test = "run with NCCL_MIN_NCHANNELS=32, then with NCCL_PROTO=Simple, and see which changes these sizes"
    return _finding(curve, "middle sizes slow", "warning", middle, why, 0.5, test)


@dataclass(frozen=True)
class _Fit:
    """The best suspect over some sizes, the next one, the design's misfit there, and how many sizes."""

    best: Suspect
    misfit: float
    second: Suspect | None
    second_misfit: float
    design: float
    sizes: int

    @property
    def named(self) -> bool:
        return self.sizes >= FEWEST and self.misfit <= min(FAR, CLEAR * self.design)

    @property
    def confidence(self) -> float:
        """Sure means: much better than the design, and much better than the next suspect."""
        apart = 1 - self.misfit / self.second_misfit if self.second_misfit > 0 else 0.0
        return max(0.1, min(0.9, (1 - self.misfit / self.design) * (0.5 + 0.5 * apart)))


def _fit(curve: ComparedCurve, at: Sequence[int], keys: Sequence[str] = ()) -> _Fit | None:
    """How the suspects (those of `keys`, or all) fit these sizes; None where there is nothing to fit."""
    times = [curve.points[i].measured for i in at]
    scored = sorted(
        ((misfit(times, [s.times[i] for i in at]), s.key, s) for s in curve.suspects), key=lambda row: row[:2]
    )
    design = next(score for score, key, _ in scored if key == DESIGNED)
    rest = [row for row in scored if row[1] != DESIGNED and (not keys or row[1] in keys)]
    if not at or not rest or design <= 0:
        return None
    second = rest[1] if len(rest) > 1 else None
    return _Fit(
        rest[0][2],
        rest[0][0],
        second[2] if second else None,
        second[0] if second else design,
        design,
        len(at),
    )


def _side(points: Sequence[ComparedPoint]) -> str:
    """'slow', 'fast' or 'inside': where the middle of these sizes lies against their band."""
    late = median(p.measured / p.high for p in points)
    early = median(p.measured / p.low for p in points)
    return "slow" if late > 1 else "fast" if early < 1 else "inside"


def _rare(points: Sequence[ComparedPoint]) -> bool:
    """Whether the middle of these sizes is slower than 99 % of unseen curves were."""
    return median(p.measured / p.rare_high for p in points) > 1


def _busbw_ratio(points: Sequence[ComparedPoint]) -> float:
    return median(1 / p.ratio for p in points)


def _reach(points: Sequence[ComparedPoint]) -> str:
    return show_share(_busbw_ratio(points), 0)


def _switch_near(curve: ComparedCurve, point: ComparedPoint) -> str:
    """'tree/ll to ring/simple' where our own prediction changes its choice within a factor of four."""
    for a, b in zip(curve.points, curve.points[1:], strict=False):
        if (a.algorithm, a.protocol) != (
            b.algorithm,
            b.protocol,
        ) and point.size / 4 <= b.size <= point.size * 4:
            return f"from {a.algorithm}/{a.protocol} to {b.algorithm}/{b.protocol}"
    return ""


def _finding(
    curve: ComparedCurve,
    kind: str,
    severity: Severity,
    points: Sequence[ComparedPoint],
    why: str,
    confidence: float,
    test: str,
) -> Finding:
    last = points[-1]
    return Finding(
        kind=kind,
        severity=severity,
        element=f"{curve.title} ({curve.measured.file}:{curve.measured.line})",
        ends=(),
        expected=f"{show_rate(last.predicted_busbw)} at {show_size(last.size)}",
        found=f"{show_rate(last.busbw)} at {show_size(last.size)}",
        evidence=f"{curve.measured.op}: {why}",
        confidence=confidence,
        next_test=test,
    )
