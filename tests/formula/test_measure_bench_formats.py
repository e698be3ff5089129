"""What the bench prints is nccl-tests' format, text and JSON, and our own reader gets it back."""

import csv
import io
import json

import pytest

from railwright.measure.bench import BenchReport, BenchRow, Cell, Place
from railwright.measure.bench.matrix import matrix_of
from railwright.measure.bench.places import split
from railwright.measure.bench.rails import RailProbe
from railwright.measure.logs import read_log

PLACES = tuple(Place(r, f"host-{r // 4}", r % 4, 100 + r, "NVIDIA H100") for r in range(8))


def report(op, splitting="none", wrong=0):
    factor = {"all_reduce": 2 * 7 / 8, "all_gather": 7 / 8, "all_to_all": 7 / 8}.get(op, 1.0)
    rows = []
    for size in (2**10, 2**20, 2**30):
        time = 20e-6 + size / 100e9
        algbw = size / time
        parts = 8 if op in ("all_gather", "reduce_scatter", "all_to_all") else 1
        rows.append(BenchRow(size, size // 4 // parts, Cell(time, algbw, algbw * factor, wrong)))
    groups = tuple(map(tuple, split(splitting, PLACES)))
    return BenchReport(
        op, "0.1.0", "nccl", "float", PLACES, groups, (2**10, 2**30, 1024, 5, 20), splitting, tuple(rows)
    )


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "broadcast", "sendrecv"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_round_trip_through_our_reader(op, form):
    made = report(op)
    text = "\n".join(made.lines()) + "\n" if form == "text" else json.dumps(made.as_json())
    curves = read_log(text)
    assert len(curves) == 1
    curve = curves[0]
    assert (curve.op, curve.ranks, curve.tool) == (op, 8, "railwright")
    assert curve.in_place == (op in ("all_reduce", "broadcast"))
    for point, row in zip(curve.points, made.rows, strict=True):
        assert point.size == row.size
        assert point.time == pytest.approx(row.cell.time, rel=1e-3)
        assert point.busbw == pytest.approx(row.cell.busbw, rel=1e-3)
        assert point.wrong == 0
    assert curve.header.hosts == ("host-0", "host-1")


def test_the_columns_stand_where_nccl_tests_has_them():
    """Widths 12 12 8 6 6, then 7 6 6 6 for each half (src/util.cu)."""
    lines = report("all_gather").lines()
    row = next(line for line in lines if line.startswith("     1048576"))
    assert row.split() == (
        ["1048576", "32768", "float", "none", "-1", "30.49", "34.40", "30.10", "0"] + ["N/A"] * 4
    )
    assert row[:12].strip() == "1048576"
    assert row[14:26].strip() == "32768"
    head = next(line for line in lines if "algbw" in line)
    assert head.index("time") + 4 == row.index("30.49") + 5


def test_a_split_is_told_by_groups():
    made = report("all_reduce", "rail")
    assert made.ranks == 2
    curve = read_log("\n".join(report("sendrecv", "DIV 4").lines()) + "\n")[0]
    assert curve.header.groups == 2
    assert curve.header.split == "DIV 4"
    assert curve.ranks == 4


def test_wrong_results_are_loud():
    made = report("all_reduce", wrong=3)
    assert "# Out of bounds values : 9 FAILED" in made.lines()
    notes = read_log("\n".join(made.lines()) + "\n")[0].notes
    assert any("failed the check" in n for n in notes)


def test_matrix_as_csv_and_who_stands_out():
    """Rank 5 at a third of the usual: one slow rank, and none of its pairs is blamed besides."""
    times = {
        (a, b): 1e-3 * (3 if 5 in (a, b) else 1) * (0.1 if a // 4 == b // 4 else 1)
        for a in range(8)
        for b in range(8)
        if a != b
    }
    matrix = matrix_of(PLACES, times, 10**6)
    assert [(p.rank, round(s, 2)) for p, s in matrix.slow_ranks()] == [(5, 0.33)]
    assert matrix.slow_pairs() == []
    table = list(csv.reader(io.StringIO(matrix.csv())))
    assert len(table) == 9
    assert table[0][6] == "5 host-1/1"
    assert table[1][2] == "10.000"  # 1 MB in 0.1 ms
    assert table[1][5] == "1.000"
    assert matrix.bandwidth[0][0] == 0.0
    assert max(map(len, matrix.lines())) <= 80
    times[(1, 6)] *= 5
    one = matrix_of(PLACES, times, 10**6)
    assert [(a, b) for a, b, _ in one.slow_pairs()] == [(1, 6)]
    even = matrix_of(PLACES, dict.fromkeys(times, 1e-3), 10**6)
    assert even.lines()[-1] == "no rank and no pair stands out"


def test_the_probe_says_when_flat_loses():
    def words(hosts, flat, size=2**26):
        return RailProbe(hosts, 16, ((size, flat, 1e-3, 0),)).verdict()

    assert "Rail-first is 1.50 times as fast" in words(2, 1.5e-3)
    assert "NCCL_PXN_DISABLE" in words(2, 1.5e-3)
    assert "rails and PXN work" in words(2, 1.1e-3)
    assert "says nothing about PXN" in words(1, 1.5e-3)
    assert "too small to tell" in words(2, 1.5e-3, 2**16)
    lines = RailProbe(2, 16, ((2**26, 1.5e-3, 1e-3, 0),)).lines()
    assert max(map(len, lines)) <= 80
