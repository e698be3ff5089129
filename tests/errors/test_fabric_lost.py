"""Servers that cannot join any more: fine where nothing takes them, refused where something does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.cli.main import app
from railwright.errors import PlanError
from railwright.reliability import goodput
from railwright.spec import load_study_text
from railwright.spec.study import Cluster, ComputeNetwork, Fault, Study
from railwright.study.evaluate import Workshop

CATALOG = load_catalog()
TRAINING = {
    "name": "train", "model": "llama-3-8b", "tokens": 1e9, "global_batch": 24, "sequence": 4096,
    "layout": {"tensor": 4},
}  # fmt: skip
SERVING = {
    "name": "chat", "model": "llama-3-8b", "engine": "vllm-2026", "replicas": 2, "layout": {"tensor": 8},
    "client": {"concurrency": 4, "input": 500, "output": 100},
}  # fmt: skip
RECOMMENDATION = {"name": "ads", "model": "dlrm-dcnv2", "global_batch": 65536, "samples": 1e9}


def built(*faults: Fault, family: str = "rail-optimised"):
    network = ComputeNetwork(family=family, switch="qm9700")
    return fabric.build(Cluster(servers=4, server="dgx-h100", compute=network, faults=faults), CATALOG)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(faults: tuple[dict[str, str], ...], servers: int = 4, **sections: object) -> dict[str, object]:
    """A study of some servers, with its faults."""
    cluster = {
        "servers": servers,
        "server": "dgx-h100",
        "compute": {"family": "rail-optimised", "switch": "qm9700"},
        "faults": list(faults),
    }
    return {"railwright": 1, "name": "t", "cluster": cluster, **sections}


def study(faults: tuple[dict[str, str], ...], servers: int = 4, **sections: object) -> Study:
    return load_study_text(yaml.safe_dump(written(faults, servers, **sections)))


def run(*words: str, faults: tuple[str, ...] = ("server-02",), **sections: object):
    """A command on a study of four servers, one of them dead."""
    dead = tuple({"element": element} for element in faults)
    Path("s.yaml").write_text(yaml.safe_dump(written(dead, **sections)))
    return CliRunner().invoke(app, [*words, "s.yaml"])


@pytest.mark.parametrize("element", ["server-02", "server-02/gpu-3"])
def test_a_dead_server_is_part_of_the_fabric_and_named(element):
    f = built(Fault(element=element))
    assert f.lost == (1,)
    assert f.num_servers == 4
    assert any(
        note.startswith("server-02 cannot join, where every link of server-02/gpu") for note in f.notes
    )


def test_gpus_of_other_servers_are_moved_for_their_own_dead_nics_only():
    f = built(Fault(element="server-02"), Fault(element="server-03/nic-2"))
    assert any("1 GPU(s) on 1 server(s)" in n and "1 NIC(s)" in n and "server-03/nic-2" in n for n in f.notes)


def test_a_sound_fabric_has_lost_none():
    assert built().lost == built(Fault(element="leaf-03")).lost == ()


def test_where_no_server_is_left_the_fabric_is_refused():
    with pytest.raises(PlanError, match="server-01 has no live NIC left"):
        built(Fault(element="leaf-01"), family="single-switch")


JOBS = [
    ("jobs", TRAINING | {"servers": [0, 2, 3]}),
    ("jobs", TRAINING | {"servers": [3, 0, 2, 1], "gpus": 24}),
    ("serving", SERVING | {"servers": [2, 3]}),
    ("recommendations", RECOMMENDATION | {"gpus": 8}),
]


@pytest.mark.parametrize(("section", "job"), JOBS)
def test_a_job_beside_a_dead_server_is_fine(in_folder, section, job):
    done = run("check", **{section: [job]})
    assert done.exit_code == 0, done.output


TAKERS = [
    ("jobs", TRAINING, "name other servers in `servers`"),
    ("jobs", TRAINING | {"gpus": 24}, "name other servers in `servers`"),
    ("jobs", TRAINING | {"servers": [0, 1, 3]}, "name other servers in `servers`"),
    ("serving", SERVING, "name other servers in `servers`"),
    ("recommendations", RECOMMENDATION | {"gpus": 16}, "end before it with `gpus`"),
]


@pytest.mark.parametrize(("section", "job", "instead"), TAKERS)
def test_a_job_on_a_dead_server_is_refused_at_its_line(in_folder, section, job, instead):
    done = run("check", **{section: [job]})
    assert done.exit_code == 2
    assert (
        f"{section}.{job['name']}: server-02 cannot join, where every link of server-02/gpu-0 and 7 more"
        in (done.output)
    )
    assert instead in done.output


def test_a_job_on_a_server_without_nics_is_told_so(in_folder):
    done = run("check", faults=tuple(f"server-02/nic-{n}" for n in range(8)), jobs=[TRAINING])
    assert "server-02 cannot join, where no NIC has a live way to a leaf (cluster.faults)" in done.output


def test_a_step_beside_a_dead_server_is_that_of_the_sound_cluster():
    """The same three servers of a rail-optimised fabric, whose leaves have room for all."""
    times = []
    for dead in ((), ({"element": "server-02"},)):
        asked = study(dead, jobs=[TRAINING | {"servers": [0, 2, 3]}])
        ran = Workshop.of(asked).run(asked.jobs[0], asked)
        assert ran.step is not None
        times.append(ran.step.step_time)
    assert times[0] == pytest.approx(times[1], rel=1e-9)


@pytest.mark.parametrize("command", [("queue",), ("perf", "all_reduce", "-c"), ("fabric", "whatif")])
def test_what_takes_every_server_says_which_one_cannot_join(in_folder, command):
    done = run(*command)
    assert done.exit_code == 2
    assert "server-02 cannot join, where every link of server-02/gpu-0 and 7 more has failed" in done.output


def test_a_dead_server_is_no_spare():
    """Five servers, one dead, three taken: one to spare, which is no assumption."""
    asked = study(
        ({"element": "server-02"},),
        servers=5,
        jobs=[TRAINING | {"servers": [0, 2, 3]}],
        reliability={"checkpoint": {"bandwidth": "100 GB/s"}},
    )
    workshop = Workshop.of(asked)
    found = goodput(asked, workshop.machine(asked), workshop.catalog, network=False)
    assert found.spares == 1
    assert not any("none to spare" in note for note in found.notes)


def test_the_fabric_of_a_lost_server_is_drawn_and_counted(in_folder):
    assert run("fabric", "count").exit_code == 0
    assert np.array_equal(built(Fault(element="server-02")).kind, built().kind)
