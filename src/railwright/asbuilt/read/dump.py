"""A file as lines of text: decoded, without terminal escapes, or one clear error saying what it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from railwright.errors import Mistake, SpecError

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))
_HEAD = 200_000
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Dump:
    """One file read.

    file   path as the user gave it
    data   its bytes
    text   decoded, line ends '\\n', escape sequences removed; '' for a workbook
    lines  the text's lines; line n of the file is lines[n - 1]
    notes  what had to be repaired to read it
    """

    file: str
    data: bytes
    text: str
    lines: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def head(self) -> str:
        """Its beginning: enough to recognise a format, however long the dump."""
        return self.text[:_HEAD]

    @property
    def stem(self) -> str:
        return Path(self.file).stem

    @property
    def workbook(self) -> bool:
        return self.data.startswith(_ZIP)

    def source(self, format_name: str) -> str:
        """'fabric.out (ibnetdiscover)'."""
        return f"{Path(self.file).name} ({format_name})"

    def fail(self, line: int, message: str) -> NoReturn:
        """Raise the one error of this file. SpecError."""
        raise SpecError([Mistake(self.file, line, 0, "", message)])


def load(path: Path | str) -> Dump:
    """Read a dump. SpecError when the file is absent, empty or binary (a workbook is not)."""
    file = str(path)
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(
            [Mistake(file, 0, 0, "", f"cannot read the file: {reason}; check the path")]
        ) from None
    return decode(file, data)


def decode(file: str, data: bytes) -> Dump:
    """The bytes of a dump as text. SpecError when they are empty or binary."""

    def refuse(message: str) -> NoReturn:
        raise SpecError([Mistake(file, 0, 0, "", message)])

    if not data.strip():
        refuse("the file is empty; a dump of the fabric was expected: run the tool again and keep its output")
    if data.startswith(_ZIP):
        return Dump(file, data, "", ())
    if data.startswith(b"\x1f\x8b"):
        refuse("the file is compressed (gzip); unpack it first")
    notes: list[str] = []
    encoding = next((name for bom, name in _BOMS if data.startswith(bom)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        text = data.decode(encoding, errors="replace")
        line = data[: error.start].count(b"\n") + 1
        broken = text.count("\ufffd")
        if broken > max(8, len(text) // 20):
            refuse(f"not a text file: {broken} bytes are not {encoding.upper()}, the first in line {line}")
        notes.append(f"line {line}: {broken} bytes are not {encoding.upper()} and read as '\ufffd'")
    text = _ESCAPE.sub("", text)
    strange = sum(text.count(chr(code)) for code in (*range(9), *range(14, 27)))
    if strange > max(8, len(text) // 20):
        refuse(
            "not a text file: it holds control characters; a dump as text, XML, JSON, CSV or "
            ".xlsx was expected"
        )
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return Dump(file, data, text, tuple(text.split("\n")), tuple(notes))


def shorten(text: str, limit: int = 60) -> str:
    """The text on one line, cut with '…'."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def listed(items: list[str], limit: int = 8) -> str:
    """'a, b, c' or 'a, b, … and 12 more'."""
    if len(items) <= limit:
        return ", ".join(items)
    return ", ".join(items[:limit]) + f" and {len(items) - limit} more"
