"""Chakra's files as nodes lie in them: protobuf, and the JSON that Chakra's jsonizer makes of a file.

Fields and attributes that nothing here needs are skipped.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from railwright.export.protobuf import BYTES, Malformed, Value, fields, frames, signed, unpacked, zigzag
from railwright.traces import chakra
from railwright.traces.reading import Unreadable, content, value_at, whole
from railwright.traces.refusal import EXECUTION_TRACE, PROFILE, wrong

_SIGNED, _ZIGZAG, _PLAIN = (7, 9), (15, 17), (11, 13, 27)
"""Fields of AttributeProto that hold an int32 or int64, a sint32 or sint64, a uint32, uint64 or bool."""


@dataclass
class Raw:
    """A node as it lies in a file, at a byte, or a character of JSON; attributes by name.

    after, callers  nodes that it waits for: its data's, and those that called it
    """

    at: int
    index: int = 0
    name: str = ""
    kind: int = 0
    after: list[int] = field(default_factory=list)
    callers: list[int] = field(default_factory=list)
    micros: int = 0
    inputs: str = ""
    attributes: dict[str, int | float | str] = field(default_factory=dict)
    unit: str = "byte"

    @property
    def where(self) -> str:
        return f"{self.unit} {self.at}"


def protobuf(file: Path) -> Iterator[Raw]:
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


def _head(message: bytes) -> Raw:
    """The first message as a metadata node without a number: its attribute may describe process groups."""
    version: Value = b""
    named = False
    head = Raw(0, -1, "head", chakra.METADATA)
    for number, kind, value in fields(message):
        if (number, kind) == (1, BYTES):
            version = value
        elif number == 2 and isinstance(value, bytes):
            name, held = _attribute(value)
            named = named or bool(name)
            if name == chakra.GROUPS:
                head.inputs = f"['{held}']"
            elif held is not None:
                head.attributes[name] = held
    # Some writers put the version into an attribute ('schema').
    if not named and not (isinstance(version, bytes) and re.fullmatch(rb"[0-9]+(\.[0-9a-z-]+)*", version)):
        raise Malformed("its first message says no schema version", 0)
    return head


def _raw(message: bytes, at: int) -> Raw:
    raw = Raw(at)
    for number, kind, value in fields(message):
        if number == chakra.ID and isinstance(value, int):
            raw.index = value
        elif number == chakra.NAME and isinstance(value, bytes):
            raw.name = value.decode()
        elif number == chakra.TYPE and isinstance(value, int):
            raw.kind = value
        elif number == chakra.CONTROL:
            raw.callers += unpacked(kind, value)
        elif number == chakra.DATA:
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


def jsonized(file: Path) -> Iterator[Raw]:
    """Objects one after the other, as protobuf writes messages in JSON (src/jsonizer)."""
    try:
        text = content(file).decode()
    except UnicodeDecodeError as error:
        raise wrong(file, f"byte {error.start}", "no text in UTF-8.") from None
    at, place = _behind_blanks(text, 0), 0
    while at < len(text):
        try:
            message, end = value_at(text, at)
        except Unreadable as error:
            raise wrong(file, f"character {at}", f"no Chakra trace: {error}.") from None
        except json.JSONDecodeError as error:
            raise wrong(file, f"character {error.pos}", f"no JSON, or cut off: {error.msg}.") from None
        if isinstance(message, dict) and {"schema", "nodes"} <= message.keys():
            raise wrong(file, "", EXECUTION_TRACE)
        if isinstance(message, dict) and "traceEvents" in message:
            raise wrong(file, "", PROFILE)
        if not isinstance(message, dict) or (not place and not isinstance(message.get("version"), str)):
            raise wrong(file, f"character {at}", "no Chakra trace: its first object says no version.")
        yield _from_json(file, message, at) if place else _json_head(file, message)
        place += 1
        at = _behind_blanks(text, end)
    if not place:
        raise wrong(file, "character 0", "the file is empty.")


def _behind_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _json_head(file: Path, message: dict[str, Any]) -> Raw:
    """The first object likewise: see `_head`."""
    head = _from_json(file, {"attr": message.get("attr")}, 0)
    head.index, head.kind, head.name = -1, chakra.METADATA, "head"
    groups = head.attributes.pop(chakra.GROUPS, None)
    head.inputs = f"['{groups}']" if groups is not None else ""
    return head


_KINDS = {
    f"{name}_NODE": number
    for number, name in enumerate(
        ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
    )
}
"""Numbers of the types of nodes (et_def.proto, NodeType)."""

_NUMBERS = tuple(f"{kind}64_val" for kind in ("int", "uint", "sint", "fixed", "sfixed")) + tuple(
    f"{kind}32_val" for kind in ("int", "uint", "sint", "fixed", "sfixed")
)
"""Fields of AttributeProto that hold whole numbers."""


def _from_json(file: Path, message: dict[str, Any], at: int) -> Raw:
    try:
        said = _by_proto_name(message)
        raw = Raw(
            at,
            whole(said.get("id", 0)),
            str(said.get("name", "")),
            _kind(said.get("type", 0)),
            [whole(d) for d in _list(said, "data_deps")],
            [whole(d) for d in _list(said, "ctrl_deps")],
            whole(said.get("duration_micros", 0)),
            str(_by_proto_name(said.get("inputs", {})).get("values", "")),
            unit="character",
        )
        for one in _list(said, "attr"):
            attribute = _by_proto_name(one)
            for key, value in attribute.items():
                if key in _NUMBERS:
                    raw.attributes[attribute["name"]] = whole(value)
                elif key == "double_val":
                    # protobuf's JSON says NaN and infinities as texts
                    raw.attributes[attribute["name"]] = float(value)
                elif key in ("bool_val", "string_val"):
                    raw.attributes[attribute["name"]] = value if key == "bool_val" else str(value)
    except KeyError as error:
        raise wrong(file, f"character {at}", f"no node of a Chakra trace: it says no {error}.") from None
    except (OverflowError, TypeError, ValueError) as error:
        raise wrong(file, f"character {at}", f"no node of a Chakra trace: {error}.") from None
    return raw


def _by_proto_name(message: Any) -> dict[str, Any]:
    """The fields of an object by their names in et_def.proto: JSON may write 'durationMicros' for
    'duration_micros' (protobuf's guide, "ProtoJSON Format": parsers accept both)."""
    if not isinstance(message, dict):
        raise TypeError(f"{json.dumps(message)[:40]} is no object")
    said = {key: value for key, value in message.items() if value is not None}  # null is the default
    return {re.sub("[A-Z]", lambda one: f"_{one[0].lower()}", key): value for key, value in said.items()}


def _kind(said: Any) -> int:
    if not isinstance(said, str):
        return whole(said)
    if said not in _KINDS:
        raise ValueError(f"there is no type '{said[:40]}'; types are {', '.join(_KINDS)}")
    return _KINDS[said]


def _list(message: dict[str, Any], name: str) -> list[Any]:
    found = message.get(name, [])
    if not isinstance(found, list):
        raise TypeError(f"its {name} are {json.dumps(found)[:40]}, no list")
    return found
