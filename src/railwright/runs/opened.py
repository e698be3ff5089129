"""The text of a run's file: a script, a configuration, or a log however long."""

from __future__ import annotations

from pathlib import Path

from railwright.errors import RailwrightError
from railwright.spec.document import read_text

MOST = 64 * 2**20
"""What is read of a file: a log's list of arguments stands at its head. [byte]"""

LOOKED_AT = 4096
"""Bytes of which a tenth are zeros in a file that is no text."""


def text_of(path: Path) -> str:
    """The text of a file that the user named; what is no UTF-8 in it is replaced.

    Raises RailwrightError where it is missing (with the nearest name beside it), a folder, unreadable or no
    text.
    """
    if not path.exists():
        return read_text(path)
    try:
        with path.open("rb") as file:
            content = file.read(MOST)
    except IsADirectoryError:
        raise RailwrightError(f"{path}: this is a folder; name the run's file in it") from None
    except OSError as error:
        raise RailwrightError(f"{path}: cannot be read: {error.strerror or error}") from None
    head = content[:LOOKED_AT]
    if head.count(0) * 10 > len(head):
        raise RailwrightError(f"{path}: this is no text; a script, a log or a configuration is expected")
    # a zero marks variables that are not set, and is in no text but for holes that file systems left
    return content.decode("utf-8-sig", errors="replace").replace("\0", "")
