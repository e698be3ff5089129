"""Log -> profile -> study -> prediction: the log comes back, and every constant says where it is from."""

import hashlib
import shutil

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from calibrate_cases import FULL, TREE, log_text, study, write_log
from railwright.cli.main import app
from railwright.collectives.family import families
from railwright.measure.calibrate.calibrating import calibrate
from railwright.measure.compare.comparing import compare
from railwright.measure.fitting.profile import read_profile, write_profile
from railwright.measure.logs import read_log
from railwright.spec import load_study, override
from railwright.study import run

TRUE = {"launch": 1.2e-5, "ramp": 1.4, "usable": 0.88}
STUDY = """\
railwright: 1
name: mine
calibration: mine.yaml
cluster:
  servers: 30
  server: dgx-h100
  compute:
    family: rail-optimised
    switch: qm9700
nccl:
  algorithm: nvlstree
sweeps:
  - op: all_reduce
    begin: 1 MiB
    end: 1 GiB
    factor: 1024
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log, the profile made of it, and a study beside it that names the profile."""
    path = tmp_path_factory.mktemp("calibrated")
    write_log(path, noise=0.01, **TRUE)
    write_profile(calibrate([path / "all_reduce.log"], study()).profile, path / "mine.yaml")
    (path / "study.yaml").write_text(STUDY, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def calibrated(folder):
    return study().model_copy(update={"calibration": str(folder / "mine.yaml")})


def test_the_log_is_predicted_within_three_percent(folder, calibrated):
    curves = read_log(folder / "all_reduce.log")
    points = compare(curves, calibrated).curves[0].points
    assert len(points) == len(FULL)
    assert all(abs(p.ratio - 1) <= 0.03 for p in points)
    before = compare(curves, study()).curves[0].points
    assert max(abs(p.ratio - 1) for p in before) > 0.12


def test_the_error_band_is_that_of_the_residuals(folder, calibrated):
    curve = compare(read_log(folder / "all_reduce.log"), calibrated).curves[0]
    # 1 % of noise: 80 % lie within t(28) x 1 % = 1.3 %.
    for p in curve.points:
        assert 0.975 < p.low / p.predicted < 0.99 < 1.01 < p.high / p.predicted < 1.026
    inside = sum(p.inside for p in curve.points) / len(curve.points)
    assert 0.6 < inside < 0.97
    assert any("calibrated by mine.yaml: launch, ramp, usable from all_reduce.log" in n for n in curve.notes)


def test_other_ranks_and_bands_follow_the_constants(calibrated):
    """A calibrated machine at 240 ranks is what the true machine at 240 ranks is, within the fit's error."""
    truth = read_log(log_text(ranks=240, noise=0, **TRUE), name="truth")
    assert all(abs(p.ratio - 1) <= 0.03 for p in compare(truth, calibrated).curves[0].points)


def test_faster_than_possible_is_still_told_of_a_calibrated_machine(calibrated):
    """The wires' bound is the machine's, not the profile's."""
    quick = read_log(log_text(usable=1.0, noise=0, launch=0, ramp=1.0), name="quick")
    assert "faster than possible" not in [f.kind for f in compare(quick, calibrated).findings]


def test_every_constant_carries_its_source(folder):
    profile = read_profile(folder / "mine.yaml")
    log = folder / "all_reduce.log"
    assert [r.sha256 for r in profile.logs] == [hashlib.sha256(log.read_bytes()).hexdigest()]
    family = profile.families[TREE]
    for name, record in family.measured().items():
        assert record.logs == ("all_reduce.log",)
        assert (
            record.low <= TRUE[name] <= record.high
            or abs(record.value - TRUE[name]) < 3 * record.standard_error
        )
    assert family.launch.shipped == families()[TREE].launch
    assert family.ramp.shipped == families()[TREE].ramp
    assert family.usable.shipped == 1
    assert family.curves[0].ranks == 64
    assert family.curves[0].nodes == 8
    assert family.curves[0].sizes == FULL
    assert family.median_error_in_sample < 0.02 < family.median_error_shipped


def test_same_input_same_bytes(folder, tmp_path):
    log = tmp_path / "all_reduce.log"
    shutil.copy2(folder / "all_reduce.log", log)
    write_profile(calibrate([log], study()).profile, tmp_path / "mine.yaml")
    assert (tmp_path / "mine.yaml").read_bytes() == (folder / "mine.yaml").read_bytes()


def test_a_study_names_its_profile_relative_to_itself(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = load_study(folder / "study.yaml")
    assert asked.calibration == str(folder / "mine.yaml")
    told = {a.name: a for a in run(asked).assumptions if a.name.startswith("calibrated")}
    assert list(told) == [f"calibrated {TREE}: {name}" for name in ("launch", "ramp", "usable")]
    launch = told[f"calibrated {TREE}: launch"]
    assert "shipped" in launch.value
    assert "mine.yaml, measured on dgx-h100" in launch.source
    assert "all_reduce.log" in launch.source
    assert "all_reduce over 64 ranks, 8 B to 8 GiB" in launch.source


def test_a_variant_can_leave_the_profile_out(folder):
    asked = load_study(folder / "study.yaml")
    plain = override(asked, {"calibration": None})
    with_it, without = (run(s).variants[0].curves[0].points for s in (asked, plain))
    assert with_it[-1].time > without[-1].time * 1.05


def test_a_profile_of_another_generation_is_said_to_be_unused(folder):
    asked = load_study(folder / "study.yaml")
    other = override(asked, {"cluster.server": "dgx-a100", "nccl.algorithm": "auto"})
    said = next(a for a in run(other).assumptions if a.name == "calibration")
    assert "unused" in said.value


def test_the_command_writes_and_shows(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY.replace("calibration: mine.yaml\n", ""), encoding="utf-8")
    log = str(folder / "all_reduce.log")
    done = CliRunner().invoke(app, ["calibrate", log, "study.yaml", "-o", "new.yaml"])
    assert done.exit_code == 0, done.output
    assert done.output.endswith("new.yaml\n")
    assert max(map(len, done.output.splitlines())) <= 80
    plain = YAML(typ="safe").load((tmp_path / "new.yaml").read_text(encoding="utf-8"))
    assert set(plain["families"]) == {TREE}
    shown = CliRunner().invoke(app, ["calibrate", "--show", "new.yaml"])
    assert shown.exit_code == 0, shown.output
    for word in ("launch", "ramp", "usable", "shipped", "all_reduce.log", "sha256", "left out in turn"):
        assert word in shown.output
    (tmp_path / "named.yaml").write_text(STUDY.replace("mine.yaml", "new.yaml"), encoding="utf-8")
    perf = CliRunner().invoke(app, ["perf", "all_reduce", "-c", "named.yaml", "-b", "1M", "-e", "4M"])
    assert "calibrated by new.yaml" in perf.output
