"""Text files of evidence: read whole, refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from railwright.errors import Mistake, SpecError

LARGEST = 256 * 2**20
"""Largest text that is read [byte]."""


def text_of(path: Path) -> str:
    """The file's text; SpecError for one that is not there, a folder, too large, or binary."""
    try:
        if path.is_dir():
            fail(path, 0, "this is a folder; name the file inside it")
        with path.open("rb") as stream:
            raw = stream.read(LARGEST + 1)
    except FileNotFoundError:
        fail(path, 0, "there is no such file")
    except OSError as no:
        fail(path, 0, f"the file cannot be read ({no.strerror or no})")
    if len(raw) > LARGEST:
        fail(path, 0, f"it is larger than {LARGEST // 2**20} MiB; cut it down to what matters")
    if b"\0" in raw[:65536]:
        fail(path, 0, "this is a binary file; a text was expected")
    return raw.decode("utf-8", errors="replace")


def fail(path: Path, line: int, message: str) -> NoReturn:
    """Refuse the file at a line (0: as a whole)."""
    raise SpecError([Mistake(str(path), line, 0, "", message)])
