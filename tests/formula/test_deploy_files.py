"""The least machinery that does, and files that say what the design says."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from railwright.catalog import load_catalog
from railwright.deploy import advise, bundle
from railwright.deploy.advice import ORDER
from railwright.deploy.masks import shares
from railwright.errors import PlanError
from railwright.fabric import build
from railwright.spec import load_study_text
from railwright.spec.sharing import Sharing

ONE = "servers: 1\n  server: dgx-h100\n  compute: {family: single-switch, switch: qm9700}"
RAILS = "family: rail-optimised, switch: qm9700, servers_per_group: 4"
MANY = f"servers: 8\n  server: dgx-h100\n  compute: {{{RAILS}}}"
RACKS = "servers: 2\n  server: gb200-nvl72\n  compute: {family: rack-rails, switch: qm9700}"
ROCE = "servers: 8\n  server: dgx-h100\n  compute: {family: fat-tree, switch: sn5600}"


def made(cluster: str, sharing: str, more: str = ""):
    text = f"railwright: 1\nname: test\ncluster:\n  {cluster}\nsharing: {{{sharing}}}\n{more}"
    study, catalog = load_study_text(text), parts()
    return bundle(study, build(study.cluster, catalog), catalog)


@cache
def parts():
    return load_catalog()


@pytest.mark.parametrize(
    ("users", "isolation", "services", "hosts", "chosen"),
    [
        (1, "none", False, 1, "masks"),
        (4, "none", False, 1, "masks"),
        (8, "none", False, 1, "masks"),
        (9, "none", False, 1, "queue"),
        (3, "jobs", False, 1, "slurm-node"),
        (30, "jobs", False, 1, "slurm-node"),
        (3, "tenants", False, 1, "kubernetes"),
        (3, "none", False, 2, "slurm"),
        (300, "jobs", False, 64, "slurm"),
        (3, "none", True, 2, "kubernetes"),
        (3, "tenants", False, 64, "kubernetes"),
    ],
)
def test_the_least_that_does(users, isolation, services, hosts, chosen):
    sharing = Sharing(users=users, isolation=isolation, services=services)
    assert advise(sharing, hosts, 8).scheduler == chosen


@given(
    st.integers(1, 100), st.sampled_from(["none", "jobs", "tenants"]), st.booleans(),
    st.integers(1, 100), st.integers(1, 16),
)  # fmt: skip
def test_something_always_does_and_every_other_way_has_its_reason(users, isolation, services, hosts, gpus):
    advice = advise(Sharing(users=users, isolation=isolation, services=services), hosts, gpus)
    assert [way for way, _ in advice.against] == [way for way in ORDER if way != advice.scheduler]
    assert all(reason for _, reason in advice.against)
    before = ORDER[: ORDER.index(advice.scheduler)]
    assert not any("it would do" in reason for way, reason in advice.against if way in before)


@given(st.integers(1, 64), st.integers(1, 64))
def test_masks_share_every_gpu_once_and_evenly(users, gpus):
    if users > gpus:
        with pytest.raises(PlanError, match="take a queue"):
            shares(users, gpus)
        return
    cut = shares(users, gpus)
    assert [g for own in cut for g in own] == list(range(gpus))
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


def test_a_mask_is_what_the_shell_sets(tmp_path):
    files = made(ONE, "users: 3, names: [ada, grace, root]").files
    assert set(files) >= {"masks/bashrc-ada", "masks/bashrc-grace", "masks/bashrc-root"}
    script = tmp_path / "gpu-masks.sh"
    script.write_text(files["masks/gpu-masks.sh"].replace("$(id -un)", "$WHO"))

    def mask(who: str) -> str:
        command = ["bash", "-c", f". {script}; echo $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES"]
        return subprocess.run(command, env={"WHO": who}, capture_output=True, text=True, check=True).stdout

    assert mask("ada") == "PCI_BUS_ID 0,1,2\n"
    assert mask("root") == "PCI_BUS_ID 6,7\n"
    assert mask("stranger") == "PCI_BUS_ID\n"


def test_nccl_conf_says_what_the_fabric_is():
    def conf(cluster: str, more: str = "") -> list[str]:
        return made(cluster, "users: 2", more).files["nccl/nccl.conf"].splitlines()

    rails = conf(MANY)
    assert "NCCL_IB_HCA==" + ",".join(f"mlx5_{i}" for i in range(8)) in rails
    assert not any("CROSS_NIC" in x or "PXN" in x or "GID" in x for x in rails)
    narrow = conf(MANY.replace("servers_per_group: 4", "servers_per_group: 4, oversubscription: 2"))
    assert "NCCL_CROSS_NIC=0" in narrow
    apart = conf(
        MANY.replace("rail-optimised, switch: qm9700, servers_per_group: 4", "rail-only, switch: qm9700")
    )
    assert {"NCCL_CROSS_NIC=0", "NCCL_PXN_DISABLE=0"} <= set(apart)
    roce = conf(ROCE, "nccl: {qps_per_connection: 4, algorithm: ring, pxn: false}\n")
    assert {
        "NCCL_IB_GID_INDEX=3", "NCCL_IB_ADAPTIVE_ROUTING=1", "NCCL_IB_QPS_PER_CONNECTION=4", "NCCL_ALGO=Ring",
        "NCCL_PXN_DISABLE=1",
    } <= set(roce)  # fmt: skip


def test_adapters_behind_libfabric_get_no_settings_of_verbs():
    # EFA hangs on Ethernet, and a GID index of RoCE v2 says nothing to it
    aws = MANY.replace("dgx-h100", "aws-p5").replace("qm9700", "th4-400g")
    sharing = "users: 2, sockets: 2, cores: 48, threads: 2, memory: 2 TB"
    lines = made(aws, sharing, "nccl: {qps_per_connection: 4}\n").files["nccl/nccl.conf"].splitlines()
    assert "NCCL_NET=AWS Libfabric" in lines
    assert not any("NCCL_IB_" in line for line in lines)


def test_kubernetes_shares_add_up_to_the_cluster():
    files = made(MANY, "users: 3, isolation: tenants, names: [ada, bell, cray]").files
    objects = list(YAML(typ="safe").load_all(files["kubernetes/queues.yaml"]))
    queues = [o for o in objects if o["kind"] == "ClusterQueue"]
    assert [q["metadata"]["name"] for q in queues] == ["ada", "bell", "cray"]
    quotas = [q["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] for q in queues]
    assert sum(quotas) == 64
    assert max(quotas) - min(quotas) <= 1
    lines = {
        o["metadata"]["namespace"]: o["spec"]["clusterQueue"] for o in objects if o["kind"] == "LocalQueue"
    }
    assert lines == {"ada": "ada", "bell": "bell", "cray": "cray"}
    (job,) = YAML(typ="safe").load_all(files["kubernetes/job.yaml"])
    levels = next(iter(YAML(typ="safe").load_all(files["kubernetes/topology.yaml"])))["spec"]["levels"]
    wanted = job["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"]
    assert wanted == levels[-2]["nodeLabel"]


def test_a_rack_is_trays_of_four():
    files = made(RACKS, "users: 9, isolation: jobs").files
    assert "NodeName=server-01-tray-[01-18],server-02-tray-[01-18]" in files["slurm/slurm.conf"]
    assert "CoresPerSocket=72 ThreadsPerCore=1" in files["slurm/slurm.conf"]
    assert "Gres=gpu:gb200:4" in files["slurm/slurm.conf"]
    assert 'GPUS="4"' in files["health/check-node.sh"]
    assert 'ADAPTERS="mlx5_0 mlx5_1 mlx5_2 mlx5_3"' in files["health/check-node.sh"]
    assert "NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_2,mlx5_3\n" in files["nccl/nccl.conf"]


def test_one_machine_needs_no_tree_and_says_its_own_cores():
    files = made(
        ONE.replace("dgx-h100", "workstation-4x-l40s").replace("qm9700", "sn3700c"),
        "users: 9, isolation: jobs, sockets: 1, cores: 64, threads: 2, memory: 512 GB, notebooks: true",
    ).files
    assert "slurm/topology.conf" not in files
    assert "TopologyPlugin" not in files["slurm/slurm.conf"]
    assert "Sockets=1 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=463867 " in files["slurm/slurm.conf"]
    assert "DefCpuPerGPU=32\n" in files["slurm/slurm.conf"], "16 cores of two threads each"
    assert "jupyter/jupyter.sbatch" in files


@pytest.fixture
def node(tmp_path):
    """The health check of a DGX H100, and a machine to look at: run() -> (status, lines)."""
    check, smi = tmp_path / "check-node.sh", tmp_path / "nvidia-smi"
    check.write_text(made(MANY, "users: 2").files["health/check-node.sh"])
    rows = [f"{g}, 16, 16, 0, No, No" for g in range(8)]
    links = [18] * 8
    for i in range(8):
        port = tmp_path / "sys" / f"mlx5_{i}" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        (port / "link_layer").write_text("InfiniBand\n")

    def run() -> tuple[int, list[str]]:
        status = "\n".join(
            f"GPU {g}: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n"
            + "\n".join(f"\t Link {x}: 26.562 GB/s" for x in range(n))
            for g, n in enumerate(links)
        )
        smi.write_text(
            f"#!/bin/bash\nif [ $1 = nvlink ]; then cat <<'E'\n{status}\nE\nelse cat <<'E'\n"
            + "\n".join(rows)
            + "\nE\nfi\n"
        )
        smi.chmod(0o755)
        env = {**os.environ, "CHECK_NODE_SYS": str(tmp_path / "sys"), "CHECK_NODE_SMI": str(smi)}
        done = subprocess.run(["bash", str(check)], env=env, capture_output=True, text=True)
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout.splitlines()

    run.rows, run.links, run.folder = rows, links, tmp_path / "sys"  # type: ignore[attr-defined]
    return run


def test_a_sound_node_says_nothing(node):
    assert node() == (0, [])


def test_every_fault_of_a_node_is_named_and_nothing_else(node):
    node.rows[2] = "2, 8, 16, 0, No, No"
    node.rows[3] = "3, 16, 16, 4, Yes, No"
    node.rows[5] = "5, 16, 16, 0, No, Yes"
    node.links[6] = 17
    (node.folder / "mlx5_1/ports/1/state").write_text("1: DOWN\n")
    (node.folder / "mlx5_4/ports/1/rate").write_text("200 Gb/sec (4X HDR)\n")
    shutil.rmtree(node.folder / "mlx5_7")
    status, said = node()
    assert status == 1
    assert [line.removeprefix("check-node: ") for line in said] == [
        "GPU 2: PCIe x8, x16 expected",
        "GPU 3: 4 uncorrected memory errors since the driver loaded",
        "GPU 3: memory rows wait to be remapped; reset the GPU",
        "GPU 5: memory rows cannot be remapped; replace it",
        "GPU 6: 17 NVLinks up, 18 expected",
        "mlx5_1 port 1: state '1: DOWN', ACTIVE expected",
        "mlx5_4 port 1: rate '200 Gb/sec (4X HDR)', 400 Gb/s expected",
        "mlx5_7: no such adapter",
    ]


def test_a_lost_gpu_is_counted(node):
    del node.rows[7]
    assert node()[1] == ["check-node: 7 GPUs, 8 expected"]


@pytest.mark.skipif(not shutil.which("tsp"), reason="not installed: tsp (task-spooler)")
def test_the_queue_runs_as_many_at_once_as_there_are_gpus(tmp_path):
    gpuq = tmp_path / "gpuq"
    gpuq.write_text(made(ONE, "users: 20").files["queue/gpuq"].replace("gpus=8", "gpus=2"))
    out = tmp_path / "out"
    env = {**os.environ, "GPUQ_DIR": str(tmp_path / "sockets"), "TMPDIR": str(tmp_path)}
    try:
        for job in range(4):
            command = [
                "bash",
                str(gpuq),
                "bash",
                "-c",
                f"sleep 0.3; echo {job} $CUDA_VISIBLE_DEVICES >> {out}",
            ]
            subprocess.run(command, env=env, check=True, capture_output=True)
        waiting = subprocess.run(
            ["bash", str(gpuq)], env=env, check=True, capture_output=True, text=True
        ).stdout
        assert waiting.count("2 job(s)") == 2
        for gpu in range(2):
            socket = {**env, "TS_SOCKET": str(tmp_path / "sockets" / f"gpu-{gpu}")}
            subprocess.run(["tsp", "-w"], env=socket, check=False, timeout=10)
        assert sorted(out.read_text().split("\n")[:-1]) == ["0 0", "1 1", "2 0", "3 1"]
    finally:
        for gpu in range(2):
            socket = {**env, "TS_SOCKET": str(tmp_path / "sockets" / f"gpu-{gpu}")}
            subprocess.run(["tsp", "-K"], env=socket, check=False)


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="not installed: shellcheck")
@pytest.mark.parametrize(
    ("cluster", "sharing"),
    [
        (ONE, "users: 2, notebooks: true, containers: toolkit"),
        (ONE, "users: 20, notebooks: true"),
        (MANY, "users: 20, isolation: jobs, notebooks: true, containers: enroot"),
        (MANY, "users: 20, isolation: tenants"),
    ],
)
def test_every_script_is_clean(cluster, sharing, tmp_path):
    for name, text in made(cluster, sharing).files.items():
        if text.startswith("#!"):
            path = tmp_path / Path(name).name
            path.write_text(text)
            done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout


def test_more_tenants_than_gpus_are_told():
    """40 tenants of 16 GPUs: 24 quotas are 0, which the file alone would tell."""
    bundled = made(MANY.replace("servers: 8", "servers: 2"), "users: 40, isolation: tenants")
    assert bundled.files["kubernetes/queues.yaml"].count("nominalQuota: 0") == 24
    assert any("the last 24 have no share of their own" in fact for fact in bundled.facts)
    assert "the last 24 have no share of their own" in bundled.files["README.md"]
    assert not any("no share" in f for f in made(MANY, "users: 40, isolation: tenants").facts)
