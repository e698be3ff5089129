"""Files written for a user: all or none of them, never over one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from railwright.errors import PlanError


def write_new(files: Mapping[Path, str]) -> list[Path]:
    """Write texts as UTF-8 with plain line ends; missing folders are made.

    Raises PlanError, before anything is written, where a file exists already, or where one cannot be written.
    """
    refuse_existing(files)
    path, written = Path(), list[Path]()
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as out:
                written.append(path)
                out.write(text)
    except BaseException as error:
        for one in written:
            one.unlink(missing_ok=True)
        if isinstance(error, OSError):
            where = error.filename or path
            raise PlanError(f"cannot write '{where}': {error.strerror}; name another place") from None
        raise
    return written


def refuse_existing(files: Mapping[Path, str] | list[Path]) -> None:
    """Raise PlanError where one of the files is there."""
    if taken := [path for path in files if path.exists()]:
        more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
        raise PlanError(
            f"'{taken[0]}'{more} exists already and is not overwritten; remove it or name another place"
        )


def refuse_filled(folder: Path) -> None:
    """Raise PlanError where something of that name is there, unless it is an empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PlanError(f"'{folder}' exists already and is not overwritten; remove it or name another folder")
