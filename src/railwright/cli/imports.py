"""`railwright import`: a run's own script, arguments, log or configuration as a job of a study."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from railwright.cli.exported_study import as_written
from railwright.cli.studies import open_study, study_text
from railwright.errors import RailwrightError, among

if TYPE_CHECKING:
    from railwright.runs import Run
    from railwright.spec.training import TrainingJob


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("import")(import_run)


def import_run(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A script that launches Megatron-LM or a Trainer, a file or YAML of arguments, a log of "
            "Megatron-LM, torchtitan's TOML, YAML of LLaMA-Factory, Axolotl or Megatron-Bridge.",
        ),
    ],
    study: Annotated[
        str | None,
        typer.Option("--study", metavar="STUDY", help="Print this study with the job in it, not it alone."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the job; default: the file's.")] = "",
    model: Annotated[
        str, typer.Option("--model", help="The model: a bundled name or a config.json; default: as RUN says.")
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option("--config", help="New file for the config.json of a model that is not bundled."),
    ] = None,
    vocab: Annotated[
        int | None,
        typer.Option("--vocab", min=1, help="Rows of the vocabulary, if a tokenizer brings them."),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="GPUs of the run; default: as RUN says.")
    ] = None,
    software: Annotated[
        str, typer.Option("--software", help="Software era; default: that of today's framework.")
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A variable of the script; may be repeated."),
    ] = None,
) -> None:
    """Read a run's own settings as a job.

    Prints the job as a section of a study, with what was read otherwise than it stands, or not, as comments.
    Scripts are read, never run.
    """
    from railwright.export.files import write_new
    from railwright.runs import Asked, read_run, text_of

    _known_era(software)
    per_server = None if study is None else _gpus_of_a_server(study)
    variables = _variables(settings or ())
    asked = Asked(name, model, vocab, gpus, per_server, software, variables, lambda name: _beside(run, name))
    found = read_run(text_of(run), str(run), asked)
    fields = dict(found.fields)
    if found.config is not None:
        fields["model"] = _placed(config, run, study)
    job = _validated(fields, run)
    if found.config is not None and config is not None:
        write_new({config: json.dumps(found.config, indent=2) + "\n"})
    typer.echo(_fragment(job, found, run) if study is None else _in_study(job, found, run, study), nl=False)


def _beside(run: Path, name: str) -> str | None:
    """The text of a file that a run names: from its own folder, by its path or its name, or from here."""
    from railwright.runs import text_of

    places = (run.parent / name, run.parent / Path(name).name, Path(name))
    found = next((place for place in places if place.is_file()), None)
    return None if found is None else text_of(found)


def _known_era(software: str) -> None:
    if not software:
        return
    from railwright.training.software.eras import eras

    if software not in eras():
        raise RailwrightError(f"--software: there is no era '{software}'{among(software, eras())}")


def _gpus_of_a_server(study: str) -> int:
    from railwright.study.evaluate import Workshop

    asked = open_study(study)
    return Workshop.of(asked).machine(asked).server.gpus


def _variables(settings: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, each once."""
    found: dict[str, str] = {}
    for one in settings:
        name, sign, value = one.partition("=")
        if not sign or not name.replace("_", "a").isalnum():
            raise RailwrightError(f"--set: '{one}' is given, NAME=VALUE is expected")
        found[name] = value
    return found


def _placed(file: Path | None, run: Path, study: str | None) -> str:
    """How the job names its config.json, from where the study lies."""
    if file is None:
        raise RailwrightError(
            f"{run}: its model is no bundled one; say with --config FILE where its config.json shall be "
            "written, or give the model with --model"
        )
    if os.path.lexists(file):
        raise RailwrightError(f"--config: '{file}' exists; it is left as it is, name a new file")
    if study is None or not os.path.lexists(study):
        return str(file)
    return os.path.relpath(file, Path(study).parent)


def _validated(fields: Mapping[str, Any], run: Path) -> TrainingJob:
    """The job itself. Raises RailwrightError for values that no job can have."""
    from pydantic import ValidationError

    from railwright.spec.check import flaw_of
    from railwright.spec.training import TrainingJob

    try:
        return TrainingJob.model_validate(fields)
    except ValidationError as error:
        flaw = flaw_of(dict(error.errors(include_url=False)[0]))
        raise RailwrightError(f"{run}: jobs.{'.'.join(map(str, flaw.path))}: {flaw.message}") from None


def _fragment(job: TrainingJob, found: Run, run: Path) -> str:
    """The job as a section of a study, behind comments."""
    from railwright.search.training.export import job_lines

    head = [f"# railwright; read from {run.name}", *(f"# {note}" for note in found.notes)]
    if "software" not in found.fields:
        head.append(f"# software {job.software} is the default; another era, other times (--software)")
    return "\n".join([*head, *job_lines(job)]) + "\n"


def _in_study(job: TrainingJob, found: Run, run: Path, study: str) -> str:
    """The study with the job in the place of one of its name, or behind the others; comments stay."""
    from io import StringIO

    from railwright.spec import load_study_text

    fragment, before = _fragment(job, found, run), study_text(study).replace("\r\n", "\n")
    yaml = as_written(before, "jobs")
    whole, read = yaml.load(before), yaml.load(fragment)["jobs"][0]
    jobs = whole.setdefault("jobs", [])
    at = next((i for i, one in enumerate(jobs) if one.get("name") == job.name), len(jobs))
    if at < len(jobs):
        jobs[at] = read
    else:
        jobs.append(read)
    into = StringIO()
    yaml.dump(whole, into)
    said = [line for line in fragment.splitlines() if line.startswith("#")]
    text = "\n".join([*said, into.getvalue()])
    load_study_text(text, study)
    return text
