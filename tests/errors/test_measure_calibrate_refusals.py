"""What logs cannot tell is refused one by one, with the next measurement; so are broken profiles."""

import re

import pytest
from typer.testing import CliRunner

from calibrate_cases import FULL, TREE, study, write_log
from railwright.cli.main import app
from railwright.errors import PlanError, SpecError
from railwright.measure.calibrate.calibrating import calibrate
from railwright.measure.fitting.profile import profile_of, read_profile, write_profile


def refused(found, constant, family=TREE):
    """The one sentence about a constant."""
    said = [s for s in found.profile.refused if s.startswith(f"{family}: {constant} is held")]
    assert len(said) == 1, found.profile.refused
    return said[0]


def test_a_full_curve_on_eight_nodes_tells_all_three(tmp_path):
    found = calibrate([write_log(tmp_path)], study())
    assert list(found.profile.families[TREE].measured()) == ["launch", "ramp", "usable"]
    assert found.profile.refused == ()


def test_a_log_of_other_gpus_is_not_fitted(tmp_path):
    log = write_log(tmp_path)
    log.write_text(log.read_text().replace("NVIDIA H100", "NVIDIA A100-SXM4-80GB"))
    with pytest.raises(PlanError, match=r"A100-SXM4-80GB, and the study's GPUs are h100-sxm"):
        calibrate([log], study())


def test_two_nodes_say_nothing_of_a_fabric(tmp_path):
    found = calibrate([write_log(tmp_path, ranks=16)], study())
    assert "usable" not in found.profile.families[TREE].measured()
    text = refused(found, "usable")
    assert "two nodes say nothing of a fabric of three or more" in text
    assert "measure on 3 nodes or more" in text
    theirs = re.search(r"would be ([\d.]+) ± ([\d.]+)", text)
    assert abs(float(theirs[1]) - 0.9) < 3 * float(theirs[2])  # fitted on the way, told, and not kept
    assert found.profile.families[TREE].launch is not None


def test_two_nodes_beside_eight_do_not_change_the_plateau(tmp_path):
    eight = write_log(tmp_path, "eight.log", seed=1)
    two = write_log(tmp_path, "two.log", ranks=16, usable=0.5, seed=2)
    alone = calibrate([eight], study()).profile.families[TREE].usable
    both = calibrate([eight, two], study()).profile.families[TREE].usable
    assert both.value == pytest.approx(alone.value, rel=0.05)


def test_without_a_plateau_there_is_no_bandwidth(tmp_path):
    found = calibrate([write_log(tmp_path, sizes=[s for s in FULL if s <= 2**23])], study())
    text = refused(found, "usable")
    assert "no size measured of it is on the plateau" in text
    assert "measure larger sizes" in text
    assert "NCCL_ALGO=NVLSTree all_reduce_perf -b 8 -e 16G" in text
    assert "usable" not in found.profile.families[TREE].measured()


def test_a_bus_bandwidth_that_still_rises_is_no_plateau(tmp_path):
    log = write_log(tmp_path, shape=lambda size: max(1.0, (2**33 / size) ** 0.4 if size > 2**26 else 2.6))
    assert "still rises by" in refused(calibrate([log], study()), "usable")


def test_without_small_sizes_there_is_no_launch(tmp_path):
    found = calibrate([write_log(tmp_path, sizes=[s for s in FULL if s >= 2**24])], study())
    text = refused(found, "launch")
    assert "mostly waiting (the smallest, 16 MiB, is" in text
    assert "measure small sizes" in text
    assert found.profile.families[TREE].usable is not None


def test_small_sizes_that_grow_are_not_waiting(tmp_path):
    log = write_log(tmp_path, shape=lambda size: (size / 8) ** 0.6 if size < 2**20 else (2**17) ** 0.6)
    assert "longer at each doubling" in str(calibrated_or_refused(log))


def calibrated_or_refused(log):
    try:
        return calibrate([log], study()).profile.refused
    except PlanError as no:
        return str(no)


def test_noise_too_loud_for_a_constant_is_told(tmp_path):
    said = str(calibrated_or_refused(write_log(tmp_path, usable=0.2, noise=0.5, seed=4)))
    assert "standard error would be" in said
    assert "-n 100 -w 20" in said


def test_three_sizes_are_too_few(tmp_path):
    log = write_log(tmp_path, sizes=[8.0, 64.0, 2.0**32, 2.0**33])
    said = str(calibrated_or_refused(log))
    assert "4 points cannot tell 3 constants and their scatter (5 are the least)" in said


def test_correlated_constants_are_told_and_held(tmp_path):
    """Within a third of a doubling on the plateau ramp and usable bandwidth stretch all times alike."""
    sizes = [float(int(2 ** (32 + k / 16))) for k in range(6)]
    found = calibrate([write_log(tmp_path, sizes=sizes, noise=0.002)], study())
    text = refused(found, "ramp")
    number = re.search(r"cannot tell it from usable \(condition number (\d+), 10 is the most\)", text)
    assert int(number[1]) > 10
    assert "measure the whole range" in text
    assert list(found.profile.families[TREE].measured()) == ["usable"]


def test_one_node_says_nothing_of_the_network(tmp_path):
    log = write_log(
        tmp_path,
        ranks=8,
        algorithm="auto",
        family="hopper one-node nvls",
        sizes=[s for s in FULL if s < 2**33],
    )
    found = calibrate([log], study("auto"))
    assert all(" one-node " in family for family in found.profile.families)
    assert "only its NVLink families are calibrated" in found.profile.refused[-1]
    assert "measure on 3 nodes or more" in found.profile.refused[-1]


def test_faster_than_the_wires_is_refused(tmp_path):
    with pytest.raises(PlanError, match=r"times what the study's wires carry under any algorithm") as no:
        calibrate([write_log(tmp_path, shape=lambda size: 0.5)], study())
    assert "measure again" in str(no.value)


def test_faster_than_a_message_is_refused(tmp_path):
    with pytest.raises(PlanError, match=r"less than one message takes from NIC to NIC"):
        calibrate([write_log(tmp_path, shape=lambda size: 0.002 if size < 1024 else 1.0)], study())


def test_wrong_results_are_no_measurement(tmp_path):
    log = write_log(tmp_path)
    log.write_text(re.sub(r" 0$", " 7", log.read_text(encoding="utf-8"), flags=re.M), encoding="utf-8")
    with pytest.raises(PlanError, match=r"is not used \(.*repair that and measure again"):
        calibrate([log], study())


def test_a_machine_that_is_half_as_fast_is_doubted(tmp_path):
    found = calibrate([write_log(tmp_path, usable=0.5)], study())
    assert any("more often a fault than a property" in note for note in found.notes)


def test_the_same_log_counts_once(tmp_path):
    log = write_log(tmp_path)
    copy = tmp_path / "copy.log"
    copy.write_bytes(log.read_bytes())
    with pytest.raises(PlanError, match="are the same log"):
        calibrate([log, copy], study())


def test_two_logs_of_one_name_are_told_apart_by_renaming(tmp_path):
    (tmp_path / "b").mkdir()
    with pytest.raises(PlanError, match="have the same name"):
        calibrate([write_log(tmp_path), write_log(tmp_path / "b", seed=1)], study())


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    path = folder / "good.yaml"
    write_profile(calibrate([write_log(folder)], study()).profile, path)
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (TREE + ":", "hopper ib nvlstre:", r"no family 'hopper ib nvlstre'; did you mean 'hopper ib nvls"),
        ("railwright_profile: 1", "railwright_profile: 2", r"railwright_profile: input should be 1, not 2"),
        ("railwright_profile: 1", "catalogue: 1", r"this is no profile"),
        ("    usable:\n      value: 0.", "    usable:\n      value: 7.", r"cannot be; 0.02 to 1.2 can"),
        ("standard_error: ", "standard_eror: ", r"standard_e"),
        ("      logs: [all_reduce.log]", "      logs: [b.log]", r"'b.log' is not one of the profile's logs"),
        ("families:", "families: [", r"bad\.yaml:\d+"),
    ],
)  # fmt: skip
def test_a_broken_profile_is_one_clear_error(profile, tmp_path, old, new, said):
    text = profile.read_text(encoding="utf-8")
    assert old in text
    bad = tmp_path / "bad.yaml"
    bad.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(SpecError, match=said) as no:
        read_profile(bad)
    assert str(no.value).startswith(str(bad))


def test_a_profile_that_is_not_there(tmp_path):
    with pytest.raises(SpecError, match="no such file"):
        profile_of(study().model_copy(update={"calibration": str(tmp_path / "none.yaml")}))


def test_a_file_is_never_silently_overwritten(profile):
    before = profile.read_bytes()
    with pytest.raises(SpecError, match="exists and is not overwritten"):
        write_profile(read_profile(profile), profile)
    assert profile.read_bytes() == before
    write_profile(read_profile(profile), profile, replace=True)
    assert profile.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["calibrate"], "needs at least one log and then the study"),
        (["calibrate", "only.log"], "needs at least one log and then the study"),
        (["calibrate", "none.log", "rail-240"], "no such file"),
        (["calibrate", "--show", "none.yaml"], "no such file"),
        (["calibrate", "--show", "none.yaml", "a.log"], "takes no logs"),
    ],
)
def test_the_command_says_what_is_wrong(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output


def test_the_command_refuses_an_existing_file_before_it_works(profile, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["calibrate", "none.log", "rail-240", "-o", str(profile)])
    assert done.exit_code == 2
    assert "exists and is not overwritten" in done.output
