"""From printed tables to curves in SI units, with what is doubtful said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import get_args

from railwright.collectives.prediction import Op
from railwright.collectives.rates import bus_factor
from railwright.errors import Mistake, SpecError
from railwright.measure.logs.columns import TIMES
from railwright.measure.logs.curve import MeasuredCurve, Point
from railwright.measure.logs.ranks import Estimate, estimate, guess_op, impossible_ratio
from railwright.measure.logs.rows import Half, Row
from railwright.measure.logs.tables import Table

MODELLED = get_args(Op)
_OSU_PER_RANK = ("all_gather", "all_to_all")
"""OSU's size is what one rank gives to each; S is n times that (osu_alltoall.c, osu_allgather.c)."""


def curves_of(
    tables: Sequence[Table], file: str, op: str | None, ranks: int | None, hint: str | None
) -> list[MeasuredCurve]:
    """All curves of all tables. Raises SpecError where an op or rank count is needed and nothing tells it."""
    curves: list[MeasuredCurve] = []
    for table, copies in _without_copies(tables):
        halves = max((len(r.halves) for r in table.rows), default=0)
        for half in range(halves):
            curve = _curve(table, half, file, op, ranks, hint)
            if curve is not None:
                if copies:
                    text = (
                        f"{copies + 1} processes printed this table, each its own: the tests were built "
                        "without MPI=1 and every process ran alone; only the first is kept"
                    )
                    curve = replace(curve, notes=(*curve.notes, text))
                curves.append(curve)
    return curves


def _without_copies(tables: Sequence[Table]) -> Iterable[tuple[Table, int]]:
    """Tables, and how many other sources printed one of the same sizes while it ran alone."""
    kept: list[tuple[Table, int]] = []
    for table in tables:
        sizes = [r.size for r in table.rows]
        for i, (other, copies) in enumerate(kept):
            same = (
                other.source != table.source
                and [r.size for r in other.rows] == sizes
                and other.op == table.op
            )
            if same and _alone(table) and _alone(other):
                kept[i] = (other, copies + 1)
                break
        else:
            kept.append((table, 0))
    return kept


def _alone(table: Table) -> bool:
    halves = [h for r in table.rows for h in r.halves]
    seen = [h for h in halves if h.algbw and h.busbw]
    return bool(seen) and all(h.busbw is not None and h.busbw.value == 0 for h in seen)


def _curve(
    table: Table, half: int, file: str, op: str | None, ranks: int | None, hint: str | None
) -> MeasuredCurve | None:
    rows = [r for r in table.rows if half < len(r.halves) and _has_any(r.halves[half])]
    if not rows:
        return None
    name, notes = _op(table, rows, half, file, op, hint)
    found = estimate(name, rows, half, table.header, ranks)
    notes += found.notes
    odd = impossible_ratio(name, rows, half)
    if odd:
        notes.append(odd)
    points = _points(table, rows, half, name, found, file, notes)
    if not points:
        return None
    notes += _doubts(table, rows, half)
    return MeasuredCurve(
        op=name,
        ranks=found.ranks,
        ranks_low=found.low,
        ranks_high=found.high,
        ranks_why=found.why,
        points=tuple(sorted(points, key=lambda p: (p.size, p.line))),
        in_place=half == 1 or table.only_in_place,
        file=file,
        line=table.line,
        tool=table.tool,
        header=table.header,
        notes=tuple(dict.fromkeys(notes)),
    )


def _op(
    table: Table, rows: Sequence[Row], half: int, file: str, op: str | None, hint: str | None
) -> tuple[str, list[str]]:
    if table.op:
        told = f"the log names this table {table.op}; --op {op} is for tables that nothing names"
        return table.op, [told] if op not in (None, table.op) else []
    if op is not None:
        return op, []
    guess, why = guess_op(rows, half)
    if guess and (hint is None or hint == guess):
        return guess, [f"nothing names the operation; taken for {guess} because {why}"]
    if hint is not None:
        return hint, [f"the operation is taken from the file's name: {hint}"]
    message = f"nothing names the operation of this table ({why}); say it with --op, like --op all_gather"
    raise SpecError([Mistake(file, table.line, 0, "", message)])


def _points(
    table: Table, rows: Sequence[Row], half: int, op: str, found: Estimate, file: str, notes: list[str]
) -> list[Point]:
    columns = table.columns
    parts = found.ranks or 0
    scaled = columns.osu and op in _OSU_PER_RANK
    needs = scaled or (op in MODELLED and op not in ("broadcast", "sendrecv"))
    if needs and not parts and (scaled or any(_needs_ranks(r.halves[half]) for r in rows)):
        message = (
            "the table does not tell over how many ranks it was measured; say it with --ranks, like --ranks "
            "16"
        )
        raise SpecError([Mistake(file, table.line, 0, "", message)])
    factor = bus_factor(op, parts) if op in MODELLED and parts else 1.0  # type: ignore[arg-type]
    unit = columns.time_unit or _time_unit(rows, half, columns.rate_unit)
    points: list[Point] = []
    dropped = zero = 0
    for row in rows:
        one = row.halves[half]
        size = row.size * parts if scaled else row.size
        if size <= 0:
            zero += 1
            continue
        seconds = one.time.value * unit if one.time else 0.0
        if seconds <= 0:
            seconds = _from_rate(one, size, factor, columns.rate_unit)
        if not seconds > 0:
            dropped += 1
            continue
        algbw = size / seconds
        busbw = one.busbw.value * columns.rate_unit if one.busbw and one.busbw.value > 0 else algbw * factor
        if parts and one.busbw and one.busbw.value * columns.rate_unit < 1e9:
            busbw = algbw * factor  # two printed decimals are coarser than the time
        points.append(Point(size, seconds, algbw, busbw, row.line, one.wrong))
    if dropped:
        notes.append(f"{dropped} row(s) without a time or a bandwidth above zero are left out")
    if zero:
        notes.append(f"{zero} row(s) of size 0 are left out")
    return points


def _from_rate(one: Half, size: float, factor: float, unit: float) -> float:
    if one.algbw and one.algbw.value > 0:
        return size / (one.algbw.value * unit)
    if one.busbw and one.busbw.value > 0:
        return size * factor / (one.busbw.value * unit)
    return 0.0


def _has_any(one: Half) -> bool:
    return any(v is not None and v.value > 0 for v in (one.time, one.algbw, one.busbw))


def _needs_ranks(one: Half) -> bool:
    """Whether a time can only be had from busbw."""
    return not (one.time and one.time.value > 0) and not (one.algbw and one.algbw.value > 0)


def _time_unit(rows: Sequence[Row], half: int, rate: float) -> float:
    """[s] of a printed time whose unit is not named: what makes size / time equal algbw, else µs.

    nccl-tests 1 printed milliseconds, later ones microseconds.
    """
    wanted = [
        r.size / (h.algbw.value * rate) / h.time.value
        for r in rows
        if (h := r.halves[half]).time and h.algbw and h.time.value > 0 and h.algbw.value > 10 * h.algbw.slack
    ]
    if not wanted:
        return 1e-6
    middle = median(wanted)
    return min((TIMES[u] for u in ("us", "ms", "s")), key=lambda unit: abs(unit / middle - 1))


def _doubts(table: Table, rows: Sequence[Row], half: int) -> list[str]:
    notes = []
    unit = table.columns.time_unit or _time_unit(rows, half, table.columns.rate_unit)
    for row in rows:
        one = row.halves[half]
        if table.columns.osu or not (one.time and one.algbw) or one.time.value <= 0:
            continue
        real = row.size / (one.time.value * unit) / table.columns.rate_unit
        slack = one.algbw.slack + real * (one.time.slack / one.time.value) + 0.01 * real
        if abs(real - one.algbw.value) > slack:
            notes.append(
                f"line {row.line}: size over time is {real:.4g}, but algbw says {one.algbw.value:.4g}; "
                "the time is taken, and the row was changed or is of two tests"
            )
            break
    if table.torn:
        notes.append(f"{len(table.torn)} incomplete row(s) are left out (first: line {table.torn[0]})")
    if not table.closed and table.tool in ("nccl-tests", "rccl-tests") and not table.columns.osu:
        notes.append("the table has no closing lines, so it may be cut short")
    wrong = [(r.line, r.halves[half].wrong) for r in rows if (r.halves[half].wrong or 0) > 0]
    if wrong:
        notes.append(
            f"{len(wrong)} size(s) failed the check of results (first: line {wrong[0][0]}, {wrong[0][1]:g} "
            "wrong elements): a broken GPU, link or driver; times of wrong results mean little"
        )
    notes += _average(table)
    return notes


def _average(table: Table) -> list[str]:
    """Whether the closing average is that of the rows: it is not where rows were taken out."""
    seen = [h.busbw.value for r in table.rows for h in r.halves if h.busbw]
    if table.average is None or len(seen) < 2 or table.columns.osu:
        return []
    mean = sum(seen) / len(seen)
    if abs(mean - table.average) <= 0.02 * max(mean, table.average) + 0.01:
        return []
    return [
        f"the closing average is {table.average:.4g} GB/s, but the rows average {mean:.4g}: "
        "rows are missing, or numbers were changed"
    ]
