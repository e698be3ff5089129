"""Chakra execution traces: one file per rank, written and read without any protobuf library.

Format: mlcommons/chakra, schema/protobuf/et_def.proto (GlobalMetadata, Node, AttributeProto and their field
numbers); a file is messages one after the other, each behind its length (src/third_party/utils/protolib.py).
Attributes: src/feeder_v3/et_feeder_node_attr.h.  Process groups are an attribute of the head, in the words of
PyTorch's execution traces, and a file beside the traces for ASTRA-sim, which stops at metadata nodes
(workload/Statistics.cc, get_operator_type).
`comm_size` is what a rank puts in (converter/pytorch_converter.py: "In msg nelems" times the type's width):
of an all-gather one shard, of all others the whole buffer [byte].
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from railwright.collectives.prediction import Op
from railwright.errors import PlanError
from railwright.export.protobuf import data, delimited, double, number, packed
from railwright.traces.graph import ALONE, Group, Kind, Node, StepTrace

VERSION = b"0.0.4"
"""GlobalMetadata.version, as Chakra's own converter writes it."""

METADATA, COMPUTE, SEND, RECEIVE, COLLECTIVE = 1, 4, 5, 6, 7
"""NodeType: METADATA_NODE, COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE, COMM_COLL_NODE."""

KINDS: dict[Kind, int] = {
    "compute": COMPUTE,
    "host": COMPUTE,
    "copy": COMPUTE,
    "collective": COLLECTIVE,
    "send": SEND,
    "receive": RECEIVE,
}
"""NodeType of each kind of node; the host's and copies are told apart by `is_cpu_op`."""

COMM_TYPE: dict[Op, int] = {
    "all_reduce": 0,
    "all_gather": 2,
    "broadcast": 5,
    "all_to_all": 6,
    "reduce_scatter": 7,
}
"""CollectiveCommType."""

SECONDS, PARTS, SIZE = "railwright_seconds", "railwright_parts", "railwright_size"
"""Attributes of ours that other readers skip: exact time (Chakra has whole microseconds), in how many parts a
collective is sent, and its exact size where `comm_size`, whole bytes of one part, does not say it."""

COPY, GPU = "railwright_copy", "railwright_gpu"
"""More of them: that a node copies between a GPU and its host (which Chakra has no word for), and, in the
head, which GPU of the fabric the rank is on."""

GROUPS, GROUP_FILE = "process_groups", "comm_groups.json"
"""Where the groups are: an attribute of GlobalMetadata, and ASTRA-sim's `--comm-group-configuration`."""

ID, NAME, TYPE, CONTROL, DATA, DURATION, INPUTS, ATTRIBUTE = 1, 2, 3, 4, 5, 7, 8, 10
ATTRIBUTE_NAME, DOUBLE, INT32, INT64, BOOL, STRING = 1, 3, 7, 9, 27, 29

MOST_NODES = 20_000_000
"""Nodes that are written at once: about 2 GB and some minutes."""


def write(trace: StepTrace, stem: str = "workload") -> Iterator[tuple[str, bytes]]:
    """(file name, bytes) of every rank, one after the other: 'workload.0.et', …

    Raises PlanError where all ranks together have more than MOST_NODES nodes, at once where that is known.
    """
    if trace.num_nodes > MOST_NODES:
        raise _too_many(trace)
    return _written(trace, stem)


def _too_many(trace: StepTrace) -> PlanError:
    return PlanError(
        f"The trace of {trace.ranks:,} ranks has more than {MOST_NODES:,} nodes, which is what is written at "
        "once; take a smaller cluster, fewer microbatches (global_batch), or fewer layers."
    )


def _written(trace: StepTrace, stem: str) -> Iterator[tuple[str, bytes]]:
    numbers = _numbered(trace)
    head = data(1, VERSION) + data(2, data(ATTRIBUTE_NAME, GROUPS.encode()) + data(STRING, _listed(trace)))
    place = data(ATTRIBUTE_NAME, GPU.encode())
    total = 0
    known: dict[Node, bytes] = {}
    for rank, nodes in trace:
        total += len(nodes)
        if total > MOST_NODES:
            raise _too_many(trace)
        messages = [head + data(2, place + number(INT64, trace.gpus[rank]))]
        spent = dict.fromkeys(KINDS, 0.0)
        for node in nodes:
            # Whole microseconds that add up: a kind's nodes together are off by half of one at most.
            before = round(spent[node.kind] * 1e6)
            spent[node.kind] += node.seconds
            micros = round(spent[node.kind] * 1e6) - before
            if node.kind in ALONE and micros == round(node.seconds * 1e6):
                if node not in known:
                    known[node] = _node(node, rank, micros, trace, numbers)
                messages.append(known[node])
            else:
                messages.append(_node(node, rank, micros, trace, numbers))
        yield f"{stem}.{rank}.et", b"".join(delimited(messages))


def group_file(trace: StepTrace) -> str:
    """The text of GROUP_FILE: {number: ranks}; numbers as in the traces, from 1."""
    numbers = _numbered(trace)
    return json.dumps({str(numbers[name]): list(group.ranks) for name, group in trace.groups.items()}) + "\n"


def input_size(op: Op | None, size: float, ranks: int) -> float:
    """`comm_size` of a collective of nccl-tests' size S: what one rank puts in [byte]."""
    return size / ranks if op == "all_gather" else size


def total_size(op: Op | None, size: float, ranks: int) -> float:
    """nccl-tests' S of a collective of a `comm_size` [byte]; the inverse of `input_size`."""
    return size * ranks if op == "all_gather" else size


def _numbered(trace: StepTrace) -> dict[str, int]:
    """ASTRA-sim takes group names for numbers, and 0 for all ranks."""
    return {name: place for place, name in enumerate(trace.groups, 1)}


def _listed(trace: StepTrace) -> bytes:
    numbers = _numbered(trace)
    return json.dumps([_described(numbers[name], group) for name, group in trace.groups.items()]).encode()


def _described(place: int, group: Group) -> dict[str, object]:
    return {
        "pg_name": str(place),
        "pg_desc": group.family,
        "backend_config": "cuda:nccl",
        "ranks": list(group.ranks),
        "group_size": len(group.ranks),
        "group_count": 1,
    }


def _node(node: Node, rank: int, micros: int, trace: StepTrace, numbers: dict[str, int]) -> bytes:
    parts = [
        number(ID, node.index + 1),
        data(NAME, node.name.encode()),
        number(TYPE, KINDS[node.kind]),
        packed(DATA, (before + 1 for before in node.after)),
        number(DURATION, micros),
        _flag("is_cpu_op", node.kind in ("host", "copy")),
        data(ATTRIBUTE, data(ATTRIBUTE_NAME, SECONDS.encode()) + double(DOUBLE, node.seconds)),
    ]
    if node.kind == "copy":
        parts.append(_flag(COPY, True))
    elif node.kind == "collective":
        assert node.op is not None
        ranks = len(trace.groups[node.group].ranks)
        size = max(1, round(input_size(node.op, node.size, ranks) / node.parts))
        parts.append(_integer("comm_type", COMM_TYPE[node.op]))
        parts.append(_integer("comm_size", size))
        parts.append(_text("pg_name", str(numbers[node.group])))
        if node.parts > 1:
            parts.append(_integer(PARTS, node.parts))
        parts.append(_exactly(node.size, total_size(node.op, size, ranks) * node.parts))
    elif node.kind in ("send", "receive"):
        ends = (rank, node.peer) if node.kind == "send" else (node.peer, rank)
        for key, value in (("comm_src", ends[0]), ("comm_dst", ends[1]), ("comm_tag", node.tag)):
            # Chakra's feeder (et_feeder_node.cpp) asks these for int32_val, which is 0 of an int64.
            parts.append(_integer(key, value, INT32))
        size = max(1, round(node.size))
        parts += [_integer("comm_size", size), _exactly(node.size, size)]
    return b"".join(parts)


def _exactly(size: float, said: float) -> bytes:
    """The exact size, where `comm_size` says another one."""
    return (
        b"" if size == said else data(ATTRIBUTE, data(ATTRIBUTE_NAME, SIZE.encode()) + double(DOUBLE, size))
    )


def _flag(name: str, value: bool) -> bytes:
    return data(ATTRIBUTE, data(ATTRIBUTE_NAME, name.encode()) + number(BOOL, int(value)))


def _integer(name: str, value: int, kind: int = INT64) -> bytes:
    return data(ATTRIBUTE, data(ATTRIBUTE_NAME, name.encode()) + number(kind, value))


def _text(name: str, value: str) -> bytes:
    return data(ATTRIBUTE, data(ATTRIBUTE_NAME, name.encode()) + data(STRING, value.encode()))
