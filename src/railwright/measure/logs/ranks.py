"""How many ranks a table was really measured on: what its numbers say beside what its header says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from railwright.measure.logs.curve import MANY_RANKS, Header
from railwright.measure.logs.rows import TYPES, Half, Row

PARTS = ("all_gather", "reduce_scatter", "all_to_all")
"""Operations whose busbw is algbw x (n-1)/n, and whose count is one rank's part."""
_SHARP = 10.0
"""A bandwidth below this many half-digits says too little of a ratio."""


@dataclass(frozen=True)
class Estimate:
    """Ranks, what the numbers allow, what the choice rests on, and what contradicts it."""

    ranks: int | None
    low: int
    high: int
    why: str
    notes: tuple[str, ...] = ()


def guess_op(rows: Sequence[Row], half: int) -> tuple[str, str]:
    """(op, why) of a table that nothing names, from its factor and columns; ('', why) where they fit several.

    Only the all-reduce has busbw above algbw (nccl-tests, doc/PERFORMANCE.md).
    """
    ratio = _median(_ratios(rows, half))
    redop = next((r.redop for r in rows if r.redop), "")
    root = max((r.root for r in rows), default=-1)
    if ratio is not None and ratio > 1.002:
        return "all_reduce", "busbw is above algbw, which only an all-reduce has"
    if ratio is not None and ratio < 0.998 and ratio > 0:
        if redop and redop != "none":
            return "reduce_scatter", "busbw is below algbw and there is a reduction"
        return "", "busbw is below algbw: all_gather or all_to_all"
    if ratio is not None and root >= 0:
        return (
            "reduce" if redop not in ("", "none") else "broadcast"
        ), "busbw equals algbw and there is a root"
    if ratio is not None and redop == "none":
        return "sendrecv", "busbw equals algbw and there is neither a reduction nor a root"
    return "", "the table has no busbw/algbw to tell operations apart by"


def estimate(op: str, rows: Sequence[Row], half: int, header: Header, given: int | None) -> Estimate:
    """The rank count of one communicator.

    The ratio busbw/algbw is 2(n-1)/n for all-reduce and (n-1)/n for gather-like operations; two printed
    decimals leave an interval, and the intervals of all rows are cut.  Where a statement (the caller's, the
    listed devices, the command, the caption) lies inside, it is taken; where not, the numbers win.
    Source: nccl-tests, doc/PERFORMANCE.md, solved for n.
    """
    stated, by, notes = _stated(header, given)
    counted = _counted(op, rows)
    spans = _spans(op, rows, half)
    if not spans:
        ranks = counted or stated
        why = "size over count" if counted else by
        span = (ranks, ranks) if ranks else (1, MANY_RANKS)
        return Estimate(ranks, *span, why or "nothing in the log tells", tuple(notes))
    low, high = max(s[0] for s in spans), min(s[1] for s in spans)
    if low > high:
        middle = sorted(spans)[len(spans) // 2]
        outside = [s[2] for s in spans if s[0] > middle[1] or s[1] < middle[0]]
        notes.append(
            "busbw/algbw belongs to different rank counts in different rows (line "
            f"{outside[0] if outside else rows[0].line} among others): rows of several tests, or numbers "
            "changed by hand"
        )
        low, high = middle[0], middle[1]
    if low < 2 and high < 2:
        notes.append(
            "busbw is 0 while algbw is not, so every process ran alone: the tests were built without MPI=1, "
            "or the launcher does not fit the MPI they were built with"
        )
        return Estimate(1, 1, 1, "busbw is 0", tuple(notes))
    if stated is not None and low <= stated <= high:
        return Estimate(stated, low, high, f"{by}; busbw/algbw agrees", tuple(notes))
    ranks = counted if counted and low <= counted <= high else _roundest(low, high)
    if stated is not None:
        allowed = f"{low}" if low == high else f"{low} to {high}" if high < MANY_RANKS else f"{low} or more"
        verb = "say" if by == "the listed devices" else "says"
        notes.append(f"{by} {verb} {stated} ranks, but busbw/algbw means {allowed}: the statement is wrong")
    return Estimate(ranks, low, high, "busbw/algbw", tuple(notes))


def impossible_ratio(op: str, rows: Sequence[Row], half: int) -> str:
    """A sentence where the table's busbw cannot come from its op, else ''."""
    ratios = _ratios(rows, half)
    ratio = _median(ratios)
    if ratio is None:
        return ""
    if op == "all_reduce" and 0 < ratio < 0.99:
        return (
            f"busbw is {ratio:.3g} of algbw, but an all-reduce has 2(n-1)/n, never below 1: "
            "the table is of another operation, or its numbers were made up"
        )
    if op in PARTS and ratio > 1.01:
        return (
            f"busbw is {ratio:.3g} of algbw, but {op} has (n-1)/n, never above 1: it is an all-reduce's table"
        )
    return ""


def _stated(header: Header, given: int | None) -> tuple[int | None, str, list[str]]:
    notes: list[str] = []
    if given is not None:
        listed = _stated(header, None)
        if listed[1] == "the listed devices" and listed[0] != given:
            notes.append(f"the log lists {listed[0]} devices, and {given} ranks were said (--ranks)")
        return given, "the caller", notes
    if header.devices:
        first = header.devices[0].group
        mine = [d.rank for d in header.devices if d.group == first]
        if len(set(mine)) < len(mine):
            notes.append(
                f"rank {mine[0]} is listed on {mine.count(mine[0])} devices, so that many copies of the test "
                "ran side by side: they were built without MPI=1"
            )
        return len(set(mine)), "the listed devices", notes
    if header.processes:
        each = max(1, header.threads) * max(1, header.gpus)
        return header.processes * each, "the command", notes
    if header.threads and header.gpus and header.threads * header.gpus > 1:
        return header.threads * header.gpus, "nThread x nGpus", notes
    if header.caption:
        return header.caption, "the caption", notes
    return None, "", notes


def _counted(op: str, rows: Sequence[Row]) -> int | None:
    """Ranks from size = n x count x element, which gather-like tests print exactly."""
    if op not in PARTS:
        return None
    found = {
        r.size / (r.count * TYPES[r.type])
        for r in rows
        if r.count > 0 and r.type in TYPES and r.size >= r.count * TYPES[r.type]
    }
    whole = {int(n) for n in found if n == int(n)}
    return whole.pop() if len(found) == 1 and whole and max(whole) > 1 else None


def _spans(op: str, rows: Sequence[Row], half: int) -> list[tuple[int, int, int]]:
    """(fewest, most ranks, line) that each row's printed digits allow."""
    spans = []
    for row in rows:
        one = _half(row, half)
        if (
            one is None
            or one.algbw is None
            or one.busbw is None
            or one.algbw.value <= _SHARP * one.algbw.slack
        ):
            continue
        a, b = one.algbw, one.busbw
        low = max(0.0, b.value - b.slack) / (a.value + a.slack)
        high = (b.value + b.slack) / (a.value - a.slack)
        if b.value == 0.0:
            low = high = 0.0
        scale = 2.0 if op == "all_reduce" else 1.0
        if op != "all_reduce" and op not in PARTS:
            continue
        fewest, most = _ranks(low / scale), _ranks(high / scale)
        if math.ceil(fewest - 1e-9) <= math.floor(most + 1e-9):
            spans.append((max(1, math.ceil(fewest - 1e-9)), math.floor(most + 1e-9), row.line))
    return spans


def _ranks(share: float) -> float:
    """n of (n-1)/n = share."""
    return 1 / (1 - share) if share < 1 - 1 / MANY_RANKS else float(MANY_RANKS)


def _roundest(low: int, high: int) -> int:
    """The likeliest count of an interval: the one with the most factors of two, in the middle."""
    if high >= MANY_RANKS:
        high = 2 * low
    for step in (1 << p for p in range(high.bit_length(), -1, -1)):
        first = -(-low // step) * step
        if first <= high:
            choices = range(first, high + 1, step)
            return choices[len(choices) // 2]
    return low


def _ratios(rows: Sequence[Row], half: int) -> list[float]:
    found = []
    for row in rows:
        one = _half(row, half)
        if one and one.algbw and one.busbw and one.algbw.value > _SHARP * one.algbw.slack:
            found.append(one.busbw.value / one.algbw.value)
    return found


def _half(row: Row, half: int) -> Half | None:
    return row.halves[half] if half < len(row.halves) else None


def _median(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
