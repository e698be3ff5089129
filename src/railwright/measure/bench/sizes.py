"""Message sizes of a bench, cut to whole elements for every rank."""

from __future__ import annotations

from collections.abc import Iterable

from railwright.errors import RailwrightError

ELEMENT = {"float": 4, "int32": 4, "double": 8}
"""Bytes of types whose sums of small whole numbers are exact, so that results are checked to the last bit."""
PARTS = ("all_gather", "reduce_scatter", "all_to_all")
"""Operations whose buffer is one part per rank."""


def counts(op: str, sizes: Iterable[float], ranks: int, dtype: str) -> list[int]:
    """Elements of one part at each size (nccl-tests' `count`), ascending, none twice, at least 1.

    A size that does not divide is rounded down, as nccl-tests does; one too small for all is rounded up.
    """
    if dtype not in ELEMENT:
        raise RailwrightError(f"-d {dtype}: known types are {', '.join(ELEMENT)}")
    parts = ranks if op in PARTS else 1
    return sorted({max(1, int(size) // (ELEMENT[dtype] * parts)) for size in sizes})


def total(op: str, count: int, ranks: int, dtype: str) -> int:
    """nccl-tests' S of a count [byte]."""
    return count * ELEMENT[dtype] * (ranks if op in PARTS else 1)
