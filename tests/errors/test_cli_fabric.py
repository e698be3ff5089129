"""`railwright fabric`: what it prints, its exit status, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.export import render
from railwright.fabric import build
from railwright.spec.study import Cluster, ComputeNetwork, Fault

DESIGN = """railwright: 1
name: small rails
cluster:
  servers: 8
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700, servers_per_group: 4}
"""


def railwright(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["fabric", *arguments])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    return ran.exit_code, ran.output


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(DESIGN, encoding="utf-8")
    return path


def dump(tmp_path: Path, faults: tuple[Fault, ...] = ()) -> Path:
    """What ibnetdiscover would print of the design, with faults."""
    import railwright as rw

    network = ComputeNetwork(family="rail-optimised", switch="qm9700", servers_per_group=4)
    cluster = Cluster(servers=8, server="dgx-h100", compute=network, faults=faults)
    text = render(build(cluster, rw.load_catalog()), "ibnetdiscover")
    path = tmp_path / f"fabric-{len(faults)}.out"
    path.write_text(next(iter(text.values())), encoding="utf-8")
    return path


def test_a_sound_machine_passes_against_its_design(tmp_path, study):
    code, text = railwright("check", str(dump(tmp_path)), "--design", str(study))
    assert code == 0, text
    assert "no faults, no warnings" in text


def test_a_missing_cable_is_named_and_the_status_says_so(tmp_path, study):
    broken = dump(tmp_path, (Fault(element="leaf-03 port 63"),))
    code, text = railwright("check", str(broken), "--design", str(study))
    assert code == 1
    assert "missing link" in text
    assert "leaf-03 port 63" in text


def test_json_says_the_same_for_machines(tmp_path, study):
    broken = dump(tmp_path, (Fault(element="leaf-03 port 63"),))
    code, text = railwright("check", str(broken), "--design", str(study), "--json")
    told = json.loads(text)
    assert code == 1
    assert told["wrong"] is True
    assert [f["kind"] for f in told["findings"] if f["severity"] == "fault"] == ["missing link"]


def test_the_page_is_written_once_and_never_over(tmp_path):
    page = tmp_path / "punch.html"
    broken = str(dump(tmp_path, (Fault(element="leaf-03 port 63"),)))
    code, _ = railwright("check", broken, "--html", str(page))
    assert code == 1
    before = page.read_text(encoding="utf-8")
    assert "<svg" in before
    assert "leaf-03 port 63" in before
    code, text = railwright("check", broken, "--html", str(page))
    assert code == 2
    assert "not overwritten" in text
    assert page.read_text(encoding="utf-8") == before


def test_cost_compares_the_machine_with_itself_made_sound(tmp_path):
    broken = str(dump(tmp_path, (Fault(element="server-01/nic-0"),)))
    code, text = railwright("check", broken, "--cost", "--server", "dgx-h100")
    assert code == 1
    assert "all_to_all of 1 GiB" in text


def test_what_is_no_dump_is_refused_in_one_sentence(tmp_path):
    for name, content in (("empty", b""), ("binary", bytes(range(256))), ("prose", b"hello world\n")):
        path = tmp_path / name
        path.write_bytes(content)
        code, text = railwright("check", str(path))
        assert code == 2
        assert name in text
        assert "Traceback" not in text


def test_design_offers_families_and_says_why_others_do_not_work():
    code, text = railwright("design", "--gpus", "4096", "--switch", "qm9700", "--family", "fat-tree")
    assert code == 0
    assert "320" in text  # 128 + 128 + 64 switches, three tiers
    code, text = railwright("design", "--gpus", "0")
    assert code == 2


def test_audit_prints_figures_findings_and_settings(study):
    code, text = railwright("audit", str(study))
    assert code == 0
    assert "oversubscription" in text
    code, text = railwright("audit", str(study), "--json")
    assert code == 0
    assert json.loads(text)["audit"]["gpus"] == 64


def test_audit_of_an_unknown_variant_names_the_known_ones():
    code, text = railwright("audit", "rail-240", "--variant", "rail only")
    assert code == 2
    assert "Rail-only" in text


def test_export_lists_its_formats_writes_them_and_never_overwrites(tmp_path, study):
    code, text = railwright("export", str(study))
    assert code == 0
    assert "slurm" in text
    out = tmp_path / "out"
    code, text = railwright("export", str(study), "slurm", "--out", str(out))
    assert code == 0
    assert (out / "topology.conf").is_file()
    code, text = railwright("export", str(study), "slurm", "--out", str(out))
    assert code == 2
    code, text = railwright("export", str(study), "slrum", "--out", str(out))
    assert code == 2
    assert "slurm" in text


def test_host_lint_has_a_status_too(tmp_path):
    topo = tmp_path / "topo.txt"
    topo.write_text(
        "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tNV18\tPXB\tSYS\t0-15\t0\n"
        "GPU1\tNV18\t X \tPXB\tSYS\t0-15\t0\n"
        "NIC0\tPXB\tPXB\t X \tSYS\n"
        "NIC1\tSYS\tSYS\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n",
        encoding="utf-8",
    )
    code, text = railwright("host", str(topo))
    assert code == 1
    assert "NIC shared by GPUs" in text


ECHELON = str(Path(__file__).parents[2] / "examples" / "echelon-single-rack.yaml")


def test_count_tells_the_networks_beside_compute():
    # Lambda Echelon, single rack: 5 servers, of each 8 compute, 2 storage, 1 in-band, 1 out-of-band port
    code, text = railwright("count", ECHELON)
    assert code == 0
    assert "storage" in text
    assert "oob" in text


def test_export_of_a_network_beside_compute(tmp_path):
    code, text = railwright(
        "export", ECHELON, "cable-schedule", "--network", "storage", "--out", str(tmp_path)
    )
    assert code == 0, text
    assert "server-05/nic-0,2" in (tmp_path / "cables.csv").read_text(encoding="utf-8")
    code, text = railwright(
        "export", ECHELON, "cable-schedule", "--network", "storag", "--out", str(tmp_path)
    )
    assert code == 2
    assert "did you mean 'storage'?" in text


def test_a_bisection_reads_alike_wherever_it_stands(study):
    """4 servers x 8 NICs x 400 Gb/s face the other half: 12.8 Tb/s, in bits as ports are sold."""
    asked = ["--gpus", "64", "--family", "rail-optimised", "--switch", "qm9700"]
    for arguments in (["count", str(study)], ["audit", str(study)], ["design", *asked]):
        code, text = railwright(*arguments)
        assert code == 0
        assert "12.8 Tb/s" in text
        assert "TB/s" not in text


def test_audit_tells_what_a_power_feed_takes_with_it(study):
    code, text = railwright("audit", str(study), "--group", "pdu-a=server-01,server-02,leaf-01")
    assert code == 0, text
    assert "pdu-a" in text
    code, text = railwright("audit", str(study), "--group", "pdu-a")
    assert code == 2
    assert "NAME=DEVICE" in text
    code, text = railwright("audit", str(study), "--group", "pdu-a=server-99")
    assert code == 2
    assert "server-99" in text


def test_a_design_of_the_users_own_parts_is_checked_with_them(tmp_path):
    parts = tmp_path / "parts.yaml"
    parts.write_text("switches:\n  our-switch: {like: qm9700}\n", encoding="utf-8")
    study = tmp_path / "own.yaml"
    own = DESIGN.replace("qm9700", "our-switch").replace("cluster:", "catalog: parts.yaml\ncluster:")
    study.write_text(own, encoding="utf-8")
    code, text = railwright("check", str(dump(tmp_path)), "--design", str(study))
    assert code == 0, text


def test_what_does_nothing_in_a_network_is_told_by_every_command_that_reads_it(tmp_path):
    """'oversubscription: 2' on one switch was dropped without a word: 'what does 2:1 cost me?' got 0 %."""
    study = tmp_path / "flat.yaml"
    written = "family: fat-tree, switch: qm9700, oversubscription: 2"
    study.write_text(
        DESIGN.replace("family: rail-optimised, switch: qm9700, servers_per_group: 4", written), "utf-8"
    )
    said = "! cluster.compute: oversubscription 2 does nothing: 64 ports fit one 'qm9700'"
    for command in ("audit", "count"):
        code, text = railwright(command, str(study))
        assert code == 0, text
        assert said in " ".join(text.split()), command
    code, text = railwright("audit", str(study), "--json")
    assert json.loads(text)["warnings"][0].startswith(said[2:])
    assert said in " ".join(CliRunner().invoke(app, ["check", str(study)]).output.split())
    ran = CliRunner().invoke(app, ["run", str(study), "-o", str(tmp_path / "out")])
    assert said[2:] in json.loads((tmp_path / "out" / "result.json").read_text())["warnings"][0], ran.output
