"""Where a refused field or job stands in its study: the rooms know its name, a person looks for a line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from railwright.cli.opened import Opened, opened
from railwright.errors import Mistake, RailwrightError, SpecError

if TYPE_CHECKING:
    from railwright.spec import Study
    from railwright.spec.document import Document

SECTIONS = ("jobs", "recommendations", "serving")
_NAMED = re.compile(r"([a-z_]+(?:\.[a-z_0-9]+)*): ")
"""A field that a refusal begins with: 'site.power.feeds: '."""


def placed(error: RailwrightError) -> RailwrightError:
    """A refusal of the study that this command opened, at its line; as it is where none can be told.

    A refusal is about its `field`, or about the field, or the job, that its text begins with.
    """
    asked = opened()
    if asked is None or isinstance(error, SpecError):
        return error
    mistake = _field_mistake(asked, error) or job_mistake(asked.name, str(error))
    return _unknown_name(asked, error) if mistake is None else SpecError([mistake])


def _unknown_name(asked: Opened, error: RailwrightError) -> RailwrightError:
    """Of a part or model that nobody knows: all such names of the study; other refusals as they are."""
    from railwright.cli.checking import refuse_unknown_names

    try:
        refuse_unknown_names(asked.study, asked.name)
    except SpecError as unknown:
        if any(one.message == str(error) for one in unknown.mistakes):
            return unknown
    except RailwrightError:
        pass
    return error


def _field_mistake(asked: Opened, error: RailwrightError) -> Mistake | None:
    """None where the refusal names no field of a section that was written."""
    said = str(error)
    field = error.field
    if not field:
        named = _NAMED.match(said)
        if named is None:
            return None
        field, said = named[1], said[named.end() :]
    path = tuple(int(step) if step.isdecimal() else step for step in field.split("."))
    document = study_document(asked.name)
    if not _is_field(asked.study, path) or document is None:
        return None
    for step in path:  # what the text begins with need not be said twice
        said = said.removeprefix(f"{step}: ")
    if asked.variant:
        number, changed = _changed(asked, field)
        if changed:
            where = ("variants", number, "set", changed)
            return mistake_at(document, asked.name, where, f"{field} (variant '{asked.variant}')", said)
    if path[0] not in document.plain:
        return None
    return mistake_at(document, asked.name, path, field, said)


def _is_field(study: Study, path: tuple[str | int, ...]) -> bool:
    """Whether a path names a field of sections that the study has."""
    from railwright.spec.section import Section

    at: object = study
    for step in path:
        if isinstance(at, tuple) and isinstance(step, int) and step < len(at):
            at = at[step]
        elif isinstance(at, Section) and step in type(at).model_fields:
            at = getattr(at, str(step))
        else:
            return False
    return at is not None or len(path) > 1


def _changed(asked: Opened, field: str) -> tuple[int, str]:
    """Number of the variant, and the key of its `set` that is the field, above or below it; '' for none."""
    number = next(i for i, v in enumerate(asked.study.variants) if v.name == asked.variant)
    keys = [
        key
        for key in asked.study.variants[number].set
        if f"{field}.".startswith(f"{key}.") or f"{key}.".startswith(f"{field}.")
    ]
    return number, max(keys, key=len, default="")


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
        return tuple(field.split("."))
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
