"""Who is to blame where data is missing: the device or cable that the missing pairs, and only they, cross."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from railwright.emulate.lanes import Lanes, Links
from railwright.emulate.result import Suspect
from railwright.emulate.topology import Topology
from railwright.fabric.graph import Fabric

Pair = tuple[int, int]
MOST = 3


def crossings(
    fabric: Fabric, topology: Topology, lanes: Lanes, pairs: Iterable[Pair], both_ways: bool
) -> dict[Pair, frozenset[str]]:
    """Per pair, the names of switches and cables that its lanes cross.

    both_ways  the way back counts too: a connection cannot be opened without it
    """
    named: dict[Pair, frozenset[str]] = {}
    for u, v in pairs:
        ways: list[Links] = list(lanes.paths[u, v])
        if both_ways:
            ways += lanes.paths[v, u]
        named[u, v] = frozenset(
            name for links in ways for link in links for name in _elements(fabric, topology, link)
        )
    return named


def suspects(missing: set[Pair], crossed: Mapping[Pair, frozenset[str]]) -> tuple[Suspect, ...]:
    """The best explanations of missing pairs, best first; equally good ones by name.

    The score of an element is |missing and crossing| / |missing or crossing| (Jaccard): an element that
    missing pairs avoid, or that sound pairs cross, is less likely the one.
    """
    total: Counter[str] = Counter(name for names in crossed.values() for name in names)
    hit: Counter[str] = Counter(name for pair, names in crossed.items() if pair in missing for name in names)
    found = [
        Suspect(name, hit[name], total[name], hit[name] / (len(missing) + total[name] - hit[name]))
        for name in sorted(hit)
    ]
    # A switch and its only cable in use explain the same: the switch, having more cables, stands first.
    found.sort(key=lambda s: (-s.score, " port " in s.name, s.name))
    return tuple(found[:MOST])


def _elements(fabric: Fabric, topology: Topology, link: int) -> list[str]:
    cable = link // 2
    ends = [int(fabric.a[cable]), int(fabric.b[cable])]
    names = [fabric.device_name(device) for device in ends if topology.node_of[device] >= fabric.num_gpus]
    return [*names, fabric.link_name(2 * cable)]
