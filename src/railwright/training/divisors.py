"""Sizes that would work, for refusals that name them."""

from __future__ import annotations


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    return [d for d in range(1, number + 1) if number % d == 0]


def listed(numbers: list[int]) -> str:
    """Numbers as a sentence names them."""
    return ", ".join(str(n) for n in numbers)
