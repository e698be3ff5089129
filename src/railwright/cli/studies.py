"""`railwright run`, `check`, `init`, `schema`: from an empty folder to an answer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.opened import remember
from railwright.cli.places import is_template
from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.spec import Study
    from railwright.study.result import Result

RESULTS = Path("results")

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Study file, or the name of a template.")]


def add_to(app: typer.Typer) -> None:
    """Hang the commands of this file on the application."""
    app.command("run")(run)
    app.command("check")(check)
    app.command("init")(init)
    app.command("schema")(schema)


def refuse_swapped(study: str, others: Sequence[str], usage: str) -> None:
    """Raise RailwrightError where a study was given in the place of what is compared with it.

    usage  the command with its arguments in order, without 'railwright'
    """
    studies = (".yaml", ".yml")
    given = is_template(study) or Path(study).suffix in studies
    if not given and any(Path(other).suffix in studies for other in others):
        raise RailwrightError(f"'{study}' stands where the study belongs; the order is: railwright {usage}")


def open_study(name: str) -> Study:
    """The study a user named: a file, or a template. Raises SpecError, as `load_study` does."""
    study = _load(name)
    remember(name, study)
    return study


def study_text(name: str) -> str:
    """The text of a study that `open_study` opened."""
    from railwright.spec import template
    from railwright.spec.document import read_text

    return template(name) if is_template(name) else read_text(Path(name))


def _load(name: str) -> Study:
    from railwright.spec import load_study, load_study_text, template, template_names

    if is_template(name):
        return load_study_text(template(name), name)
    if not os.path.lexists(name) and not name.endswith((".yaml", ".yml")):
        hint = nearest(name, template_names()) or f"; templates are {', '.join(template_names())}"
        raise RailwrightError(f"'{name}' is neither a file nor a template{hint}")
    return load_study(name)


def run(
    study: StudyArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write; default results/<name of the study>.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only where the files are, and warnings to stderr.")
    ] = False,
    what_if: Annotated[
        bool, typer.Option("--what-if/--no-what-if", help="Ask what a faster network and the like would do.")
    ] = True,
) -> None:
    """Answer a study.

    Prints a summary, and writes a folder with the report, all numbers and a trace of one training step.
    """
    from railwright.cli.checking import refuse_unknown_names
    from railwright.cli.tables import terminal
    from railwright.report import refuse_existing, summary, write

    asked = open_study(study)
    folder = out or RESULTS / Path(study).stem
    # Before the work rather than after it; `write` refuses too.
    refuse_existing(folder)
    refuse_unknown_names(asked, study)
    result = _run(asked, quiet, what_if)
    files = write(result, folder)
    if quiet:
        for file in files:
            typer.echo(file)
        for warning in result.warnings:
            typer.echo(f"! {warning}", err=True)
    else:
        summary(result, terminal(), folder)


def check(study: StudyArgument) -> None:
    """Report every mistake in a study.

    Each with its line and column, what is allowed, and the nearest known name; a layout, of the study or of a
    variant, that cannot work or does not fit into memory, with what would; and of a correct study the
    warnings of a run that need no predicted time. No time is predicted.
    """
    from railwright.cli.checking import (
        refuse_impossible_layouts,
        refuse_unknown_names,
        sweeps_that_cannot_run,
    )
    from railwright.study.evaluate import Workshop
    from railwright.study.foretold import foretold_warnings

    asked = open_study(study)
    refuse_unknown_names(asked, study)
    refuse_impossible_layouts(asked, study)
    parts = [
        f"{asked.cluster.servers} x {asked.cluster.server}",
        asked.cluster.compute.family,
        *_counted(len(asked.jobs), "job"),
        *_counted(len(asked.serving), "serving job"),
        *_counted(len(asked.recommendations), "recommendation job"),
        *_counted(len(asked.sweeps), "sweep"),
        *_counted(len(asked.variants), "variant"),
        *_counted(len(asked.sensitivity), "sensitivity row"),
    ]
    typer.echo(f"{study}: correct ({', '.join(parts)})")
    workshop = Workshop.of(asked)
    for warning in (*foretold_warnings(asked, workshop), *sweeps_that_cannot_run(asked, workshop)):
        typer.echo(f"! {warning}")


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")] = Path("study.yaml"),
    template: Annotated[
        str, typer.Option("--template", "-t", help="Which starter; see --list.", metavar="NAME")
    ] = "rail-240",
    show: Annotated[bool, typer.Option("--list", help="List the starters and write nothing.")] = False,
) -> None:
    """Write a commented starter study.

    Never over an existing file; --list shows the starters.
    """
    from railwright.spec import template as text_of
    from railwright.spec import template_names

    if show:
        for name in template_names():
            typer.echo(f"{name:<14} {text_of(name).splitlines()[0].lstrip('# ')}")
        return
    text = text_of(template)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise RailwrightError(f"'{file}' exists and is never overwritten; name another file") from None
    except OSError as error:
        raise RailwrightError(f"cannot write '{file}': {error.strerror}") from None
    typer.echo(f"wrote {file}; edit it, then: railwright run {file}")


def schema() -> None:
    """Print the JSON Schema of study files.

    Editors complete and check a study with it.
    """
    from railwright.spec.schema import study_schema_text

    typer.echo(study_schema_text(), nl=False)


def _run(study: Study, quiet: bool, what_if: bool) -> Result:
    """Run a study with its progress on stderr, where that is a terminal; it disappears at the end."""
    from railwright.cli.progress import progress

    with progress(quiet) as tell:
        from railwright.study import run as run_study

        return run_study(study, progress=tell, what_if=what_if)


def _counted(number: int, noun: str) -> list[str]:
    if not number:
        return []
    plural = noun if noun.endswith("y") else f"{noun}s"
    return [f"{number} {noun if number == 1 else plural}"]
