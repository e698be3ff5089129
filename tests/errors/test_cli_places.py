"""Refusals of a plan point at the line of the study that they are about."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.cli.opened import forget, remember
from railwright.cli.places import job_mistake, placed, steps
from railwright.errors import PlanError
from railwright.spec import load_study_text

STUDY = """\
railwright: 1
name: small
cluster:
  servers: 2
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
jobs:
  - {name: fits, model: llama-3.1-8b, sequence: 4096, global_batch: 64, tokens: 1e9}
  - name: big
    model: llama-3.1-405b
    sequence: 4096
    global_batch: 64
    tokens: 1e9
serving:
  - {name: served, model: llama-3.1-405b, client: {concurrency: 4}}
  - {name: fits, model: llama-3.1-8b, client: {concurrency: 4}}
"""


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (["run"], "9:5: jobs.big: llama-3.1-405b needs"),
        (["check"], "9:5: jobs.big: llama-3.1-405b needs"),
        (["check"], "15:5: serving.served: llama-3.1-405b in bf16 needs"),
        (["search", "-q", "--job", "big"], "9:5: jobs.big: memory stops all"),
        (["trace", "export", "--job", "big"], "9:5: jobs.big: llama-3.1-405b needs"),
        (["serve"], "15:5: serving.served: llama-3.1-405b in bf16 needs"),
    ],
)
def test_the_line_of_a_job_that_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(STUDY)
    said = CliRunner().invoke(app, [*command, "s.yaml"])
    assert said.exit_code == 2
    assert f"s.yaml:{place}" in said.output


def test_what_names_no_single_job_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(STUDY)
    remember(str(file), load_study_text(STUDY))
    for refusal in ("fits: is in two sections", "rail-optimised: needs two tiers", "site.yaml: is empty"):
        assert job_mistake(str(file), refusal) is None
        error = PlanError(refusal)
        assert placed(error) is error
    forget()
    assert placed(PlanError("big: no study was opened")).args == ("big: no study was opened",)
    assert job_mistake(str(tmp_path / "gone.yaml"), "big: no") is None
    found = job_mistake("rail-240", "finetune: no")
    assert re.fullmatch(r"rail-240:\d+:5: jobs\.finetune: no", str(found))


CLUSTER = """\
railwright: 1
name: small
cluster:
  servers: 4
  server: dgx-h100
  compute:
    family: rail-optimised
    switch: qm9700
"""
IMPOSSIBLE = [
    ("    tiers: 1\n", "9:12: cluster.compute.tiers: rail-optimised: rails meet in spines"),
    (
        "    reserved_ports: 5000\n",
        "9:21: cluster.compute.reserved_ports: rail-optimised: reserved_ports asks",
    ),
    (
        "    oversubscription: 1.2345\n",
        "9:23: cluster.compute.oversubscription: oversubscription 1.2345 cannot",
    ),
    ("    spare_spines: 60\n", "9:19: cluster.compute.spare_spines: rail-optimised: spare_spines 60 needs"),
    ("    nics_per_tray: 3\n", "9:20: cluster.compute.nics_per_tray: nics_per_tray 3 does not divide"),
    ("    expand_directors: true\n", "9:23: cluster.compute.expand_directors: 'qm9700' is no director"),
    ("  faults:\n  - element: leaf-01\n  - element: leaf-99\n", "11:5: cluster.faults.1: fault 'leaf-99'"),
    (
        "  faults:\n" + "".join(f"  - element: server-0{n}\n" for n in (1, 2, 3, 4)),
        "10:3: cluster.faults: server-01/gpu-0 and 31 more cannot join",
    ),
    ("nccl:\n  sharp: true\n", "10:10: nccl.sharp: nccl.sharp asks for in-network reduction"),
]


@pytest.mark.parametrize(("more", "place"), IMPOSSIBLE)
@pytest.mark.parametrize("command", [["run", "-q"], ["check"]])
def test_the_line_of_a_fabric_that_cannot_be_built(in_folder: Path, command, more, place) -> None:
    text = CLUSTER + more
    Path("s.yaml").write_text(text.replace("qm9700", "sn5600") if "sharp" in more else text)
    place = place if "sharp" not in more else place.replace("9700", "5600")
    assert f"s.yaml:{place}" in refused(*command, "s.yaml")


@pytest.mark.parametrize(
    "command",
    [["run", "-q"], ["check"], ["fabric", "count"], ["fabric", "audit"], ["perf", "all_reduce", "-c"]],
)
def test_too_many_servers_name_the_line_of_the_switch_in_every_command(in_folder: Path, command) -> None:
    Path("s.yaml").write_text(CLUSTER.replace("servers: 4", "servers: 200000"))
    assert "s.yaml:8:13: cluster.compute.switch: rail-optimised: 3 tiers cannot join" in refused(
        *command, "s.yaml"
    )


def test_a_network_beside_compute_is_told_at_its_own_line(in_folder: Path) -> None:
    Path("s.yaml").write_text(
        CLUSTER + "  storage: {family: single-switch, switch: qm9700, hosts: 900}\nsite: {}\n"
    )
    assert "s.yaml:9:21: cluster.storage.family: single-switch: 904 servers" in refused("run", "-q", "s.yaml")


def test_a_variant_that_cannot_be_built_is_told_where_it_changes_the_study(in_folder: Path) -> None:
    Path("s.yaml").write_text(
        CLUSTER + "variants:\n  - {name: flat, set: {cluster.compute.tiers: 1}}\n"
        "  - {name: static, set: {cluster.compute.routing: static}}\n"
    )
    place = "s.yaml:10:47: cluster.compute.tiers (variant 'flat'): rail-optimised: rails meet"
    assert place in refused("fabric", "audit", "--variant", "flat", "s.yaml")
    counted = CliRunner().invoke(app, ["fabric", "count", "s.yaml"])
    assert counted.exit_code == 0
    assert f"impossible: flat: {place}" in counted.output


def test_a_name_that_nobody_knows_has_its_line_in_every_command(in_folder: Path) -> None:
    Path("s.yaml").write_text(CLUSTER.replace("qm9700", "qm9701"))
    for command in (["fabric", "count"], ["fabric", "audit"], ["goodput"], ["check"]):
        assert "s.yaml:8:13: cluster.compute.switch: no switch 'qm9701'" in refused(*command, "s.yaml")


@pytest.mark.parametrize(
    ("section", "command", "place"),
    [
        (
            "site:\n  power: {feeds: 3, redundancy: 2n}\n",
            ["site", "plan"],
            "10:18: site.power.feeds: 2n means two feeds",
        ),
        (
            "site:\n  rack: rack-48u\n  servers_per_rack: 40\n",
            ["run", "-q"],
            "11:21: site.servers_per_rack: 40",
        ),
        ("money:\n  hours: [1, 2]\n", ["cost"], "10:10: money.hours: 2 factors, 24 expected"),
        ("money: {}\n", ["cost"], "9:1: money.prices: the price book knows neither the server 'gh200-1'"),
        (
            "sharing:\n  users: 3\n  scheduler: masks\n",
            ["deploy"],
            "11:14: sharing.scheduler: CUDA_VISIBLE_DEVICES per person does not do here",
        ),
        (
            "serving:\n  - name: chat\n    model: llama-3.1-8b\n"
            "    client: {concurrency: 4, requests: 4, warmup: 10}\n",
            ["serve"],
            "10:5: serving.chat: All 4 requests are warm-up",
        ),
        (
            "reliability: {}\njobs:\n  - {name: a, model: llama-3.1-8b, sequence: 4096, global_batch: 64, "
            "tokens: 1e9, layout: {tensor: 2}}\n",
            ["goodput"],
            "9:1: reliability.checkpoint: the study has no storage network",
        ),
    ],
)
def test_the_line_of_other_sections(in_folder: Path, section, command, place) -> None:
    text = CLUSTER if "money: {}" not in section else CLUSTER.replace("dgx-h100", "gh200-1")
    Path("s.yaml").write_text(text + section)
    assert f"s.yaml:{place}" in refused(*command, "s.yaml")


def test_steps_follow_names_of_jobs() -> None:
    study = load_study_text(STUDY)
    assert steps(study, "jobs.big.model") == ("jobs", 1, "model")
    assert steps(study, "cluster.compute.switch") == ("cluster", "compute", "switch")


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*arguments: str) -> str:
    """What a command says that ends with status 2."""
    ran = CliRunner().invoke(app, list(arguments))
    assert ran.exit_code == 2, ran.output
    return ran.output


CHANGED = """\
railwright: 1
name: changed
cluster:
  servers: 2
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
jobs:
  - {name: tune, model: llama-3.1-8b, sequence: 4096, global_batch: 64, tokens: 1e9}
recommendations:
  - {name: ranking, model: dlrm-dcnv2, global_batch: 65536, samples: 1e9}
variants:
  - {name: works, set: {nccl.pxn: false, jobs.tune.layout.tensor: 2}}
  - name: odd
    set:
      nccl.pxn: false
      jobs.tune.layout.tensor: 3
  - name: together
    set:
      jobs.tune.layout.tensor: 8
      jobs.tune.layout.pipeline: 4
  - name: no room
    set:
      cluster.servers: 500
      cluster.compute.family: single-switch
  - {name: batch, set: {recommendations.ranking.global_batch: 65537}}
sensitivity:
  - {name: stages, set: {jobs.0.layout.pipeline: 5}}
"""


def test_check_names_the_change_that_breaks_a_variant(tmp_path: Path) -> None:
    """At the change itself, or at all of them where it takes several; `run` would predict the others only."""
    file = tmp_path / "s.yaml"
    file.write_text(CHANGED)
    said = CliRunner().invoke(app, ["check", str(file)])
    assert said.exit_code == 2
    places = [line.removeprefix(f"{file}:")[:68] for line in said.output.splitlines()[1:]]
    wanted = [
        "16:32: jobs.tune (variant 'odd'): layout.tensor 3 does not divide",
        "16:32: jobs.tune (variant 'odd'): the 32 attention heads of llama",
        "19:7: jobs.tune (variant 'together'): 16 GPUs are not a multiple",
        "23:7: cluster.compute (variant 'no room'): single-switch: 500",
        "25:63: recommendations.ranking (variant 'batch'): glob",
        "27:50: jobs.tune (sensitivity 'stages'): 16 GPUs are",
    ]
    assert [place[: len(want)] for place, want in zip(places, wanted, strict=True)] == wanted


def test_check_tells_what_is_wrong_with_the_study_itself_once(tmp_path: Path) -> None:
    """A variant that changes nothing about it does not repeat it; recommendation jobs are looked at too."""
    file = tmp_path / "s.yaml"
    head = CHANGED.partition("variants:")[0].replace("65536", "65537")
    file.write_text(head + "variants:\n  - {name: pxn, set: {nccl.pxn: false}}\n")
    said = CliRunner().invoke(app, ["check", str(file)])
    assert said.exit_code == 2
    (line,) = said.output.splitlines()
    assert line.startswith(f"Error: {file}:10:5: recommendations.ranking: global_batch 65537 is not a mult")


def test_check_asks_the_network_where_gpus_may_not_reach_each_other(tmp_path: Path) -> None:
    """Rails that meet nowhere, and an expert group that crosses them, without PXN, NVLink or a spine."""
    file = tmp_path / "s.yaml"
    rails = (
        "railwright: 1\nname: rails\ncluster:\n  servers: 4\n  server: dgx-h100\n"
        "  compute: {family: rail-only, switch: qm9700}\n"
        "jobs:\n  - {name: tune, model: mixtral-8x7b, sequence: 4096, global_batch: 64, tokens: 1e9, "
        "layout: {tensor: 4, expert: 8, expert_tensor: 4, sequence_parallel: true}}\n"
    )
    file.write_text(rails)
    assert CliRunner().invoke(app, ["check", str(file)]).exit_code == 0
    file.write_text(rails + "nccl: {pxn: false}\n")
    said = CliRunner().invoke(app, ["check", str(file)])
    assert said.exit_code == 2
    assert "s.yaml:8:5: jobs.tune: " in said.output
    assert "a rail-only fabric joins each rail to itself alone; switch PXN on" in said.output
    assert "which takes a rank of the same group on that GPU" in said.output
    file.write_text(rails.replace("dgx-h100", "server-8x-h100-pcie"))
    said = CliRunner().invoke(app, ["check", str(file)])
    assert "s.yaml:8:5: jobs.tune: " in said.output
    assert "GPUs without NVLink forward nothing for each other (PXN)" in said.output
    meet = rails.replace("rail-only", "rail-optimised") + "nccl: {pxn: false}\n"
    file.write_text(meet)
    assert CliRunner().invoke(app, ["check", str(file)]).exit_code == 0
    file.write_text(meet.replace("jobs:", "  faults: [{element: spine-01}]\njobs:"))
    said = CliRunner().invoke(app, ["check", str(file)])
    assert "s.yaml:9:5: jobs.tune: " in said.output
    assert "no live path leads from" in said.output


def test_check_asks_the_network_where_nccl_is_told_what_to_run(tmp_path: Path) -> None:
    """A tree sums up over all ranks; shards of gradients and parameters go round rings alone."""
    file = tmp_path / "s.yaml"
    asked = CHANGED.partition("recommendations:")[0]
    file.write_text(asked + "nccl: {algorithm: ring}\n")
    assert CliRunner().invoke(app, ["check", str(file)]).exit_code == 0
    file.write_text(asked + "nccl: {algorithm: tree}\n")
    for command in (["check", str(file)], ["run", str(file), "-o", str(tmp_path / "out")]):
        said = CliRunner().invoke(app, command)
        assert said.exit_code == 2
        assert f"{file}:8:5: jobs.tune: NCCL cannot run all_gather on 16 ranks" in said.output


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("dgx-h100", "dgx-a100", "jobs.tune: a100-sxm-80 has no mxfp8 tensor cores"),
        ("tensor: 2", "tensor: 2, placement: expert-across", "jobs.tune: placement expert-across puts the 4"),
    ],
)
def test_check_refuses_what_run_would(tmp_path: Path, old: str, new: str, words: str) -> None:
    """Number formats that a GPU has not, and placements that a cluster has no servers for."""
    job = "{name: tune, model: mixtral-8x7b, sequence: 4096, global_batch: 64, tokens: 1e9, dtype: mxfp8, "
    job += "layout: {expert: 4, tensor: 2, zero: 1, recompute: full}}"
    file = tmp_path / "s.yaml"
    file.write_text((CHANGED.partition("jobs:")[0] + f"jobs:\n  - {job}\n").replace(old, new))
    for command in (["check", str(file)], ["run", str(file), "-o", str(tmp_path / "out")]):
        said = CliRunner().invoke(app, command)
        assert said.exit_code == 2
        assert f"{file}:8:5: {words}" in said.output


def test_a_calibration_that_is_not_there_is_told_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(CHANGED.partition("variants:")[0] + "calibration: gone.yaml\n")
    said = CliRunner().invoke(app, ["check", str(file)])
    assert said.exit_code == 2
    assert f"{file}:11:14: calibration: " in said.output


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "servers: 2",
            "servers: 2000000",
            "6:45: cluster.compute.switch: rail-optimised: 3 tiers cannot join",
        ),
        ("jobs:", "catalog: gone.yaml\njobs:", "7:10: catalog: "),
        (
            "servers: 2",
            "servers: '2'",
            "4:12: cluster.servers: '2' is not allowed; write a whole number (without",
        ),
        ("tokens: 1e9", "tokens: '1e9'", "is not allowed; write a number (without quotes)"),
        ("tokens: 1e9", "tokens: 1e9, layout: {zero: '1'}", "write one of 0, 1, 2, 3 (without quotes)"),
    ],
)
def test_a_mistake_is_told_where_it_stands(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(CHANGED.partition("recommendations:")[0].replace(old, new))
    found = CliRunner().invoke(app, ["check", str(file)])
    assert found.exit_code == 2
    assert said in found.output
