"""Compiled kernels: cached by their source, per user, and at hand without any cache."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from other_process import printed
from railwright.network.compiled import kernel_cache
from railwright.network.compiled.kernel_cache import cache_folder, source_hash

FOLDER = Path(kernel_cache.__file__).parent
KERNELS = sorted(path.stem for path in FOLDER.glob("kernel*.py") if path.stem != "kernel_cache")

BOTH = """
import numpy as np
from railwright.network.fluid.events import together
from railwright.network.fluid.events_run import play_compiled
from railwright.network.maxmin import FluidSystem, compiled_rates
from railwright.traffic import Traffic
n = np.zeros(2, np.int32)
system = FluidSystem(np.array([0, 1, 2]), n, np.ones(2), np.array([4.0]), np.array([2.0, 6.0]), np.ones(2))
print(compiled_rates(system, np.arange(2), system.capacity))
print(play_compiled(system, together(Traffic(n, n, n - 1, system.size)), 0.0, np.zeros(0, np.int64)).finish)
"""
ANSWER = "[2. 2.]\n[1. 2.]"

ONE = """
import numpy as np
from railwright.network.maxmin import FluidSystem, compiled_rates
system = FluidSystem(np.array([0, 1, 2]), np.zeros(2, np.int32), np.ones(2), np.array([4.0]),
                     np.array([2.0, 6.0]), np.ones(2))
print(compiled_rates(system, np.arange(2), system.capacity))
"""
"""The one that is compiled soonest."""

SMALL = """
import sys, time
from railwright.network.compiled.kernel_cache import compiled
def twice(x): return 2 * x
kernel = compiled(twice, "float64(float64)")
print(kernel(2.0), sum(getattr(kernel, "stats").cache_hits.values()))
"""


def script(folder: Path) -> Path:
    """A copy of the package with one small kernel in it, as a file: numba caches nothing of `-c`."""
    shutil.copytree(FOLDER.parents[1], folder / "railwright", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "small.py").write_text(SMALL)
    return folder / "small.py"


def run_small(file: Path, **environment: str | None) -> str:
    return printed(
        f"import sys, runpy; sys.path.insert(0, {str(file.parent)!r}); import small", **environment
    )


def test_a_kernel_answers_without_a_home_and_every_kernel_file_stands_alone() -> None:
    assert printed(ONE, HOME=None, XDG_CACHE_HOME=None, NUMBA_CACHE_DIR=None) == ANSWER.splitlines()[0]
    for name in KERNELS:
        text = (FOLDER / f"{name}.py").read_text()
        ours = [line for line in text.splitlines() if "railwright" in line and "import" in line]
        assert ours == ["from railwright.network.compiled.kernel_cache import compiled"], name


def test_both_kernels_are_loaded_by_the_second_process_and_answer_alike(tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    assert printed(BOTH, NUMBA_CACHE_DIR=folder) == ANSWER
    files = {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*.nb?")}
    assert len([path for path in files if path.suffix == ".nbc"]) == 2
    assert printed(BOTH, NUMBA_CACHE_DIR=folder) == ANSWER
    assert {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*.nb?")} == files


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_where_the_cache_is_a_file_nothing_is_cached_and_all_works(
    tmp_path: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder would have to be")
    for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert cache_folder() is None
    monkeypatch.setenv(variable, str(blocked))
    assert cache_folder() is None


def test_a_folder_of_somebody_else_or_open_to_others_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = cache_folder()
    assert folder is not None
    assert folder.name == f"{source_hash()}-{os.getuid()}"
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)
    assert cache_folder() is None
    folder.chmod(0o700)
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    other = cache_folder()
    assert other is None or other != folder


def test_an_edited_kernel_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER, tmp_path / "compiled")
    monkeypatch.setattr(kernel_cache, "__file__", str(tmp_path / "compiled" / "kernel_cache.py"))
    before = source_hash()
    (tmp_path / "compiled" / "kernel_notes.txt").write_text("no kernel")
    assert source_hash() == before
    edited = tmp_path / "compiled" / "kernel_events.py"
    stat, text = edited.stat(), edited.read_text()
    edited.write_text(text.replace("1e-12", "2e-12", 1))
    os.utime(edited, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert source_hash() != before


def test_what_an_install_elsewhere_compiled_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    """numba keeps code by where its source lies: a serving search compiled its loop for a minute, where one
    of the same source elsewhere was kept, to save seconds."""
    shutil.copytree(FOLDER, tmp_path / "compiled")
    assert source_hash(tmp_path / "compiled") != source_hash(FOLDER)
    assert source_hash(FOLDER) == source_hash()


def test_an_install_that_cannot_be_written_caches_at_the_user_and_a_full_cache_does_no_harm(
    tmp_path: Path,
) -> None:
    file = script(tmp_path / "installed")
    home = tmp_path / "home"
    home.mkdir()
    installed = list((tmp_path / "installed").rglob("*"))
    for path in installed:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        settings: dict[str, str | None] = {
            "HOME": str(home),
            "XDG_CACHE_HOME": None,
            "NUMBA_CACHE_DIR": None,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        assert run_small(file, **settings) == "4.0 0"
        assert run_small(file, **settings) == "4.0 1"
        assert not [path for path in (tmp_path / "installed").rglob("*") if path not in installed]
        # numba's own files unwritable in a folder that is: saving fails, answering does not.
        for path in (home / ".cache" / "railwright").rglob("*.nb?"):
            path.unlink()
            path.mkdir()
        assert run_small(file, **settings).startswith("4.0")
    finally:
        for path in installed:
            path.chmod(0o755)
