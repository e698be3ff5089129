"""The output folder: written whole or not at all, never over an existing one."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from railwright.errors import RailwrightError
from railwright.report.files.results import results, to_text
from railwright.report.files.tables import cable_schedule, sweep_points
from railwright.report.files.trace import trace
from railwright.report.html import page
from railwright.study.result import Result


def write(result: Result, folder: str | Path) -> list[Path]:
    """Write report.html, result.json, trace.json, cables.csv and sweeps.csv into a new folder.

    Parents are made.  The files are written into a hidden sibling that is renamed at the end, so that a crash
    leaves no half folder.  Returns the files, report.html first.  Same result, same bytes.
    Raises RailwrightError when the folder exists already or cannot be written.
    """
    target = Path(folder)
    refuse_existing(target)
    files = {
        "report.html": page(result),
        "result.json": to_text(results(result)),
        "trace.json": json.dumps(trace(result), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        + "\n",
        "cables.csv": cable_schedule(result.variants[result.recommended].fabric if result.variants else None),
        "sweeps.csv": sweep_points(result),
    }
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        reason = "not a folder" if isinstance(error, FileExistsError) else error.strerror
        raise RailwrightError(
            f"cannot write to '{target.parent}': {reason}; choose another folder"
        ) from error
    try:
        for name, text in files.items():
            (draft / name).write_bytes(text.encode("utf-8"))
        draft.chmod(0o777 & ~_umask())
        refuse_existing(target)
        draft.rename(target)
    except OSError as error:
        raise RailwrightError(f"cannot write '{target}': {error.strerror}; choose another folder") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [target / name for name in files]


def refuse_existing(folder: str | Path) -> None:
    """Raise RailwrightError if something of that name is there: an earlier answer is never written over."""
    path = Path(folder)
    if os.path.lexists(path):
        raise RailwrightError(
            f"'{path}' exists and results are never overwritten; "
            f"choose another folder with --out {_free_name(path)}, or remove it"
        )


def _free_name(folder: Path) -> Path:
    """The first of folder-2, folder-3, … that does not exist."""
    if folder.name in ("", ".."):
        # '.', '/' and '..' have no name of their own to count up.
        folder = Path("results", "study")
    number = 2
    while os.path.lexists(free := folder.with_name(f"{folder.name}-{number}")):
        number += 1
    return free


def _umask() -> int:
    """The process's mask: mkdtemp makes private folders, but a report is as open as any other file."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
