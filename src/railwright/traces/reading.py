"""What every reader of traces begins with: a file's bytes, JSON of files that may be damaged, and numbers.

Python's own reader of JSON raises four kinds of errors; all of them are told here, in words.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from pathlib import Path
from typing import Any

from railwright.errors import SpecError
from railwright.traces.refusal import wrong

MOST_BYTES = 4 * 2**30
"""A trace of one rank is read whole [byte]."""

WHOLE = 2**64
"""Whole numbers of a trace are below this, as protobuf's are."""

_DECODER = json.JSONDecoder()


class Unreadable(ValueError):
    """JSON that is not read however it goes on; says why."""


def content(file: Path) -> bytes:
    """A file's bytes, unpacked where they are gzip.  Raises SpecError."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise _too_long(file)
        raw = file.read_bytes()
        if raw[:2] != b"\x1f\x8b":
            return raw
        with gzip.open(file) as packed:
            # A few megabytes of gzip may hold terabytes.
            unpacked = packed.read(MOST_BYTES + 1)
        if len(unpacked) > MOST_BYTES:
            raise _too_long(file)
        return unpacked
    except EOFError:
        raise wrong(file, f"byte {file.stat().st_size}", "the gzip stream is cut off.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise wrong(file, "", f"the gzip stream is damaged ({error}).") from None
    except OSError as error:
        raise wrong(file, "", f"cannot be read: {error.strerror}.") from None


def _too_long(file: Path) -> SpecError:
    return wrong(file, "", f"longer than {MOST_BYTES / 2**30:.0f} GiB, which is what is read whole.")


def value_at(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at a character, and the place behind it.

    Raises JSONDecodeError where it is none, or none yet, and Unreadable where no more text would help.
    """
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except ValueError:
        # Python converts no more than 4,300 digits.
        raise Unreadable("a whole number has thousands of digits") from None


def json_of(text: str) -> Any:
    """The JSON value that a text is.  Raises ValueError in words."""
    try:
        value, end = value_at(text, len(text) - len(text.lstrip()))
    except json.JSONDecodeError as error:
        raise Unreadable(f"no JSON, or cut off: {error.msg} at character {error.pos}") from None
    if text[end:].strip():
        raise Unreadable(f"more than one JSON value, from character {end}")
    return value


def whole(value: object) -> int:
    """A whole number of a trace, also as a text of digits (protobuf's JSON).  Raises ValueError in words."""
    if isinstance(value, str) and len(value) <= len(str(WHOLE)) and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -WHOLE < value < WHOLE:
        shown = repr(value)
        shown = shown if len(shown) <= 24 else f"{shown[:20]}..."
        raise ValueError(f"{shown} is no whole number of 64 bits")
    return value


def finite(value: object) -> float | None:
    """A number of a trace as a float; None for what is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
