"""Where a refused job stands in its study: a plan is refused by the job's name, a person looks for a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from railwright.errors import Mistake, PlanError, RailwrightError, SpecError

if TYPE_CHECKING:
    from railwright.spec import Study
    from railwright.spec.document import Document

SECTIONS = ("jobs", "recommendations", "serving")


@contextmanager
def job_lines(study: str) -> Iterator[None]:
    """A plan that is refused inside is told as a mistake of the study, at the line of its job.

    study  the file or template, as the user named it
    """
    try:
        yield
    except PlanError as error:
        mistake = job_mistake(study, str(error))
        if mistake is None:
            raise
        raise SpecError([mistake]) from None


def job_mistake(study: str, refusal: str, sections: tuple[str, ...] = SECTIONS) -> Mistake | None:
    """A refusal, which begins with its job's name, at that job.

    None where it begins with no job's name, or with one that jobs of two sections have.
    """
    document = study_document(study)
    plain = document.plain if document is not None and isinstance(document.plain, dict) else {}
    found = [
        (section, index, str(entry["name"]))
        for section in sections
        for index, entry in enumerate(plain.get(section) or ())
        if refusal.startswith(f"{entry['name']}: ")
    ]
    if len(found) != 1:
        return None
    section, index, name = found[0]
    said = refusal.removeprefix(f"{name}: ")
    return mistake_at(document, study, (section, index), f"{section}.{name}", said)


def mistake_at(
    document: Document | None, file: str, path: tuple[str | int, ...], field: str, said: str
) -> Mistake:
    """What is wrong with a field, at a path of the study; without a line where that was not read again."""
    if document is None:
        return Mistake(file, 0, 0, field, said)
    return replace(document.mistake(path, said), field=field)


def steps(study: Study, field: str) -> tuple[str | int, ...]:
    """A dotted field that calls jobs by their names ('jobs.tune.model') as a path ('jobs', 0, 'model')."""
    section, _, rest = field.partition(".")
    if section not in SECTIONS:
        return (section, *rest.split("."))
    names = [job.name for job in getattr(study, section)]
    index = next(i for i, name in enumerate(names) if rest.startswith(f"{name}."))
    return (section, index, *rest.removeprefix(f"{names[index]}.").split("."))


def is_template(name: str) -> bool:
    """Whether the study a user named is a template; a file of that name comes first."""
    from railwright.spec import template_names

    return name in template_names() and not Path(name).exists()


def study_document(study: str) -> Document | None:
    """The study read again; None where it cannot be (a pipe, a file that has gone)."""
    from railwright.spec import template
    from railwright.spec.document import read_text, read_yaml

    shipped = is_template(study)
    if not shipped and not Path(study).is_file():
        return None
    try:
        return read_yaml(template(study) if shipped else read_text(Path(study)), study)
    except RailwrightError:
        return None
