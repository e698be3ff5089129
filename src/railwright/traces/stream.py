"""A JSON text of any length, plain or gzip, read as a stream: only what is being decoded is in memory."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from railwright.traces.reading import Unreadable, value_at
from railwright.traces.refusal import wrong

CHUNK = 1 << 20
"""What is read at once [byte]."""

LONGEST = 64 << 20
"""A value that is read whole is no longer than this [character]."""


class JsonText:
    """Values one by one; errors name file and character."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.buffer, self.at, self.before = "", 0, 0
        self.whole = False
        self.pieces = self._read()

    def wrong(self, what: str) -> Exception:
        """An error at the present place."""
        return wrong(self.path, f"character {self.before + self.at}", f"{what}.")

    def peek(self) -> str:
        """The next character that is no blank."""
        while True:
            while self.at < len(self.buffer) and self.buffer[self.at].isspace():
                self.at += 1
            if self.at < len(self.buffer):
                return self.buffer[self.at]
            if not self._more():
                raise self.wrong("the file is cut off: its JSON does not end")

    def skip(self) -> None:
        self.at += 1

    def value(self) -> Any:
        """The JSON value that begins here."""
        self.peek()
        while True:
            try:
                value, end = value_at(self.buffer, self.at)
            except Unreadable as error:
                raise self.wrong(f"no trace: {error}") from None
            except json.JSONDecodeError as error:
                if len(self.buffer) - self.at > LONGEST or not self._more():
                    cut = error.pos >= len(self.buffer) - 1 or "Unterminated" in error.msg
                    raise self.wrong(
                        "the file is cut off: its JSON does not end"
                        if cut and self.whole
                        else f"no JSON: {error.msg} at character {self.before + error.pos}"
                    ) from None
                continue
            if end == len(self.buffer) and self._more():
                continue
            self.at = end
            return value

    def _more(self) -> bool:
        piece = next(self.pieces, None)
        if piece is None:
            self.whole = True
            return False
        self.before += self.at
        self.buffer, self.at = self.buffer[self.at :] + piece, 0
        return True

    def _read(self) -> Iterator[str]:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        try:
            with self.path.open("rb") as raw:
                packed = raw.read(2) == b"\x1f\x8b"
            with gzip.open(self.path, "rb") if packed else self.path.open("rb") as file:
                while piece := file.read(CHUNK):
                    yield decode(piece)
        except EOFError:
            raise self.wrong("the gzip stream is cut off") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise self.wrong(f"the gzip stream is damaged ({error})") from None
        except OSError as error:
            raise wrong(self.path, "", f"cannot be read: {error.strerror}.") from None
