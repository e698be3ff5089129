"""Records of a catalogue file become parts: `like` is followed, values are read, every value gets its source.

The shipped files and a user's file go through the same code; a user's file starts from the shipped parts, and
its YAML tree knows line and column, so that all its mistakes are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

from railwright.catalog.fields import CLASSES, DTYPES, FIELDS, SINGULAR, Part, read
from railwright.catalog.names import canonical
from railwright.catalog.parts import Catalog, Server, Source, Status
from railwright.errors import Mistake, RailwrightError, nearest

_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_STATUSES: tuple[str, ...] = get_args(Status)


@dataclass
class Reading:
    """One catalogue file being read.

    file       path as the user gave it
    documents  key -> document, where `sources` name documents by key (shipped files); None for a user's file
    aliases    kind -> alias -> name
    mistakes   what was found wrong so far
    """

    file: str
    documents: Mapping[str, Source] | None
    aliases: Mapping[str, Mapping[str, str]]
    mistakes: list[Mistake] = field(default_factory=list)

    def mistake(self, tree: Any, key: Any, dotted: str, message: str, at_key: bool = False) -> None:
        """Note one mistake at a key of a YAML mapping (position 0 where the tree has none)."""
        line, column = place(tree, key, at_key)
        self.mistakes.append(Mistake(self.file, line, column, dotted, message))


def place(tree: Any, key: Any, at_key: bool = False) -> tuple[int, int]:
    """1-based line and column of a key's value (or of the key itself) in a YAML mapping; (0, 0) if unknown."""
    positions = getattr(tree, "lc", None)
    if positions is None or positions.data is None or key not in positions.data:
        return 0, 0
    line, column = positions.key(key) if at_key else positions.value(key)
    return line + 1, column + 1


def read_kinds(tree: Any, known: Catalog, reading: Reading) -> Catalog:
    """`known` with the records of one file added to it and merged over it; mistakes go to `reading`."""
    kinds: dict[str, dict[str, Part]] = {kind: dict(getattr(known, kind)) for kind in FIELDS}
    for kind, records in tree.items():
        if kind not in FIELDS:
            allowed = f"allowed are {', '.join(FIELDS)}{nearest(str(kind), FIELDS)}"
            reading.mistake(tree, kind, str(kind), f"not a kind of part; {allowed}", at_key=True)
        elif not isinstance(records, Mapping):
            reading.mistake(tree, kind, kind, "must be a mapping from part names to records")
        else:
            _read_kind(kind, records, kinds[kind], reading)
    catalog = Catalog(**cast(dict[str, Any], kinds))
    for name, record in _records(tree, "servers"):
        _check_server(name, record, catalog, reading)
    return catalog


def _records(tree: Any, kind: str) -> list[tuple[str, Any]]:
    records = tree.get(kind)
    return [(str(name), record) for name, record in records.items()] if isinstance(records, Mapping) else []


def _read_kind(kind: str, records: Mapping[Any, Any], parts: dict[str, Part], reading: Reading) -> None:
    """Add the records of one kind to `parts`, each after the one it is `like`."""
    waiting: dict[str, Any] = {}
    for written, record in records.items():
        name = canonical(str(written), reading.aliases.get(kind, {}))
        dotted = f"{kind}.{written}"
        if not _NAME.fullmatch(name):
            message = f"'{written}' is not a part's name; use letters, digits, '-', '.' and '+'"
            reading.mistake(records, written, dotted, message, at_key=True)
        elif name in waiting:
            message = f"'{name}' is given twice; put both into one record"
            reading.mistake(records, written, dotted, message, at_key=True)
        elif not isinstance(record, Mapping):
            reading.mistake(records, written, dotted, "must be a mapping of the part's fields")
        else:
            waiting[name] = (written, record)
    known = {**parts, **waiting}
    while waiting:
        ready = [
            name for name, (_, record) in waiting.items() if _parent(record, kind, reading) not in waiting
        ]
        if not ready:
            for name, (written, record) in waiting.items():
                message = f"'{name}' is like itself by way of {', '.join(sorted(waiting))}"
                reading.mistake(record, "like", f"{kind}.{written}.like", message)
            return
        for name in ready:
            written, record = waiting.pop(name)
            part = _read_record(kind, name, f"{kind}.{written}", record, parts, known, reading)
            if part is not None:
                parts[name] = part
    in_file_order = {name: parts[name] for name in known if name in parts}
    parts.clear()
    parts.update(in_file_order)


def _parent(record: Mapping[Any, Any], kind: str, reading: Reading) -> str | None:
    parent = record.get("like")
    return canonical(parent, reading.aliases.get(kind, {})) if isinstance(parent, str) else None


def _read_record(
    kind: str,
    name: str,
    dotted: str,
    record: Mapping[Any, Any],
    parts: Mapping[str, Part],
    known: Mapping[str, Any],
    reading: Reading,
) -> Part | None:
    """One part, or None after a mistake."""
    before = len(reading.mistakes)
    base = parts.get(name)
    if "like" in record:
        parent = _parent(record, kind, reading)
        base = parts.get(parent or "")
        if base is None and parent in known:
            return None  # its parent has a mistake of its own, told already
        if base is None:
            hint = nearest(str(record["like"]), known) or f"; known are {', '.join(known)}"
            message = f"no {SINGULAR[kind]} '{record['like']}' in the catalogue{hint}"
            reading.mistake(record, "like", f"{dotted}.like", message)
            return None
    own = _own_values(kind, dotted, record, base, reading)
    values = {f: getattr(base, f) for f in FIELDS[kind]} if base is not None else {}
    values |= own
    missing = [f for f in FIELDS[kind] if f not in values and f not in record]
    if missing:
        message = f"a new {SINGULAR[kind]} also needs {', '.join(missing)}; or say `like:` which one it resembles"
        reading.mistakes.append(Mistake(reading.file, *_start(record), dotted, message))
    sources = _sources(kind, dotted, record, base, reading)
    if len(reading.mistakes) > before:
        return None
    return CLASSES[kind](name=name, sources=sources, **values)


def _start(record: Mapping[Any, Any]) -> tuple[int, int]:
    """Position of a record's first field."""
    return place(record, next(iter(record)), at_key=True) if record else (0, 0)


def _own_values(
    kind: str, dotted: str, record: Mapping[Any, Any], base: Part | None, reading: Reading
) -> dict[str, Any]:
    """The values written in the record itself, in base units."""
    values: dict[str, Any] = {}
    for key, written in record.items():
        if key in ("like", "source", "sources"):
            continue
        spec = FIELDS[kind].get(key)
        if spec is None:
            allowed = nearest(str(key), FIELDS[kind]) or f"; allowed are {', '.join(FIELDS[kind])}"
            message = f"not a field of a {SINGULAR[kind]}{allowed}"
            reading.mistake(record, key, f"{dotted}.{key}", message, at_key=True)
        elif spec.form == "peaks":
            peaks = dict(getattr(base, "peak_flops", {}))
            values[key] = peaks | _peaks(kind, f"{dotted}.{key}", record, key, reading)
        else:
            try:
                value = read(spec, written)
            except RailwrightError as error:
                reading.mistake(record, key, f"{dotted}.{key}", str(error))
                continue
            if spec.form in ("gpu name", "nic name"):
                value = canonical(value, reading.aliases.get(spec.form.replace(" name", "s"), {}))
            values[key] = value
    return values


def _peaks(
    kind: str, dotted: str, record: Mapping[Any, Any], key: str, reading: Reading
) -> dict[str, float]:
    written = record[key]
    if not isinstance(written, Mapping) or not written:
        reading.mistake(record, key, dotted, "must map dtypes to dense peaks, like {bf16: 989 TFLOP/s}")
        return {}
    peaks: dict[str, float] = {}
    for dtype, peak in written.items():
        if dtype not in DTYPES:
            message = f"not a dtype; allowed are {', '.join(DTYPES)}{nearest(str(dtype), DTYPES)}"
            reading.mistake(written, dtype, f"{dotted}.{dtype}", message, at_key=True)
            continue
        try:
            peaks[str(dtype)] = read(FIELDS[kind][key], peak)
        except RailwrightError as error:
            reading.mistake(written, dtype, f"{dotted}.{dtype}", str(error))
    return peaks


def _sources(
    kind: str, dotted: str, record: Mapping[Any, Any], base: Part | None, reading: Reading
) -> dict[str, Source]:
    """Field -> source of every field: its own, else the record's ('*' or `source`), else the one inherited.

    A peak may have a source of its own under 'peak_flops.<dtype>'.
    """
    named: dict[str, Source] = {}
    written = record.get("sources", {})
    if not isinstance(written, Mapping):
        reading.mistake(record, "sources", f"{dotted}.sources", "must map fields to sources")
        written = {}
    for key in written:
        if key != "*" and str(key).split(".")[0] not in FIELDS[kind]:
            message = f"not a field of a {SINGULAR[kind]}{nearest(str(key), FIELDS[kind])}"
            reading.mistake(written, key, f"{dotted}.sources.{key}", message, at_key=True)
            continue
        source = _source(written, key, f"{dotted}.sources.{key}", reading)
        if source is not None:
            named[str(key)] = source
    common = _source(record, "source", f"{dotted}.source", reading) if "source" in record else None
    everywhere = named.pop("*", None)
    inherited = dict(base.sources) if base is not None else {}
    sources = inherited if everywhere is None else dict.fromkeys(FIELDS[kind], everywhere)
    for key in record:
        if key not in FIELDS[kind]:
            continue
        if common is not None:
            sources[key] = common
        elif reading.documents is None:
            sources[key] = _unnamed(record, key, reading)
        elif everywhere is None and not any(name.split(".")[0] == key for name in named):
            reading.mistake(record, key, f"{dotted}.{key}", "has no source")
        if key == "peak_flops" and isinstance(record[key], Mapping):
            for dtype in record[key]:
                sources.pop(f"peak_flops.{dtype}", None)
    return sources | named


def _unnamed(record: Mapping[Any, Any], key: str, reading: Reading) -> Source:
    line, _ = place(record, key)
    return Source(f"user file {reading.file}", f"line {line}" if line else "", "", "memory")


def _source(tree: Mapping[Any, Any], key: str, dotted: str, reading: Reading) -> Source | None:
    """A source as it is written: '<document>[, <where>]' or a mapping of Source's fields."""
    written = tree[key]
    if isinstance(written, str) and written.strip():
        if reading.documents is None:
            line, _ = place(tree, key)
            return Source(str(written).strip(), f"given in {reading.file}" + (f":{line}" if line else ""))
        document, _, where = written.partition(", ")
        if document not in reading.documents:
            reading.mistake(tree, key, dotted, f"no document '{document}'{nearest(document, reading.documents)}")
            return None
        return replace(reading.documents[document], where=where)
    if isinstance(written, Mapping):
        known = ("document", "where", "date", "status")
        wrong = [str(k) for k in written if k not in known]
        status = str(written.get("status", "read"))
        if wrong:
            reading.mistake(tree, key, dotted, f"'{wrong[0]}' is not one of {', '.join(known)}")
        elif not written.get("document"):
            reading.mistake(tree, key, dotted, "needs a `document`: where the value was read")
        elif status not in _STATUSES:
            reading.mistake(tree, key, dotted, f"status '{status}' is not one of {', '.join(_STATUSES)}")
        else:
            texts = {k: str(written.get(k, "")) for k in ("document", "where", "date")}
            return Source(**texts, status=cast(Status, status))
        return None
    reading.mistake(tree, key, dotted, "must be a sentence or a mapping of document, where, date and status")
    return None


def _check_server(written: str, record: Any, catalog: Catalog, reading: Reading) -> None:
    """A server's GPU and NIC exist, and its NICs spread evenly over its GPUs."""
    server = catalog.servers.get(canonical(written, reading.aliases.get("servers", {})))
    if not isinstance(record, Mapping) or not isinstance(server, Server):
        return
    dotted = f"servers.{written}"
    parts: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
        ("gpu", server.gpu, catalog.gpus),
        ("nic", server.nic, catalog.nics),
    )
    for key, name, known in parts:
        if name not in known:
            hint = nearest(name, known) or f"; known are {', '.join(known)}"
            reading.mistake(
                record, key, f"{dotted}.{key}", f"no {SINGULAR[key + 's']} '{name}' in the catalogue{hint}"
            )
    if server.gpus % server.nics and server.nics % server.gpus:
        key = "nics" if "nics" in record else "gpus"
        message = (
            f"{server.nics} NICs do not spread evenly over {server.gpus} GPUs; "
            "one count must be a multiple of the other"
        )
        reading.mistake(record, key, f"{dotted}.{key}", message)
