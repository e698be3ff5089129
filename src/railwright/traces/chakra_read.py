"""Chakra execution traces read back: our own, ASTRA-sim's, and those converted from PyTorch's.

A folder holds one file per rank, its number in the name ('workload.3.et'); gzip is seen by its first bytes.
The JSON that Chakra's jsonizer makes of a file is read too.  Fields and attributes that nothing here needs
are skipped.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from railwright.export.protobuf import BYTES, Malformed, Value, fields, frames, signed, unpacked, zigzag
from railwright.traces import chakra
from railwright.traces.graph import Group, Kind, Node, StepTrace
from railwright.traces.refusal import wrong

NAME = re.compile(r"(\d+)\.(?:et|json)(?:\.gz)?$")
"""The last number of a file's name is its rank."""

MOST_BYTES = 4 * 2**30
"""A trace of one rank is read whole [byte]."""

_OPS = {number: op for op, number in chakra.COMM_TYPE.items()}
_SIGNED, _ZIGZAG, _PLAIN = (7, 9), (15, 17), (11, 13, 27)
"""Fields of AttributeProto that hold an int32 or int64, a sint32 or sint64, a uint32, uint64 or bool."""


@dataclass
class _Raw:
    """A node as it lies in a file; attributes by name."""

    at: int
    index: int = 0
    name: str = ""
    kind: int = 0
    after: list[int] = field(default_factory=list)
    micros: int = 0
    inputs: str = ""
    attributes: dict[str, int | float | str] = field(default_factory=dict)


def read(folder: str | Path) -> StepTrace:
    """The traces of all ranks of a folder, rank i on GPU i.

    Raises SpecError, naming file and byte, where a file is missing, cut off or no trace, a node waits for one
    that is not there, or says a communication that cannot be replayed.
    """
    where = Path(folder)
    files = _files(where)
    groups = _group_file(where, len(files))
    ranks: list[tuple[Node, ...]] = []
    found: list[tuple[Path, list[_Raw]]] = []
    for file in files:
        raws = list(_json(file) if ".json" in file.suffixes[-2:] else _protobuf(file))
        for raw in raws:
            if raw.kind == chakra.METADATA and "pg_name" in raw.inputs:
                groups |= _groups(file, raw, len(files))
        found.append((file, raws))
    everyone = Group("all ranks", tuple(range(len(files))))
    for rank, (file, raws) in enumerate(found):
        ranks.append(_nodes(file, rank, raws, groups, everyone))
    used = {node.group for nodes in ranks for node in nodes if node.group}
    kept = {name: group for name, group in groups.items() if name in used}
    if everyone.name in used:
        kept[everyone.name] = everyone
    return StepTrace(where.name, len(files), lambda rank: ranks[rank], kept, tuple(range(len(files))))


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise wrong(folder, "", "no folder; name the folder that holds a trace per rank.")
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = NAME.search(path.name)
        if not match or not path.is_file():
            continue
        rank = int(match[1])
        if rank in found:
            raise wrong(path, "", f"'{found[rank].name}' is rank {rank} too; keep one of them.")
        found[rank] = path
    if not found:
        raise wrong(folder, "", "no execution traces here: files named like 'workload.0.et' or '0.json'.")
    missing = next((rank for rank in range(len(found)) if rank not in found), None)
    if missing is not None:
        raise wrong(
            folder,
            "",
            f"{len(found)} traces up to rank {max(found)}, but none of rank {missing}; ranks count from 0 "
            "and none may be left out.",
        )
    return [found[rank] for rank in range(len(found))]


def content(file: Path) -> bytes:
    """A file's bytes, unpacked where they are gzip.  Raises SpecError."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise wrong(file, "", f"larger than {MOST_BYTES / 2**30:.0f} GiB, which is what is read whole.")
        raw = file.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except EOFError:
        raise wrong(file, f"byte {file.stat().st_size}", "the gzip stream is cut off.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise wrong(file, "", f"the gzip stream is damaged ({error}).") from None
    except OSError as error:
        raise wrong(file, "", f"cannot be read: {error.strerror}.") from None


def _protobuf(file: Path) -> Iterator[_Raw]:
    buffer = content(file)
    begin = 0
    try:
        for place, (begin, end) in enumerate(frames(buffer)):
            yield _raw(buffer[begin:end], begin) if place else _head(buffer[begin:end])
    except Malformed as error:
        at = error.at if error.at >= begin else begin + error.at
        raise wrong(file, f"byte {at}", f"no Chakra trace, or cut off: {error}.") from None
    except (UnicodeDecodeError, struct.error) as error:
        raise wrong(file, f"byte {begin}", f"no Chakra trace: {error}.") from None
    if not buffer:
        raise wrong(file, "byte 0", "the file is empty.")


def _head(message: bytes) -> _Raw:
    """The first message as a metadata node without a number: its attribute may describe process groups."""
    version: Value = b""
    named = False
    head = _Raw(0, -1, "head", chakra.METADATA)
    for number, kind, value in fields(message):
        if (number, kind) == (1, BYTES):
            version = value
        elif number == 2 and isinstance(value, bytes):
            name, held = _attribute(value)
            named = named or bool(name)
            if name == chakra.GROUPS:
                head.inputs = f"['{held}']"
    # Some writers put the version into an attribute ('schema').
    if not named and not (isinstance(version, bytes) and re.fullmatch(rb"[0-9]+(\.[0-9a-z-]+)*", version)):
        raise Malformed("its first message says no schema version", 0)
    return head


def _raw(message: bytes, at: int) -> _Raw:
    raw = _Raw(at)
    for number, kind, value in fields(message):
        if number == chakra.ID and isinstance(value, int):
            raw.index = value
        elif number == chakra.NAME and isinstance(value, bytes):
            raw.name = value.decode()
        elif number == chakra.TYPE and isinstance(value, int):
            raw.kind = value
        elif number in (chakra.CONTROL, chakra.DATA):
            raw.after += unpacked(kind, value)
        elif number == chakra.DURATION and isinstance(value, int):
            raw.micros = value
        elif number == chakra.INPUTS and isinstance(value, bytes):
            texts = [v for n, _, v in fields(value) if n == 1 and isinstance(v, bytes)]
            raw.inputs = texts[-1].decode() if texts else ""
        elif number == chakra.ATTRIBUTE and isinstance(value, bytes):
            name, held = _attribute(value)
            if held is not None:
                raw.attributes[name] = held
    return raw


@lru_cache(maxsize=10_000)
def _attribute(message: bytes) -> tuple[str, int | float | str | None]:
    """(name, value) of an attribute; None where it is a list, or of a type that nothing here needs.

    Nodes repeat each other's attributes by the thousand.
    """
    name, held = "", None
    for number, _, value in fields(message):
        if number == chakra.ATTRIBUTE_NAME and isinstance(value, bytes):
            name = value.decode()
        else:
            held = _scalar(number, value) if held is None else held
    return name, held


def _scalar(number: int, value: Value) -> int | float | str | None:
    if isinstance(value, int):
        if number in _SIGNED:
            return signed(value)
        return zigzag(value) if number in _ZIGZAG else value if number in _PLAIN else None
    if number == chakra.DOUBLE and len(value) == 8:
        return float(struct.unpack("<d", value)[0])
    if number == chakra.STRING:
        return value.decode()
    fixed = {19: "<I", 21: "<Q", 23: "<i", 25: "<q"}.get(number)
    return int(struct.unpack(fixed, value)[0]) if fixed and len(value) == struct.calcsize(fixed) else None


def _json(file: Path) -> Iterator[_Raw]:
    """Objects one after the other, as protobuf writes messages in JSON (src/jsonizer)."""
    try:
        text = content(file).decode()
    except UnicodeDecodeError as error:
        raise wrong(file, f"byte {error.start}", "no text in UTF-8.") from None
    decoder, at, place = json.JSONDecoder(), 0, 0
    while at < len(text):
        try:
            message, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise wrong(file, f"character {error.pos}", f"no JSON, or cut off: {error.msg}.") from None
        if isinstance(message, dict) and "schema" in message and "nodes" in message:
            raise wrong(
                file,
                "",
                "this is PyTorch's own execution trace; make a Chakra trace of it and of the "
                "profile of the same step with chakra_trace_link and chakra_converter.",
            )
        if not isinstance(message, dict) or (not place and not isinstance(message.get("version"), str)):
            raise wrong(file, f"character {at}", "no Chakra trace: its first object says no version.")
        if place:
            yield _from_json(file, message, at)
        place += 1
        at = end
        while at < len(text) and text[at].isspace():
            at += 1
    if not place:
        raise wrong(file, "character 0", "the file is empty.")


def _from_json(file: Path, message: dict[str, Any], at: int) -> _Raw:
    kinds = {f"{name}_NODE": number for name, number in (
        ("METADATA", 1), ("MEM_LOAD", 2), ("MEM_STORE", 3), ("COMP", 4), ("COMM_SEND", 5), ("COMM_RECV", 6),
        ("COMM_COLL", 7),
    )}  # fmt: skip
    try:
        kind = message.get("type", 0)
        raw = _Raw(
            at,
            int(message.get("id", 0)),
            str(message.get("name", "")),
            kinds.get(kind, 0) if isinstance(kind, str) else int(kind),
            [int(d) for d in (*message.get("ctrlDeps", ()), *message.get("dataDeps", ()))],
            int(message.get("durationMicros", 0)),
            str(message.get("inputs", {}).get("values", "")),
        )
        for attribute in message.get("attr", ()):
            for key, value in attribute.items():
                if key in ("int64Val", "int32Val", "uint64Val", "uint32Val", "sint64Val", "sint32Val"):
                    raw.attributes[attribute["name"]] = int(value)
                elif key in ("doubleVal", "boolVal", "stringVal"):
                    raw.attributes[attribute["name"]] = value
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise wrong(file, f"character {at}", f"no node of a Chakra trace: {error}.") from None
    return raw


def _group_file(folder: Path, ranks: int) -> dict[str, Group]:
    """ASTRA-sim's groups, where they lie beside the traces."""
    file = folder / chakra.GROUP_FILE
    if not file.exists():
        return {}
    try:
        listed = json.loads(content(file))
        groups = {str(name): Group(str(name), tuple(int(r) for r in held)) for name, held in listed.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise wrong(file, "", f"no groups of ranks: {error}.") from None
    for group in groups.values():
        if not group.ranks or not all(0 <= rank < ranks for rank in group.ranks):
            raise wrong(file, "", f"group '{group.name}' is not of ranks 0 to {ranks - 1}.")
    return groups


def _groups(file: Path, raw: _Raw, ranks: int) -> dict[str, Group]:
    """Process groups of a metadata node: Python's text of a list that holds a JSON list."""
    text = raw.inputs[raw.inputs.find("[", 1) : raw.inputs.rfind("]", 0, -1) + 1]
    found = {}
    try:
        for one in json.loads(text):
            members = tuple(int(rank) for rank in one["ranks"]) or tuple(range(ranks))
            name = str(one["pg_name"])
            found[name] = Group(name, members, str(one.get("pg_desc", "")))
            if max(members) >= ranks:
                raise wrong(
                    file,
                    f"byte {raw.at}",
                    f"process group '{name}' has rank {max(members)}, and there are "
                    f"traces of {ranks} ranks; add the others.",
                )
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise wrong(file, f"byte {raw.at}", f"its process groups cannot be read: {error}.") from None
    return found


def _nodes(
    file: Path, rank: int, raws: list[_Raw], groups: dict[str, Group], everyone: Group
) -> tuple[Node, ...]:
    known: set[int] = set()
    raws = [raw for raw in raws if raw.index >= 0]
    for raw in raws:
        if raw.index in known:
            raise wrong(file, f"byte {raw.at}", f"a second node {raw.index}.")
        known.add(raw.index)
    found = []
    for raw in raws:
        lost = next((before for before in raw.after if before not in known), None)
        if lost is not None:
            raise wrong(
                file,
                f"byte {raw.at}",
                f"node {raw.index} ('{raw.name}') waits for node {lost}, which is not in the file.",
            )
        found.append(_node(file, rank, raw, groups, everyone))
    return tuple(found)


def _node(file: Path, rank: int, raw: _Raw, groups: dict[str, Group], everyone: Group) -> Node:
    attributes = raw.attributes
    exact = attributes.get(chakra.SECONDS)
    seconds = float(exact) if isinstance(exact, int | float) else raw.micros * 1e-6
    if seconds < 0:
        raise wrong(file, f"byte {raw.at}", f"node {raw.index} ('{raw.name}') takes {seconds:g} s.")
    kinds: dict[int, Kind] = {chakra.SEND: "send", chakra.RECEIVE: "receive", chakra.COLLECTIVE: "collective"}
    kind: Kind = kinds.get(raw.kind, "host" if attributes.get("is_cpu_op") or raw.kind <= 1 else "compute")
    node = Node(raw.index, raw.name, kind, tuple(dict.fromkeys(raw.after)), seconds)
    if kind in ("compute", "host"):
        return node
    size = _whole(file, raw, "comm_size")
    if kind == "collective":
        number = _whole(file, raw, "comm_type")
        if number not in _OPS:
            raise wrong(
                file,
                f"byte {raw.at}",
                f"node {raw.index} ('{raw.name}') is a collective of type {number}, "
                f"which cannot be replayed; known are {', '.join(_OPS.values())}.",
            )
        group = _group(file, rank, raw, groups, everyone)
        parts = max(1, int(attributes.get(chakra.PARTS, 1)))
        whole = chakra.total_size(_OPS[number], float(size), len(group.ranks)) * parts
        return replace(node, op=_OPS[number], size=whole, group=group.name, parts=parts)
    peer = _whole(file, raw, "comm_dst" if kind == "send" else "comm_src")
    if not 0 <= peer < len(everyone.ranks):
        raise wrong(
            file,
            f"byte {raw.at}",
            f"node {raw.index} ('{raw.name}') names rank {peer}, and there are traces "
            f"of {len(everyone.ranks)} ranks.",
        )
    return replace(node, size=float(size), peer=peer, tag=int(attributes.get("comm_tag", 0)))


def _whole(file: Path, raw: _Raw, name: str) -> int:
    value = raw.attributes.get(name)
    if not isinstance(value, int) or value < 0:
        raise wrong(
            file,
            f"byte {raw.at}",
            f"communication node {raw.index} ('{raw.name}') says no '{name}'; a replay needs it.",
        )
    return value


def _group(file: Path, rank: int, raw: _Raw, groups: dict[str, Group], everyone: Group) -> Group:
    name = str(raw.attributes.get("pg_name", raw.attributes.get("comm_group", "")))
    group = groups.get(name)
    if group is None and name in ("", "0"):
        return everyone
    if group is None or rank not in group.ranks:
        what = "is described nowhere" if group is None else f"does not have rank {rank}"
        raise wrong(
            file,
            f"byte {raw.at}",
            f"node {raw.index} ('{raw.name}') runs in process group '{name}', which {what}.",
        )
    return group
