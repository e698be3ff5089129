"""Debian's Slurm runs on the deployed files: several slurmd on one machine, jobs placed by GPU and switch.

Changed of the bundle, because this is one machine without GPUs: paths and ports; the hosts' addresses;
cgroups (proctrack/pgid, no task plugin, no Contain); device files (of no driver); `config_overrides`,
since slurmd finds fewer cores than a DGX has.  Everything else is the bundle's text.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from railwright.catalog import load_catalog
from railwright.deploy import bundle
from railwright.fabric import build
from railwright.spec import load_study_text

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
TOOLS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "munged")
MISSING = [tool for tool in TOOLS if not shutil.which(tool, path=PATH)]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmctld, slurmd and munged of a test run as root here"),
]

STUDY = """
railwright: 1
name: Two units of two servers
cluster:
  servers: 4
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700, servers_per_group: 2}
sharing: {users: 6, isolation: jobs}
"""
HOSTS = [f"server-{i + 1:02d}" for i in range(4)]

SMI = """#!/bin/bash
# Eight sound GPUs, or seven where the file says so; this host's name is that of the slurmd that asks.
if [ "$1" = nvlink ]; then
  for g in 0 1 2 3 4 5 6 7; do
    echo "GPU $g: NVIDIA H100"
    for l in $(seq 0 17); do echo "  Link $l: 26.562 GB/s"; done
  done
  exit
fi
last=7; [ "$(cat FOLDER/bad 2>/dev/null)" = "$SLURMD_NODENAME" ] && last=6
for g in $(seq 0 $last); do echo "$g, 16, 16, 0, No, No"; done
"""


class Slurm:
    """A controller and a slurmd for each host, on the deployed files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen] = []
        self.env = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *command: str, timeout: float = 30) -> str:
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, (command, done.stdout, done.stderr, self.logs())
        return done.stdout

    def start(self, log: str, *command: str) -> None:
        with (self.folder / log).open("w") as out:
            self.started.append(subprocess.Popen(command, env=self.env, stdout=out, stderr=out))

    def logs(self) -> str:
        return "\n".join(f"{p.name}: {p.read_text()[-1500:]}" for p in sorted(self.folder.glob("*.out")))

    def states(self) -> dict[str, str]:
        rows = self.run("scontrol", "--oneliner", "show", "node").splitlines()
        return {re.search(r"NodeName=(\S+)", r)[1]: re.search(r" State=(\S+)", r)[1] for r in rows}

    def until(self, done) -> None:
        for _ in range(200):
            if done():
                return
            time.sleep(0.1)
        raise AssertionError(self.logs())


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    # munged refuses a key below a folder that others may write to, and socket paths are short.
    place = "/run" if os.access("/run", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="railwright-deploy-", dir=place))
    cluster = Slurm(folder)
    try:
        _install(cluster)
        yield cluster
    finally:
        for process in reversed(cluster.started):
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _install(cluster: Slurm) -> None:
    folder = cluster.folder
    folder.chmod(0o755)
    study, catalog = load_study_text(STUDY), load_catalog()
    files = bundle(study, build(study.cluster, catalog), catalog).files
    ports = _free_ports(2 + len(HOSTS))
    conf = files["slurm/slurm.conf"]
    assert "Prolog=/etc/slurm/check-node.sh" in conf
    for pattern, text in {
        r"SlurmctldHost=.*": f"SlurmctldHost={socket.gethostname().split('.')[0]}(127.0.0.1)\n"
        f"SlurmctldPort={ports[0]}\nAuthInfo=socket={folder}/munge.sock\nSlurmdParameters=config_overrides",
        r"SlurmUser=slurm": "SlurmUser=root",
        r"/var/spool/slurmctld": f"{folder}/state",
        r"/var/spool/slurmd": f"{folder}/spool-%n",
        r"/run/slurmctld\.pid": f"{folder}/ctld.pid",
        r"/run/slurmd\.pid": f"{folder}/%n.pid",
        r"Slurm(ctld|d)LogFile=.*\n": "",
        r"proctrack/cgroup": "proctrack/pgid",
        r"TaskPlugin=.*\n": "",
        r"PrologFlags=Contain\n": "",
        r"HealthCheck\w+=.*\n": "",
        r"/etc/slurm/": f"{folder}/",
        r"NodeName=(\S+) ": rf"NodeName=\1 NodeHostname=localhost NodeAddr=127.0.0.1 "
        rf"Port={ports[2]}-{ports[2] + len(HOSTS) - 1} ",
    }.items():
        conf, count = re.subn(pattern, text, conf)
        assert count, pattern
    (folder / "slurm.conf").write_text(conf)
    (folder / "topology.conf").write_text(files["slurm/topology.conf"])
    for gpu in range(8):
        os.mknod(folder / f"nvidia{gpu}", stat.S_IFCHR | 0o600, os.makedev(195, gpu))
    (folder / "gres.conf").write_text(files["slurm/gres.conf"].replace("/dev/nvidia", f"{folder}/nvidia"))
    (folder / "cgroup.conf").write_text(files["slurm/cgroup.conf"])
    for i in range(8):
        port = folder / "sys" / f"mlx5_{i}" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        (port / "link_layer").write_text("InfiniBand\n")
    smi, check = folder / "nvidia-smi", folder / "check-node.sh"
    smi.write_text(SMI.replace("FOLDER", str(folder)))
    text = files["health/check-node.sh"]
    text = text.replace("/sys/class/infiniband", f"{folder}/sys").replace(":-nvidia-smi", f":-{smi}")
    check.write_text(text)
    for script in (smi, check):
        script.chmod(0o755)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    names = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder}/munge.{suffix}" for option, suffix in names.items()]
    cluster.start("munge.out", "munged", "-F", "--force", *options)
    cluster.until(lambda: (folder / "munge.sock").exists())
    cluster.start("ctld.out", "slurmctld", "-D", "-i", "-f", str(folder / "slurm.conf"))
    for host in HOSTS:
        (folder / f"spool-{host}").mkdir()
        cluster.start(f"{host}.out", "slurmd", "-D", "-N", host, "-f", str(folder / "slurm.conf"))
    cluster.until(lambda: set(cluster.states().values()) == {"IDLE"})


def _free_ports(count: int) -> list[int]:
    """Consecutive free ports."""
    for first in range(21000, 60000, 97):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for i, one in enumerate(sockets):
                one.bind(("127.0.0.1", first + i))
            return list(range(first, first + count))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise AssertionError("no free ports")


def test_a_job_gets_the_gpus_it_asks_for_and_no_other(slurm):
    shown = slurm.run("srun", "--gpus=3", "-N1", "bash", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert len(shown.strip().split(",")) == 3
    mine = slurm.run(
        "srun", "--gpus-per-node=8", "-N4", "bash", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    )
    assert sorted(mine.split("\n")[:-1]) == [f"{host} 0,1,2,3,4,5,6,7" for host in HOSTS]


def test_gpus_bring_their_cores_and_memory(slurm):
    """Two of eight GPUs: a quarter of 112 cores, whose two threads each are CPUs to Slurm."""
    said = slurm.run("srun", "--gpus=2", "-N1", "bash", "-c", "scontrol show job $SLURM_JOB_ID")
    assert "gres:gpu:2" in said
    assert "MemPerTres=gpu:" in said
    assert re.search(r"NumCPUs=(\d+)", said)[1] == "56"


def test_two_hosts_are_two_under_one_switch(slurm):
    """With one host of the first unit taken, two hosts are those of the second, not one of each."""
    slurm.run(
        "sbatch",
        "--wait-all-nodes=1",
        "-w",
        HOSTS[0],
        "--gpus-per-node=8",
        "--wrap",
        "sleep 60",
        "-o",
        "/dev/null",
    )
    slurm.until(lambda: slurm.states()[HOSTS[0]] != "IDLE")
    got = slurm.run("srun", "-N2", "--gpus-per-node=8", "bash", "-c", "echo $SLURMD_NODENAME")
    slurm.run("scancel", "--user=root")
    assert sorted(got.split()) == HOSTS[2:]


def test_a_host_that_is_not_the_design_is_drained_by_its_prolog(slurm):
    slurm.until(lambda: set(slurm.states().values()) == {"IDLE"})
    (slurm.folder / "bad").write_text(HOSTS[1])
    slurm.run("sbatch", "-w", HOSTS[1], "--gpus-per-node=8", "--wrap", "true", "-o", "/dev/null")
    slurm.until(lambda: "DRAIN" in slurm.states()[HOSTS[1]])
    (slurm.folder / "bad").unlink()
    slurm.run("scancel", "--user=root")
    assert "DRAIN" not in "".join(s for h, s in slurm.states().items() if h != HOSTS[1])
