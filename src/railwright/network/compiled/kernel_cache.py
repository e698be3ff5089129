"""Where compiled kernels are kept: a private folder named after the source they were compiled from.

Each kernel file is self-contained: it imports nothing of ours but this file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def compiled(function: Callable[..., Any], signature: str) -> Callable[..., Any]:
    """The function compiled by numba, from the cache where a writable folder exists, freshly otherwise.

    signature  numba's, so that compilation happens now and once
    """
    import numba

    folder = cache_folder()
    if folder is not None:
        config: Any = numba.config
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
        try:
            cached: Callable[..., Any] = numba.njit(signature, cache=True, nogil=True)(function)
            return cached
        except (OSError, RuntimeError):  # an unusable cache must never stop an answer
            pass
        finally:
            config.CACHE_DIR = before
    fresh: Callable[..., Any] = numba.njit(signature, nogil=True)(function)
    return fresh


def cache_folder(kernels: Path | None = None) -> Path | None:
    """A writable folder of this user for code compiled from exactly these kernel files, or None.

    kernels  folder of the kernel files; default: this one

    In $NUMBA_CACHE_DIR, $XDG_CACHE_HOME/railwright/numba or ~/.cache/railwright/numba.
    numba looks at the time and size of one file only; the name of the folder holds the hash of them all.
    What lies there is run: a folder that belongs to someone else, or that others may write to, is not used.
    """
    if os.environ.get("NUMBA_CACHE_DIR"):
        base = Path(os.environ["NUMBA_CACHE_DIR"])
    elif os.environ.get("XDG_CACHE_HOME"):
        base = Path(os.environ["XDG_CACHE_HOME"]) / "railwright" / "numba"
    elif os.environ.get("HOME"):
        base = Path(os.environ["HOME"]) / ".cache" / "railwright" / "numba"
    else:
        return None
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        candidate = base / f"{source_hash(kernels)}-{user}"
        candidate.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = candidate.stat()
        if hasattr(os, "getuid") and (found.st_uid != user or found.st_mode & 0o022):
            return None
        with tempfile.TemporaryFile(dir=candidate):
            return candidate
    except OSError:
        return None


def source_hash(kernels: Path | None = None) -> str:
    """16 hex digits over the text of every kernel file of a folder, and where it lies; default: this one.

    numba keeps nothing for a copy elsewhere, so what another install compiled is not kept for this one.
    """
    folder = (kernels or Path(__file__).parent).resolve()
    digest = hashlib.sha256(bytes(folder))
    for path in sorted(folder.glob("kernel*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
