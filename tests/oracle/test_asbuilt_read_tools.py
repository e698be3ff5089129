"""The real tools on a simulated fabric: whatever they print is the wiring the net file says."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from railwright.asbuilt.read import read, read_tables

NET = Path(__file__).parent.parent / "data" / "asbuilt" / "small.net"
TOOLS = ("ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "dump_fts")
PRELOAD = next((p for p in map(Path, (
    "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so", "/usr/lib/aarch64-linux-gnu/umad2sim/libumad2sim.so",
    "/usr/lib/umad2sim/libumad2sim.so")) if p.exists()), None)  # fmt: skip

pytestmark = pytest.mark.skipif(
    PRELOAD is None or any(shutil.which(tool) is None for tool in TOOLS),
    reason="needs Debian's ibsim-utils, opensm and infiniband-diags",
)
COMMANDS = {
    "topology": ("ibnetdiscover",),
    "grouped": ("ibnetdiscover", "-g"),
    "full": ("ibnetdiscover", "-f"),
    "ports": ("ibnetdiscover", "-p"),
    "links": ("iblinkinfo",),
    "lines": ("iblinkinfo", "-l"),
    "tables": ("dump_fts",),
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Folder with what each command prints."""
    folder = tmp_path_factory.mktemp("ibsim")
    env = {**os.environ, "IBSIM_SOCKNAME": f"railwright-{os.getpid()}"}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            ["ibsim", "-s", "-n", str(NET)], stdin=subprocess.PIPE, stdout=log, stderr=log, env=env
        )
    client = {**env, "LD_PRELOAD": str(PRELOAD), "OSM_TMP_DIR": str(folder), "OSM_CACHE_DIR": str(folder)}
    try:
        time.sleep(0.5)
        if server.poll() is not None:
            pytest.skip("ibsim does not start here: " + (folder / "log").read_text()[-200:])
        manager = ["opensm", "-o", "-R", "ftree", "-f", str(folder / "opensm.log")]
        subprocess.run(manager, env=client, capture_output=True, timeout=30, check=True)
        for name, command in COMMANDS.items():
            done = subprocess.run(command, env=client, capture_output=True, timeout=30, check=True)
            (folder / name).write_bytes(done.stdout)
    finally:
        server.kill()
        server.wait()
    return folder


@pytest.mark.parametrize("form", [name for name in COMMANDS if name != "tables"])
def test_every_command_tells_the_wiring_of_the_net_file(printed, form):
    wiring = read(printed / form)
    reference = read(NET.with_name("small.topology"))
    names = [node.name for node in wiring.nodes]
    assert wiring.links == reference.links
    assert names == [node.name for node in reference.nodes]


def test_the_tables_of_the_subnet_manager_are_read(printed):
    tables = read_tables(printed / "tables")
    assert len(tables.ports) == 3
    assert tables.notes == ()
