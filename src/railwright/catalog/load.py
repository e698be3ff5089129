"""The catalogue: the shipped parts, a user's own file merged over them, and finding a part by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from railwright.catalog.fields import FIELDS, SINGULAR, kind_of
from railwright.catalog.names import canonical
from railwright.catalog.parts import Catalog, Gpu, Nic, Server, Source, Switch
from railwright.catalog.reading import Reading
from railwright.catalog.records import read_kinds
from railwright.errors import Mistake, RailwrightError, SpecError, nearest
from railwright.shipped import read_data

P = TypeVar("P", Gpu, Nic, Switch, Server)

_EMPTY = Catalog({}, {}, {}, {})


def load_catalog(user_file: str | Path | None = None) -> Catalog:
    """The shipped parts, with the parts of a user's YAML file added and merged over them field by field.

    A user's record whose name exists changes only the fields it gives; a new one gives all fields or says
    which part it is `like`.  A shipped part stays as it is when a user changes the one it resembles.
    Raises SpecError with every mistake of the user's file at once.
    """
    if user_file is None:
        return _shipped()
    file = str(user_file)
    reading = Reading(file, None, _aliases())
    tree = _read_user_file(file)
    catalog = read_kinds(tree, _shipped(), reading)
    if reading.mistakes:
        raise SpecError(reading.mistakes)
    return catalog


def find(parts: Mapping[str, P], name: str) -> P:
    """The part of this name or alias, e.g. find(catalog.gpus, 'h100-sxm'); 'H100_SXM' and 'h100' are it too.

    Raises RailwrightError naming the kind, the nearest names and what exists.
    """
    if not parts:
        raise RailwrightError(f"no part '{name}': this kind of part has no entry in the catalogue")
    kind: str = kind_of(next(iter(parts.values())))
    wanted = canonical(name, {})
    if wanted not in parts:
        wanted = canonical(name, _aliases()[kind])
    if wanted in parts:
        return parts[wanted]
    hint = _other_kind(name, kind) or nearest(canonical(name, {}), [*parts, *_aliases()[kind]])
    raise RailwrightError(
        f"no {SINGULAR[kind]} '{name}' in the catalogue{hint}{'' if hint.endswith('?') else ';'}"
        f" known are {', '.join(parts)}"
    )


def _other_kind(name: str, kind: str) -> str:
    """', it is a switch' where a shipped part of another kind has the name: fields were swapped."""
    for other in FIELDS:
        if other != kind and canonical(name, _aliases()[other]) in getattr(_shipped(), other):
            return f", it is a {SINGULAR[other]}"
    return ""


@cache
def _shipped() -> Catalog:
    documents = {
        key: Source(document=d["document"], date=d["date"], status=d["status"])
        for key, d in _read_data("documents").items()
    }
    reading = Reading("the shipped catalogue", documents, _aliases())
    catalog = read_kinds({kind: _read_data(kind) for kind in FIELDS}, _EMPTY, reading)
    assert not reading.mistakes, "\n".join(str(mistake) for mistake in reading.mistakes)
    return catalog


@cache
def _aliases() -> dict[str, dict[str, str]]:
    return {kind: _read_data("aliases").get(kind, {}) for kind in FIELDS}


@cache
def _read_data(name: str) -> Any:
    return read_data("catalog", f"{name}.yaml")


def _read_user_file(file: str) -> Mapping[Any, Any]:
    """The tree of a user's file, with positions; raises SpecError where it cannot be read at all."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file in UTF-8"
        raise SpecError([Mistake(file, 0, 0, "", f"cannot read this catalogue file: {reason}")]) from None
    try:
        tree = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        raise SpecError([Mistake(file, line, column, "", f"not YAML: {error.problem}")]) from None
    except YAMLError as error:
        raise SpecError([Mistake(file, 0, 0, "", f"not YAML: {error}")]) from None
    except (RecursionError, ValueError) as error:
        # The 45th of a month, a number of 5,000 digits, a thousand brackets: ruamel lets Python complain.
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SpecError([Mistake(file, 0, 0, "", f"a value cannot be read: {reason}")]) from None
    if not isinstance(tree, Mapping):
        message = f"a catalogue file maps kinds of parts to records; allowed kinds are {', '.join(FIELDS)}"
        raise SpecError([Mistake(file, 1, 1, "", message)])
    return tree
