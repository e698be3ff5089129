"""Every layout of a benchmark's log that we know of gives the same curve that was put into it.

The logs of tests/data/logs are our own: latency + size x factor / bandwidth, printed as each tool prints.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from railwright.errors import SpecError
from railwright.measure.logs import read_log

LOGS = Path(__file__).parent.parent / "data" / "logs"
GIB = 2.0**30


def first(name, **more):
    return read_log(LOGS / name, **more)[0]


@pytest.mark.parametrize(
    ("name", "op", "ranks", "sizes", "busbw", "tool"),
    [
        ("nccl_all_reduce_16.log", "all_reduce", 16, 11, 199.41, "nccl-tests"),
        (
            "mpi_tagged_with_nccl_info.log",
            "all_reduce",
            16,
            11,
            199.41,
            "nccl-tests",
        ),  # rows torn by NCCL INFO
        ("srun_labels.log", "all_reduce", 16, 11, 199.41, "nccl-tests"),
        ("kubectl_pods.log", "all_reduce", 16, 11, 199.41, "nccl-tests"),
        ("nccl.json", "all_reduce", 16, 11, 199.41, "nccl-tests"),
        ("nccl_alltoall_16.log", "all_to_all", 16, 11, 44.94, "nccl-tests"),  # N/A in the in-place #wrong
        ("rccl_all_reduce_8.log", "all_reduce", 8, 11, 299.05, "rccl-tests"),
        ("rccl.json", "all_reduce", 8, 10, 298.99, "rccl-tests"),
        (
            "nccl_1_milliseconds_all_reduce.log",
            "all_reduce",
            8,
            3,
            118.95,
            "nccl-tests",
        ),  # times in ms, N op res
        ("nccl_2_old_all_gather.log", "all_gather", 4, 4, 21.94, "nccl-tests"),  # neither redop nor root
        ("split_mod_8.log", "all_reduce", 4, 11, 45.96, "nccl-tests"),
        ("osu_allreduce.log", "all_reduce", 16, 6, 16.62, "osu"),
        ("osu_alltoall_full.log", "all_to_all", 32, 5, 9.88, "osu"),
        ("osu_bw.log", "sendrecv", None, 4, 23.73, "osu"),
        ("issue_text.md", "all_reduce", 16, 6, 89.88, "nccl-tests"),  # quoted, fenced, prose around
        ("trimmed_markdown.md", "all_reduce", 32, 4, 189.31, "nccl-tests"),  # 1 MB, 16M, 256 MiB, 1G
    ],
)
def test_each_layout(name, op, ranks, sizes, busbw, tool):
    curve = first(name)
    assert (curve.op, curve.ranks, len(curve.points), curve.tool) == (op, ranks, sizes, tool)
    assert curve.points[-1].busbw / 1e9 == pytest.approx(busbw, abs=0.01)
    assert not curve.in_place


def test_units_become_si():
    """1 GiB in 10096.3 us over 16 ranks: algbw 106.35 GB/s, busbw x 2*15/16."""
    point = first("nccl_all_reduce_16.log").points[-1]
    assert point.size == GIB
    assert point.time == pytest.approx(10096.3e-6)
    assert point.algbw == pytest.approx(GIB / 10096.3e-6)
    assert point.busbw == pytest.approx(point.algbw * 30 / 16, rel=1e-4)
    assert point.wrong == 0


def test_milliseconds_of_nccl_tests_1_are_told_by_algbw():
    """40 MB in 0.588 (ms) is 68 GB/s; as microseconds it would be 68 TB/s."""
    assert first("nccl_1_milliseconds_all_reduce.log").points[-1].time == pytest.approx(0.588e-3)


def test_prefixes_and_messages_change_nothing():
    plain = [(p.size, p.time, p.busbw) for p in first("nccl_all_reduce_16.log").points]
    for name in ("mpi_tagged_with_nccl_info.log", "srun_labels.log", "kubectl_pods.log"):
        assert [(p.size, p.time, p.busbw) for p in first(name).points] == plain


def test_both_halves_in_order():
    curves = read_log(LOGS / "nccl_all_reduce_16.log")
    assert [c.in_place for c in curves] == [False, True]
    assert curves[1].points[0].time == pytest.approx(1.02 * curves[0].points[0].time, rel=1e-2)


def test_several_operations_in_one_file():
    found = [c.op for c in read_log(LOGS / "several_operations.log") if not c.in_place]
    assert found == ["all_gather", "reduce_scatter", "broadcast", "sendrecv"]


def test_header_facts():
    header = first("split_mod_8.log").header
    assert (header.threads, header.gpus, header.split, header.groups) == (1, 1, "MOD 8", 8)
    assert header.hosts == ("n1", "n2", "n3", "n4")
    assert len(header.devices) == 32
    assert header.devices[9].group == 1
    assert header.devices[9].name == "NVIDIA H100 80GB HBM3"
    assert "2.17.6" in header.version


def test_osu_sizes_become_totals():
    """osu_alltoall's 1 MiB to each of 32 ranks is nccl-tests' 32 MiB; osu_allreduce's size is the buffer."""
    assert first("osu_alltoall_full.log").points[-1].size == 32 * 2.0**20
    assert first("osu_allreduce.log").points[-1].size == 2.0**20


def test_only_size_and_busbw_need_the_ranks():
    """busbw alone: t = S x 2(n-1)/n / busbw."""
    text = "all_reduce_perf\n size busbw\n 1073741824 200.0\n 67108864 150.0\n"
    curve = read_log(text, ranks=16)[0]
    assert curve.points[-1].time == pytest.approx(GIB * 30 / 16 / 200e9)


def test_a_row_without_a_head():
    text = "all_gather_perf\n 1048576 16384 float none -1 50.0 20.97 19.66 0 51.0 20.56 19.27 0\n"
    curve = read_log(text)[0]
    assert (curve.op, curve.ranks) == ("all_gather", 16)


def test_comma_separated():
    text = "all_reduce\nsize,time,algbw,busbw\n1048576,50,20.97,39.32\n4194304,100,41.94,78.64\n"
    curve = read_log(text, op="all_reduce")[0]
    assert curve.ranks == 16
    assert len(curve.points) == 2


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("caption_wrong.md", "the caption says 32 ranks, but busbw/algbw means 16"),
        ("fabricated_all_reduce.md", "busbw is 0.8 of algbw, but an all-reduce has 2(n-1)/n"),
        ("without_mpi_all_reduce.log", "4 processes printed this table"),
        ("cut_short.log", "1 incomplete row(s) are left out (first: line 33)"),
        ("wrong_results.log", "1 size(s) failed the check of results (first: line 19, 128 wrong elements)"),
        ("nccl_cut.json", "it may be cut short"),
        ("nccl_2_old_all_gather.log", "taken from the file's name: all_gather"),
    ],
)
def test_what_is_doubtful_is_said(name, sentence):
    assert any(sentence in note for note in first(name).notes)


def test_sound_logs_have_no_notes():
    assert first("nccl_all_reduce_16.log").notes == ()


def test_a_changed_row_is_noticed():
    text = (LOGS / "nccl_all_reduce_16.log").read_text()
    changed = text.replace("106.35", "146.35", 1)
    assert changed != text
    notes = read_log(changed)[0].notes
    assert any("size over time is 106.4, but algbw says 146.3" in note for note in notes)


def test_missing_rows_are_noticed_by_the_average():
    lines = (LOGS / "nccl_all_reduce_16.log").read_text().split("\n")
    kept = [line for line in lines if not line.startswith("  1073741824")]
    assert any("rows are missing" in note for note in read_log("\n".join(kept))[0].notes)


def test_rccl_tests_records_are_a_table_of_two_halves(tmp_path):
    """One record is a size and a half of it; of a file that was cut short what is whole counts."""
    out, inside = read_log(LOGS / "rccl.json")
    assert (out.in_place, inside.in_place) == (False, True)
    assert [(a.size, b.time - a.time) for a, b in zip(out.points, inside.points, strict=True)] == [
        (p.size, pytest.approx(0.4e-6, abs=1e-11)) for p in out.points
    ]
    assert [p.line for p in out.points[:2]] == [2, 4]
    cut = tmp_path / "cut.json"
    text = (LOGS / "rccl.json").read_text()
    cut.write_text(text[: text.rindex('"busBw"')])
    (short, half) = read_log(cut)
    assert (len(short.points), len(half.points)) == (10, 9)
    assert any("cut short" in note for note in short.notes)


def test_records_of_several_collectives_are_several_tables(tmp_path):
    text = (LOGS / "rccl.json").read_text().strip("[]\n")
    other = text.replace("AllReduce", "Broadcast").replace('"ranks":8', '"ranks":16')
    file = tmp_path / "both.json"
    file.write_text(f"[\n{text},\n{other}\n]")
    assert [(c.op, c.ranks) for c in read_log(file) if not c.in_place] == [
        ("all_reduce", 8),
        ("broadcast", 16),
    ]


_REST = "size,type,redop,inplace,time,algbw,busbw,#wrong"
CSV_HEADS = [f"numCycle,collective,{ranks},{_REST}" for ranks in (
    "ranks,rankspernode,gpusperrank", "nodes,ranks,ranksPerNode,gpusPerRank", "gpus",
)]  # fmt: skip
"""Of rccl-tests with MPI, of later releases, and without MPI (class Reporter of its src/common.cu)."""


def as_csv(head: str, nodes: bool = False) -> str:
    """rccl.json as rccl-tests writes it with -Z csv; nodes: in lines of a head that has no such column."""
    lines = [head]
    for item in json.loads((LOGS / "rccl.json").read_text()):
        ranks = [item["nodes"]] * ("nodes" in head or nodes) + [8, 8, 1] if "ranks" in head else [8]
        rest = [item["size"], '"float"', '"sum"', item["inPlace"]]
        measured = [f"{item[name]:.6f}" for name in ("time", "algBw", "busBw")]
        lines.append(",".join(map(str, [0, '"AllReduce"', *ranks, *rest, *measured, '"0"'])))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("head", CSV_HEADS)
@pytest.mark.parametrize("nodes", [False, True])
def test_rccl_tests_csv_is_what_its_json_is(head: str, nodes: bool) -> None:
    """A head without 'nodes' stands over lines that have it: read by the head alone, all would be one off."""
    for one, other in zip(
        read_log(as_csv(head, nodes and "ranks" in head)), read_log(LOGS / "rccl.json"), strict=True
    ):
        assert (one.op, one.ranks, one.in_place, one.tool) == (other.op, 8, other.in_place, "rccl-tests")
        assert [replace(p, line=0) for p in one.points] == [replace(p, line=0) for p in other.points]
        assert not one.notes


def test_a_csv_that_was_cut_short_says_so_and_one_without_lines_is_refused(tmp_path):
    whole = as_csv(CSV_HEADS[0])
    (short, half) = read_log(whole[: whole.rindex(",float".replace(",", ',"'))])
    assert (len(short.points), len(half.points)) == (10, 9)
    assert any("1 incomplete row" in note for note in short.notes)
    empty = tmp_path / "rccl.csv"
    empty.write_text(whole.split("\n")[0] + "\n")
    with pytest.raises(SpecError, match="the CSV report holds no complete result"):
        read_log(empty)


def test_what_is_said_of_the_operation_does_not_rename_a_named_table():
    """A log's all-to-all was compared as an all-gather, which has its factor: LL was at fault."""
    curve = first("nccl_alltoall_16.log", op="all_gather")
    assert curve.op == "all_to_all"
    assert (
        "the log names this table all_to_all; --op all_gather is for tables that nothing names" in curve.notes
    )
    assert not [note for note in first("nccl_alltoall_16.log", op="alltoall").notes if "--op" in note]


def test_two_tests_that_print_at_once_keep_their_names():
    """Of pods or ranks whose lines alternate each has its own test; the later name was both tables'."""
    row = " 1048576 1 float sum -1 50.00 20.97 {} 0"
    lines = [
        "# Collective test starting: {}_perf",
        "# size count type redop root time algbw busbw #wrong",
        row,
    ]
    tests = (("all_reduce", "36.70"), ("all_gather", "18.35"))
    text = "".join(
        f"{i}: {line.format(name if line.startswith('#') else busbw)}\n"
        for line in lines
        for i, (name, busbw) in enumerate(tests)
    )
    assert [(c.op, c.ranks) for c in read_log(text)] == [("all_reduce", 8), ("all_gather", 8)]
