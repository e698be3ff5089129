"""How much wider a stand-in's band must be: each family of collectives predicted by its nearest other one.

For every family with curves, `collectives.family` says which other would stand in; its fit and its 80 % band,
made as if the family had no curve at all, are held against the family's curves.  The widening of each size
band is the least that holds 80 % of the points, curves weighing by quality; its coverage is nested, each
family judged by the widening that all others ask for.  Prints what `family.WIDER` and docs/collectives.md
state.  Run: python tools/fit_stand_ins.py
"""

from __future__ import annotations

import numpy as np
from collectives_bands import LEVEL, band
from collectives_curves import Curve, curves
from collectives_fit import WEIGHTS, Fitted, errors, fitted

from railwright.collectives.family import BANDS, WIDER, longest_launch, neighbours

FACTORS = np.arange(1.0, 3.01, 0.05)
Beyond = tuple[np.ndarray, float]
"""How far points of one curve lie beyond the band, as a factor (1: inside); weight of the curve."""


def beyond(table: dict[str, Fitted], family: str, b: int, groups: dict[str, Curve]) -> list[Beyond]:
    """What a family's curves ask of its stand-in's band in size band b; empty where nothing stands in."""
    of = table[family]
    found: list[Beyond] = []
    rest = {name: other for name, other in table.items() if name != family}
    for name, part in of.parts.items():
        near = [n for n in neighbours(groups[name].group, family.split()[-1]) if n in rest]
        here = part[(part[:, 0] <= BANDS[b]) & (part[:, 0] > (BANDS[b - 1] if b else 0.0))]
        if not near or not len(here):
            continue
        low, high = band(rest, near[0], b, LEVEL)
        launch, ramp = rest[near[0]].how
        told = {n: other.how[0] for n, other in rest.items() if other.small}  # others may be bounded by `of`
        launch = min(launch, longest_launch(family, told))
        ratio = np.exp(-errors(here, (launch, ramp)))
        found.append((np.maximum(1.0, np.maximum(low / ratio, ratio / high)), WEIGHTS[of.quality[name]]))
    return found


def coverage(asked: list[Beyond], factor: float) -> float:
    """Share of points inside bands that are `factor` wider either way."""
    held = sum(weight * float(np.mean(far <= factor)) for far, weight in asked)
    return held / sum(weight for _, weight in asked)


def least(asked: list[Beyond]) -> float:
    """The least widening of FACTORS that holds LEVEL of the points."""
    return next((float(f) for f in FACTORS if coverage(asked, f) >= LEVEL), float(FACTORS[-1]))


def main() -> None:
    """Print the widening, what it holds nested, and what is shipped, by size."""
    table = fitted()
    groups = {curve.name: curve for curve in curves()}
    print("| size | wider by | shipped | held, nested | families | curves |\n|---|---|---|---|---|---|")
    for b, name in enumerate(("up to 256 KiB", "up to 128 MiB", "above")):
        asked = {family: beyond(table, family, b, groups) for family in table}
        asked = {family: mine for family, mine in asked.items() if mine}
        held = total = 0.0
        for family, mine in asked.items():
            others = [curve for other, those in asked.items() if other != family for curve in those]
            weight = sum(w for _, w in mine)
            held, total = held + weight * coverage(mine, least(others)), total + weight
        everyone = [curve for mine in asked.values() for curve in mine]
        print(
            f"| {name} | {least(everyone):.2f} | {WIDER[b]:.2f} | {held / total:.0%} | {len(asked)} "
            f"| {len(everyone)} |"
        )


if __name__ == "__main__":
    main()
