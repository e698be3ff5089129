"""An operator's own constants in the place of the shipped ones: what `railwright calibrate` measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from railwright.collectives.family import Family
    from railwright.collectives.group import Group


RARER = 2.326 / 1.282
"""How much further, in logarithms, 98 % of normal errors reach than 80 %: a profile has only the latter."""


@dataclass(frozen=True)
class Overrides:
    """What an operator's own logs say of one family; None keeps the shipped value.

    launch, ramp  as in Family
    usable  measured over nominal usable bandwidth
    bands   80 % band of measured/predicted per size band, as in Family
    basis   which profile says so
    """

    launch: float | None = None
    ramp: float | None = None
    usable: float | None = None
    bands: tuple[tuple[float, float], ...] | None = None
    basis: str = ""


Profile = Mapping[str, Overrides]
"""Overrides by the name of the family."""


def family_name(group: Group, algorithm: str) -> str:
    """The family that prices an algorithm on a group: 'hopper ib nvlstree'."""
    return f"{group.generation} {group.scope} {algorithm}"


def as_measured(family: Family, profile: Profile | None) -> Family:
    """The family with the constants and bands that a profile holds for it; itself where it holds none."""
    own = (profile or {}).get(family.name)
    if own is None:
        return family
    return replace(
        family,
        launch=family.launch if own.launch is None else own.launch,
        ramp=family.ramp if own.ramp is None else own.ramp,
        bands=family.bands if own.bands is None else own.bands,
        rare=family.rare if own.bands is None else tuple((a**RARER, b**RARER) for a, b in own.bands),
        basis=own.basis or family.basis,
    )


def usable_share(family: Family, profile: Profile | None) -> float:
    """Measured over nominal usable bandwidth of a family; 1 unless a profile says otherwise."""
    own = (profile or {}).get(family.name)
    return 1.0 if own is None or own.usable is None else own.usable
