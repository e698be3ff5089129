"""Records of a catalogue file become parts: `like` is followed, values are read, every value gets its source.

The shipped files and a user's file go through the same code; a user's file starts from the shipped parts, and
its YAML tree knows line and column, so that all its mistakes are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from railwright.catalog.fields import CLASSES, DTYPES, FIELDS, SINGULAR, Part, read
from railwright.catalog.names import canonical
from railwright.catalog.parts import Catalog, Source
from railwright.catalog.reading import Reading, Record, place
from railwright.catalog.sources import sources_of
from railwright.errors import RailwrightError, nearest

_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_NOT_VALUES = ("like", "source", "sources")


def read_kinds(tree: Mapping[Any, Any], known: Catalog, reading: Reading) -> Catalog:
    """`known` with the records of one file added to it and merged over it; mistakes go to `reading`."""
    kinds: dict[str, dict[str, Part]] = {kind: dict(getattr(known, kind)) for kind in FIELDS}
    records: list[Record] = []
    for kind, written in tree.items():
        if kind not in FIELDS:
            allowed = f"allowed are {', '.join(FIELDS)}{nearest(str(kind), FIELDS)}"
            reading.mistake(tree, kind, str(kind), f"not a kind of part; {allowed}", at_key=True)
        elif not isinstance(written, Mapping):
            reading.mistake(tree, kind, kind, "must be a mapping from part names to records")
        else:
            of_kind = _records(kind, written, reading)
            kinds[kind] = _parts(kind, of_kind, kinds[kind], reading)
            records += of_kind
    catalog = Catalog(**cast(dict[str, Any], kinds))
    for record in records:
        if record.kind == "servers" and record.name in catalog.servers:
            _check_server(record, catalog, reading)
    return catalog


def _records(kind: str, written: Mapping[Any, Any], reading: Reading) -> list[Record]:
    """The well-formed records of one kind, in file order."""
    records: dict[str, Record] = {}
    for key, fields in written.items():
        name = canonical(str(key), reading.aliases.get(kind, {}))
        dotted = f"{kind}.{key}"
        if not _NAME.fullmatch(name):
            message = f"'{key}' is not a part's name; use letters, digits, '-', '.' and '+'"
            reading.mistake(written, key, dotted, message, at_key=True)
        elif name in records:
            message = f"'{name}' is given twice; put both into one record"
            reading.mistake(written, key, dotted, message, at_key=True)
        elif not isinstance(fields, Mapping):
            message = f"must be a mapping of the fields of a {SINGULAR[kind]}"
            reading.mistake(written, key, dotted, message, at_key=True)
        else:
            records[name] = Record(kind, name, dotted, fields, place(written, key, at_key=True))
    return list(records.values())


def _parts(kind: str, records: list[Record], known: Mapping[str, Part], reading: Reading) -> dict[str, Part]:
    """`known` and the records' parts, each made after the one it is `like`."""
    parts = dict(known)
    names = [*known, *(record.name for record in records if record.name not in known)]
    waiting = {record.name: record for record in records}
    while waiting:
        ready = [record for record in waiting.values() if _parent(record, reading) not in waiting]
        for record in ready:
            del waiting[record.name]
            part = _part(record, parts, names, reading)
            if part is not None:
                parts[record.name] = part
        if not ready:
            for record in waiting.values():
                message = f"'{record.name}' is like itself, by way of {', '.join(sorted(waiting))}"
                reading.mistake(record.fields, "like", f"{record.dotted}.like", message)
            break
    return {name: parts[name] for name in names if name in parts}


def _parent(record: Record, reading: Reading) -> str | None:
    """Name of the part this record is `like`."""
    parent = record.fields.get("like")
    return canonical(parent, reading.aliases.get(record.kind, {})) if isinstance(parent, str) else None


def _part(record: Record, parts: Mapping[str, Part], names: list[str], reading: Reading) -> Part | None:
    """One part, or None after a mistake; `names` are those of all parts, bad records included."""
    mistakes = len(reading.mistakes)
    base = parts.get(record.name)
    if "like" in record.fields:
        parent = _parent(record, reading)
        base = parts.get(parent or "")
        if base is None and parent in names:
            return None  # the parent's own mistake is told already
        if base is None:
            hint = nearest(str(record.fields["like"]), names) or f"; known are {', '.join(names)}"
            message = f"no {SINGULAR[record.kind]} '{record.fields['like']}' in the catalogue{hint}"
            reading.mistake(record.fields, "like", f"{record.dotted}.like", message)
            return None
    fields = FIELDS[record.kind]
    values = {name: getattr(base, name) for name in fields} if base is not None else {}
    values |= _own_values(record, base, reading)
    values = {n: field.otherwise for n, field in fields.items() if field.otherwise is not None} | values
    missing = [name for name in fields if name not in values and name not in record.fields]
    if missing:
        kind = SINGULAR[record.kind]
        message = f"a new {kind} also needs {', '.join(missing)}; or say `like:` which {kind} it resembles"
        reading.mistake_at(record.position, record.dotted, message)
    sources = sources_of(record, base, reading)
    for key in (key for key, one in fields.items() if one.otherwise is not None):
        if not {key, "*"} & set(sources):
            sources[key] = Source("not given", status="memory")
    if len(reading.mistakes) > mistakes:
        return None
    return CLASSES[record.kind](name=record.name, sources=sources, **values)


def _own_values(record: Record, base: Part | None, reading: Reading) -> dict[str, Any]:
    """The values written in the record itself, in base units."""
    values: dict[str, Any] = {}
    for key, written in record.fields.items():
        if key in _NOT_VALUES:
            continue
        dotted = f"{record.dotted}.{key}"
        field = FIELDS[record.kind].get(key)
        if field is None:
            allowed = (*FIELDS[record.kind], *_NOT_VALUES)
            hint = nearest(str(key), allowed) or f"; allowed are {', '.join(allowed)}"
            message = f"not a field of a {SINGULAR[record.kind]}{hint}"
            reading.mistake(record.fields, key, dotted, message, at_key=True)
        elif field.form == "peaks":
            values[key] = {**getattr(base, "peak_flops", {}), **_peaks(record, key, dotted, reading)}
        else:
            try:
                value = read(field, written)
            except RailwrightError as error:
                reading.mistake(record.fields, key, dotted, str(error))
                continue
            if field.form in ("gpu name", "nic name"):
                value = canonical(value, reading.aliases[f"{key}s"])
            values[key] = value
    return values


def _peaks(record: Record, key: str, dotted: str, reading: Reading) -> dict[str, float]:
    """Dense peaks by dtype. [flop/s]"""
    written = record.fields[key]
    if not isinstance(written, Mapping) or not written:
        message = "must map dtypes to dense peaks, like {bf16: 989 TFLOP/s}"
        reading.mistake(record.fields, key, dotted, message)
        return {}
    peaks: dict[str, float] = {}
    for dtype, peak in written.items():
        if dtype not in DTYPES:
            message = f"not a dtype; allowed are {', '.join(DTYPES)}{nearest(str(dtype), DTYPES)}"
            reading.mistake(written, dtype, f"{dotted}.{dtype}", message, at_key=True)
            continue
        try:
            peaks[str(dtype)] = read(FIELDS[record.kind][key], peak)
        except RailwrightError as error:
            reading.mistake(written, dtype, f"{dotted}.{dtype}", str(error))
    return peaks


def _check_server(record: Record, catalog: Catalog, reading: Reading) -> None:
    """A server's GPU and NIC exist, and its NICs spread evenly over its GPUs."""
    server = catalog.servers[record.name]
    parts: dict[str, Mapping[str, Part]] = {"gpu": catalog.gpus, "nic": catalog.nics}
    for key, known in parts.items():
        name = getattr(server, key)
        if name not in known:
            hint = nearest(name, known) or f"; known are {', '.join(known)}"
            message = f"no {SINGULAR[f'{key}s']} '{name}' in the catalogue{hint}"
            reading.mistake(record.fields, key, f"{record.dotted}.{key}", message)
    if server.gpus % server.nics and server.nics % server.gpus:
        key = "nics" if "nics" in record.fields else "gpus"
        spread = f"{server.nics} NICs do not spread evenly over {server.gpus} GPUs"
        message = f"{spread}; one count must be a multiple of the other"
        reading.mistake(record.fields, key, f"{record.dotted}.{key}", message)
    if server.gpus % server.hosts:
        key = "hosts" if "hosts" in record.fields else "gpus"
        message = f"{server.gpus} GPUs do not spread evenly over {server.hosts} hosts"
        reading.mistake(record.fields, key, f"{record.dotted}.{key}", message)
