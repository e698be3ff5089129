"""Questions to `railwright fabric whatif` that cannot be answered: one clear message, exit status 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from network_fabrics import make
from railwright.cli.main import app
from railwright.errors import PlanError
from railwright.network import Network
from railwright.network.whatif.elements import elements
from railwright.network.whatif.pattern import Pattern, world
from railwright.network.whatif.single import single_failures
from railwright.traffic import Communicator

STUDY = str(Path(__file__).parents[2] / "examples" / "mixtral-240-h100.yaml")
SWEEP_ONLY = str(Path(__file__).parents[2] / "examples" / "clos-spare-spines.yaml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kind", "spin"], "no kind of element 'spin'; known are nic, cable"),
        (["--kind", "core"], "this fabric has no live core that could fail"),
        (
            ["--pattern", "rings"],
            "no pattern 'rings'; known are all-to-all, ring, tree, bisection",
        ),
        (["--groups", "world2"], "no --groups 'world2'; known are world, tp, ep, dp, pp"),
        (["--routing", "spray"], "no --routing 'spray'; known are adaptive, static, ecmp"),
        (["--compare", "relay"], "no --compare 'relay'; known are relays, routings; did you mean 'relays'"),
        (["--slow", "1.5"], "a slow cable keeps a share of its rate between 0 and 1, not 1.5"),
        (["--k", "0"], "0 of 1274 elements cannot fail together; k lies between 1 and 1274"),
        (["--k", "2", "--samples", "0"], "0 samples say nothing"),
        (["--k", "2", "--check"], "are about single failures; leave --k out"),
        (["--spares", "--kind", "nic"], "--spares fails spines only"),
        (["--top", "0"], "--top 0 prints nothing"),
        (["--variant", "nonsense"], "no variant 'nonsense'"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options, message) -> None:
    assert message in refused(STUDY, *options)


def test_pxn_is_refused_where_gpus_have_no_nvlink_and_never_told(tmp_path) -> None:
    study = tmp_path / "cards.yaml"
    study.write_text(
        "railwright: 1\nname: cards\ncluster:\n  servers: 4\n  server: server-8x-l40s\n"
        "  compute: {family: rail-optimised, switch: qm9700}\n"
    )
    assert "--pxn: PXN needs several servers whose GPUs are joined by NVLink" in refused(str(study), "--pxn")
    told = CliRunner().invoke(app, ["fabric", "whatif", str(study)])
    assert told.exit_code == 0
    assert "all-to-all without PXN" in told.output


def test_groups_of_a_job_need_a_job() -> None:
    assert "the study has no job, so it has no ep groups" in refused(SWEEP_ONLY, "--groups", "ep")


def test_a_pattern_that_sends_nothing_is_refused() -> None:
    built = make(servers=2, gpus=1)
    alone = Pattern("all-to-all", (Communicator(world(built)[0].gpus[:1]),))
    with pytest.raises(PlanError, match="sends nothing: none of its groups has two ranks"):
        single_failures(Network(built), alone)


def test_a_pattern_that_cannot_run_even_now_is_refused() -> None:
    built = make(servers=4, gpus=2, family="rail-only")
    with pytest.raises(PlanError, match="switch PXN on"):
        single_failures(Network(built), Pattern("all-to-all", world(built), pxn=False))


def test_given_tables_are_refused() -> None:
    built = make(servers=2, gpus=2)
    with pytest.raises(PlanError, match="know nothing of a failure"):
        single_failures(Network(built, "tables"), Pattern("all-to-all", world(built)))


def test_there_are_no_spare_spines_without_spines(tmp_path) -> None:
    study = tmp_path / "one.yaml"
    text = "railwright: 1\nname: one\ncluster:\n  servers: 2\n  server: dgx-h100\n"
    study.write_text(text + "  compute: {family: single-switch, switch: qm9700}\n")
    assert "this fabric has no spines" in refused(str(study), "--spares")


def test_what_is_dead_already_cannot_fail_again() -> None:
    built = make(servers=2, gpus=2, family="fat-tree")
    assert len(elements(built, ["spine"])) == 2
    with pytest.raises(PlanError, match="no live core"):
        elements(built, ["core"])


def refused(*arguments: str) -> str:
    """The one line that a refusal is."""
    ran = CliRunner().invoke(app, ["fabric", "whatif", *arguments])
    assert ran.exit_code == 2, ran.output
    assert ran.output.startswith("Error: ")
    assert ran.output.count("\n") == 1
    return ran.output
