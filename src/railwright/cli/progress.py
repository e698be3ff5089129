"""Progress of a long computation: a bar on stderr, where that is a terminal; it disappears at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """What to call with a few words and the share that is done, 0 to 1."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        BarColumn(24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0)

        def tell(what: str, done: float) -> None:
            bar.update(task, description=what, completed=done)

        yield tell
