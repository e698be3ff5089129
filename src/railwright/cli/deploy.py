"""`railwright deploy`: how these people should share this cluster, and the files that make it so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railwright.cli.studies import StudyArgument


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("deploy")(deploy)


def deploy(
    study: StudyArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the files; without it, only the advice.")
    ] = None,
    variant: Annotated[str | None, typer.Option("--variant", help="Name of a variant of the study.")] = None,
) -> None:
    """Say how people should share the machines.

    With --out, write the files of day one.

    Masks, a queue, Slurm or Kubernetes with Kueue; NCCL's settings for this fabric, a health check with the
    design's figures, containers and notebooks.  Nothing is overwritten.
    """
    from railwright.cli.fabric import open_fabric
    from railwright.deploy.advice import NAMES
    from railwright.deploy.bundling import EXECUTABLE, bundle
    from railwright.export.files import write_new

    asked, catalog, fabric = open_fabric(study, variant)
    made = bundle(asked, fabric, catalog)
    advice = made.advice
    name = NAMES[advice.scheduler]
    asks = " (as the study asks)" if advice.asked else ""
    typer.echo(f"{name[0].upper()}{name[1:]}{asks}.  {advice.why}")
    if advice.grow:
        typer.echo(advice.grow)
    typer.echo("\nNot taken:")
    for way, reason in advice.against:
        typer.echo(f"  {NAMES[way]}: {reason}.")
    typer.echo("")
    for fact in made.facts:
        typer.echo(fact)
    if out is None:
        typer.echo(f"{len(made.files)} files: {', '.join(made.files)}; --out FOLDER writes them.")
        return
    for path in write_new({out / name: text for name, text in made.files.items()}):
        if path.name.endswith(EXECUTABLE):
            path.chmod(0o755)
        typer.echo(str(path))
    typer.echo(f"Start with {out / 'README.md'}.")
