"""`railwright diagnose` and `railwright burnin` from the command line."""

from __future__ import annotations

import csv
import json
import os
import subprocess

import pytest
from typer.testing import CliRunner

from diagnose_cases import DATA, SAMPLES, dump, entry, needs_samples, write_dumps
from railwright.cli.main import app

STEPS = str(DATA / "worker_times.csv")


def run(*words: str):
    return CliRunner().invoke(app, [str(w) for w in words])


def test_a_fault_is_named_and_the_status_tells(tmp_path):
    done = run("diagnose", "--steps", STEPS)
    assert done.exit_code == 1
    assert "1. rank rank-0: 100%" in done.output
    told = json.loads(run("diagnose", "--steps", STEPS, "--json").output)
    assert told["suspects"][0]["element"] == "rank-0"
    same = dump({"0": [0, 1]}, [entry("0", 3)], {0: (3, 2)})
    sound = run("diagnose", "--recorder", write_dumps(tmp_path / "d", {0: same, 1: same}))
    assert sound.exit_code == 0
    assert "No suspect" in sound.output


def test_a_plan_is_run_filled_in_and_read_back(tmp_path):
    assert run("diagnose", "rail-240", "--routing", "static", "--plan", tmp_path / "p").exit_code == 0
    files = []
    for path in sorted((tmp_path / "p").glob("round-*.csv"))[:2]:
        rows = list(csv.DictReader(path.open()))
        assert len(rows) == 240
        for row in rows:
            slow = "server-07/nic-2" in (row["from"], row["to"])
            row["GB/s"] = f"{float(row['expected GB/s']) * 0.97 * (0.5 if slow else 1):.2f}"
        with path.open("w") as out:
            writer = csv.DictWriter(out, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        files += ["--pairs", str(path)]
    page = tmp_path / "page.html"
    done = run("diagnose", "rail-240", "--routing", "static", *files, "--html", page, "--json")
    assert done.exit_code == 1
    suspects = json.loads(done.output)["suspects"]
    names = {name for name, _, _ in suspects[0]["alternatives"]}
    assert "server-07/nic-2" in names
    assert sum(s["probability"] >= 0.5 for s in suspects) == 1
    assert "<svg" in page.read_text()
    assert "server-07" in page.read_text()


def test_scripts_of_a_plan_are_sound_shell(tmp_path):
    run("burnin", "rail-240", "--out", tmp_path / "b")
    for script in (tmp_path / "b").rglob("*.sh"):
        subprocess.run(["bash", "-n", str(script)], check=True)
        assert os.access(script, os.X_OK)


def test_the_script_of_a_round_fills_in_its_table(tmp_path):
    """With an `ssh` that answers as perftest does: 391 Gb/s, half of that from one adapter."""
    run("diagnose", "server", "--plan", tmp_path / "none")
    run("diagnose", "single-rack", "--routing", "static", "--plan", tmp_path / "p", "--rounds", "1")
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "ssh").write_text(
        '#!/bin/sh\nshift\n[ $# -gt 10 ] && echo " 1048576  5000  0.00  391.20  0.046"\nexit 0\n'
    )
    (fake / "ssh").chmod(0o755)
    (fake / "sleep").write_text("#!/bin/sh\n")
    (fake / "sleep").chmod(0o755)
    env = {**os.environ, "PATH": f"{fake}:{os.environ['PATH']}"}
    subprocess.run(["bash", str(tmp_path / "p" / "round-01.sh")], check=True, env=env, timeout=60)
    rows = list(csv.DictReader((tmp_path / "p" / "round-01.csv").open()))
    assert {row["GB/s"] for row in rows} == {"48.900"}


def test_burn_in_expects_what_perf_predicts(tmp_path):
    assert run("burnin", "rail-240", "--out", tmp_path / "b").exit_code == 0
    plan = json.loads((tmp_path / "b" / "plan.json").read_text())
    whole = next(c for c in plan["checks"] if c["name"] == "ring-0030-all-reduce")
    perf = run("perf", "all_reduce", "-c", "rail-240", "-b", "8G", "-e", "8G").output
    row = next(line for line in perf.splitlines() if line.split()[:1] == ["8589934592"])
    assert whole["expected"] / 1e9 == pytest.approx(float(row.split()[7]), abs=0.01)
    assert {c["stage"] for c in plan["checks"]} == {"1-node", "2-leaf", "3-pairs", "4-rings"}
    for check in plan["checks"]:
        assert 0 < check["passes"] < check["expected"]
        if check["op"] != "pairs":
            hosts = (tmp_path / "b" / check["stage"] / f"{check['name']}.hosts").read_text().splitlines()
            assert len(hosts) == len(check["servers"])
            assert hosts[0].endswith(" slots=8")


def test_burn_in_of_racks_runs_on_their_trays(tmp_path):
    """Racks of 18 trays with 4 GPUs and 4 NICs: nic-6 is the third adapter of the second tray."""
    study = tmp_path / "s.yaml"
    study.write_text(
        "railwright: 1\nname: racks\ncluster: {servers: 4, server: gb200-nvl72, compute: {family: "
        "rack-rails, switch: sn5600-400g, nics_per_tray: 4, servers_per_group: 1}}\n"
    )
    assert run("burnin", study, "--out", tmp_path / "b").exit_code == 0
    hosts = (tmp_path / "b" / "1-node" / "node-003.hosts").read_text().splitlines()
    assert hosts == [f"server-03-tray-{i:02d} slots=4" for i in range(1, 19)]
    assert "-np 72 --map-by ppr:4:node" in (tmp_path / "b" / "1-node" / "run.sh").read_text()
    pairs = (tmp_path / "b" / "3-pairs" / "round-01.sh").read_text()
    assert "\nserver-01/nic-6," in pairs
    assert all(
        ",server-01-tray-02,mlx5_2," in line
        for line in pairs.splitlines()
        if line.startswith("server-01/nic-6,")
    )
    assert "server-01-tray-18" in (tmp_path / "b" / "3-pairs" / "hosts").read_text()


def small(tmp_path, server: str, servers: int, routing: str = "adaptive"):
    """(what `burnin` says, the pages it writes) of servers around one switch."""
    study = tmp_path / "s.yaml"
    switch = "sn5600-400g" if servers > 32 else "qm9700"
    family = "fat-tree" if servers > 32 else "single-switch"
    study.write_text(
        f"railwright: 1\nname: small\ncluster: {{servers: {servers}, server: {server}, compute: "
        f"{{family: {family}, switch: {switch}, routing: {routing}}}}}\n"
    )
    done = run("burnin", study, "--out", tmp_path / "b")
    page = tmp_path / "b" / "plan.md"
    return done, page.read_text() if page.exists() else ""


def test_a_single_gpu_has_no_acceptance_plan_and_nothing_is_written(tmp_path):
    # "0 tests in 0 stages" was written and called a plan
    done, page = small(tmp_path, "gh200-1", 1)
    assert done.exit_code == 2
    assert "cluster.servers: An acceptance plan is of collectives and of pairs of NICs" in done.output
    assert "`dcgmi diag -r 3` and `nvbandwidth`" in done.output
    assert not page
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("server", "servers", "routing", "says"),
    [
        ("dgx-h100", 1, "adaptive", "need a second server: no test crosses a NIC"),
        ("gh200-1", 4, "adaptive", "a server has one GPU, so stage 1-node has no collective"),
        ("dgx-h100", 40, "ecmp", "no all-to-all over more than 256 GPUs: under ecmp routing"),
    ],
)
def test_kinds_of_tests_that_a_cluster_has_no_place_for_are_named(tmp_path, server, servers, routing, says):
    done, page = small(tmp_path, server, servers, routing)
    assert done.exit_code == 0, done.output
    assert says in done.output
    assert says in page


def test_gpus_of_amd_are_tested_by_their_own_tools(tmp_path):
    _, page = small(tmp_path, "mi300x-8", 2)
    assert "First on every node: `rvs`" in page
    assert "dcgmi" not in page


def test_burn_in_of_static_routes_says_how_often_each_spine_is_crossed(tmp_path):
    study = tmp_path / "s.yaml"
    run("init", study, "-t", "superpod-h100")
    text = study.read_text()
    study.write_text(text.replace("routing: adaptive", "routing: static"))
    study.write_text(study.read_text().replace("servers: 127", "servers: 40"))
    assert "routing: static" in study.read_text()
    assert run("burnin", study, "--out", tmp_path / "b").exit_code == 0
    crossings = json.loads((tmp_path / "b" / "plan.json").read_text())["tests_through_each_spine"]
    assert crossings
    assert min(crossings.values()) > 0


@needs_samples
def test_the_simulated_subnet_in_one_line():
    folder = SAMPLES / "ibsim_rail_8hosts_8rails"
    done = run(
        "diagnose", "--machine", folder / "ibnetdiscover.txt", "--counters",
        folder / "ibqueryerrors_faults.txt", "--links", folder / "ibnetdiscover_linkdown.txt", "--json",
    )  # fmt: skip
    faults = {s["element"] for s in json.loads(done.output)["suspects"] if s["probability"] >= 0.5}
    assert faults == {
        "leaf-r3 port 13 - spine2 port 7",
        "host05/mlx5_2 port 1 - leaf-r2 port 6",
        "leaf-r5 port 10 - spine0 port 12",
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no evidence: give --pairs"),
        (["rail-240", "--machine", "x"], "not both"),
        (["--routing", "static"], "need a topology"),
        (["rail-240", "--routing", "statik"], "did you mean 'static'"),
        (["--pairs", STEPS], "--pairs and --log need a topology"),
        (["rail-240", "--pairs", STEPS], "neither columns from, to, GB/s nor a matrix"),
        (["--before", STEPS], "--before is the earlier snapshot"),
        (["--counters", STEPS], "no port counters here"),
        (["--links", STEPS], "--links needs --links-before"),
        (["--dmesg", STEPS], "this is no kernel log"),
        (["--steps", "nowhere.csv"], "there is no such file"),
        (["--recorder", str(DATA)], "holds no dump"),
        (["--plan", "x"], "without a topology"),
        (["server", "--plan", "nowhere/x"], "two servers at least"),
    ],
)
def test_mistakes_are_told_in_one_sentence(words, says):
    done = run("diagnose", *words)
    assert done.exit_code == 2
    assert says in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("rank,time\n1,2", "columns rank and seconds are needed"),
        ("rank,seconds\n1,x", ":2: rank must be a whole number"),
        ("rank,seconds\n1,-2", ":2: a rank is 0 or more and seconds above 0"),
        ("rank,seconds\n1,2\n2,2", "fewer than three ranks"),
    ],
)
def test_step_times_that_are_none(tmp_path, text, says):
    file = tmp_path / "s.csv"
    file.write_text(text)
    done = run("diagnose", "--steps", file)
    assert done.exit_code == 2
    assert says in done.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from,to,GB/s\nserver-99/nic-0,server-01/nic-0,40", "is no GPU or NIC of this machine"),
        ("from,to,GB/s\nserver-02/nic-0,server-01/nic-0,fast", ":2: 'fast' is no bandwidth"),
        ("from,to,GB/s\nserver-02/nic-0,server-01/nic-0,", "no row has a value"),
        ("from,to\nserver-02/nic-0,server-01/nic-0", "no column GB/s"),
        ('{"ranks": []}', "not the JSON of `railwright bench pairs`"),
        ("{nonsense", "this is no JSON"),
        ("a,0 h/0,1 h/1\n0 h/0,1", "a row must have a label and 2 values"),
    ],
)
def test_pairs_that_are_none(tmp_path, text, says):
    file = tmp_path / "p.csv"
    file.write_text(text)
    done = run("diagnose", "rail-240", "--pairs", file)
    assert done.exit_code == 2
    assert says in done.output
