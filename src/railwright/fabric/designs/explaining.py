"""Why a published or user-supplied design cannot work: which count, by how much, and what would do.

Every bound here is a lower bound that no cabling can beat: ports of a switch tier are counted once, each NIC
port takes a cable, and what goes up has to come down.  A design that passes may still lack a way to be wired.

Source of the bounds: Al-Fares, Loukissas, Vahdat (SIGCOMM 2008), section 3, as in `sizing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil


@dataclass(frozen=True)
class Published:
    """What a design says of itself; None where it does not say.  Cables are port to port, as in `Counts`."""

    tiers: int | None = None
    switches: int | None = None
    leaves: int | None = None
    spines: int | None = None
    cores: int | None = None
    cables: int | None = None
    node_leaf: int | None = None
    leaf_spine: int | None = None
    spine_core: int | None = None


@dataclass(frozen=True)
class Wanted:
    """What the design is for.

    endpoints  NIC ports of all servers
    ports      of every switch, at the NIC's rate
    reserved   leaf ports of other machines: subnet manager, storage
    oversubscription, core_oversubscription  most down over up at the leaves, and at the spines
    planes     parts of the leaves and spines that do not mesh with each other
    """

    endpoints: int
    ports: int
    reserved: int = 0
    oversubscription: float = 1.0
    core_oversubscription: float = 1.0
    planes: int = 1

    @property
    def attached(self) -> int:
        """Ports that leaves need downwards."""
        return self.endpoints + self.reserved

    @property
    def down(self) -> int:
        """Most down-ports of a leaf."""
        return _most_down(self.ports, self.oversubscription)

    @property
    def uplinks(self) -> int:
        """Fewest leaf-spine cables."""
        return ceil(self.endpoints / self.oversubscription - 1e-9)

    @property
    def core_links(self) -> int:
        """Fewest spine-core cables."""
        return ceil(self.uplinks / self.core_oversubscription - 1e-9)


def explain(published: Published, wanted: Wanted) -> str | None:
    """Why the design cannot work, a sentence per reason, the most fundamental first; None when it can.

    Raises nothing: counts that are not given are not judged.
    """
    said = _completed(published)
    reasons = [reason for check in _CHECKS for reason in check(said, wanted)]
    return " ".join(dict.fromkeys(reasons)) or None


def fewest(wanted: Wanted, tiers: int) -> tuple[int, int, int]:
    """Fewest leaves, spines and cores that have the ports, in so many tiers."""
    if tiers == 1:
        return ceil(wanted.attached / wanted.ports), 0, 0
    leaves = ceil(wanted.attached / wanted.down)
    if tiers == 2:
        return leaves, ceil(wanted.uplinks / wanted.ports), 0
    spine_ports = wanted.uplinks + wanted.core_links
    return leaves, ceil(spine_ports / wanted.ports), ceil(wanted.core_links / wanted.ports)


def reach(wanted: Wanted, tiers: int) -> int:
    """Most NIC ports, reserved ones included, that so many tiers of these switches join."""
    if tiers == 1:
        return wanted.ports
    most = wanted.ports * wanted.down * wanted.planes
    if tiers == 2:
        return most
    # A pod is as wide as a spine has down-ports, and a core has one cable to a spine of each pod.
    return wanted.ports * _most_down(wanted.ports, wanted.core_oversubscription) * wanted.down


def _reach(said: Published, wanted: Wanted) -> Iterator[str]:
    tiers = said.tiers
    if tiers is None or not 1 <= tiers <= 3 or wanted.attached <= (most := reach(wanted, tiers)):
        return
    over = wanted.attached - most
    text = (
        f"{_tiers(tiers)} of {wanted.ports}-port switches join at most {most} NIC ports at "
        f"{wanted.oversubscription:g}:1, and {wanted.attached} are wanted, {over} too many"
    )
    enough = next((t for t in range(tiers + 1, 4) if wanted.attached <= reach(wanted, t)), None)
    if enough is None:
        yield f"{text}; no three tiers of these switches would do: take switches with more ports."
        return
    leaves, spines, cores = fewest(wanted, enough)
    need = leaves + spines + cores
    text += f"; {_tiers(enough)} would: {need} switches ({leaves} leaves, {spines} spines, {cores} cores)"
    if said.switches is not None and said.switches < need:
        text += f", of which the {said.switches} planned are {_share(1 - said.switches / need)} short"
    yield text + "."


def _sums(said: Published, wanted: Wanted) -> Iterator[str]:
    for what, whole, parts in (
        ("switches", said.switches, (said.leaves, said.spines, said.cores)),
        ("cables", said.cables, (said.node_leaf, said.leaf_spine, said.spine_core)),
    ):
        known = [p for p in parts if p is not None]
        if whole is None or len(known) < len(parts) or sum(known) == whole:
            continue
        total = sum(known)
        yield (
            f"The tiers add up to {total} {what}, {_apart(total, whole)} than the {whole} stated; "
            "one of these counts is wrong."
        )


def _totals(said: Published, wanted: Wanted) -> Iterator[str]:
    tiers = said.tiers or next((t for t in (1, 2, 3) if wanted.attached <= reach(wanted, t)), 3)
    if wanted.attached > reach(wanted, tiers):
        return
    need = sum(fewest(wanted, tiers))
    if said.switches is not None and said.switches < need:
        share = _share(1 - said.switches / need)
        yield (
            f"{said.switches} switches are {need - said.switches} ({share}) short: "
            f"{wanted.attached} NIC and reserved ports take at least {need} of {wanted.ports} ports in "
            f"{_tiers(tiers)}."
        )
    cables = wanted.attached + (tiers > 1) * wanted.uplinks + (tiers > 2) * wanted.core_links
    if said.cables is not None and said.cables < cables:
        yield (
            f"{said.cables} cables are {cables - said.cables} short: {_tiers(tiers)} take at least {cables}, "
            f"one for each of {wanted.attached} ports below the leaves and {cables - wanted.attached} above."
        )


def _leaves(said: Published, wanted: Wanted) -> Iterator[str]:
    if said.leaves is None or said.tiers == 1:
        return
    have = said.leaves * wanted.ports
    down = wanted.attached if said.node_leaf is None else max(said.node_leaf, wanted.attached)
    up = wanted.uplinks if said.leaf_spine is None else max(said.leaf_spine, wanted.uplinks)
    if down + up > have:
        yield (
            f"{said.leaves} leaves have {have} ports, {down + up - have} fewer than the {down} downwards and "
            f"{up} upwards; {ceil((down + up) / wanted.ports)} leaves would do, "
            f"or {down + up - have} ports less on them."
        )


def _node_leaf(said: Published, wanted: Wanted) -> Iterator[str]:
    if said.node_leaf is None or said.node_leaf == wanted.attached:
        return
    difference = said.node_leaf - wanted.attached
    consequence = (
        f"{-difference} ports would stay without a cable"
        if difference < 0
        else f"{difference} cables would lead to nothing, or the NIC ports are counted wrong"
    )
    yield (
        f"{said.node_leaf} cables below the leaves are {_apart(said.node_leaf, wanted.attached)} than "
        f"{wanted.endpoints} NIC ports and {wanted.reserved} reserved ones: {consequence}; "
        f"{wanted.attached} would do."
    )


def _leaf_spine(said: Published, wanted: Wanted) -> Iterator[str]:
    if said.leaf_spine is None or said.tiers == 1:
        return
    if said.leaf_spine < wanted.uplinks:
        ratio = f"{wanted.endpoints / said.leaf_spine:.3g}:1" if said.leaf_spine else "none at all"
        yield (
            f"{said.leaf_spine} leaf-spine cables are {wanted.uplinks - said.leaf_spine} short of the "
            f"{wanted.uplinks} that {wanted.endpoints} NIC ports need at {wanted.oversubscription:g}:1; they "
            f"make it {ratio}."
        )
    if said.leaves and said.leaf_spine % said.leaves:
        yield (
            f"{said.leaf_spine} leaf-spine cables do not divide over {said.leaves} leaves "
            f"({said.leaf_spine / said.leaves:.4g} each), so the mesh is not regular; "
            f"{said.leaf_spine // said.leaves * said.leaves} or "
            f"{ceil(said.leaf_spine / said.leaves) * said.leaves} would."
        )
    elif said.leaves and said.spines and said.tiers == 2:
        each, spines = said.leaf_spine // said.leaves, said.spines // wanted.planes
        if spines and each % spines:
            above = ceil(each / spines) * spines
            around = f"{above - spines} or {above}" if above > spines else str(above)
            yield (
                f"The {each} uplinks of a leaf do not divide over {spines} spines, so the mesh is not "
                f"regular; {around} uplinks would, or a number of spines that divides {each}."
            )


def _spines(said: Published, wanted: Wanted) -> Iterator[str]:
    if said.spines is None or said.tiers == 1:
        return
    up = 0
    if said.tiers == 3 or said.cores:
        up = max(said.spine_core or 0, wanted.core_links)
    down = max(said.leaf_spine or 0, wanted.uplinks)
    have = said.spines * wanted.ports
    if down + up > have:
        cables = f"{down} cables from the leaves" + (f" and {up} to the cores" if up else "")
        yield (
            f"{said.spines} spines have {have} ports, {down + up - have} fewer than the {cables}; "
            f"{ceil((down + up) / wanted.ports)} spines would do."
        )


def _cores(said: Published, wanted: Wanted) -> Iterator[str]:
    if said.tiers != 3:
        return
    if said.spine_core is not None and said.spine_core < wanted.core_links:
        yield (
            f"{said.spine_core} spine-core cables are {wanted.core_links - said.spine_core} short of the "
            f"{wanted.core_links} that the spines need at {wanted.core_oversubscription:g}:1."
        )
    need = max(said.spine_core or 0, wanted.core_links)
    if said.cores is not None and need > said.cores * wanted.ports:
        yield (
            f"{said.cores} cores have {said.cores * wanted.ports} ports, "
            f"{need - said.cores * wanted.ports} fewer than the {need} cables from the spines; "
            f"{ceil(need / wanted.ports)} cores would do."
        )


_CHECKS: tuple[Callable[[Published, Wanted], Iterator[str]], ...] = (
    _reach, _sums, _totals, _leaves, _node_leaf, _leaf_spine, _spines, _cores,
)  # fmt: skip


def _completed(said: Published) -> Published:
    """What follows from what is said: the tiers from their switches, and no switches of a tier not there."""
    tiers = said.tiers
    if tiers is None and said.spines is not None and (said.cores is not None or not said.spines):
        tiers = 1 + bool(said.spines) + bool(said.cores)
    if tiers is None and said.cores:
        tiers = 3
    if tiers is None:
        return said
    said = replace(said, tiers=tiers)
    if tiers < 3:
        said = replace(said, cores=said.cores or 0, spine_core=said.spine_core or 0)
    if tiers < 2:
        said = replace(said, spines=said.spines or 0, leaf_spine=said.leaf_spine or 0)
    return said


def _most_down(ports: int, oversubscription: float) -> int:
    return max(
        (d for d in range(1, ports) if d + ceil(d / oversubscription - 1e-9) <= ports), default=ports // 2
    )


def _apart(one: int, other: int) -> str:
    return f"{abs(one - other)} {'more' if one > other else 'fewer'}"


def _tiers(count: int) -> str:
    return f"{count} tier" if count == 1 else f"{count} tiers"


def _share(part: float) -> str:
    return f"{part:.0%}" if part >= 0.01 else f"{part:.1%}"
