"""Protocol buffers' wire format, by hand: enough to write and read messages whose field numbers are known.

Source: protobuf.dev, "Encoding": varints of seven bits, tags of field << 3 | wire type, and the rule that a
reader skips fields it does not know.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types; 3 and 4, groups, are deprecated and refused."""

_MASK = (1 << 64) - 1
_SIGN = 1 << 63
_SMALL = tuple(bytes([value]) for value in range(0x80))

Value = int | bytes


class Malformed(Exception):
    """Bytes that are no message; `at` says how far reading came [byte]."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.at = at


def varint(value: int) -> bytes:
    """An integer of 64 bits; negative ones as their two's complement, which takes ten bytes."""
    if 0 <= value < 0x80:
        return _SMALL[value]  # nearly all of them
    value &= _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """A field of any varint type (int32 to uint64, bool, enum)."""
    return varint(field << 3 | VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field of type double."""
    return varint(field << 3 | FIXED64) + struct.pack("<d", value)


def data(field: int, value: bytes) -> bytes:
    """A field of type string, bytes or message."""
    return varint(field << 3 | BYTES) + varint(len(value)) + value


def packed(field: int, values: Iterable[int]) -> bytes:
    """A repeated varint field in packed form; nothing where there are no values (proto3)."""
    body = b"".join(varint(value) for value in values)
    return data(field, body) if body else b""


def delimited(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Messages one after the other, each behind its length."""
    for message in messages:
        yield varint(len(message))
        yield message


def read_varint(buffer: bytes, at: int, end: int) -> tuple[int, int]:
    """(unsigned value, place behind it).  Raises Malformed."""
    if at < end and buffer[at] < 0x80:
        return buffer[at], at + 1  # nearly all of them
    value = shift = 0
    begin = at
    while at < end:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than ten bytes", begin)
    raise Malformed("the file ends inside a number", begin)


def fields(buffer: bytes, at: int = 0, end: int | None = None) -> Iterator[tuple[int, int, Value]]:
    """(field number, wire type, value) of a message in order; fixed-width values as their bytes.

    Raises Malformed where the bytes are no message.
    """
    end = len(buffer) if end is None else end
    while at < end:
        begin = at
        if (tag := buffer[at]) < 0x80:
            at += 1  # read_varint's first case, which is nearly all of them
        else:
            tag, at = read_varint(buffer, at, end)
        field, kind = tag >> 3, tag & 7
        if not field:
            raise Malformed("a field with number 0", begin)
        if kind == VARINT:
            value, at = read_varint(buffer, at, end)
            yield field, kind, value
            continue
        if kind == BYTES:
            length, at = read_varint(buffer, at, end)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise Malformed(f"wire type {kind} of field {field}, which no current schema uses", begin)
        if at + length > end:
            raise Malformed(f"field {field} needs {length:,} bytes and {end - at:,} are left", begin)
        yield field, kind, buffer[at : at + length]
        at += length


def frames(buffer: bytes) -> Iterator[tuple[int, int]]:
    """(begin, end) of every message of a file of length-delimited messages.  Raises Malformed."""
    at, end = 0, len(buffer)
    while at < end:
        begin = at
        length, at = read_varint(buffer, at, end)
        if at + length > end:
            raise Malformed(f"a message of {length:,} bytes, of which {end - at:,} are there", begin)
        yield at, at + length
        at += length


def signed(value: int) -> int:
    """The int64 or int32 that an unsigned varint stands for."""
    return value - (1 << 64) if value & _SIGN else value


def zigzag(value: int) -> int:
    """The sint64 or sint32 that an unsigned varint stands for."""
    return (value >> 1) ^ -(value & 1)


def unpacked(kind: int, value: Value) -> list[int]:
    """Numbers of a repeated varint field, packed or not.  Raises Malformed."""
    if kind == VARINT and isinstance(value, int):
        return [value]
    if not isinstance(value, bytes) or kind != BYTES:
        raise Malformed("a repeated number of fixed width", 0)
    found, at, end = [], 0, len(value)
    while at < end:
        if (one := value[at]) < 0x80:
            at += 1
        else:
            one, at = read_varint(value, at, end)
        found.append(one)
    return found
