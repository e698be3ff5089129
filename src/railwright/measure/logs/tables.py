"""Tables of a log, line by line: heads, rows, rows torn apart by NCCL's messages, and the closing lines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from railwright.measure.logs.columns import Columns, default_columns, read_heads, read_units
from railwright.measure.logs.curve import Header
from railwright.measure.logs.header import take, test_in
from railwright.measure.logs.lines import Line
from railwright.measure.logs.rows import Row, full_row, measured_words, read_row, starts_row, words_of

_CLOSING = re.compile(r"Out of bounds values|Avg bus bandwidth|Collective test concluded")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*([\d.]+(?:e[+-]?\d+)?)")
MOST_ROWS = 200_000
"""Rows one log may have; more are not read."""


@dataclass
class Table:
    """One table: where it begins, its columns and rows, and what was known when it began.

    op        named by the test's own line or command; '' where nothing named it
    average   the closing 'Avg bus bandwidth' [GB/s], None where the table has no closing line
    only_in_place  the head says so (rccl-tests can print that half alone)
    torn      lines of rows that stayed incomplete
    """

    line: int
    source: str
    columns: Columns
    op: str
    header: Header
    tool: str
    rows: list[Row] = field(default_factory=list)
    average: float | None = None
    closed: bool = False
    only_in_place: bool = False
    torn: list[int] = field(default_factory=list)


@dataclass
class _State:
    """What the lines of one source have said so far; `op` of the test that it named itself."""

    op: str = ""
    table: Table | None = None
    pending: tuple[int, list[str]] | None = None
    in_place: bool = False


def read_tables(lines: Iterable[Line]) -> tuple[list[Table], Header]:
    """All tables in order, and the facts known at the end."""
    tables: list[Table] = []
    states: dict[str, _State] = {}
    header, op, tool, rows = Header(), "", "unknown", 0
    for line in lines:
        state = states.setdefault(line.source, _State())
        words = _row_words(line, state)
        if words is not None:
            if rows < MOST_ROWS:
                rows += _add(line, words, state, tables, header, state.op or op, tool)
            continue
        named = test_in(line.text)
        if named:
            op = state.op = named
        tool = _tool(line.text, tool)
        _end_of_row(state)
        if _CLOSING.search(line.text):
            _close(line.text, state)
            continue
        columns = read_heads(line.text)
        if columns is not None:
            tool_here = "osu" if columns.osu else "nccl-tests" if tool in ("unknown", "osu") else tool
            state.table = Table(line.number, line.source, columns, state.op or op, header, tool_here)
            state.table.only_in_place = state.in_place
            tables.append(state.table)
            continue
        if state.table is not None and not state.table.rows:
            units = read_units(line.text, state.table.columns)
            if units is not None:
                state.table.columns = units
                continue
        if "in-place" in line.text or "out-of-place" in line.text:
            state.in_place = "out-of-place" not in line.text
            continue
        changed = take(header, line.text)
        if changed is not None:
            header = changed
            if state.table is not None and state.table.rows and named:
                state.table = None
    for state in states.values():
        _end_of_row(state)
    return [t for t in tables if t.rows or t.torn], header


def _row_words(line: Line, state: _State) -> list[str] | None:
    """The words of a row (or of the rest of a torn one), None for any other line."""
    words = words_of(line.text, state.table.columns.comma if state.table else False)
    if state.pending is not None and words and re.match(r"[\d.*+-]|N/A|nan", words[0]):
        if full_row(words) is None:
            return words
        return full_row(words)
    found = full_row(words)
    if found is not None:
        return found
    if state.table is not None and not state.table.closed and starts_row(words) and _mostly_numbers(words):
        return words
    return None


def _mostly_numbers(words: list[str]) -> bool:
    return len(words) > 1 and sum(bool(re.match(r"[\d.*+-]|N/A|nan", w)) for w in words) >= 0.6 * len(words)


def _add(
    line: Line, words: list[str], state: _State, tables: list[Table], header: Header, op: str, tool: str
) -> int:
    """Put a row into its table; 1 when it is complete."""
    number = line.number
    if state.pending is not None:
        if full_row(words) is None:
            number, words = state.pending[0], state.pending[1] + words
            state.pending = None
        else:
            _end_of_row(state)
    if state.table is None:
        _, _, measured = measured_words(words[3:], 8)
        columns = default_columns(len(measured))
        if columns is None:
            if line.cut:
                state.pending = (number, words)
            return 0
        state.table = Table(
            number, line.source, columns, op, header, "nccl-tests" if tool == "unknown" else tool
        )
        tables.append(state.table)
    row = read_row(number, words, state.table.columns)
    if row is not None and not (
        line.cut and len(row.halves) == 1 and state.table.columns.group < len(state.table.columns.metrics)
    ):
        state.table.rows.append(row)
        return 1
    if line.cut or (
        row is None and full_row(words) is not None and len(words) < len(state.table.columns.names)
    ):
        state.pending = (number, words)
    elif row is not None:
        state.table.rows.append(row)
        return 1
    elif full_row(words) is not None:
        state.table.torn.append(number)
    return 0


def _end_of_row(state: _State) -> None:
    """A torn row whose rest never came: keep what is whole of it."""
    if state.pending is None or state.table is None:
        state.pending = None
        return
    number, words = state.pending
    state.pending = None
    row = read_row(number, words, state.table.columns)
    if row is not None:
        state.table.rows.append(row)
    else:
        state.table.torn.append(number)


def _close(text: str, state: _State) -> None:
    if state.table is None:
        return
    state.table.closed = True
    found = _AVERAGE.search(text)
    if found and state.table.average is None:
        try:
            state.table.average = float(found[1])
        except ValueError:
            state.table.average = None


def _tool(text: str, before: str) -> str:
    """The tool that a line names; a bare '…_perf' speaks for nccl-tests only where nothing else did."""
    for name in ("rccl-tests", "nccl-tests", "railwright"):
        if name in text:
            return name
    return "nccl-tests" if "_perf" in text and before == "unknown" else before


def with_header(table: Table, header: Header) -> Table:
    """The table with facts that the log states only below it, where it had none of its own."""
    own = table.header
    if not own.devices and not own.processes and not own.caption:
        merged = replace(header, threads=own.threads or header.threads, gpus=own.gpus or header.gpus)
        table.header = merged
    return table
