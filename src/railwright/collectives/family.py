"""What published curves add to NCCL's model: launch, ramp and the error band of each family of machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt

from railwright.collectives.constants import load
from railwright.collectives.group import Group


@dataclass(frozen=True)
class Family:
    """Fitted behaviour of one GPU generation x transport x algorithm.

    name    'hopper one-node nvls'
    launch  what every call takes beyond NCCL's own latencies: kernel launch, stream, first hand-shakes [s]
    ramp    coefficient of the geometric mean of the steps' latency and the bandwidth term
    error_low, error_high  80 % band of measured/predicted over the family's curves
    basis   which curves say so, or which family stands in
    usable  measured over nominal usable bandwidth; 1 unless a profile says otherwise
    """

    name: str
    launch: float
    ramp: float
    error_low: float
    error_high: float
    basis: str
    usable: float = 1.0


@dataclass(frozen=True)
class Overrides:
    """What an operator's own logs say of one family (`railwright calibrate`); None keeps the shipped value.

    launch, ramp, usable, error_low, error_high  as in Family
    basis  which profile says so
    """

    launch: float | None = None
    ramp: float | None = None
    usable: float | None = None
    error_low: float | None = None
    error_high: float | None = None
    basis: str = ""


Profile = Mapping[str, Overrides]
"""Overrides by the name of the family."""


def family_name(group: Group, algorithm: str) -> str:
    """The family that prices an algorithm on a group: 'hopper ib nvlstree'."""
    return f"{group.generation} {group.scope} {algorithm}"


def family_of(group: Group, algorithm: str, profile: Profile | None = None) -> Family:
    """The fitted family of a group as the profile changes it, if one does.

    Without a published curve the nearest family stands in, with a wider band.
    """
    shipped = _shipped(group, algorithm)
    own = (profile or {}).get(shipped.name)
    if own is None:
        return shipped
    names = ("launch", "ramp", "usable", "error_low", "error_high")
    measured = {n: getattr(own, n) for n in names if getattr(own, n) is not None}
    return replace(shipped, **measured, basis=own.basis or shipped.basis)


def _shipped(group: Group, algorithm: str) -> Family:
    """The family as shipped, or the nearest one with a wider band where no curve was published."""
    table = families()
    own = family_name(group, algorithm)
    if own in table:
        return table[own]
    for near in _neighbours(group, algorithm):
        if near in table:
            other = table[near]
            return Family(
                own,
                other.launch,
                other.ramp,
                other.error_low * 0.8,
                other.error_high * 1.25,
                f"no published curve of '{own}'; '{near}' stands in, its band widened by a quarter",
            )
    raise AssertionError(f"data/families.yaml has no family that could stand in for {own}")


def ramp_seconds(family: Family, steps: float, bandwidth: float) -> float:
    """What filling and draining the pipeline of chunks costs. [s]

    A message cut in c chunks through a pipeline whose latencies add up to L takes about
    L + T + (c L / depth + depth T / c); the best c leaves twice the geometric mean of L and T, less what
    overlaps: ramp x sqrt(L T), with ramp between 0 and 2 for a pipeline, fitted per family.
    Source: the sqrt(S) form of PHYSICS notes section 5, here with its constant tied to L and T.
    """
    return family.ramp * sqrt(steps * bandwidth)


@cache
def families() -> dict[str, Family]:
    """All fitted families by name (`tools/fit_collectives.py` writes them)."""
    return {
        name: Family(
            name,
            float(row["launch"]),
            float(row["ramp"]),
            float(row["error_low"]),
            float(row["error_high"]),
            str(row["basis"]),
        )
        for name, row in load("families.yaml")["families"].items()
    }


def _neighbours(group: Group, algorithm: str) -> list[str]:
    """Stand-ins, nearest first: another generation, then another algorithm, then another transport."""
    generations = ("hopper", "blackwell", "ampere", "volta")
    if algorithm == "p2p":  # the kernels are the same inside a node and across; rings are not like them
        return [f"{g} one-node p2p" for g in (group.generation, *generations)]
    alike = {"collnet": "nvlstree", "pat": "ring", "tree": "nvlstree", "nvlstree": "tree", "nvls": "ring"}
    scopes = [group.scope] + [s for s in ("ib", "efa", "one-node") if s != group.scope]
    names: list[str] = []
    for scope in scopes:
        for kind in (algorithm, alike.get(algorithm, "ring"), "ring"):
            names += [f"{g} {scope} {kind}" for g in (group.generation, *generations)]
    return names
