"""Chakra execution traces, the workloads of ASTRA-sim: a few fields of its protobuf messages, by hand.

Format: mlcommons/chakra, schema/protobuf/et_def.proto (GlobalMetadata, Node, AttributeProto and their field
numbers); a file is messages one after the other, each behind its length (src/feeder_v3/protobuf_util.h).
Wire format: protobuf.dev, "Encoding": varints of seven bits, tags of field << 3 | wire type.
"""

from __future__ import annotations

from collections.abc import Iterable

SEND, RECEIVE, COLLECTIVE = 5, 6, 7
"""NodeType: COMM_SEND_NODE, COMM_RECV_NODE, COMM_COLL_NODE."""

ALL_TO_ALL = 6
"""CollectiveCommType."""

_VERSION = b"0.0.4"
_VARINT, _BYTES = 0, 2
_ID, _NAME, _TYPE, _ATTRIBUTE = 1, 2, 3, 10
_ATTRIBUTE_NAME, _INT64, _BOOL = 1, 9, 27


def trace(nodes: Iterable[bytes]) -> bytes:
    """The execution trace of one rank: the head, then its nodes."""
    head = _text(1, _VERSION)
    return b"".join(_varint(len(message)) + message for message in [head, *nodes])


def node(number: int, name: str, kind: int, **attributes: int) -> bytes:
    """One node without dependencies, of the GPU.

    attributes  int64 values: comm_type, comm_size [byte], comm_src, comm_dst [rank], comm_tag
    """
    parts = [_number(_ID, number), _text(_NAME, name.encode()), _number(_TYPE, kind)]
    parts.append(_text(_ATTRIBUTE, _text(_ATTRIBUTE_NAME, b"is_cpu_op") + _number(_BOOL, 0)))
    for key, value in attributes.items():
        parts.append(_text(_ATTRIBUTE, _text(_ATTRIBUTE_NAME, key.encode()) + _number(_INT64, value)))
    return b"".join(parts)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _text(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value
