"""`railwright site`: what it prints and writes; a plan of 2,048 nodes within its time."""

from __future__ import annotations

import csv
import json
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.report.drawings.site import draw_elevations, draw_floor, draw_one_line
from railwright.site import plan_site, planned_lengths
from railwright.spec import load_study, load_study_text, override

EXAMPLES = Path(__file__).parents[2] / "examples"

STUDY = """railwright: 1
name: sixteen
cluster:
  servers: 16
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
  storage: {family: fat-tree, switch: qm9700, ports_per_server: 2, hosts: 4}
site:
  rack_power: 45 kW
  racks_per_row: 4
  power: {redundancy: n+1}
jobs:
  - {name: train, model: mixtral-8x7b, sequence: 4096, global_batch: 256, tokens: 1e9}
"""


@pytest.fixture
def study(tmp_path: Path) -> str:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY, encoding="utf-8")
    return str(file)


def railwright(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["site", *arguments])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    return ran.exit_code, ran.output


def test_the_plan_is_printed_and_written(study: str, tmp_path: Path):
    out = tmp_path / "out"
    code, said = railwright("plan", study, "--out", str(out))
    assert code == 0
    assert "4 servers a rack: one more would break site.rack_power" in said
    rows = {name: list(csv.DictReader((out / name).open())) for name in ("racks.csv", "cables.csv")}
    plan = json.loads((out / "site.json").read_text())
    assert len(rows["racks.csv"]) == plan["racks"]["total"]
    assert len(rows["cables.csv"]) == sum(of["count"] for of in plan["cables"].values())
    assert sum(float(row["power_w"]) for row in rows["racks.csv"]) == pytest.approx(plan["power"], abs=5)
    circuits = list(csv.DictReader((out / "circuits.csv").open()))
    assert all(float(row["worst_line_a"]) <= float(row["limit_a"]) for row in circuits)
    assert {row["phases"] for row in circuits} == {"L1-L2-L3", "L2-L3-L1", "L3-L1-L2"}
    cords = list(csv.DictReader((out / "cords.csv").open()))
    assert sum(float(row["power_w"]) for row in cords) == pytest.approx(plan["power"], rel=1e-3)
    for name in ("elevations.svg", "floor.svg", "one-line.svg", "row-01.svg"):
        assert ElementTree.parse(out / name).getroot().tag.endswith("svg")


def test_json_is_the_plan(study: str):
    code, said = railwright("plan", study, "--json")
    assert code == 0
    plan = json.loads(said)
    assert plan["servers_per_rack"] == 4
    assert set(plan["feeds"]) == {"A", "B", "C"}


def test_power_shows_what_outlives_a_feed(study: str):
    code, said = railwright("power", study)
    assert code == 0
    assert "dgx-h100 without feed A: 4 of 6 supplies, which give 13.2 kW for 10.2 kW: stays up" in said
    code, said = railwright("power", study, "--json")
    assert all(feed["enough"] for feed in json.loads(said)[0]["survival"][0]["feeds"])


def test_storage_takes_the_checkpoint_from_the_first_jobs_model(study: str):
    """Mixtral 8x7B: 46.7 billion parameters of 14 bytes."""
    code, said = railwright("storage", study, "--json")
    assert code == 0
    assert json.loads(said)["need"]["checkpoint"] == pytest.approx(46.7e9 * 14, rel=1e-3)
    code, said = railwright("storage", study)
    assert "restart" in said


def test_parts_tell_what_binds_a_pdu_and_their_sources():
    code, said = railwright("parts", "pdus")
    assert code == 0
    assert "cs8365; 9.98 kVA" in " ".join(said.split())
    assert "FA156194" in said
    code, said = railwright("parts", "pdu")
    assert code == 2
    assert "did you mean 'pdus'" in said
    code, said = railwright("parts", "racks", "--json")
    assert json.loads(said)["racks"]["rack-48u"]["units"] == 48


def test_a_refusal_is_one_sentence_and_status_2(tmp_path: Path):
    file = tmp_path / "study.yaml"
    file.write_text(STUDY.replace("n+1", "2n"), encoding="utf-8")
    code, said = railwright("plan", str(file))
    assert code == 2
    assert said.startswith(f"Error: {file}:8:1: site.rack: not even one dgx-h100 fits a rack; 2n on 2 feeds")


def test_drawings_show_every_machine_of_the_racks_they_show():
    plan = plan_site(load_study_text(STUDY))
    drawn = str(draw_elevations(plan, plan.racks))
    for rack in plan.racks:
        for placed in rack.content:
            assert f"{placed.name}: {placed.part}, unit {placed.unit}," in drawn
    assert str(draw_floor(plan)).count("<title>R") == len(plan.racks)
    line = str(draw_one_line(plan))
    assert all(f"feed {feed}:" in line for feed in "ABC")
    assert "worst 32 of 48 A" in line


def test_echelon_stands_in_one_rack_with_its_four_fabrics():
    """Twelve cables a server: 8 compute, 2 storage, one in-band, one out of band."""
    plan = plan_site(load_study(EXAMPLES / "echelon-single-rack.yaml"))
    assert len(plan.racks) == 1
    assert list(plan.runs) == ["compute", "storage", "inband", "oob"]
    servers = plan.networks["compute"].num_servers
    hosts = plan.networks["storage"].num_servers - servers
    assert sum(len(run.cable) for run in plan.runs.values()) == 12 * servers + 2 * hosts
    assert all(run.bundles == 0 for run in plan.runs.values()), "nothing leaves the rack"


def test_planned_lengths_go_back_into_the_study():
    study = load_study_text(STUDY)
    short = override(study, {"cluster.compute.lengths.node_leaf": "2 m"})
    plan = plan_site(short)
    assert any("the study says 2 m" in note for note in plan.notes)
    again = plan_site(override(short, planned_lengths(plan)))
    assert not any("the study says" in note for note in again.notes)


def test_2048_nodes_with_four_networks_are_planned_within_ten_seconds():
    study = load_study_text("""
railwright: 1
name: large
cluster:
  servers: 2048
  server: dgx-b200
  compute: {family: rail-optimised, switch: qm9700}
  storage: {family: fat-tree, switch: qm9700, ports_per_server: 2, hosts: 64}
  inband: {family: fat-tree, switch: sn4600c}
  oob: {family: fat-tree, switch: ethernet-1g-48}
site: {rack_power: 30 kW}
""")
    begin = time.process_time()
    plan = plan_site(study)
    assert time.process_time() - begin < 10.0
    assert plan.kinds["servers"] == 1024, "two a rack, as in the SuperPOD reference"
    assert len(plan.runs["compute"].cable) == 3 * 16384


def test_one_of_a_kind_is_said_so(tmp_path: Path) -> None:
    """'1 (1 servers) in 1 rows' was said of a rack of servers."""
    file = tmp_path / "study.yaml"
    head = STUDY[: STUDY.index("  storage")].replace("servers: 16", "servers: 2")
    single = head.replace("rail-optimised", "single-switch").replace("dgx-h100", "server-8x-l40s")
    file.write_text(f"{single}site: {{}}\n", encoding="utf-8")
    code, text = railwright("plan", str(file))
    assert code == 0
    assert "1 (1 of servers) in 1 row\n" in text
