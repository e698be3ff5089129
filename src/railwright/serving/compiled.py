"""The event loop compiled by numba from the source that is interpreted, and kept in the kernel cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from railwright.network.kernel_cache import cache_folder
from railwright.serving import (
    kernel_loop,
    kernel_memory,
    kernel_outage,
    kernel_price,
    kernel_queue,
    kernel_route,
    kernel_rows,
    kernel_schedule,
    kernel_transfer,
)

_FILES = (
    kernel_rows,
    kernel_price,
    kernel_queue,
    kernel_memory,
    kernel_transfer,
    kernel_schedule,
    kernel_route,
    kernel_outage,
    kernel_loop,
)


@cache
def compiled_advance() -> Callable[[Any], int]:
    """`kernel_loop.advance`, compiled; from the cache where the same source was compiled before."""
    import numba

    folder = cache_folder(Path(__file__).parent)
    # The kernels' functions call each other by name: copies of them share a namespace in which each name is
    # the compiled one, so that the originals stay interpreted.
    names: dict[str, Any] = {"__name__": "railwright.serving.compiled", "__builtins__": __builtins__}
    originals: dict[str, FunctionType] = {}
    for file in _FILES:
        for name, value in vars(file).items():
            if isinstance(value, FunctionType) and value.__module__ == file.__name__:
                originals[name] = value
            elif name.isupper():
                names[name] = value
    config: Any = numba.config
    before = config.CACHE_DIR
    if folder is not None:
        config.CACHE_DIR = str(folder)
    try:
        for name, function in originals.items():
            # Only the entry is kept: it holds the machine code of all it calls.
            keep = {"cache": True} if name == "advance" and folder is not None else {}
            copy = FunctionType(function.__code__, names, name, function.__defaults__)
            names[name] = numba.njit(nogil=True, **keep)(copy)
    finally:
        config.CACHE_DIR = before
    entry: Callable[[Any], int] = names["advance"]
    return entry
