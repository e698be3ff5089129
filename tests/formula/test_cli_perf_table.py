"""`railwright perf` prints nccl-tests' table: the same columns, what they mean, and variants side by side."""

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.cli.perf import OPS, op_named, side_by_side, sizes_between, table
from railwright.cli.settings import SHORT, changes
from railwright.collectives.prediction import CollectivePrediction
from railwright.errors import RailwrightError
from railwright.study.result import Curve


def point(op="all_reduce", size=2.0**20, ranks=8, time=1e-3, factor=1.75):
    return CollectivePrediction(
        op, size, ranks, 1, time, size / time, size / time * factor, "ring", "simple", (), None, 0.9, 1.2
    )  # fmt: skip


def curve(*points):
    return Curve(points[0].op, "as written", points)


def test_a_row_is_size_count_type_redop_root_time_algbw_busbw():
    # 1 MiB in 1 ms is 1.05 GB/s; all-reduce over 8 ranks: busbw is 2*7/8 of it, 1.84 GB/s.
    row = table(curve(point()))[2]
    assert row.split() == [
        "1048576", "262144", "float", "sum", "-1",
        "1000.0", "1.05", "1.84", "ring", "simple", "900.00", "1200.0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "count", "redop", "root"),
    [
        ("all_reduce", "262144", "sum", "-1"),
        ("all_gather", "32768", "none", "-1"),  # what one of the 8 ranks contributes
        ("reduce_scatter", "32768", "sum", "-1"),
        ("all_to_all", "32768", "none", "-1"),
        ("broadcast", "262144", "none", "0"),
        ("sendrecv", "262144", "none", "-1"),
    ],
)
def test_count_redop_and_root_follow_nccl_tests(op, count, redop, root):
    row = table(curve(point(op)))[2].split()
    assert [row[1], row[3], row[4]] == [count, redop, root]


def test_the_average_is_over_all_sizes():
    lines = table(curve(point(time=1e-3), point(time=2e-3)))
    average = (1.75 + 0.875) / 2 * 2**20 / 1e6
    assert f"# Avg bus bandwidth    : {average:g}" in lines


def test_the_interval_of_the_average_is_that_of_its_sizes():
    # 80 % of times lie in 0.9-1.2 of ours, so busbw in 1/1.2-1/0.9 of it
    busbw = 1.75 * 2**20 / 1e6
    lines = table(curve(point(time=1e-3)))
    assert f"# 80 % of measured     : {busbw / 1.2:g} to {busbw / 0.9:g}, if all sizes err alike" in lines


def test_rows_line_up_within_a_hundred_columns():
    points = [point(size=size, time=time) for size, time in [(8, 1e-5), (2**33, 10.0), (2**33, 0.02)]]
    first, second, *rows = table(curve(*points))[:5]
    assert {len(line) for line in rows} == {len(first)}
    assert max(len(line) for line in (first, second, *rows)) <= 100


def test_variants_stand_beside_each_other_with_their_gain():
    lines = side_by_side([curve(point(time=2e-3)), curve(point(time=1e-3))], ["as written", "pxn=off"])
    assert "# [1] pxn=off" in lines
    assert ["1048576", "0.92", "1.84", "+100.0%"] in [line.split() for line in lines]
    assert "# [1] 1048576 B 0.83-1.11" in lines


@pytest.mark.parametrize(
    "spelling", ["all_reduce", "allreduce", "AllReduce", "all-reduce", "all_reduce_perf"]
)
def test_spellings_of_a_collective(spelling):
    assert op_named(spelling) == "all_reduce"
    assert op_named("alltoall_perf") == "all_to_all"
    assert op_named("sendrecv") == "sendrecv"
    assert len({op_named(op) for op in OPS}) == len(OPS)


def test_sizes_step_by_the_factor_as_nccl_tests_does():
    assert sizes_between("8", "8G", 2) == [8.0 * 2**k for k in range(31)]
    assert sizes_between("1K", "1M", 4) == [1024.0 * 4**k for k in range(6)]
    assert sizes_between("1M", "1M", 2) == [2.0**20]
    assert sizes_between("3K", "10K", 3) == [3072.0, 9216.0]


def test_comparisons_are_short_names_or_dotted_fields():
    assert changes("pxn=off") == {"nccl.pxn": False}
    assert changes("sharp=on,routing=ecmp") == {"nccl.sharp": True, "cluster.compute.routing": "ecmp"}
    assert changes("oversubscription=2") == {"cluster.compute.oversubscription": 2}
    assert changes("cluster.compute.lengths.node_leaf=3 m") == {"cluster.compute.lengths.node_leaf": "3 m"}
    assert changes("nccl.pxn=false") == {"nccl.pxn": False}


@pytest.mark.parametrize("text", ["", "pxn", "=off", "pxn=", "pxn=on,pxn=off", "pxn=on,nccl.pxn=off", "a=[1"])
def test_comparisons_that_say_nothing(text):
    with pytest.raises(RailwrightError):
        changes(text)


def test_every_short_name_is_a_field_of_the_study():
    from railwright.spec import load_study_text, override, template

    study = load_study_text(template("rail-240"))
    for field in SHORT.values():
        value = study
        for step in field.split("."):
            value = getattr(value, step)
        assert override(study, {field: value}) == study


def test_nics_that_no_gpu_sends_through_are_told_below_the_table(tmp_path):
    """`--compare server=…` with twice the NICs gained 0.0 % without a word."""
    (tmp_path / "own.yaml").write_text("servers: {many: {like: dgx-h100, nics: 16}}\n")
    (tmp_path / "s.yaml").write_text(
        "railwright: 1\nname: s\ncatalog: own.yaml\n"
        "cluster: {servers: 2, server: dgx-h100, compute: {family: rail-optimised, switch: qm9700}}\n"
    )
    asked = ["perf", "all_reduce", "-c", str(tmp_path / "s.yaml"), "-b", "1G", "-e", "1G"]
    assert "NICs" not in CliRunner().invoke(app, asked).stdout
    told = CliRunner().invoke(app, [*asked, "--compare", "server=many"]).stdout.splitlines()
    assert told[-1].startswith("# ! server 'many' has 16 NICs for 8 GPUs")
