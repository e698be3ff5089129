"""What published curves add to NCCL's model: launch, ramp and the error band of each family of machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import inf, sqrt

from railwright.collectives.constants import load
from railwright.collectives.group import Group
from railwright.collectives.profile import family_name

SLOTS = 8.0
"""Chunks a connection keeps in flight: NCCL_STEPS, NCCL 2.30 src/include/device.h."""
BANDS = (256 * 2.0**10, 128 * 2.0**20, float("inf"))
"""Largest sizes of the bands in which errors are told: latency, ramp, plateau [byte]."""
WIDER = (1.40, 1.30, 1.05)
"""How much wider the bands of a stand-in are, either way, by size: what holds 80 % of the points of families
whose own curves were hidden (tools/fit_stand_ins.py)."""


@dataclass(frozen=True)
class Family:
    """Fitted behaviour of one GPU generation x transport x algorithm.

    name      'hopper one-node nvls'
    launch    what every call takes beyond NCCL's own latencies: kernel launch, stream, first hand-shakes [s]
    ramp      coefficient of the geometric mean of the latency that is filled and the bandwidth term
    bands     80 % band of measured/predicted, left out, per size band of BANDS
    basis     which curves say so, or which family stands in
    rare      98 % band, likewise
    """

    name: str
    launch: float
    ramp: float
    bands: tuple[tuple[float, float], ...]
    basis: str
    rare: tuple[tuple[float, float], ...] = ((0.0, float("inf")),) * len(BANDS)

    def band(self, size: float) -> tuple[float, float]:
        """80 % band of measured/predicted at S = size [byte], e.g. (0.9, 1.2)."""
        return next(band for top, band in zip(BANDS, self.bands, strict=True) if size <= top)

    def rare_band(self, size: float) -> tuple[float, float]:
        """98 % band of measured/predicted at S = size [byte]."""
        return next(band for top, band in zip(BANDS, self.rare, strict=True) if size <= top)


def family_of(group: Group, algorithm: str) -> Family:
    """The fitted family of a group, or the nearest one with a wider band where no curve was published."""
    table = families()
    own = family_name(group, algorithm)
    if own in table:
        return table[own]
    for near in neighbours(group, algorithm):
        if near in table:
            other = table[near]
            return replace(
                other,
                name=own,
                launch=min(other.launch, longest_launch(own, {n: f.launch for n, f in table.items()})),
                bands=_widened(other.bands),
                rare=_widened(other.rare),
                basis=f"no published curve of '{own}'; '{near}' stands in, its bands widened for that",
            )
    raise AssertionError(f"data/families.yaml has no family that could stand in for {own}")


def longest_launch(own: str, launches: Mapping[str, float]) -> float:
    """The most that a family without curves may take to launch: what its GPUs take with other algorithms. [s]

    launches  of the families that have curves [s]
    The rule that bounds fitted launches too (tools/collectives_fit.py): a launch is of kernels and of a
    transport's first hand-shakes, and both differ more between generations than between algorithms.  The
    one family that it bounds when hidden is nearer to its curves with it (hopper efa nvlstree, up to
    128 MiB: 32 to 12 % off; tests/validation/test_collectives_intervals.py).
    Posts of point-to-point messages are counted apart, so their launch bounds no kernel's and none bounds it.
    """
    *machine, algorithm = own.split()
    alike = [
        seconds for name, seconds in launches.items()
        if name.split()[:-1] == machine and not name.endswith("p2p")
    ]  # fmt: skip
    return max(alike) if alike and algorithm != "p2p" else inf


def neighbours(group: Group, algorithm: str) -> list[str]:
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


def ramp_seconds(family: Family, steps: float, bandwidth: float, across: bool) -> float:
    """What the pipeline of chunks costs beyond latency and bandwidth. [s]

    A message cut in c chunks through a pipeline whose latencies add up to L takes about
    L + T + (c L / depth + depth T / c); the best c leaves twice the geometric mean of L and T, less what
    overlaps: ramp x sqrt(L T), with ramp between 0 and 2 for a pipeline, fitted per family.
    Across nodes a connection has SLOTS chunks in flight; once these outlast the latency it hides, and from
    T of about SLOTS x L on the ramp no longer grows. Inside a node no such end is seen up to 16 GiB.
    steps  L; for a ring inside a node that of one step (`Algorithm.filling`)
    Source: the sqrt(S) form of PHYSICS notes section 5, here with its constant tied to L and T.
    """
    return family.ramp * pipeline_root(steps, bandwidth, across)


def pipeline_root(steps: float, bandwidth: float, across: bool) -> float:
    """sqrt(L T); across nodes towards sqrt(SLOTS) L once SLOTS chunks in flight outlast the latency. [s]"""
    if not across or steps <= 0:
        return sqrt(steps * bandwidth)
    return sqrt(steps * bandwidth / (1 + bandwidth / (SLOTS * steps)))


@cache
def families() -> dict[str, Family]:
    """All fitted families by name (`tools/fit_collectives.py` writes them)."""
    return {
        name: Family(
            name,
            float(row["launch"]),
            float(row["ramp"]),
            tuple((float(low), float(high)) for low, high in row["bands"]),
            str(row["basis"]),
            tuple((float(low), float(high)) for low, high in row["rare"]),
        )
        for name, row in load("families.yaml")["families"].items()
    }


def _widened(bands: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    return tuple((low / more, high * more) for (low, high), more in zip(bands, WIDER, strict=True))
