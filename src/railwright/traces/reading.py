"""A file's bytes, unpacked: what every reader of traces begins with."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from railwright.traces.refusal import wrong

MOST_BYTES = 4 * 2**30
"""A trace of one rank is read whole [byte]."""


def content(file: Path) -> bytes:
    """A file's bytes, unpacked where they are gzip.  Raises SpecError."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise wrong(file, "", f"larger than {MOST_BYTES / 2**30:.0f} GiB, which is what is read whole.")
        raw = file.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except EOFError:
        raise wrong(file, f"byte {file.stat().st_size}", "the gzip stream is cut off.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise wrong(file, "", f"the gzip stream is damaged ({error}).") from None
    except OSError as error:
        raise wrong(file, "", f"cannot be read: {error.strerror}.") from None
