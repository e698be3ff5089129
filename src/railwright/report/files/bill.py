"""The whole bill for procurement: what the networks join with prices, what the room adds, every source.

One workbook or one folder of CSV files; the sums are those of `railwright cost`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from railwright.cost.options import line_price, middle
from railwright.cost.priced import Priced
from railwright.cost.quantities import Line
from railwright.errors import PlanError
from railwright.export.files import refuse_existing, write_new
from railwright.export.sheet import csv_text
from railwright.site import bill
from railwright.site.plan import SitePlan

OTHER_FILES = (".csv", ".pdf", ".html", ".json", ".xls", ".ods", ".txt", ".md", ".yaml")
"""Ends of names that mean a file, and not a folder."""

Cell = str | float
Table = tuple[tuple[str, ...], list[tuple[Cell, ...]]]
"""Heads and rows."""


@dataclass(frozen=True)
class Bill:
    """tables  by name, in order: summary, priced, room, prices;  total  of what has a price, middle [USD]"""

    tables: dict[str, Table]
    total: float


def whole_bill(priced: Priced, plan: SitePlan) -> Bill:
    """Priced lines of servers, networks and storage; unpriced lines of the room; totals by room."""
    found = priced.comparison
    draw = middle(found.book)
    lines = found.case.cluster.lines
    ends = [(_end(line, found.book, 0), line_price(line, draw), _end(line, found.book, 2)) for line in lines]
    rooms: dict[str, list[float]] = {}
    rows: list[tuple[Cell, ...]] = []
    for line, (low, mid, high) in zip(lines, ends, strict=True):
        total = rooms.setdefault(line.room, [0.0, 0.0, 0.0])
        for i, value in enumerate((low, float(mid), high)):
            total[i] += value
        sources = "; ".join(found.book[item].source for item, _ in line.prices)
        rows.append((line.room, line.what, line.quantity, low, float(mid), high, sources))
    summary: list[tuple[Cell, ...]] = [(name, *values) for name, values in rooms.items()]
    whole = [sum(values[i] for values in rooms.values()) for i in range(3)]
    summary.append(("in all, without what the room adds", *whole))
    room: list[tuple[Cell, ...]] = [
        (x.item, x.part, x.quantity, x.unit, x.note, x.source) for x in bill(plan)
    ]
    used = {item for line in lines for item, _ in line.prices}
    prices: list[tuple[Cell, ...]] = [
        (p.item, p.low, p.middle, p.high, p.unit, p.date, p.status, p.source)
        for p in found.book.values()
        if p.item in used
    ]
    ranges = ("low USD", "middle USD", "high USD")
    return Bill(
        {
            "summary": (("room", *ranges), summary),
            "priced": (("room", "item", "quantity", *ranges, "source of the price"), rows),
            "room": (("item", "part", "quantity", "unit", "note", "source"), room),
            "prices": (("item", "low", "middle", "high", "unit", "date", "status", "source"), prices),
        },
        whole[1],
    )


def _end(line: Line, book: object, which: int) -> float:
    """A line with each of its prices at the end that makes it cheapest (0) or dearest (2)."""
    assert isinstance(book, dict)
    value = line.amount
    for item, power in line.prices:
        price = book[item]
        ends = sorted((price.low, price.high))
        value *= ends[(which == 2) == (power > 0)] ** power
    return value


def write_bill(made: Bill, target: Path) -> list[Path]:
    """A workbook where the target ends in .xlsx, else a folder of CSV files. Nothing is overwritten.

    Raises PlanError where something of that name is there or the place cannot be written, and for the name of
    another kind of file.
    """
    if target.suffix.lower() in OTHER_FILES:
        raise PlanError(
            f"'{target.name}': a bill is a workbook, whose name ends in .xlsx, or a folder of CSV files"
        )
    if target.suffix == ".xlsx":
        refuse_existing([target])
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _workbook(made, target)
        except OSError as error:
            raise PlanError(f"cannot write '{error.filename or target}': {error.strerror or error}") from None
        return [target]
    return write_new(
        {
            target / f"{name}.csv": csv_text(heads, [tuple(map(_plain, row)) for row in rows])
            for name, (heads, rows) in made.tables.items()
        }
    )


def _plain(value: Cell) -> Cell:
    return round(value, 2) if isinstance(value, float) else value


def _workbook(made: Bill, target: Path) -> None:
    import xlsxwriter

    with xlsxwriter.Workbook(str(target)) as book:
        bold = book.add_format({"bold": True, "bottom": 1})
        money = book.add_format({"num_format": "#,##0"})
        for name, (heads, rows) in made.tables.items():
            sheet = book.add_worksheet(name)
            sheet.freeze_panes(1, 0)
            sheet.write_row(0, 0, heads, bold)
            for r, row in enumerate(rows, start=1):
                for c, value in enumerate(row):
                    if isinstance(value, str):
                        sheet.write_string(r, c, value)
                    else:
                        sheet.write_number(r, c, value, money if abs(value) >= 1000 else None)
            for c, head in enumerate(heads):
                widest = max([len(head), *(len(str(row[c])) for row in rows)])
                sheet.set_column(c, c, min(widest + 2, 60))
            if rows:
                sheet.autofilter(0, 0, len(rows), len(heads) - 1)
