"""`railwright`: what becomes of an error; the commands are in commands.py.

Nothing heavy is imported here: `railwright --help` must answer at once (tests/errors/test_cli_startup.py).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from railwright import __version__
from railwright.cli.commands import LazyGroup
from railwright.errors import RailwrightError

USER_MISTAKE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
UNCOLLECTED = 100_000
"""New objects after which Python looks for cycles among them; after every 700, its habit, a command spends a
tenth of its time on looking through modules, of which none is garbage."""


class Commands(LazyGroup):
    """All commands; a user's mistake ends in one message on stderr and status 2, never in a traceback."""

    def make_context(self, *args: Any, **settings: Any) -> Any:
        # --help and --version write here.
        with _closed_pipe():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        from railwright.cli.opened import forget

        forget()
        with _closed_pipe():
            return self._told(ctx)

    def _told(self, ctx: Any) -> Any:
        """What a command returns; an error told."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except RailwrightError as error:
            from railwright.cli.places import placed

            _say_error(str(placed(error)))
            raise typer.Exit(USER_MISTAKE) from None
        except KeyboardInterrupt:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            # What we read and write ourselves says more; this is a full disk, or a terminal that has gone.
            where = f" '{error.filename}'" if error.filename else ""
            _say_error(f"cannot read or write{where}: {error.strerror or error}")
            _drop_output()
            raise typer.Exit(USER_MISTAKE) from None
        return result


@contextmanager
def _closed_pipe() -> Iterator[None]:
    """`railwright … | head` is no failure of ours: it ends without a word, and with the status that the
    system gives others then.  Typer would end it with 1."""
    try:
        yield
    except BrokenPipeError:
        _drop_output()
        raise typer.Exit(BROKEN_PIPE) from None


def _say_error(text: str) -> None:
    typer.echo(f"Error:{chr(10) if chr(10) in text else ' '}{text}", err=True)


def _drop_output() -> None:
    """What Python still wants to flush at its end, and cannot, goes nowhere, rather than fail again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


app = typer.Typer(
    name="railwright",
    cls=Commands,
    help="Design, predict and prove GPU clusters: one study file in, one trustworthy answer out.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"railwright {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Design, predict and prove GPU clusters: one study file in, one trustworthy answer out."""


def main() -> None:
    """The console entry point."""
    gc.set_threshold(UNCOLLECTED)
    try:
        app()
    except BrokenPipeError:
        # Typer tells a mistake in the options itself, outside of all commands.
        _drop_output()
        sys.exit(BROKEN_PIPE)
