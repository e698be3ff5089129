"""Sources of a record's values: as written, inherited by `like`, or 'user file' where a user gives none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast, get_args

from railwright.catalog.fields import DTYPES, FIELDS, SINGULAR, Part
from railwright.catalog.parts import Source, Status
from railwright.catalog.reading import Reading, Record, place
from railwright.errors import nearest

_STATUSES: tuple[str, ...] = get_args(Status)


def sources_of(record: Record, base: Part | None, reading: Reading) -> dict[str, Source]:
    """Field -> source of every field of the part; a peak may have its own, under 'peak_flops.<dtype>'.

    For a value written in the record: what `sources` says of the field, else its '*', else `source`, else
    (in a user's file) the file and line.  For a value that is inherited: `sources`, its '*', else the base's.
    """
    named = _named(record, reading)
    everywhere = named.pop("*", None)
    common = None
    if "source" in record.fields:
        common = _source(record.fields, "source", f"{record.dotted}.source", reading)
    inherited = dict(base.sources) if base is not None else {}
    sources = inherited if everywhere is None else dict.fromkeys(FIELDS[record.kind], everywhere)
    for key, value in record.fields.items():
        if key not in FIELDS[record.kind]:
            continue
        if key == "peak_flops" and isinstance(value, Mapping):
            for dtype in value:
                sources.pop(f"peak_flops.{dtype}", None)
        own = common or (_user_file(record, key, reading) if reading.documents is None else None)
        if everywhere is None and own is not None:
            sources |= dict.fromkeys(_written(key, value, base), own)
        elif everywhere is None and not any(name.split(".")[0] == key for name in named):
            reading.mistake(record.fields, key, f"{record.dotted}.{key}", "has no source")
    return sources | named


def _written(key: str, value: Any, base: Part | None) -> list[str]:
    """The names under which a written value's source is kept: single peaks where the others are inherited."""
    if key == "peak_flops" and base is not None and isinstance(value, Mapping):
        return [f"{key}.{dtype}" for dtype in value]
    return [key]


def _user_file(record: Record, key: str, reading: Reading) -> Source:
    """The source of a value a user gave without one."""
    line, _ = place(record.fields, key)
    return Source(f"user file {reading.file}", f"line {line}" if line else "", status="memory")


def _named(record: Record, reading: Reading) -> dict[str, Source]:
    """What the record's own `sources` says."""
    written = record.fields.get("sources", {})
    if not isinstance(written, Mapping):
        message = "must map fields to sources; for one source of all values write `source`"
        reading.mistake(record.fields, "sources", f"{record.dotted}.sources", message)
        return {}
    allowed = ["*", *FIELDS[record.kind]]
    if record.kind == "gpus":
        allowed += [f"peak_flops.{dtype}" for dtype in DTYPES]
    named: dict[str, Source] = {}
    for key in written:
        dotted = f"{record.dotted}.sources.{key}"
        if key not in allowed:
            message = f"not a field of a {SINGULAR[record.kind]}{nearest(str(key), allowed)}"
            reading.mistake(written, key, dotted, message, at_key=True)
            continue
        source = _source(written, key, dotted, reading)
        if source is not None:
            named[str(key)] = source
    return named


def _source(tree: Mapping[Any, Any], key: str, dotted: str, reading: Reading) -> Source | None:
    """One source: '<document key>[, <where>]' in a shipped file, a sentence or a mapping in a user's."""
    written = tree[key]
    if isinstance(written, str) and written.strip():
        if reading.documents is None:
            line, _ = place(tree, key)
            return Source(str(written).strip(), f"given in {reading.file}" + (f":{line}" if line else ""))
        document, _, where = written.partition(", ")
        if document in reading.documents:
            return replace(reading.documents[document], where=where)
        hint = nearest(document, reading.documents)
        reading.mistake(tree, key, dotted, f"no document '{document}' in documents.yaml{hint}")
    elif isinstance(written, Mapping):
        message = _wrong(written)
        if message is None:
            texts = {k: str(written.get(k, "")) for k in ("document", "where", "date")}
            return Source(**texts, status=cast(Status, written.get("status", "read")))
        reading.mistake(tree, key, dotted, message)
    else:
        message = "must be a sentence, or a mapping of document, where, date and status"
        reading.mistake(tree, key, dotted, message)
    return None


def _wrong(written: Mapping[Any, Any]) -> str | None:
    """What is wrong with a source given as a mapping."""
    known = ("document", "where", "date", "status")
    for key in written:
        if key not in known:
            return f"'{key}' is not one of {', '.join(known)}{nearest(str(key), known)}"
    if not written.get("document"):
        return "needs a `document`: where the value was read"
    status = written.get("status", "read")
    if status not in _STATUSES:
        return f"status '{status}' is not one of {', '.join(_STATUSES)}{nearest(str(status), _STATUSES)}"
    return None
