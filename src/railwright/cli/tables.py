"""Plain tables that read well at 80 columns, in a pipe and without colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: bool = False) -> None:
    """Print rows under a header, as wide as the terminal at most; the first column never breaks.

    right  columns after the first are numbers, flush right
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, title in enumerate(header):
        justify = "right" if right and index else "left"
        table.add_column(Text(title), justify=justify, overflow="fold", no_wrap=index == 0)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    with console.capture() as captured:
        console.print(table)
    # Rich fills every line to the width of the table; in a pipe or a file that is noise.
    print("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


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
