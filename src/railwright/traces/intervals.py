"""Sets of instants as ordered spans (start, end) [s]."""

from __future__ import annotations

from collections.abc import Sequence


def union(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans in order, those that meet joined."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def both(some: list[tuple[float, float]], others: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What two unions of spans have in common."""
    found: list[tuple[float, float]] = []
    i = j = 0
    while i < len(some) and j < len(others):
        start, end = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if start < end:
            found.append((start, end))
        if some[i][1] <= others[j][1]:
            i += 1
        else:
            j += 1
    return found


def length(spans: Sequence[tuple[float, float]]) -> float:
    """Of all of a union."""
    return sum(end - start for start, end in spans)
