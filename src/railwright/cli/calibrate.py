"""`railwright calibrate`: a cluster's own logs as constants that studies can name."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.studies import open_study
from railwright.errors import RailwrightError

if TYPE_CHECKING:
    from railwright.measure.fitting.profile import ProfileFile


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("calibrate")(calibrate)


def calibrate(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOG... STUDY", help="Logs, then the study of the machine they ran on."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the profile here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE where it exists.")] = False,
    show: Annotated[
        Path | None,
        typer.Option("--show", metavar="PROFILE", help="Print where each constant of a profile came from."),
    ] = None,
    op: Annotated[
        str | None, typer.Option("--op", metavar="OP", help="The collective, where a log does not say.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", min=1, help="Ranks of a group, where a log does not say.")
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", help="The study's serving job, for load generators' results.")
    ] = None,
) -> None:
    """Fit constants to a cluster's logs, or an engine's.

    Launch, ramp and usable bandwidth of each family that the logs show, with errors; what they cannot tell is
    refused, with what to measure next.
    """
    if show is not None:
        if files or out is not None:
            raise RailwrightError("--show prints a profile and takes no logs and no --out; leave these out")
        from railwright.measure.fitting.profile import read_profile

        _say(read_profile(show))
        return
    if not files or len(files) < 2:
        raise RailwrightError(
            "calibrate needs at least one log and then the study of the machine it ran on, like "
            "`railwright calibrate all_reduce.log my-cluster.yaml -o profile.yaml`"
        )
    if out is not None and out.exists() and not force:
        raise RailwrightError(f"{out} exists and is not overwritten; name another file, or say --force")

    from railwright.measure.loadgen import is_result

    results = [file for file in files[:-1] if is_result(Path(file))]
    if results:
        from railwright.cli.serve_measured import fit_engine

        fit_engine(files[:-1], open_study(files[-1]), job, out)
        return

    from railwright.measure.calibrate.calibrating import calibrate as calibrated
    from railwright.measure.fitting.profile import write_profile

    found = calibrated(files[:-1], open_study(files[-1]), op=op, ranks=ranks)
    _say(found.profile)
    if found.notes:
        typer.echo("\nNotes:")
    for note in found.notes:
        for line in wrap(note, 80, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False):
            typer.echo(line)
    if out is not None:
        write_profile(found.profile, out, replace=force)
        typer.echo(f"\n{out}")


def _say(profile: ProfileFile) -> None:
    from railwright.measure.fitting.text import profile_lines

    for line in profile_lines(profile):
        typer.echo(line)
