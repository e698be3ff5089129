"""Chakra execution traces, the workloads of ASTRA-sim: a few fields of its protobuf messages, by hand.

Format: mlcommons/chakra, schema/protobuf/et_def.proto (GlobalMetadata, Node, AttributeProto and their field
numbers); a file is messages one after the other, each behind its length (src/feeder_v3/protobuf_util.h).
Wire format: `export.protobuf`; whole traces of a step are written and read by `traces.chakra`.
"""

from __future__ import annotations

from collections.abc import Iterable

from railwright.export.protobuf import data, delimited, number

SEND, RECEIVE, COLLECTIVE = 5, 6, 7
"""NodeType: COMM_SEND_NODE, COMM_RECV_NODE, COMM_COLL_NODE."""

ALL_TO_ALL = 6
"""CollectiveCommType."""

_VERSION = b"0.0.4"
_ID, _NAME, _TYPE, _ATTRIBUTE = 1, 2, 3, 10
_ATTRIBUTE_NAME, _INT32, _INT64, _BOOL = 1, 7, 9, 27
_ENDS = ("comm_src", "comm_dst", "comm_tag")
"""What Chakra's own feeder (src/feeder/et_feeder_node.cpp) asks for int32_val, which is 0 of an int64; of
`comm_type` and `comm_size` it asks int64_val.  ASTRA-sim's (feeder_v3/et_feeder_node.h) takes any integer."""


def trace(nodes: Iterable[bytes]) -> bytes:
    """The execution trace of one rank: the head, then its nodes."""
    return b"".join(delimited([data(1, _VERSION), *nodes]))


def node(index: int, name: str, kind: int, **attributes: int) -> bytes:
    """One node without dependencies, of the GPU.

    attributes  comm_type, comm_size [byte], comm_src, comm_dst [rank], comm_tag
    """
    parts = [number(_ID, index), data(_NAME, name.encode()), number(_TYPE, kind)]
    parts.append(data(_ATTRIBUTE, data(_ATTRIBUTE_NAME, b"is_cpu_op") + number(_BOOL, 0)))
    for key, value in attributes.items():
        field = _INT32 if key in _ENDS else _INT64
        parts.append(data(_ATTRIBUTE, data(_ATTRIBUTE_NAME, key.encode()) + number(field, value)))
    return b"".join(parts)
