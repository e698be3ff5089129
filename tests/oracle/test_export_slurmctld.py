"""Debian's slurmctld reads the exported topology and nodes, and scontrol says the same tree.

The controller runs with a munge key, ports and folders of its own, without any node daemon.
Debian: slurmctld, slurm-client, munge (22.05; its Slurm has no topology/block yet).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from export_fabrics import built, small_parts
from railwright import export
from railwright.fabric import Fabric

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
MISSING = [tool for tool in ("slurmctld", "scontrol", "munged") if not shutil.which(tool, path=PATH)]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmctld and munged of a test run as root here"),
]

TINY = small_parts(8)
DESIGNS = {
    "rails, 3 tiers, 260 servers": lambda: (built(260, "rail-optimised"), None),
    "fat tree, 3 tiers": lambda: (built(16, "fat-tree", "small", "tiny", TINY), TINY),
    "two racks of 18 trays": lambda: (built(2, "fat-tree", "gb200-nvl72"), None),
}


@pytest.fixture
def controller() -> Iterator:
    """Start a controller on the exported lines; stop it, and munge, whatever happens."""
    started: list[subprocess.Popen] = []
    # munged refuses a key below a folder that others may write to, and socket paths are short.
    folder = Path(
        tempfile.mkdtemp(prefix="railwright-slurm-", dir="/run" if os.access("/run", os.W_OK) else None)
    )

    def run(f: Fabric, catalog):
        files = export.render(f, "slurm", catalog=catalog)
        (folder / "topology.conf").write_text(files["topology.conf"])
        (folder / "gres.conf").write_text(files["gres.conf"])
        conf = folder / "slurm.conf"
        # Names of machines that do not exist do not resolve; nothing else of the export is touched.
        conf.write_text(settings(folder) + files["slurm.conf"].replace(" Gres=", " NodeAddr=127.0.0.1 Gres="))
        env = {**os.environ, "PATH": PATH, "SLURM_CONF": str(conf)}
        munge(folder, started, env)
        with (folder / "out").open("w") as out:
            started.append(
                subprocess.Popen(["slurmctld", "-D", "-i", "-f", str(conf)], env=env, stdout=out, stderr=out)
            )

        def show(*what: str) -> str:
            return subprocess.run(
                ["scontrol", "--oneliner", "show", *what],
                env=env, capture_output=True, text=True, timeout=10, check=True,
            ).stdout  # fmt: skip

        wait_for(folder / "out", "Running as primary controller", started[-1])
        return show, (folder / "out").read_text()

    try:
        yield run
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def settings(folder: Path) -> str:
    (folder / "state").mkdir()
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], other.getsockname()[1]
    return f"""ClusterName=railwright
SlurmctldHost={socket.gethostname().split(".")[0]}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/pgid
"""


def munge(folder: Path, started: list[subprocess.Popen], env: dict[str, str]) -> None:
    key = folder / "munge.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    folder.chmod(0o755)
    names = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder}/munge.{suffix}" for option, suffix in names.items()]
    with (folder / "munge.out").open("w") as out:
        started.append(
            subprocess.Popen(["munged", "-F", "--force", *options], env=env, stdout=out, stderr=out)
        )
    wait_for(folder / "munge.out", "Created socket", started[-1])


def wait_for(log: Path, words: str, process: subprocess.Popen) -> None:
    for _ in range(160):
        if words in log.read_text():
            return
        assert process.poll() is None, log.read_text()[-3000:]
        time.sleep(0.05)
    raise AssertionError(f"no '{words}' within 8 s: {log.read_text()[-3000:]}")


@pytest.mark.parametrize("design", DESIGNS)
def test_slurmctld_reads_the_tree_and_the_nodes(controller, design):
    f, catalog = DESIGNS[design]()
    show, log = controller(f, catalog)
    conf = export.render(f, "slurm", catalog=catalog)["topology.conf"]
    ours = dict(re.findall(r"SwitchName=(\S+) (\S+)", conf))
    theirs = {}
    for line in show("topology").splitlines():
        fields = dict(field.split("=", 1) for field in line.split())
        leaf = fields["Level"] == "0"
        theirs[fields["SwitchName"]] = (
            f"Nodes={fields['Nodes']}" if leaf else f"Switches={fields['Switches']}"
        )
    assert {k: expanded(v) for k, v in theirs.items()} == {k: expanded(v) for k, v in ours.items()}
    every = {n for v in ours.values() if v.startswith("Nodes") for n in expanded(v)}
    nodes = show("node").splitlines()
    assert {line.split()[0].removeprefix("NodeName=") for line in nodes} == every
    gres = re.search(r"Gres=(\S+) State", export.render(f, "slurm", catalog=catalog)["slurm.conf"])[1]
    assert all(f" Gres={gres} " in line for line in nodes)
    problems = [x for x in log.splitlines() if "topology" in x.lower() and "error" in x.lower()]
    assert not problems


def expanded(expression: str) -> list[str]:
    """'Nodes=a[01-03,7],b' as its names: what a hostlist means, read independently of our writer."""
    names: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,]*)?", expression.split("=", 1)[1]):
        prefix, bracket, rest = part.partition("[")
        if not bracket:
            names.append(prefix)
            continue
        for run in rest.rstrip("]").split(","):
            first, _, last = run.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            names += [f"{prefix}{number:0{len(first)}d}" for number in numbers]
    return sorted(names)
