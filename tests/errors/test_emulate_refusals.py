"""What cannot be emulated is refused in one sentence: too many GPUs, or a machine that does not allow it."""

import os

import pytest
from typer.testing import CliRunner

from emulate_cases import network, sixteen, why_not
from railwright.cli.main import app
from railwright.emulate import Faults, emulate, find_tools
from railwright.emulate.faults import with_faults
from railwright.errors import PlanError, RailwrightError

STUDY = "examples/emulate-16.yaml"


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(os.path.join(os.path.dirname(__file__), "..", ".."))


def refused(*arguments):
    ran = CliRunner().invoke(app, ["emulate", *arguments])
    assert ran.exit_code == 2, ran.output
    assert "Traceback" not in ran.output
    return " ".join(ran.output.split())


def test_missing_programs_are_named_with_their_packages():
    with pytest.raises(
        RailwrightError, match=r"needs 'ip' and 'tc', which are not installed; install iproute2$"
    ):
        find_tools(which=lambda tool: None if tool in ("ip", "tc") else f"/bin/{tool}")
    with pytest.raises(RailwrightError, match="'unshare', which is not installed; install util-linux"):
        find_tools(which=lambda tool: None if tool == "unshare" else f"/bin/{tool}")


def test_only_loss_needs_nft():
    with pytest.raises(RailwrightError, match="--loss drops packets by 'nft', which is not installed"):
        find_tools(loss=True, which=lambda tool: None if tool == "nft" else f"/bin/{tool}")


@pytest.mark.parametrize(
    ("file", "value", "remedy"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_a_kernel_without_user_namespaces_is_told_apart(tmp_path, file, value, remedy):
    switch = tmp_path / "proc" / "sys" / file
    switch.parent.mkdir(parents=True)
    switch.write_text(f"{value}\n")
    with pytest.raises(RailwrightError, match="which are off here") as no:
        find_tools(root=tmp_path, which=lambda tool: "/bin/false")
    assert str(no.value).endswith(remedy)


def test_a_container_that_refuses_is_told_what_to_do(tmp_path):
    with pytest.raises(RailwrightError, match="in a container, start it with --privileged"):
        find_tools(root=tmp_path, which=lambda tool: "/bin/false")


def test_too_many_gpus_say_how_to_take_fewer():
    said = refused("clos-32k")
    assert "GPUs are too many to emulate: at most 128 on one machine; --gpus 128 emulates" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpus", "6"), "whole servers are emulated, and each has 4; give a multiple of it"),
        (("--gpus", "32"), "8 servers are more than the 4 of the study"),
        (("--gpus", "8", "--servers", "2"), "give one of them"),
        (("--pattern", "rings"), "there is no pattern 'rings' to emulate; did you mean 'ring'?"),
        (("--order", "shift"), "no send order 'shift'"),
        (("--slow", "leaf-01"), "write LINK=NUMBER"),
        (("--slow", "leaf-01=0"), "for nothing left use --dead"),
        (("--slow", "leaf-09=0.5"), "did you mean 'leaf-04'?"),
        (("--loss", "leaf-01=2"), "lies between 0 and 1"),
        (("--dead", "leaf-01@later"), "known are during, before, known"),
        (("--dead", "leef-01"), "did you mean 'leaf-01'"),
        (("--variant", "Rails 3:1"), "has no variant 'Rails 3:1'; did you mean"),
        (("--block", "0"), "measures nothing"),
        (("--rate", "25"), "has no unit"),
        (("--rate", "400 Gb/s"), "give from 100 kb/s to its own 200 Gb/s"),
        (("--rate", "1 b/s"), "give from 100 kb/s to its own 200 Gb/s"),
        (("--order", "by-rank", "--pattern", "ring"), "of an all-to-all's sends, and 'ring' has its own"),
    ],
)
def test_options_are_refused_with_what_is_allowed(arguments, said):
    assert said in refused(STUDY, *arguments)


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
def test_a_rate_beyond_the_machine_is_told():
    """200 Gb/s of each of 16 NICs on namespaces: errors of -100 % looked like the engines'."""
    found = emulate(sixteen("fat-tree", 1.0), repeat=1, block=16384, nic_rate=200e9 / 8)
    assert any("times may be the machine's, not the fabric's" in note for note in found.notes)


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
def test_a_python_without_torch_is_named():
    with pytest.raises(RailwrightError, match="needs PyTorch, which /bin/false does not have"):
        emulate(network("rail-only"), "gloo", python="/bin/false")


def test_a_rail_only_fabric_has_no_direct_all_to_all():
    with pytest.raises(PlanError, match="rail-only fabric joins each rail to itself alone"):
        emulate(network("rail-only"), "all-to-all")


def test_slow_and_dead_elements_are_what_the_engines_see_too():
    fabric = sixteen("rail-optimised", 2.0).fabric
    slow = with_faults(fabric, Faults(slow=(("server-01/nic-2", 0.5),)))
    changed = [i for i in range(fabric.num_links) if slow.capacity[i] != fabric.capacity[i]]
    assert [fabric.link_name(i).split(" -> ")[0].split(" port")[0] for i in changed] == [
        "server-01/nic-2",
        "leaf-03",
    ]
    assert {slow.capacity[i] / fabric.capacity[i] for i in changed} == {0.5}
    assert (
        with_faults(fabric, Faults(dead=(("leaf-02", "during"),))).capacity.tolist()
        == fabric.capacity.tolist()
    )
    assert with_faults(fabric, Faults(dead=(("leaf-02", "known"),))).capacity.min() == 0
