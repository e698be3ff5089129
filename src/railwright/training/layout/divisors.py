"""Sizes that would work, for refusals that name them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

MOST = 72
"""Largest size that a refusal of tensor parallelism offers: the GPUs of the largest server, an NVL72 rack."""


@lru_cache(maxsize=1024)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    return tuple(d for d in range(1, number + 1) if number % d == 0)


def listed(numbers: Sequence[int]) -> str:
    """Numbers as a sentence names them."""
    return ", ".join(str(n) for n in numbers)


def working(numbers: Sequence[int]) -> str:
    """'1, 2, 4 work', or 'only 1 works'."""
    return f"{listed(numbers)} work" if len(numbers) > 1 else f"only {listed(numbers)} works"
