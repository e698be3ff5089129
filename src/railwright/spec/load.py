"""A study file as a `Study`, or every mistake in it at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from railwright.errors import Mistake, SpecError
from railwright.spec.changes import change
from railwright.spec.check import validate
from railwright.spec.document import Document, read_text, read_yaml
from railwright.spec.study import Study

_FILES = ("catalog", "calibration")
"""Fields that name a file beside the study."""


def load_study(path: str | Path) -> Study:
    """Read a study file.

    Paths inside it (`catalog`, `calibration`, a job's `kernels`, a model's config.json) are relative to its
    own folder.
    Raises SpecError with all mistakes: file:line:column, dotted field, what is allowed, the nearest name.
    """
    path = Path(path)
    return _study(read_yaml(read_text(path), str(path)), path.parent)


def load_study_text(text: str, name: str = "<memory>") -> Study:
    """Read a study from text; `name` is how mistakes call it, and paths in it are taken as they are.

    Raises SpecError, as `load_study` does.
    """
    return _study(read_yaml(text, name), Path())


def parse_value(text: str, name: str = "<memory>") -> Any:
    """One value as a study file would hold it: 'true', '2', '2e9', '25 m', '[1, 2]'. Raises SpecError."""
    return read_yaml(text, name).plain


def _study(document: Document, folder: Path) -> Study:
    if not isinstance(document.plain, dict):
        message = "a study is a set of fields, beginning with 'railwright: 1'; `railwright init` writes one"
        raise SpecError([document.mistake((), message)])
    plain = _anchored(document.plain, folder)
    study, flaws = validate(plain)
    mistakes = [*document.mistakes]
    told = {(mistake.line, mistake.column) for mistake in mistakes}
    for flaw in flaws:
        mistake = document.mistake(flaw.path, flaw.message, flaw.at_key)
        # A value that could not be read is told once, not also as one of the wrong kind.
        if (mistake.line, mistake.column) not in told:
            mistakes.append(mistake)
    if not any(flaw.path == ("railwright",) for flaw in flaws):
        mistakes += _mistakes_in_variants(plain, document)
    if study is None or mistakes:
        raise SpecError(mistakes)
    return study


def _mistakes_in_variants(plain: Mapping[str, Any], document: Document) -> list[Mistake]:
    """What the changes of variants and sensitivity rows would do wrong, each at its own place."""
    mistakes: list[Mistake] = []
    for kind in ("variants", "sensitivity"):
        entries = plain.get(kind)
        for index, entry in enumerate(entries if isinstance(entries, tuple) else ()):
            changes = entry.get("set") if isinstance(entry, Mapping) else None
            if isinstance(changes, Mapping):
                for key, flaw in change(plain, changes)[1]:
                    mistakes.append(document.mistake((kind, index, "set", key), flaw.message, flaw.at_key))
    return mistakes


def _anchored(plain: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The study with the files it names taken relative to its folder."""

    def file(value: Any, ending: tuple[str, ...]) -> Any:
        return str(folder / value) if isinstance(value, str) and value.endswith(ending) else value

    def job(entry: Any) -> Any:
        return (
            {**entry, "model": file(entry["model"], (".json",))}
            if isinstance(entry, dict) and "model" in entry
            else entry
        )

    def recommendation(entry: Any) -> Any:
        return (
            {**entry, "model": file(entry["model"], (".yaml", ".yml"))}
            if isinstance(entry, dict) and "model" in entry
            else entry
        )

    def served(entry: Any) -> Any:
        if not isinstance(entry, dict):
            return entry
        return {**job(entry), **({"kernels": file(entry["kernels"], ("",))} if "kernels" in entry else {})}

    def variant(entry: Any) -> Any:
        if not isinstance(entry, dict) or not isinstance(entry.get("set"), dict):
            return entry
        changed = {key: file(value, _ending(key)) for key, value in entry["set"].items()}
        return {**entry, "set": changed}

    anchored = dict(plain)
    for key in _FILES:
        if key in plain:
            anchored[key] = file(plain[key], (".yaml", ".yml"))
    if isinstance(site := plain.get("site"), dict) and "parts" in site:
        anchored["site"] = {**site, "parts": file(site["parts"], (".yaml", ".yml"))}
    if isinstance(failures := plain.get("reliability"), dict) and isinstance(failures.get("trace"), dict):
        trace = failures["trace"]
        anchored["reliability"] = {**failures, "trace": {**trace, "file": file(trace.get("file"), (".csv",))}}
    if isinstance(money := plain.get("money"), dict) and "prices" in money:
        anchored["money"] = {**money, "prices": file(money["prices"], (".yaml", ".yml"))}
    for kind, one in (
        ("jobs", job),
        ("recommendations", recommendation),
        ("serving", served),
        ("variants", variant),
        ("sensitivity", variant),
    ):
        if isinstance(plain.get(kind), tuple):
            anchored[kind] = tuple(one(entry) for entry in plain[kind])
    return anchored


def _ending(field: str) -> tuple[str, ...]:
    """Ends of values that are files, of a field that a variant changes; nothing of others."""
    if field.endswith(".kernels"):
        return ("",)
    if field.endswith(".model"):
        return (".json",)
    return (".yaml", ".yml") if field in _FILES else ()
