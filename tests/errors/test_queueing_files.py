"""Broken files of jobs, and options that make no sense: one sentence with the place."""

from __future__ import annotations

import gzip

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import RailwrightError
from railwright.queueing import read_jobs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the header has no set of columns"),
        ("submit,gpu,duration\n1,2,3\n", "did you mean 'gpus'"),
        ("submit,gpus,duration\n1,2\n", ":2: 2 of 3 fields; the line is cut off"),
        ("submit,gpus,duration\n1,2,3\n1,two,3\n", ":3: gpus: 'two' is no number or time"),
        ("submit,gpus,duration\n1,2,nan\n", ":2: a time that is not finite"),
        ("submit,gpus,duration\n1,0,3\n", "no job in it has GPUs and a duration"),
        ("submit,gpus,duration\n1,0.5,3\n", ":2: gpus: 0.5 GPUs; jobs share none here, so give whole ones"),
        (
            "Submit|ElapsedRaw|AllocTRES\n2026-01-01T00:00:00|60|billing=4,gres/gpu=2\n"
            "2026-01-01T00:00:01|60|gres/gpu=2\n",
            ":3: AllocTRES: lines with and without 'billing' stand together",
        ),
        ("timestamp,duration,num_gpus\nyesterday,3,1\n", ":2: timestamp: 'yesterday' is no number or time"),
    ],
)
def test_the_place_is_named(tmp_path, text, said):
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    with pytest.raises(RailwrightError) as error:
        read_jobs(path)
    assert str(path) in str(error.value)
    assert said in str(error.value)


def test_a_cut_off_archive_and_a_missing_file(tmp_path):
    whole = gzip.compress(b"submit,gpus,duration\n" + b"1,2,3\n" * 1000)
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RailwrightError, match="it is cut off"):
        read_jobs(path)
    with pytest.raises(RailwrightError, match="No such file"):
        read_jobs(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--policy", "trees"], "did you mean 'tree'"),
        (["--sizes", "8;3"], "is no GPUs:share"),
        (["--sizes", "4096:1"], "the cluster has 240 GPUs"),
        (["--sizes", "8:3,8:2"], "8 GPUs are there twice"),
        (["--sizes", "8:nan"], "give GPUs and shares"),
        (["--load", "0"], "must be above zero"),
        (["--load", "inf"], "must be above zero, and finite"),
        (["--hours", "inf"], "must be above zero, and finite"),
        (["--seed", "-1"], "give a whole number from 0"),
        (["--trace", "jobs.csv", "--load", "0.5"], "leave --sizes, --load and --hours out"),
        (["--failures", "-1"], "cannot be below 0"),
        (["--failures", "nan"], "all finite"),
        (["--repair-hours", "inf"], "all finite"),
        (["--jobs", "0"], "at least 1"),
    ],
)
def test_options_that_make_no_sense(options, said):
    done = CliRunner().invoke(app, ["queue", "rail-240", *options])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize(("hours", "said"), [("4", True), ("0.1", False)])
def test_jobs_that_come_faster_than_they_end_never_fill_the_cluster(hours, said):
    """'load 0.85' stood beside 5 % of GPUs at work where 300 jobs came within the first of them."""
    options = ["--jobs", "60", "--sizes", "1:1" if said else "64:1", "--policy", "tree", "--hours", hours]
    done = CliRunner().invoke(app, ["queue", "rail-240", *options])
    assert done.exit_code == 0
    assert ("while the cluster still fills" in done.output) == said


def said_of(*options: str) -> str:
    done = CliRunner().invoke(app, ["queue", "rail-240", "--policy", "any", *options])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_a_line_that_grows_is_not_told_as_a_wait():
    assert "the line grows as long as they come" in said_of("--load", "3", "--sizes", "64:1")
    assert "the line grows" not in said_of("--load", "0.5", "--sizes", "64:1", "--jobs", "400")


def test_sizes_that_the_cluster_cannot_hold_are_named():
    assert "! No jobs of 256, 512 GPUs are drawn: the cluster has 240." in said_of(
        "--sizes", "64:1,256:1,512:1", "--jobs", "50"
    )


def test_a_drawn_mean_says_how_far_it_is_to_be_trusted():
    """Of 60 draws of 2,000 jobs on 8 GPUs at load 0.3 the mean waits reached 3.7 times Erlang's."""
    assert "Of its fifths, as they come, the mean wait under any is" in said_of("--sizes", "64:1")
