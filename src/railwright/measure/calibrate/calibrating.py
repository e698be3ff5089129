"""`calibrate`: a cluster's own logs as constants of its collectives, with errors, or why they cannot be."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import exp, sqrt
from pathlib import Path

import numpy as np

from railwright import __version__
from railwright.collectives import Machine
from railwright.collectives.family import BANDS, Family
from railwright.errors import PlanError
from railwright.measure.calibrate.curves import sort_points
from railwright.measure.fitting.fit import Floats, LeftOut, leave_out, log_errors, quantile_t
from railwright.measure.fitting.identify import SICK, Identified, at_limit, identify
from railwright.measure.fitting.profile import (
    CONSTANTS,
    UNITS,
    ConstantRecord,
    CurveRecord,
    FamilyRecord,
    HeldRecord,
    LogRecord,
    ProfileFile,
)
from railwright.measure.logs import MeasuredCurve, read_log
from railwright.measure.study_machine import study_machine
from railwright.spec.study import Study

OWN_BAND = 3
"""Points that a size band needs for an error band of the fit's own residuals."""


@dataclass(frozen=True)
class Calibration:
    """What came of it.

    profile  the file's content
    notes    what was assumed, and what is doubtful, in sentences
    """

    profile: ProfileFile
    notes: tuple[str, ...]


def calibrate(
    logs: Sequence[str | Path], study: Study, *, op: str | None = None, ranks: int | None = None
) -> Calibration:
    """Fit the constants of every family that the logs' curves show, on the study's machine.

    logs   files as `measure.logs.read_log` takes them
    study  names the machine they were measured on; its own `calibration` is ignored
    op, ranks  where the logs do not tell, as in read_log

    Raises SpecError for a log that cannot be read, PlanError where nothing can be calibrated (with every
    reason) or a log is given twice.
    """
    records: list[LogRecord] = []
    curves: list[MeasuredCurve] = []
    for log in map(Path, logs):
        curves += read_log(log, op=op, ranks=ranks)
        records.append(log_record(log))
        for other, record in zip(logs, records[:-1], strict=False):
            if record.sha256 == records[-1].sha256:
                raise PlanError(
                    f"{log} and {other} are the same log, and counting it twice would feign a smaller error; "
                    "give each log once."
                )
            if record.file == records[-1].file:
                raise PlanError(
                    f"{log} and {other} have the same name, so that the profile could not tell them apart; "
                    "rename one."
                )
    plain = study.model_copy(update={"calibration": None})
    return calibrate_curves(curves, study_machine(plain), records, study.name)


def calibrate_curves(
    curves: Sequence[MeasuredCurve], machine: Machine, logs: Sequence[LogRecord], name: str
) -> Calibration:
    """`calibrate` for curves that were read already; `logs` names the file of every curve."""
    found = sort_points(curves, machine)
    families: dict[str, FamilyRecord] = {}
    refused, notes = list(found.refused), list(found.notes)
    for family in sorted(found.parts):
        shipped = found.shipped[family]
        start = {"launch": shipped.launch, "ramp": shipped.ramp, "usable": 1.0}
        identified = identify(family, found.parts[family], start)
        refused += [held.why for held in identified.held]
        if not identified.kept:
            continue
        before, after = _misfits(identified, start)
        if after >= before:
            refused.append(
                f"{family}: what could be kept ({', '.join(identified.kept)}) leaves the log {after:.0%} off "
                f"where the shipped constants leave {before:.0%}, so that nothing of it is kept; find out "
                "with `railwright compare` what is different from the study, then measure again."
            )
            continue
        families[family] = _record(identified, shipped, start)
        notes += _doubtful(family, families[family])
    if found.parts and all(" one-node " in family for family in found.parts):
        refused.append(
            "All logs ran inside one node, so that only its NVLink families are calibrated and nothing is "
            "said of NICs or fabric; measure on 3 nodes or more for these."
        )
    if not families:
        raise PlanError("Nothing can be calibrated.\n" + "\n".join(refused or ["There is no curve."]))
    profile = ProfileFile(
        railwright_profile=1,
        version=__version__,
        study=name,
        server=machine.server.name,
        gpu=machine.gpu.name,
        nic=machine.nic.name,
        logs=tuple(logs),
        families=families,
        refused=tuple(refused),
    )
    return Calibration(profile, tuple(dict.fromkeys(notes)))


def log_record(path: Path) -> LogRecord:
    """Name, checksum and date (of the file, UTC) of a log."""
    date = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    return LogRecord(file=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), date=date)


def _misfits(identified: Identified, start: Mapping[str, float]) -> tuple[float, float]:
    """Root mean square of ln(predicted / measured), as shipped and with what is kept."""
    used = {**start, **{n: identified.fit.values[n] for n in identified.kept}}
    before, after = (
        np.concatenate([log_errors(p, values) for p in identified.parts]) for values in (start, used)
    )
    return sqrt(float(np.mean(before**2))), sqrt(float(np.mean(after**2)))


def _record(identified: Identified, shipped: Family, start: Mapping[str, float]) -> FamilyRecord:
    fit, parts = identified.fit, identified.parts
    held = {n: start[n] for n in CONSTANTS if n not in identified.kept}
    used = {**fit.values, **held}
    left = leave_out(parts, fit, held)
    inside = np.concatenate([log_errors(p, used) for p in parts])
    sizes = np.concatenate([p.size for p in parts])
    files = tuple(dict.fromkeys(Path(p.log).name for p in parts))
    t = quantile_t(fit.freedom)
    constants = {}
    for n in identified.kept:
        error = max(fit.errors[n], left.jackknife.get(n, 0.0))
        value = fit.values[n]
        constants[n] = ConstantRecord(
            value=_round(value),
            standard_error=_round(error),
            low=_round(max(0.0, value - t * error)),
            high=_round(value + t * error),
            shipped=start[n],
            unit=UNITS[n],
            logs=files,
        )
    return FamilyRecord(
        launch=constants.get("launch"),
        ramp=constants.get("ramp"),
        usable=constants.get("usable"),
        held=tuple(HeldRecord(constant=h.constant, shipped=start[h.constant], why=h.why)  # type: ignore[arg-type]
                   for h in identified.held),
        bands=_bands(left, inside, sizes, fit.freedom, shipped),
        median_error_in_sample=_median(inside),
        median_error_left_out=_median(left.errors),
        left_out_in_turn=left.how,  # type: ignore[arg-type]
        median_error_shipped=_median(np.concatenate([log_errors(p, start) for p in parts])),
        curves=tuple(
            CurveRecord(
                log=Path(p.log).name,
                line=p.line,
                op=p.op,
                ranks=p.ranks,
                nodes=p.nodes,
                sizes=tuple(p.size.tolist()),
                measured_over_predicted=tuple(round(float(exp(-e)), 4) for e in log_errors(p, used)),
            )
            for p in parts
        ),
    )  # fmt: skip


def _bands(
    left: LeftOut, inside: Floats, sizes: Floats, freedom: int, shipped: Family
) -> tuple[tuple[float, float], ...]:
    """80 % band of measured/predicted per size band: left-out residuals, as a t interval around 1.

    A band with too few measured sizes keeps at least the shipped width: the log says nothing of it.
    """
    rest = left.errors if len(left.errors) == len(inside) else inside
    half = quantile_t(freedom) * sqrt(float(np.mean(rest**2)))
    low, high = _round(exp(-half)), _round(exp(half))
    found = []
    floor = 0.0
    for top, (least, most) in zip(BANDS, shipped.bands, strict=True):
        own = int(np.sum((sizes > floor) & (sizes <= top))) >= OWN_BAND
        found.append((low, high) if own else (min(low, least), max(high, most)))
        floor = top
    return tuple(found)


def _doubtful(family: str, record: FamilyRecord) -> list[str]:
    """What a fit of good shape may still hide."""
    notes = []
    for name, constant in record.measured().items():
        if at_limit(name, constant.value):
            notes.append(
                f"{family}: {name} stands at the end of its range, {constant.value:g}: NCCL's own "
                "constants already explain as much as was measured, or more."
            )
    if record.usable is not None and record.usable.value < SICK:
        notes.append(
            f"{family}: usable bandwidth is {record.usable.value:.0%} of what the machine should reach, "
            "which is more often a fault than a property; run `railwright compare` first, and calibrate a "
            "sound machine."
        )
    return notes


def _median(errors: Floats) -> float:
    return round(float(np.median(np.abs(np.expm1(errors)))), 4)


def _round(value: float) -> float:
    return float(f"{value:.4g}")
