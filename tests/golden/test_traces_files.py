"""Texts and bytes of a small step in every format: nothing may move unasked."""

from __future__ import annotations

import struct

from railwright.export.protobuf import frames
from railwright.traces import chakra, goal, simai
from railwright.traces.graph import Group, Node, StepTrace
from railwright.traces.simai import Part, Row, Workload

GROUPS = {"tp 0": Group("tp 0", (0, 1, 2), "tp")}


def step() -> StepTrace:
    """Three ranks: compute, an all-reduce of 12 bytes, a message from rank 0 to rank 1."""
    first = Node(0, "layer", "compute", (), 1.5e-6)
    sums = Node(1, "sum", "collective", (0,), 0.0, "all_reduce", 12.0, "tp 0")
    ends = {
        0: (Node(2, "send", "send", (1,), 0.0, size=7.0, peer=1, tag=4),),
        1: (Node(2, "get", "receive", (), 0.0, size=7.0, peer=0, tag=4),),
        2: (),
    }
    return StepTrace("small", 3, lambda rank: (first, sums, *ends[rank]), GROUPS, (0, 1, 2))


GOAL = """\
num_ranks 3
rank 0 {
n0: calc 1500
n1x0: send 4b to 1 tag 1
n1x1: recv 4b from 2 tag 1
n1x2: send 4b to 1 tag 1
n1x3: recv 4b from 2 tag 1
n1x4: send 4b to 1 tag 1
n1x5: recv 4b from 2 tag 1
n1x6: send 4b to 1 tag 1
n1x7: recv 4b from 2 tag 1
n1: calc 0
n2: send 7b to 1 tag 6
n1x0 requires n0
n1x1 requires n0
n1x2 requires n1x1
n1x3 requires n1x1
n1x4 requires n1x3
n1x5 requires n1x3
n1x6 requires n1x5
n1x7 requires n1x5
n1 requires n1x0
n1 requires n1x1
n1 requires n1x2
n1 requires n1x3
n1 requires n1x4
n1 requires n1x5
n1 requires n1x6
n1 requires n1x7
n2 requires n1
}
"""
"""Four steps of a ring of three, each sending 4 of the 12 bytes on; tag 6 is message 4 behind the group's.
What waits for what comes last: txt2bin knows only labels that it has read."""


def test_goal() -> None:
    text = "".join(goal.write(step()))
    assert text.startswith(GOAL.replace("num_ranks 3\n", "num_ranks 3\n\n"))
    assert "n2: recv 7b from 0 tag 6\n" in text
    # What is sent from one rank to another is received there.
    assert text.count("send 4b to 2") == text.count("recv 4b from 1") == 4


def test_chakra() -> None:
    """Bytes by hand from et_def.proto: field << 3 | wire type, then the value."""
    content = dict(chakra.write(step()))["workload.0.et"]
    messages = [content[a:b] for a, b in frames(content)]
    assert messages[0].startswith(b"\x0a\x050.0.4")
    assert len(messages) == 4
    assert messages[1] == _node_by_hand()
    # Ends and tags of messages are int32 (field 7): Chakra's feeder reads them by int32_val.
    for attribute in (b"\x0a\x08comm_dst\x38\x01", b"\x0a\x08comm_tag\x38\x04", b"\x0a\x08comm_src\x38\x00"):
        assert attribute in messages[3]
    assert chakra.group_file(step()) == '{"1": [0, 1, 2]}\n'


def _node_by_hand() -> bytes:
    flag = b"\x0a\x09is_cpu_op" + b"\xd8\x01\x00"
    exact = b"\x0a\x12railwright_seconds" + b"\x19" + struct.pack("<d", 1.5e-6)
    return (
        b"\x08\x01" b"\x12\x05layer" b"\x18\x04" b"\x38\x02"
        + b"\x52" + bytes([len(flag)]) + flag
        + b"\x52" + bytes([len(exact)]) + exact
    )  # fmt: skip


SIMAI = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 3 all_gpus: 8 "
    "checkpoints: 0 checkpoint_initiates: 0 pp_comm: 0\n"
    "2\n"
    "optimizer\t-1\t0\tNONE\t0\t0\tNONE\t0\t5000\tREDUCESCATTER\t4096\t100\n"
    "attention\t-1\t1000\tALLREDUCE\t2048\t2000\tALLTOALL_EP\t512\t0\tNONE\t0\t100\n"
)


def test_simai() -> None:
    rows = (
        Row("optimizer", weight=Part(5e-6, "REDUCESCATTER", 4096.0)),
        Row("attention", Part(1e-6, "ALLREDUCE", 2048.0), Part(2e-6, "ALLTOALL_EP", 512.0)),
    )
    assert simai.write(Workload(2, 1, 1, 3, 8, 0, rows)) == SIMAI
