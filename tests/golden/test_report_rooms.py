"""One small study with every section: its report has every room, its JSON every figure, and bills agree."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.report import write
from railwright.spec import load_study_text
from railwright.study import run

STUDY = """
railwright: 1
name: Two servers & every room
cluster:
  servers: 2
  server: dgx-h100
  compute: {family: single-switch, switch: qm9700}
  storage: {family: single-switch, switch: qm9700, hosts: 2}
jobs:
  - {name: tune, model: llama3-8b, sequence: 4096, global_batch: 64, tokens: 1e9, layout: {tensor: 2}}
serving:
  - name: chat
    model: llama3-8b
    engine: vllm-2026
    layout: {tensor: 1}
    client: {kind: poisson, rate: 4, requests: 60, input: 256, output: 64}
    slo: {ttft: 1 s, tpot: 50 ms, percentile: 90}
reliability: {}
site: {power: {redundancy: n+1}}
money: {region: iceland, use: {profile: spiky, base: 0.5, peak: 0.3}}
"""


@cache
def result():
    return run(load_study_text(STUDY), what_if=False)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "out"
    return {path.name: path.read_text() for path in write(result(), folder)}


def test_every_room_has_its_section(files):
    page = files["report.html"]
    sections = re.findall(r'<section id="([a-z]+)">', page)
    assert [s for s in sections if s in ("serving", "failures", "site", "money")] == [
        "serving", "failures", "site", "money",
    ]  # fmt: skip
    assert page.count("<svg") >= 6
    assert (
        "nan" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S).lower().split()
    )


def test_the_json_is_finite_and_has_every_room(files):
    plain = json.loads(files["result.json"], parse_constant=lambda name: pytest.fail(name))
    assert {"serving", "goodput", "site", "money"} <= set(plain)
    ways = plain["money"]["ways"]
    assert all(sum(w["usd_a_month"].values()) == pytest.approx(_month(w, plain)) for w in ways)


def _month(way, plain):
    return way["usd_per_gpu_hour"] * plain["money"]["gpu_hours_wanted_a_month"]


def test_a_run_costs_what_failures_leave_of_it(files):
    rooms = result().rooms
    priced = rooms.money.runs[0]
    assert priced.gpu_hours == pytest.approx(rooms.goodput.forecast.gpu_hours[-1])
    assert priced.gpu_hours >= result().variants[0].jobs[0].step.time_to_train * 16 / 3600


def test_a_million_tokens_cost_their_share_of_a_gpu_hour():
    rooms = result().rooms
    job, way = rooms.serving[0], rooms.money.best
    hours = job.gpus * 1e6 / job.throughput.lasting / 3600
    assert rooms.money.served[0].cost(way) == pytest.approx(hours * float(way.per_gpu_hour))


def test_a_room_that_cannot_be_is_named(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.replace("site: {", "site: {room_power: 1 kW, "))
    done = CliRunner().invoke(app, ["run", str(study), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "site.room_power" in done.output
    assert not (tmp_path / "out").exists()


def test_rooms_are_of_the_variant_that_is_recommended(tmp_path):
    """A fat tree of two leaves, where one switch does: its room, bill and cables are those of one switch."""
    tree = "{family: fat-tree, switch: qm9700, servers_per_group: 2, spines: 1}"
    text = STUDY.split("serving:")[0].replace("servers: 2\n", "servers: 4\n")
    text = text.replace("{family: single-switch, switch: qm9700}", tree, 1)
    text += "site: {}\nvariants:\n  - {name: One switch, set: {cluster.compute.family: single-switch}}\n"
    found = run(load_study_text(text), what_if=False)
    assert found.recommended == 1
    assert found.design.cluster.compute.family == "single-switch"
    one = run(found.design.model_copy(update={"variants": ()}), what_if=False)
    assert found.rooms.site.power == one.rooms.site.power
    files = {path.name: path.read_text() for path in write(found, tmp_path / "out")}
    assert files["cables.csv"].count("leaf-spine") == 0
    assert files["report.html"].count("Of B, One switch, which the answer recommends.") >= 4
