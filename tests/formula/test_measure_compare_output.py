"""A comparison reads well at 80 columns, is plain JSON, and draws itself on one self-contained page."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import PlanError
from railwright.measure.compare.comparing import compare
from railwright.measure.compare.place import place
from railwright.measure.logs import read_log
from railwright.measure.study_machine import study_machine
from railwright.report.pages.compare import compare_page
from railwright.spec import load_study_text, template

LOGS = Path(__file__).parent.parent / "data" / "logs"
STUDY = load_study_text(template("rail-240"), "rail-240")


@pytest.fixture(scope="module")
def found():
    names = ("nccl_all_reduce_16.log", "nccl_alltoall_16.log")
    return compare([c for name in names for c in read_log(LOGS / name)], STUDY)


def test_one_half_of_each_table_is_compared(found):
    assert [(c.measured.op, c.measured.in_place) for c in found.curves] == [
        ("all_reduce", False),
        ("all_to_all", False),
    ]


def test_text_fits_80_columns(found):
    lines = found.lines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line != line.rstrip()]
    assert "1. " in "\n".join(lines)


def test_json_is_plain_and_complete(found):
    values = json.loads(json.dumps(found.as_json(), allow_nan=False))
    curve = values["curves"][0]
    assert curve["ranks"] == 16
    assert curve["servers"] == 2
    point = curve["points"][-1]
    assert point["busbw"] == pytest.approx(199.41e9, rel=1e-3)
    assert point["low"] < point["predicted"] < point["high"]
    assert {"kind", "evidence", "confidence", "next_test"} <= set(values["findings"][0])
    assert {s["key"] for s in curve["suspects"]} >= {"as-designed", "nic-missing", "half", "algo-ring"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, name, attributes):
        self.seen.append(name)
        for key, value in attributes:
            assert key not in ("src", "onclick")
            assert not (key == "href" and not value.startswith(("#", "data:")))
        if name not in ("meta", "link", "br", "hr"):
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name


def test_the_page_is_whole_and_fetches_nothing(found):
    page = Page()
    text = compare_page(found)
    page.feed(text)
    assert page.open == []
    assert page.seen.count("svg") == 4
    assert "script" not in page.seen
    assert text == compare_page(found)
    assert "all_reduce, 16 ranks on 2 servers" in text


def test_groups_of_a_split_lie_on_their_rails():
    """MOD 8 on four servers of eight: group k is GPU k of every server."""
    curve = read_log(LOGS / "split_mod_8.log")[0]
    groups, _ = place(curve, study_machine(STUDY))
    assert len(groups) == 8
    for rail, group in enumerate(groups):
        assert np.array_equal(group.gpus, 8 * np.arange(4) + rail)


def test_without_devices_whole_servers_come_first():
    curve = read_log(LOGS / "trimmed_markdown.md")[0]
    groups, notes = place(curve, study_machine(STUDY))
    assert np.array_equal(groups[0].gpus, np.arange(32))
    assert notes == ()


def test_a_log_of_other_gpus_is_told_first():
    """An MI300X's log beside H100 blamed clocks, NVLink and the fabric manager."""
    first, *_ = compare(read_log(LOGS / "rccl_all_reduce_8.log"), STUDY).findings
    assert first.kind == "another machine"
    assert "AMD Instinct MI300X, and the study's GPUs are h100-sxm" in first.evidence


def test_rccl_tests_reports_list_no_devices_but_run_on_amds_alone():
    first, *_ = compare(read_log(LOGS / "rccl.json"), STUDY).findings
    assert first.kind == "another machine"
    assert "rccl-tests, which runs on AMD's GPUs, and the study's are h100-sxm" in first.evidence


def test_a_log_of_the_studys_gpus_is_of_its_machine(found):
    assert "another machine" not in [f.kind for f in found.findings]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("osu_bw -n 2\n# OSU MPI-CUDA Bandwidth Test v5\n# Size Bandwidth (MB/s)\n8 1.0\n", "does not tell"),
        ("all_reduce_perf\n size time\n 1048576 50\n on 4096 GPUs\n", "the study's cluster has 240 GPUs"),
        ("reduce_perf on 16 GPUs\n size time\n 1048576 50\n", "'reduce' is not predicted"),
    ],
)
def test_what_cannot_be_compared_is_refused(text, sentence):
    with pytest.raises(PlanError, match=sentence):
        compare(read_log(text), STUDY)


def test_the_command(tmp_path):
    page = tmp_path / "c.html"
    log = str(LOGS / "issue_text.md")
    done = CliRunner().invoke(app, ["compare", log, "rail-240", "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "all_reduce, 16 ranks on 2 servers" in done.output
    assert page.read_text().startswith("<!DOCTYPE html>")
    done = CliRunner().invoke(app, ["compare", log, "rail-240", "--json"])
    assert json.loads(done.output)["curves"][0]["ranks"] == 16
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "no.log"), "rail-240"])
    assert done.exit_code == 2
    assert re.search(r"Error: .*no\.log: there is no such file", done.output)


def test_a_low_plateau_says_of_which_size_its_figures_are(tmp_path):
    """Sizes 1 and 14 % low were '8 % low (297 GB/s, predicted 346 GB/s)', which is 14 %."""
    log = tmp_path / "a.log"
    log.write_text(
        "all_reduce_perf, 32 ranks\n size count type redop root time algbw busbw #wrong\n"
        " 16777216 4194304 float sum -1 300.0 55.92 108.35 0\n"
        " 268435456 67108864 float sum -1 1800.0 149.13 288.93 0\n"
        " 1073741824 268435456 float sum -1 7000.0 153.39 297.2 0\n"
    )
    done = CliRunner().invoke(app, ["compare", str(log), "rail-240"])
    told = " ".join(done.output.split())
    assert "low from 256 MiB on (the median; at 1 GiB 297 GB/s of bus bandwidth, predicted 3" in told
    assert "-0 %" not in told
