"""Dumps that are no dumps: refused in one sentence, and nothing of them is run."""

from __future__ import annotations

import os
import pickle
import pickletools
import struct
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose_cases import dump, entry
from railwright.diagnose.read.recorder import read_recorder
from railwright.diagnose.read.unpickle import PLAIN, load_plain
from railwright.errors import SpecError


class Runs:
    """Would create a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused_and_runs_none(tmp_path, protocol):
    trap = tmp_path / "trap"
    file = tmp_path / "_dump_0"
    file.write_bytes(pickle.dumps({"entries": [Runs(trap)]}, protocol=protocol))
    with pytest.raises(SpecError, match=r"asks to import or run something.*nothing of it was run"):
        load_plain(file)
    assert not trap.exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"cos\nsystem\n(S'true'\ntR.",  # GLOBAL, REDUCE
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
        b"(S'true'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'true'\no.",  # OBJ
        b"Pnumber\n.",  # PERSID
        b"I1\nQ.",  # BINPERSID
        b"\x80\x02\x82\x01.",  # EXT1
        b"\x80\x02}}b.",  # BUILD
        b"\x80\x05\x97.",  # NEXT_BUFFER
    ],
)
def test_every_opcode_that_reaches_outside_is_refused(tmp_path, raw):
    file = tmp_path / "_dump_0"
    file.write_bytes(raw)
    with pytest.raises(SpecError, match="asks to import or run something"):
        load_plain(file)


def test_allowed_opcodes_build_plain_values_only():
    reaching = {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID",
                "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER",
                "BYTEARRAY8"}  # fmt: skip
    assert {op.name for op in pickletools.opcodes} == reaching | PLAIN


@pytest.mark.alone
def test_a_number_that_claims_memory_is_refused_at_once(tmp_path):
    file = tmp_path / "_dump_0"
    file.write_bytes(b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b".")
    start = time.perf_counter()
    with pytest.raises(SpecError, match="claim memory for nothing"):
        load_plain(file)
    assert time.perf_counter() - start < 1


def test_deep_nesting_is_no_crash(tmp_path):
    file = tmp_path / "_dump_0"
    file.write_bytes(b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".")
    with pytest.raises(SpecError, match="no flight-recorder dump"):
        read_recorder([file])


@settings(max_examples=80)
@given(st.data())
def test_a_damaged_dump_is_read_or_refused_never_a_crash(tmp_path_factory, data):
    raw = bytearray(pickle.dumps(dump({"0": [0, 1]}, [entry("0", 3)], {0: (3, 2)}), protocol=2))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.mktemp("d") / "_dump_0"
    file.write_bytes(bytes(raw[: data.draw(st.integers(1, len(raw)))]))
    with suppress(SpecError):
        read_recorder([file])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "a dict with a list 'entries' was expected"),
        ({"entries": []}, "no 'pg_config'"),
        ({"entries": [{}], "pg_config": {}}, r"entries\[0\]"),
        ({"entries": [], "pg_config": {}, "pg_status": {"0": {}}}, r"pg_status\[0\]"),
    ],
)
def test_a_pickle_of_something_else_says_what_was_expected(tmp_path, value, says):
    file = tmp_path / "_dump_0"
    file.write_bytes(pickle.dumps(value))
    with pytest.raises(SpecError, match=says):
        read_recorder([file])


def test_files_without_a_rank_or_with_the_same_are_refused(tmp_path):
    one, two = tmp_path / "a_1", tmp_path / "b_1"
    for file in (one, two):
        file.write_bytes(pickle.dumps(dump({"0": [1]}, [])))
    with pytest.raises(SpecError, match="rank 1 has two dumps"):
        read_recorder([one, two])
    with pytest.raises(SpecError, match="does not end in its rank"):
        read_recorder([tmp_path / "dump"])
    empty = tmp_path / "empty_3"
    empty.write_bytes(b"")
    with pytest.raises(SpecError, match="killed before it had written"):
        read_recorder([empty])
