"""Helpers beside the test folders importable; under `pytest -n` tests side by side, some of them alone."""

from __future__ import annotations

import fcntl
import gc
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# How long an example takes says what machine the tests run on, not whether they hold.
settings.register_profile("railwright", parent=settings.default, deadline=None)
settings.load_profile("railwright")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Each worker imports everything and builds its own catalog: more than four gain nothing."""
    return min(os.cpu_count() or 1, 4)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """File by file, in the order of a serial run: what a file shares among its tests is made once."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


class _Backwards(pytest.Dir):
    """A folder whose files are collected from the last to the first."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        return [*super().collect()][::-1]


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Dir | None:
    """Every other worker begins at the other end: what one has rewritten and compiled, the other finds done.

    It takes half a minute of a core to rewrite the asserts of all files and to compile what they import.
    """
    backwards = _worker() % 2 == 1
    return _Backwards.from_parent(parent, path=path) if backwards else None  # type: ignore[no-any-return]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In one order for all workers, which they compare."""
    if _worker() >= 0:
        items.sort(key=lambda item: item.path)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not look at it again, nor
    as often at the small tuples that models are made of, in which it finds nothing: a tenth of all time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _worker() -> int:
    """The number of this worker of `pytest -n`; -1 where there are none."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw-1").removeprefix("gw"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Under `pytest -n`, no test of another worker runs beside one that is marked `alone`."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return (yield)
    folder = item.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]
    with _turn(folder, item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _turn(folder: Path, alone: bool) -> Iterator[None]:
    """Hold the room, with others or alone.  Who waits for it keeps the door: nobody slips in before."""
    door, room = _open(folder / "door.lock"), _open(folder / "room.lock")
    fcntl.flock(door, fcntl.LOCK_EX)
    try:
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    finally:
        fcntl.flock(door, fcntl.LOCK_UN)
    try:
        yield
    finally:
        fcntl.flock(room, fcntl.LOCK_UN)


@cache
def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
