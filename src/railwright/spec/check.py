"""Plain values against the study's types: what is wrong, in sentences that say what to write instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from railwright.errors import nearest
from railwright.spec.foreign import FIELDS, VALUES
from railwright.spec.serving import serving_flaws
from railwright.spec.study import Study

Steps = tuple[str | int, ...]

FORMAT_VERSION = 1
_NOT_A_FIELD, _MISSING = "not a field", "missing"


@dataclass(frozen=True)
class Flaw:
    """One thing wrong at a path of the plain values.

    at_key  whether the name is wrong rather than the value
    """

    path: Steps
    message: str
    at_key: bool = False


def validate(plain: Mapping[str, Any]) -> tuple[Study | None, list[Flaw]]:
    """The study, or everything that is wrong with it."""
    version = plain.get("railwright")
    if isinstance(version, int) and not isinstance(version, bool) and version > FORMAT_VERSION:
        # Whatever else looks wrong may be right in that version.
        message = f"the file has format {version}; this Railwright reads up to {FORMAT_VERSION}: upgrade it"
        return None, [Flaw(("railwright",), message)]
    try:
        study = Study.model_validate(plain)
    except ValidationError as error:
        told = [dict(e) for e in error.errors(include_url=False)]
        return None, _not_twice([flaw_of(e) for e in told if not _left_short(e)])
    flaws = contradictions(study)
    return (None if flaws else study), flaws


def contradictions(study: Study) -> list[Flaw]:
    """What no single field shows: names used twice, a sweep that ends before it begins."""
    flaws: list[Flaw] = []
    for kind in ("jobs", "recommendations", "serving", "variants", "sensitivity"):
        names: dict[str, int] = {}
        for index, entry in enumerate(getattr(study, kind)):
            first = names.setdefault(entry.name, index)
            if first != index:
                message = f"'{entry.name}' is already the name of {kind}.{first}; each needs its own"
                flaws.append(Flaw((kind, index, "name"), message))
    for index, job in enumerate(study.serving):
        flaws += [Flaw(("serving", index, *path), said) for path, said in serving_flaws(job)]
    for index, sweep in enumerate(study.sweeps):
        if sweep.end < sweep.begin:
            flaws.append(
                Flaw(("sweeps", index, "end"), "smaller than 'begin'; a sweep goes from small to large")
            )
    return flaws


def section_at(path: Steps) -> type[BaseModel] | None:
    """The class whose fields stand at a path, or None where a plain value stands."""
    current: type[BaseModel] | None = Study
    for step in path:
        if isinstance(step, int):
            continue
        if current is None or step not in current.model_fields:
            return None
        current = _section_in(current.model_fields[step].annotation)
    return current


def unknown_field(name: str, section: type[BaseModel]) -> str:
    """Why a name is no field of a section: what other frameworks mean by it, where inside the section that
    field is, the nearest one, or all of them."""
    if said := FIELDS.get(section.__name__, {}).get(name.lower().replace("-", "_")):
        return f"{_NOT_A_FIELD}; {said}"
    inside = [
        key
        for key, field in section.model_fields.items()
        if (own := _section_in(field.annotation)) is not None and name in own.model_fields
    ]
    if len(inside) == 1:
        return f"{_NOT_A_FIELD} here; it is one of the section '{inside[0]}': write it there"
    known = list(section.model_fields)
    return _NOT_A_FIELD + (nearest(name, known) or f"; known here are {', '.join(known)}")


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        if (found := _section_in(part)) is not None:
            return found
    return None


def _not_twice(flaws: list[Flaw]) -> list[Flaw]:
    """Without the fields that are missing only because their name is misspelt."""
    misspelt = [(f.path[:-1], f.message) for f in flaws if f.message.startswith(_NOT_A_FIELD)]
    return [
        flaw
        for flaw in flaws
        if not flaw.message.startswith(_MISSING)
        or not any(flaw.path[:-1] == parent and f"'{flaw.path[-1]}'" in said for parent, said in misspelt)
    ]


def _left_short(error: Mapping[str, Any]) -> bool:
    """Whether a list is only short of the entries that are wrong themselves, which are told."""
    return error["type"] == "too_short" and bool(error["input"])


def flaw_of(error: Mapping[str, Any]) -> Flaw:
    """What one of pydantic's errors (`ValidationError.errors`) says, in our words."""
    path: Steps = tuple(error["loc"])
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        section = section_at(path[:-1])
        return Flaw(path, unknown_field(str(path[-1]), section) if section else _NOT_A_FIELD, at_key=True)
    if kind == "missing":
        section = section_at(path[:-1])
        about = section.model_fields[str(path[-1])].description if section else None
        return Flaw(path, f"{_MISSING} ({about})" if about else _MISSING, at_key=True)
    wanted = _WANTED.get(kind)
    if kind == "literal_error":
        wanted = f"one of {context['expected'].replace(' or ', ', ')}" if "," in context["expected"] else None
        wanted = wanted or context["expected"]
        if isinstance(value, str):
            choices = wanted.removeprefix("one of ").split(", ")
            # names are listed in quotes, numbers without
            if meant := VALUES.get(str(path[-1]), {}).get(value.lower()):
                return Flaw(path, f"'{value}' is not allowed; {meant}")
            near = _UNQUOTED if value in choices else nearest(value, [w.strip("'") for w in choices])
            return Flaw(path, f"'{value}' is not allowed; write {wanted}{near}")
    elif kind in _BOUNDS:
        word, key = _BOUNDS[kind]
        return Flaw(path, f"{value!r} is out of range; it must be {word} {context[key]:g}")
    elif kind == "too_short":
        return Flaw(path, "an empty list; name at least one, or leave the line out for the default")
    elif kind in ("model_type", "model_attributes_type"):
        section = section_at(path)
        names = ", ".join(section.model_fields) if section else ""
        wanted = f"a section with the fields {names}" if names else "a section"
    if wanted is None:
        return Flaw(path, str(error["msg"]))
    if value is None:
        return Flaw(path, f"empty; write {wanted}, or leave the line out if it has a default")
    hint = _hint(kind, value)
    return Flaw(path, f"{_say(value)} is not allowed; write {wanted}{hint}")


_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")

_COUNTED = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kKMGBT])")
_POWERS = {"k": 3, "K": 3, "M": 6, "G": 9, "B": 9, "T": 12}
"""Of ten, by the letters that people put behind counts of tokens."""

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list (one line per entry, each after '- ')",
    "dict_type": "dotted fields with their values, like 'nccl.pxn: false'",
}
_UNQUOTED = " (without quotes)"
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


def _hint(kind: str, value: Any) -> str:
    """The correction, where the value gives it away."""
    if kind == "string_type" and isinstance(value, int | float):
        return f" (put it in quotes: '{_say(value)}')"
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f", {int(value)}"
    if kind in ("int_type", "float_type") and isinstance(value, str) and _NUMBER.fullmatch(value):
        return _UNQUOTED
    if kind in ("int_type", "float_type") and isinstance(value, str) and (said := _COUNTED.fullmatch(value)):
        return _written_out(kind, float(said[1]), said[2])
    if (
        kind == "bool_type"
        and isinstance(value, str)
        and value.lower() in ("on", "yes", "y", "off", "no", "n")
    ):
        return " (" + ("true" if value.lower() in ("on", "yes", "y") else "false") + ")"
    return ""


def _written_out(kind: str, count: float, letter: str) -> str:
    """What a count with a letter behind it may mean: '128k' tokens of a sequence are 131072 to most."""
    plain = count * 10 ** _POWERS[letter]
    if kind == "float_type":
        return f" without letters, like {plain:g}".replace("e+", "e")
    binary = f" or {count * 1024:.15g}" if letter in "kK" else ""
    return f" without letters, like {plain:.15g}{binary}"


def _say(value: Any) -> str:
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, tuple | list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else str(value)
