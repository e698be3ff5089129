"""The emulated fabric from outside: started, told what to do, and gone at the end, whatever happens."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import railwright
from railwright.emulate.requirements import Tools
from railwright.errors import RailwrightError

MARK = "RAILWRIGHT_EMULATION"
"""In the environment of every process of an emulation: the process id that started it."""

BUILD_WITHIN = 120.0


class Session:
    """A context in which the fabric exists.

    All processes are children of one that is process 1 of private namespaces.  It ends when we end (its stdin
    closes) and is killed when the context is left; the kernel then removes the rest.
    """

    def __init__(self, tools: Tools, config: dict[str, Any]) -> None:
        self._tools, self._config = tools, config
        self.built = 0.0

    def __enter__(self) -> Session:
        source = str(Path(railwright.__file__).parents[1])
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._child = subprocess.Popen(
            [*self._tools.unshare, sys.executable, "-m", "railwright.emulate.inside"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C is ours to handle: it must not reach the processes one by one.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), MARK: str(os.getpid())},
        )
        self._unread = b""
        try:
            self.built = float(self.ask(self._config, BUILD_WITHIN)["built"])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def ask(self, order: dict[str, Any], within: float) -> dict[str, Any]:
        """Give an order and wait for its answer, at most `within` [s].

        Raises RailwrightError where the kernel refused something, or nothing came in time.
        """
        assert self._child.stdin is not None
        limit = time.monotonic() + within
        try:
            self._child.stdin.write(json.dumps(order).encode() + b"\n")
            self._child.stdin.flush()
            answer = self._read(limit)
        except BrokenPipeError:
            answer = {}
        if "refused" in answer:
            raise RailwrightError(f"the emulated fabric cannot be built: {answer['refused']}")
        if not answer:
            raise RailwrightError(f"the emulation ended before it answered: {self._last_words()}")
        return answer

    def close(self) -> None:
        """Kill what still runs, and wait until it is gone."""
        self._child.kill()
        self._child.communicate()

    def _read(self, limit: float) -> dict[str, Any]:
        assert self._child.stdout is not None
        descriptor = self._child.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, limit - time.monotonic()))
            if not ready:
                raise RailwrightError(
                    "the emulation did not answer in time: the machine is too busy or the blocks are too "
                    "large; give a longer --timeout, a smaller --block or fewer --gpus"
                )
            data = os.read(descriptor, 1 << 20)
            if not data:
                return {}
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        assert self._child.stderr is not None
        self._child.kill()
        lines = self._child.stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no reason given"
