"""Other programs as subprocesses: under a deadline, their cost measured, their failure in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KIBI = 1024
SAMPLE = 0.01
"""Seconds between two looks at a running program's memory."""

TAIL = 2000
"""Bytes of a program's output looked through for its last words."""


class Failed(Exception):
    """A simulator that did not answer; the text is one sentence for the table."""


@dataclass(frozen=True)
class Ran:
    """A program that ended by itself with status 0.

    cpu, wall  processor and elapsed time [s]
    memory     largest resident set; None for a program too quick to be looked at [byte]
    output     file with what it printed, errors included
    """

    cpu: float
    wall: float
    memory: int | None
    output: Path

    def last_line(self) -> str:
        return last_line(self.output)


def run(
    command: Sequence[str], folder: Path, limit: float, environment: Mapping[str, str] | None = None
) -> Ran:
    """Run a program in a folder, its output in PROGRAM.log there.

    limit  seconds after which it is ended, with all it started
    Raises Failed where it cannot start, runs past the limit, or ends with another status than 0.
    """
    name = Path(command[0]).name
    log = folder / f"{name}.log"
    before = time.monotonic()
    with open(log, "wb") as out:
        try:
            process = subprocess.Popen(
                list(command), cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True, env={**os.environ, **(environment or {})},
            )  # fmt: skip
        except OSError as error:
            raise Failed(f"{command[0]} cannot be started: {error.strerror}") from None
        watch = _Watch(process.pid, limit)
        watch.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            # Ctrl-C: leave nothing running behind.
            _end(process.pid)
            raise
        finally:
            watch.done.set()
            watch.join()
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - before
    if watch.late:
        raise Failed(f"{name} had not finished after {limit:g} s and was ended; give it more by --limit")
    if process.returncode:
        how = (
            f"was ended by {signal.Signals(-process.returncode).name}"
            if process.returncode < 0
            else f"ended with status {process.returncode}"
        )
        raise Failed(f"{name} {how}: {last_line(log) or 'it said nothing'}")
    return Ran(used.ru_utime + used.ru_stime, wall, watch.memory or None, log)


def last_line(file: Path) -> str:
    """The last line of a file that says something; '' where none does."""
    with open(file, "rb") as content:
        content.seek(0, os.SEEK_END)
        content.seek(max(0, content.tell() - TAIL))
        lines = content.read().decode("utf-8", "replace").splitlines()
    return next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "")


class _Watch(threading.Thread):
    """Ends a process that runs too long, and reads its largest resident set while it runs.

    The kernel's ru_maxrss counts what the parent held when it forked, which can be more than the program.
    """

    def __init__(self, pid: int, limit: float) -> None:
        super().__init__(daemon=True)
        self.pid, self.until = pid, time.monotonic() + limit
        self.done, self.late, self.memory = threading.Event(), False, 0

    def run(self) -> None:
        # The kernel says what the largest has been, so the last look counts; the first would be too early.
        while not self.done.wait(SAMPLE):
            self.memory = max(self.memory, _high_water(self.pid))
            if time.monotonic() > self.until:
                self.late = True
                _end(self.pid)
                return


def _high_water(pid: int) -> int:
    """VmHWM of a process [byte]; 0 where the kernel does not say, as for one that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = (line.split() for line in status.splitlines() if line.startswith("VmHWM:"))
    return next((int(words[1]) * KIBI for words in found), 0)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
