"""`compare`: a log's curves beside what the study's machine should do, and what explains the difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from railwright import __version__
from railwright.collectives import Machine, sweep
from railwright.collectives.predict import OPS
from railwright.collectives.prediction import Op
from railwright.errors import PlanError
from railwright.fabric.finding import SERIOUS_FIRST, Finding
from railwright.measure.compare.findings import across, another_machine, findings_of
from railwright.measure.compare.place import other_gpus, place
from railwright.measure.compare.result import ComparedCurve, ComparedPoint, Comparison
from railwright.measure.compare.suspects import bounds, suspects
from railwright.measure.logs.curve import MeasuredCurve, one_half
from railwright.measure.study_machine import study_machine
from railwright.spec.study import Study


def compare(curves: Iterable[MeasuredCurve], study: Study) -> Comparison:
    """Measured against predicted, size by size, and findings in words.

    curves  as `measure.logs.read_log` gives them; where a table has both halves, out-of-place is taken
    study   its cluster and NCCL settings; ranks fill whole servers of it unless the log lists its devices

    Raises PlanError when no curve can be compared (with every reason), or the study's fabric is impossible.
    """
    machine = study_machine(study)
    compared: list[ComparedCurve] = []
    skipped: list[str] = []
    for curve in one_half(curves):
        try:
            compared.append(compare_curve(curve, machine))
        except PlanError as no:
            skipped.append(str(no))
    if not compared:
        raise PlanError("\n".join(skipped) or "There is no curve to compare.")
    findings: list[Finding] = [f for c in compared for f in c.findings]
    findings += across(compared)
    findings.sort(key=lambda f: (SERIOUS_FIRST[f.severity], -f.confidence))
    return Comparison(study.name, __version__, tuple(compared), tuple(findings), tuple(skipped))


def compare_curve(curve: MeasuredCurve, machine: Machine) -> ComparedCurve:
    """One curve beside its prediction. Raises PlanError where it cannot be predicted on this machine."""
    op = _modelled(curve)
    groups, notes = place(curve, machine)
    if len(groups[0]) < 2:
        raise PlanError(
            f"{curve.file}:{curve.line}: {curve.op} ran on one rank, so that nothing was sent; build the "
            "tests with MPI=1, or check that the launcher's MPI is the one they were built with."
        )
    sizes = [p.size for p in curve.points]
    times = [p.time for p in curve.points]
    predictions = sweep(machine, op, sizes, groups)
    servers = max(g.num_servers(machine.network.fabric) for g in groups)
    least = bounds(machine, op, groups, predictions)
    points = tuple(
        ComparedPoint(
            size=p.size,
            measured=p.time,
            predicted=q.time,
            low=q.time * q.error_low,
            high=q.time * q.error_high,
            busbw=q.busbw * q.time / p.time,
            predicted_busbw=q.busbw,
            bound_busbw=q.busbw * q.time / b if b > 0 else float("inf"),
            algorithm=q.algorithm,
            protocol=q.protocol,
            rare_low=q.time * q.rare_low,
            rare_high=q.time * q.rare_high,
        )
        for p, q, b in zip(curve.points, predictions, least, strict=True)
    )
    found = suspects(machine, op, groups, predictions, times, servers)
    basis = tuple(dict.fromkeys(n for q in predictions for n in q.notes))
    plain = ComparedCurve(
        measured=curve,
        ranks=len(groups[0]),
        servers=servers,
        groups=len(groups),
        points=points,
        suspects=found,
        findings=(),
        notes=(*notes, *basis),
    )
    others = other_gpus(curve, machine.gpu)
    return replace(plain, findings=(*another_machine(plain, others), *findings_of(plain)))


def _modelled(curve: MeasuredCurve) -> Op:
    for op in OPS:
        if op == curve.op:
            return op  # type: ignore[return-value]
    raise PlanError(f"{curve.file}:{curve.line}: '{curve.op}' is not predicted; known are {', '.join(OPS)}.")
