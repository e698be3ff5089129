"""All pairs of n ranks in as few rounds as can be: a round-robin tournament."""

from __future__ import annotations


def rounds(n: int) -> list[list[tuple[int, int]]]:
    """n - 1 rounds (n when n is odd) in which every rank meets one other, and over all rounds each one once.

    The circle method: rank 0 stays, the others turn by one place a round; with odd n the one that meets the
    empty chair rests.  Pairs are (lower, higher), in ascending order.
    Source: the schedule of chess tournaments (Berger tables, FIDE Handbook C.05 annex 1).
    """
    if n < 2:
        return []
    seats: list[int | None] = [*range(n), *([None] if n % 2 else [])]
    out = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        met = zip(seats[:half], reversed(seats[half:]), strict=True)
        pairs = [(min(a, b), max(a, b)) for a, b in met if a is not None and b is not None]
        out.append(sorted(pairs))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return out
