"""Plain tables that read well at 80 columns, in a pipe and without colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: bool = False) -> None:
    """Print rows under a header, as wide as the terminal at most; the first column never breaks.

    right  columns after the first are numbers, flush right
    Where words would break, the last columns of each row stand in a line of their own below it.
    """
    from rich.cells import cell_len

    console, rows = terminal(), list(rows)
    shown = _columns(header, rows, console.width)
    lines = _drawn(console, header[:shown], [row[:shown] for row in rows], right)
    if shown == len(header):
        print("\n".join(lines))
        return
    print("\n".join(lines[:HEAD]))
    for line, row in zip(lines[HEAD:], rows, strict=True):
        rest = "; ".join(f"{title} {cell}" for title, cell in zip(header[shown:], row[shown:], strict=True))
        inset = " " * (max(cell_len(one[0]) for one in rows) + GAP)
        print(line, *wrap(rest, console.width, initial_indent=inset, subsequent_indent=inset), sep="\n")


HEAD = 2
"""Lines of a header: titles, and what is drawn under them."""

GAP = 2
"""Columns of a terminal between those of a table."""


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
    """How many columns stand beside each other: all where no word has to break, or where fewer would not
    help; else as many as fit in one line each."""
    from rich.cells import cell_len

    columns = list(zip(header, *rows, strict=True))
    words = [max(max(map(cell_len, cell.split()), default=0) for cell in column) for column in columns]
    whole = [max(map(cell_len, column)) for column in columns]
    if _width([whole[0], *words[1:]]) <= width or any("\n" in cell for column in columns for cell in column):
        return len(columns)
    fitting = [n for n in range(2, len(columns)) if rows and _width(whole[:n]) <= width]
    return max(fitting, default=len(columns))


def _width(columns: Sequence[int]) -> int:
    return sum(columns) + GAP * (len(columns) - 1)


def _drawn(console: Console, header: Sequence[str], rows: Iterable[Sequence[str]], right: bool) -> list[str]:
    """Lines of a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, title in enumerate(header):
        justify = "right" if right and index else "left"
        table.add_column(Text(title), justify=justify, overflow="fold", no_wrap=index == 0)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    with console.capture() as captured:
        console.print(table)
    # Rich fills every line to the width of the table; in a pipe or a file that is noise.
    return [line.rstrip() for line in captured.get().rstrip("\n").split("\n")]


def terminal() -> Console:
    """A console that leaves a closed pipe to `main`, where Rich would exit with a status of its own."""
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Terminal()


def print_words(sentence: str) -> None:
    """Print a sentence, broken between words on a terminal; a pipe gets it in one line."""
    from rich.text import Text

    console = terminal()
    console.print(Text(sentence), soft_wrap=not console.is_terminal)
