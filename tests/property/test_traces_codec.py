"""Laws of the trace codec: what is written is read again, unknown fields are skipped, damage is named."""

from __future__ import annotations

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.errors import SpecError
from railwright.export import protobuf as pb
from railwright.traces import chakra, chakra_read
from railwright.traces.graph import OPS, Group, Node, StepTrace

WHOLE = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=8)


@st.composite
def traces(draw: st.DrawFn) -> StepTrace:
    """Two ranks with the same nodes, of all kinds, in one group."""
    nodes: list[Node] = []
    for index in range(draw(st.integers(1, 6))):
        after = tuple(draw(st.lists(st.integers(0, index - 1), unique=True))) if index else ()
        kind = draw(st.sampled_from(["compute", "host", "collective", "send", "receive"]))
        node = Node(index, draw(NAMES), kind, after, draw(st.floats(0, 10)))
        if kind == "collective":
            op, parts = draw(st.sampled_from(OPS)), draw(st.integers(1, 4))
            # comm_size is whole bytes of one shard, and of one part.
            size = float(draw(st.integers(1, 2**40)) * 2 * parts)
            node = Node(index, node.name, kind, after, node.seconds, op, size, "both 0", parts=parts)
        elif kind != "compute" and kind != "host":
            size, tag = float(draw(st.integers(1, 2**40))), draw(st.integers(0, 2**31 - 1))
            node = Node(index, node.name, kind, after, node.seconds, size=size, peer=0, tag=tag)
        nodes.append(node)

    def of(rank: int) -> tuple[Node, ...]:
        return tuple(
            Node(n.index, n.name, n.kind, n.after, n.seconds, size=n.size, peer=1 - rank, tag=n.tag)
            if n.peer >= 0
            else n
            for n in nodes
        )

    return StepTrace("drawn", 2, of, {"both 0": Group("both 0", (0, 1), "both")}, (0, 1))


@given(WHOLE)
def test_a_varint_is_read_again(value: int) -> None:
    written = pb.varint(value)
    assert pb.read_varint(written, 0, len(written)) == (value, len(written))


@given(st.integers(-(2**63), 2**63 - 1))
def test_negative_numbers_are_twos_complements_of_64_bits(value: int) -> None:
    (field,) = pb.fields(pb.number(9, value))
    assert isinstance(field[2], int)
    assert pb.signed(field[2]) == value


@given(st.integers(-(2**62), 2**62))
def test_zigzag_is_the_inverse_of_googles_formula(value: int) -> None:
    assert pb.zigzag((value << 1) ^ (value >> 63)) == value


@given(st.lists(WHOLE, max_size=20))
def test_packed_and_plain_repeated_numbers_are_the_same(values: list[int]) -> None:
    packed = [v for n, k, value in pb.fields(pb.packed(5, values)) for v in pb.unpacked(k, value)]
    plain = b"".join(pb.number(5, value) for value in values)
    assert packed == values == [v for _, k, value in pb.fields(plain) for v in pb.unpacked(k, value)]


@settings(max_examples=60)
@given(traces())
def test_a_trace_is_read_as_it_was_written(trace: StepTrace) -> None:
    back = _through_files(trace)
    for rank, nodes in trace:
        assert [_plain(n) for n in back.nodes(rank)] == [_plain(n) for n in nodes]
    groups = {g.ranks for g in back.groups.values()}
    assert groups == ({(0, 1)} if any(n.group for n in trace.nodes(0)) else set())


@settings(max_examples=40)
@given(traces(), st.integers(100, 2**28), WHOLE, st.binary(max_size=20))
def test_fields_nobody_knows_are_skipped(trace: StepTrace, field: int, value: int, text: bytes) -> None:
    strange = pb.number(field, value) + pb.data(field + 1, text) + pb.double(field + 2, 1.5)
    files = dict(chakra.write(trace))
    changed = {
        name: b"".join(pb.delimited(content[a:b] + strange for a, b in pb.frames(content)))
        for name, content in files.items()
    }
    back, known = _read(changed), _read(files)
    assert [back.nodes(rank) for rank in range(2)] == [known.nodes(rank) for rank in range(2)]


@settings(max_examples=60)
@given(traces(), st.data())
def test_a_damaged_file_is_one_sentence_with_its_place(trace: StepTrace, data: st.DataObject) -> None:
    files = dict(chakra.write(trace))
    whole = files["workload.1.et"]
    cut = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[cut] ^= data.draw(st.integers(1, 255))
    for damaged in (whole[:cut], bytes(flipped), gzip.compress(whole)[: cut + 10]):
        said = ""
        try:
            _read({**files, "workload.1.et": damaged})
        except SpecError as error:
            said = str(error)
        # Damage may leave a trace behind, but nothing else may be raised than a sentence about a file.
        assert not said or ".et: " in said
        assert "\n" not in said


def test_every_cut_of_a_file_is_noticed_or_ends_between_nodes() -> None:
    nodes = (Node(0, "a", "compute", (), 1e-3), Node(1, "b", "compute", (0,), 2e-3))
    files = dict(chakra.write(StepTrace("two", 1, lambda rank: nodes, {}, (0,))))
    whole = files["workload.0.et"]
    borders = [end for _, end in pb.frames(whole)]
    for cut in range(len(whole)):
        if cut in borders:
            assert len(_read({"workload.0.et": whole[:cut]}).nodes(0)) == borders.index(cut)
        else:
            with pytest.raises(SpecError, match=r"workload\.0\.et: byte \d+: "):
                _read({"workload.0.et": whole[:cut]})


def _through_files(trace: StepTrace) -> StepTrace:
    return _read({**dict(chakra.write(trace)), chakra.GROUP_FILE: chakra.group_file(trace).encode()})


def _read(files: dict[str, bytes]) -> StepTrace:
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return chakra_read.read(folder)


def _plain(node: Node) -> tuple[object, ...]:
    """What a file says of a node, beside the numbers that nodes and groups get in it."""
    return (
        node.name, node.kind, len(node.after), node.seconds, node.op, node.size, node.peer, node.tag,
        node.parts, bool(node.group),
    )  # fmt: skip
