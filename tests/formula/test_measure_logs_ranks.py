"""Rank counts from busbw/algbw: all-reduce n = 2 / (2 - ratio), gather-like n = 1 / (1 - ratio)."""

import pytest

from railwright.measure.logs import read_log


def table(op, ranks, algbw=100.0, caption="", digits=2):
    factor = 2 * (ranks - 1) / ranks if op == "all_reduce" else (ranks - 1) / ranks
    rows = "\n".join(
        f" {size} {size / a / 1e3:.2f} {a:.{digits}f} {a * factor:.{digits}f}"
        for size, a in ((2**26, 0.9 * algbw), (2**28, algbw), (2**30, 1.1 * algbw))
    )
    return f"{op}_perf {caption}\n size time algbw busbw\n{rows}\n"


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "alltoall"])
@pytest.mark.parametrize("ranks", [2, 3, 8, 16, 24, 64])
def test_the_true_count_is_inside_and_taken(op, ranks):
    curve = read_log(table(op, ranks))[0]
    assert curve.ranks_low <= ranks <= curve.ranks_high
    if curve.ranks_low == curve.ranks_high:
        assert curve.ranks == ranks


def test_two_decimals_leave_an_interval():
    """At 512 ranks, 110 GB/s and two decimals: d(ratio) ~ 1e-4, dn = n^2/2 d(ratio) ~ 13 each way."""
    curve = read_log(table("all_reduce", 512))[0]
    assert 400 < curve.ranks_low <= 512 <= curve.ranks_high < 700
    assert curve.ranks == 512
    assert curve.ranks_why == "busbw/algbw"


def test_a_statement_inside_the_interval_is_taken():
    curve = read_log(table("all_reduce", 520, caption="on 520 GPUs"))[0]
    assert curve.ranks == 520
    assert "the caption" in curve.ranks_why


def test_a_statement_outside_is_called_wrong():
    curve = read_log(table("all_reduce", 16, caption="on 64 GPUs"))[0]
    assert curve.ranks == 16
    assert any("the caption says 64 ranks, but busbw/algbw means 16" in n for n in curve.notes)


def test_the_caller_is_contradicted_too():
    curve = read_log(table("all_reduce", 16), ranks=8)[0]
    assert curve.ranks == 16
    assert any("the caller says 8" in n for n in curve.notes)


def test_rows_of_two_tests_do_not_pass_as_one():
    one, other = table("all_reduce", 8).rstrip("\n"), table("all_reduce", 64).split("\n")
    mixed = one + "\n" + "\n".join(other[2:])
    assert any("different rank counts" in n for n in read_log(mixed)[0].notes)


def test_gather_counts_are_exact_by_size_over_count():
    """size 2^30 = n x count x 4 byte tells 1,024 ranks where two decimals of busbw cannot."""
    rows = "\n".join(
        f" {s} {s // 4 // 1024} float none -1 {s / 40e3:.1f} 40.00 39.96 0" for s in (2**26, 2**28, 2**30)
    )
    text = f"all_gather_perf\n size count type redop root time algbw busbw #wrong\n{rows}\n"
    curve = read_log(text)[0]
    assert curve.ranks == 1024
    assert curve.ranks_low < 1024 < curve.ranks_high


def test_below_algbw_is_no_all_reduce():
    curve = read_log(table("all_gather", 8).replace("all_gather_perf", "all_reduce_perf"))[0]
    assert any("never below 1" in n for n in curve.notes)


def test_above_algbw_names_the_all_reduce():
    text = table("all_reduce", 8).replace("all_reduce_perf", "")
    curve = read_log(text)[0]
    assert curve.op == "all_reduce"
    assert any("which only an all-reduce has" in n for n in curve.notes)


def test_said_ranks_beside_listed_devices_are_told():
    """A broadcast's busbw is its algbw, so that nothing but the list contradicts."""
    devices = "".join(f"#  Rank {r} Group  0 Pid 1 on a device {r} [00] NVIDIA H100\n" for r in range(4))
    text = f"broadcast_perf\n{devices} size time algbw busbw\n 1048576 50.00 20.97 20.97\n"
    (curve,) = read_log(text, ranks=2)
    assert (curve.ranks, curve.notes[0]) == (2, "the log lists 4 devices, and 2 ranks were said (--ranks)")
    assert not read_log(text, ranks=4)[0].notes[:-1]
