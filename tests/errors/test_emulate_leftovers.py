"""However an emulation ends, no process, namespace, veth pair or file of it is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emulate_cases import why_not
from railwright.emulate.session import MARK

pytestmark = [pytest.mark.alone, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]
ROOT = Path(__file__).parents[2]
COMMAND = [
    sys.executable,
    "-c",
    # A shell's background jobs ignore SIGINT, and a test may run in one.
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from railwright.cli.main import main; main()",
    "emulate", "examples/emulate-16.yaml", "--servers", "2",
]  # fmt: skip


def processes(parent):
    """Of an emulation that a process started."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"{MARK}={parent}".encode() in (
                folder / "environ"
            ).read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def namespaces(pids):
    found = set()
    for pid in pids:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
        except OSError:
            continue
    return found


def devices():
    return sorted(os.listdir("/sys/class/net"))


def gone(parent, within=10.0):
    limit = time.monotonic() + within
    while processes(parent) and time.monotonic() < limit:
        time.sleep(0.05)
    return processes(parent) == []


@pytest.mark.parametrize(
    ("ending", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["Ctrl-C", "SIGTERM", "kill -9"],
)
def test_nothing_is_left_after_a_violent_end(ending, status, tmp_path):
    before = devices()
    started = subprocess.Popen(
        [*COMMAND, "--repeat", "1000"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    limit = time.monotonic() + 30
    # 8 GPUs, each a process in a namespace of its own, and the one that holds them.
    while len(namespaces(running := processes(started.pid))) < 9 and time.monotonic() < limit:
        time.sleep(0.05)
    assert len(namespaces(running)) >= 9, "the emulation never ran"
    os.kill(started.pid, ending)
    assert started.wait(20) == status
    assert gone(started.pid)
    assert devices() == before
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_after_a_death_inside(tmp_path):
    """The process that holds the fabric is killed: one sentence, and everything of it is gone."""
    started = subprocess.Popen(
        [*COMMAND, "--repeat", "1000"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    limit = time.monotonic() + 30
    while len(namespaces(running := processes(started.pid))) < 9 and time.monotonic() < limit:
        time.sleep(0.05)
    os.kill(sorted(running)[1], signal.SIGKILL)
    _, said = started.communicate(timeout=20)
    assert started.returncode == 2
    assert "the emulation ended before it answered" in said
    assert gone(started.pid)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_after_a_normal_end(tmp_path):
    before = devices()
    done = subprocess.Popen(
        [*COMMAND, "--repeat", "1", "--json"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.wait(60) == 0
    assert gone(done.pid, within=2.0)
    assert devices() == before
    assert list(tmp_path.iterdir()) == []
