"""What cannot be deployed is refused in one sentence that says what to do."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from railwright.catalog import load_catalog
from railwright.cli.main import app
from railwright.deploy import bundle
from railwright.errors import PlanError
from railwright.fabric import build
from railwright.spec import load_study_text

ONE = "servers: 1, server: dgx-h100, compute: {family: single-switch, switch: qm9700}"
TWO = "servers: 2, server: dgx-h100, compute: {family: single-switch, switch: qm9700}"


@pytest.mark.parametrize(
    ("cluster", "sharing", "said"),
    [
        (ONE, "", "add a section `sharing`"),
        (TWO, "sharing: {users: 4, scheduler: masks}", "it knows one machine, and there are 2; take slurm"),
        (ONE, "sharing: {users: 9, scheduler: masks}", "9 people cannot have a GPU of 8 each"),
        (TWO, "sharing: {users: 4, isolation: tenants, scheduler: slurm}", "take kubernetes"),
        (ONE, "sharing: {users: 2, names: [ada]}", "1 names for 2 users"),
        (ONE, "sharing: {users: 2, names: [ada, ada]}", "'ada' is there twice"),
        (ONE, "sharing: {users: 1, names: ['Ada; rm -rf']}", "is no login name"),
        (ONE, "sharing: {users: 1, containers: enroot}", "take toolkit"),
        (TWO, "sharing: {users: 1, isolation: tenants, notebooks: true}", "leave notebooks out"),
        (
            TWO.replace("dgx-h100", "server-8x-l40s"),
            "sharing: {users: 4, cores: 64}",
            "add sharing.sockets, sharing.threads, sharing.memory to the study",
        ),
        (TWO, "sharing: {users: 4, cores: 4, threads: 1}", "less than one for each of the 8 GPUs"),
        (TWO, "sharing: {users: 4, memory: 2 GB}", "write it with its unit"),
        (TWO, "sharing: {users: 4, controller: 'head 01'}", "sharing.controller: 'head 01' is no host name"),
        (
            TWO,
            "sharing: {users: 4, interface: 'bond0; id'}",
            "sharing.interface: 'bond0; id' is no interface",
        ),
        (TWO, "sharing: {users: 1, isolation: tenants, names: [ada_l]}", "'ada_l' can be no namespace"),
        (TWO, "sharing: {users: 4, cores: 63, sockets: 2}", "63 cores do not spread evenly over 2 sockets"),
    ],
)
def test_refusals(cluster, sharing, said):
    study, catalog = (
        load_study_text(f"railwright: 1\nname: t\ncluster: {{{cluster}}}\n{sharing}\n"),
        load_catalog(),
    )
    with pytest.raises(PlanError, match="(?s)" + said.replace("(", r"\(")) as error:
        bundle(study, build(study.cluster, catalog), catalog)
    assert "Traceback" not in str(error.value)


def test_nothing_is_overwritten(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(f"railwright: 1\nname: t\ncluster: {{{ONE}}}\nsharing: {{users: 2}}\n")
    out = tmp_path / "out"
    first = CliRunner().invoke(app, ["deploy", str(study), "--out", str(out)])
    assert first.exit_code == 0, first.output
    (out / "README.md").write_text("mine")
    again = CliRunner().invoke(app, ["deploy", str(study), "--out", str(out)])
    assert again.exit_code == 2
    assert "is not overwritten" in again.output
    assert (out / "README.md").read_text() == "mine"
