"""Bandwidth between all pairs of ranks: a table to keep, and who stands out in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from railwright.measure.bench.places import Place

LOW_PAIR = 0.7
"""A pair below this part of its kind's median stands out."""
LOW_RANK = 0.8
"""A rank whose median over its partners is below this part of all ranks' stands out."""
_MOST = 10


@dataclass(frozen=True)
class Matrix:
    """What every rank sent to every other, both ways at the same time, all pairs of a round together.

    bandwidth  [from][to] [byte/s]; 0 on the diagonal
    size       of one message [byte]
    """

    places: tuple[Place, ...]
    bandwidth: tuple[tuple[float, ...], ...]
    size: int

    def csv(self) -> str:
        """'rank', then one column per rank, in GB/s; one row per sender."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["from \\ to (GB/s)", *(self._label(p) for p in self.places)])
        for place, row in zip(self.places, self.bandwidth, strict=True):
            writer.writerow([self._label(place), *(f"{value / 1e9:.3f}" for value in row)])
        return out.getvalue()

    def as_json(self) -> dict[str, Any]:
        """Plain values. SI units."""
        return {
            "size": self.size,
            "ranks": [{"rank": p.rank, "host": p.host, "local": p.local} for p in self.places],
            "bandwidth": [list(row) for row in self.bandwidth],
            "slow_ranks": [p.rank for p, _ in self.slow_ranks()],
            "slow_pairs": [[a, b] for a, b, _ in self.slow_pairs()],
        }

    def slow_ranks(self) -> list[tuple[Place, float]]:
        """(rank, part of the usual) of ranks that are slow with most partners, the slowest first.

        Each pair counts against the median of its kind (same host, same rail, other rails), so a rank is not
        slow for having many far partners.
        """
        if len(self.places) < 3:
            return []
        usual = self._usual()
        shares = []
        for i, place in enumerate(self.places):
            mine = [
                min(self.bandwidth[i][j], self.bandwidth[j][i]) / usual[self._kind(i, j)]
                for j in range(len(self.places))
                if j != i and usual[self._kind(i, j)] > 0
            ]
            shares.append((place, median(mine) if mine else 1.0))
        return sorted(((p, s) for p, s in shares if s < LOW_RANK), key=lambda item: (item[1], item[0].rank))

    def slow_pairs(self) -> list[tuple[int, int, float]]:
        """(from, to, part of the usual) of pairs that stand out, slowest first, slow ranks left out."""
        usual = self._usual()
        known = {p.rank for p, _ in self.slow_ranks()}
        found = []
        for i, one in enumerate(self.places):
            for j, other in enumerate(self.places):
                if i == j or one.rank in known or other.rank in known:
                    continue
                share = self.bandwidth[i][j] / usual[self._kind(i, j)] if usual[self._kind(i, j)] > 0 else 1.0
                if share < LOW_PAIR:
                    found.append((one.rank, other.rank, share))
        return sorted(found, key=lambda item: (item[2], item[0], item[1]))

    def lines(self) -> list[str]:
        """Medians by kind, and who stands out, as text of 80 columns."""
        out = [f"# pairs of {len(self.places)} ranks, {self.size} B each way, all pairs of a round at once"]
        for kind, value in self._usual().items():
            if value > 0:
                out.append(f"{kind:<28} median {value / 1e9:8.2f} GB/s")
        for place, share in self.slow_ranks()[:_MOST]:
            out.append(
                f"slow rank {place.rank} ({place.host}, rail {place.local}): {share:.0%} of the usual with "
                "most partners"
            )
        pairs = self.slow_pairs()
        for a, b, share in pairs[:_MOST]:
            out.append(f"slow pair {a} -> {b}: {share:.0%} of the usual")
        if len(pairs) > _MOST:
            out.append(f"… and {len(pairs) - _MOST} more slow pairs")
        if len(out) and not pairs and not self.slow_ranks():
            out.append("no rank and no pair stands out")
        return out

    def _label(self, place: Place) -> str:
        return f"{place.rank} {place.host}/{place.local}"

    def _kind(self, i: int, j: int) -> str:
        one, other = self.places[i], self.places[j]
        if one.host == other.host:
            return "same host"
        return "other host, same rail" if one.local == other.local else "other host, other rail"

    def _usual(self) -> dict[str, float]:
        values: dict[str, list[float]] = {
            "same host": [], "other host, same rail": [], "other host, other rail": [],
        }  # fmt: skip
        for i in range(len(self.places)):
            for j in range(len(self.places)):
                if i != j:
                    values[self._kind(i, j)].append(self.bandwidth[i][j])
        return {kind: median(found) if found else 0.0 for kind, found in values.items()}


def matrix_of(places: Sequence[Place], times: dict[tuple[int, int], float], size: int) -> Matrix:
    """The matrix of measured times: times[(from, to)] of one message [s]."""
    n = len(places)
    rows = tuple(
        tuple(size / times[(i, j)] if (i, j) in times and times[(i, j)] > 0 else 0.0 for j in range(n))
        for i in range(n)
    )
    return Matrix(tuple(places), rows, size)
