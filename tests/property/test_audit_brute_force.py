"""Every figure of the audit against the slow definition of it, pair by pair, on small broken fabrics."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import network_fabrics as hand
from railwright import fabric as fabrics
from railwright.audit import audit, blast_radius, fault_domains, reachability
from railwright.audit.survey import survey
from railwright.audit.ways import leaf_ways, path_diversity
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric.faults import live_nics
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.spec.study import Cluster, ComputeNetwork, Fault
from railwright.traffic import Communicator

QUICK = settings(max_examples=25, derandomize=True)


def fail(fabric: Fabric, cables: list[int]) -> Fabric:
    return hand.with_capacity(fabric, {link: 0.0 for c in cables for link in (2 * c, 2 * c + 1)})


def three_tiers(gpus: int, ports: int, servers: int, family: str) -> Fabric:
    """A Clos of small switches: k = 4 joins 16 hosts in three tiers, as Al-Fares draws it."""
    catalog = load_catalog()
    switch = replace(catalog.switches["qm8700"], name="small", ports=ports, cages=ports)
    server = replace(catalog.servers["dgx-a100"], name="host", gpus=gpus, nics=gpus)
    catalog = replace(catalog, switches={"small": switch}, servers={"host": server})
    network = ComputeNetwork(family=family, switch="small", tiers=3)  # type: ignore[arg-type]
    return fabrics.build(Cluster(servers=servers, server="host", compute=network), catalog)


CLOS = [
    three_tiers(1, 4, 14, "fat-tree"),
    three_tiers(2, 4, 8, "rail-optimised"),
    three_tiers(2, 6, 9, "fat-tree"),
]


@st.composite
def sound(draw: st.DrawFn) -> Fabric:
    if draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(CLOS))
    return hand.make(
        servers=draw(st.integers(1, 5)),
        gpus=draw(st.sampled_from([1, 2, 3])),
        family=draw(st.sampled_from(["rail-optimised", "rail-only", "fat-tree", "single-switch"])),
        spines=draw(st.integers(1, 3)),
        cables=draw(st.integers(1, 2)),
        servers_per_group=draw(st.integers(1, 3)),
    )


@st.composite
def broken(draw: st.DrawFn) -> Fabric:
    """A small fabric with up to a third of its network cables failed."""
    fabric = draw(sound())
    network = np.flatnonzero(fabric.role >= Role.NODE_LEAF).tolist()
    lost = draw(st.lists(st.sampled_from(network), max_size=max(1, len(network) // 3), unique=True))
    return fail(fabric, lost)


def neighbours(fabric: Fabric, lost: frozenset[int] = frozenset()) -> dict[int, list[tuple[int, int]]]:
    """Device -> (device, cable) over live network cables."""
    found: dict[int, list[tuple[int, int]]] = {d: [] for d in range(fabric.num_devices)}
    for c in range(fabric.num_cables):
        if fabric.role[c] >= Role.NODE_LEAF and fabric.capacity[2 * c] > 0 and c not in lost:
            a, b = int(fabric.a[c]), int(fabric.b[c])
            found[a].append((b, c))
            found[b].append((a, c))
    return found


def search(fabric: Fabric, start: int) -> tuple[dict[int, int], dict[int, int]]:
    """Cables to every device that switches lead to from `start`, and how many shortest ways."""
    graph = neighbours(fabric)
    far, ways, queue = {start: 0}, {start: 1}, deque([start])
    while queue:
        node = queue.popleft()
        if node != start and fabric.kind[node] < Kind.LEAF:
            continue
        for other, _ in graph[node]:
            if other not in far:
                far[other], ways[other] = far[node] + 1, 0
                queue.append(other)
            if far[other] == far[node] + 1:
                ways[other] += ways[node]
    return far, ways


def disjoint(fabric: Fabric, one: int, other: int) -> int:
    """Ways without a common cable: augmenting paths one by one, each cable carrying one way or none."""
    graph = {
        node: [(o, c) for o, c in near if fabric.kind[o] >= Kind.LEAF]
        for node, near in neighbours(fabric).items()
    }
    flow: dict[tuple[int, int], int] = {}
    count = 0
    while True:
        came: dict[int, tuple[int, int]] = {one: (-1, -1)}
        queue = deque([one])
        while queue and other not in came:
            node = queue.popleft()
            for near, cable in graph[node]:
                if near not in came and flow.get((cable, node), 0) < 1:
                    came[near] = (node, cable)
                    queue.append(near)
        if other not in came:
            return count
        node = other
        while node != one:
            before, cable = came[node]
            flow[cable, before] = flow.get((cable, before), 0) + 1
            flow[cable, node] = flow.get((cable, node), 0) - 1
            node = before
        count += 1


@QUICK
@given(broken())
def test_hops_are_those_of_a_search_from_every_gpu(fabric: Fabric) -> None:
    expected: Counter[int] = Counter()
    for one in range(fabric.num_gpus):
        far, _ = search(fabric, int(fabric.nic_of_gpu[one]))
        for other in range(one + 1, fabric.num_gpus):
            if fabric.server[one] == fabric.server[other]:
                expected[0] += 1
            else:
                expected[far.get(int(fabric.nic_of_gpu[other]), 0) - 1] += 1
    found = audit(fabric)
    assert dict(found.hops) == {hops: n for hops, n in expected.items() if hops >= 0}
    assert found.pairs_unjoined == expected[-1]
    assert (
        sum(n for _, n in found.hops) + found.pairs_unjoined == fabric.num_gpus * (fabric.num_gpus - 1) // 2
    )


@QUICK
@given(broken())
def test_ways_between_leaves_are_those_of_a_search_from_every_leaf(fabric: Fabric) -> None:
    state = survey(fabric)
    served = (np.unique(state.leaf) + state.first_switch).tolist()
    shortest, apart = [], []
    for one, other in combinations(served, 2):
        far, ways = search(fabric, one)
        # A search between leaves must not go through a NIC; `search` stops at devices that are no switch.
        if other in far:
            shortest.append(ways[other])
            apart.append(disjoint(fabric, one, other))
    found = path_diversity(state, leaf_ways(state))
    assert found.joined == len(shortest)
    assert found.disjoint_exact
    if shortest:
        middle = (len(shortest) - 1) // 2
        assert (found.shortest_least, found.shortest_median) == (min(shortest), sorted(shortest)[middle])
        assert (found.disjoint_least, found.disjoint_median) == (min(apart), sorted(apart)[middle])


@QUICK
@given(broken())
def test_rail_alignment_is_that_of_every_pair_of_nics(fabric: Fabric) -> None:
    nics = fabric.devices(Kind.NIC).tolist()
    below = {d: rails_below(fabric, d) for d in np.flatnonzero(fabric.kind >= Kind.LEAF).tolist()}
    graph = neighbours(fabric)
    pairs = one_leaf = within = 0
    for one, other in combinations(nics, 2):
        if fabric.rail[one] != fabric.rail[other] or fabric.server[one] == fabric.server[other]:
            continue
        pairs += 1
        leaves = {d for d, _ in graph[one]} & {d for d, _ in graph[other]}
        one_leaf += bool(leaves)
        reached, queue = {one}, deque([one])
        while queue:
            node = queue.popleft()
            for near, _ in graph[node]:
                if near not in reached and (near == other or below.get(near) == {int(fabric.rail[one])}):
                    reached.add(near)
                    queue.append(near)
        within += bool(leaves) or other in reached
    found = audit(fabric).rails
    assert found.pairs == pairs
    if pairs:
        assert (found.one_leaf, found.within_rail) == pytest.approx((one_leaf / pairs, within / pairs))


def rails_below(fabric: Fabric, switch: int) -> set[int]:
    graph = neighbours(fabric)
    found: set[int] = set()
    queue = deque([switch])
    while queue:
        node = queue.popleft()
        if fabric.kind[node] == Kind.NIC:
            found.add(int(fabric.rail[node]))
        queue.extend(near for near, _ in graph[node] if fabric.kind[near] < fabric.kind[node])
    return found


def removable(fabric: Fabric) -> list[str]:
    kinds = (Kind.NIC, Kind.LEAF, Kind.SPINE)
    return [fabric.device_name(d) for d in range(fabric.num_devices) if fabric.kind[d] in kinds]


@QUICK
@given(sound(), st.data())
def test_a_blast_radius_is_what_the_faults_engine_leaves(fabric: Fabric, data: st.DataObject) -> None:
    """Fail the same element as a study's fault would, and count what moved; a server cut off is refused."""
    element = data.draw(st.sampled_from(removable(fabric)))
    blast = blast_radius(fabric, element)
    try:
        after = fabrics.apply_faults(fabric, [Fault(element=element)])
    except PlanError:
        assert min(blast.gpus_cut, blast.servers_cut) > 0
        return
    assert (blast.gpus_cut, blast.servers_cut) == (0, 0)
    assert blast.gpus_moved == np.count_nonzero(after.nic_of_gpu != fabric.nic_of_gpu)
    died = np.bincount(fabric.server[fabric.devices(Kind.NIC)[live_nics(fabric) & ~live_nics(after)]])
    assert blast.rails_lost == died.max(initial=0)
    joined = [path_diversity(state, leaf_ways(state)).joined for state in (survey(fabric), survey(after))]
    assert blast.leaf_pairs_cut == joined[0] - joined[1]


@QUICK
@given(broken())
def test_fault_domains_count_what_losing_each_member_in_turn_does(fabric: Fabric) -> None:
    """The one search finds exactly the devices whose removal cuts off a server, or parts those joined."""
    for domain in fault_domains(fabric):
        if domain.what not in ("leaf", "spine", "nic"):
            continue
        kind = Kind[domain.what.upper()]
        blasts = [blast_radius(fabric, fabric.device_name(d)) for d in fabric.devices(kind).tolist()]
        alive = [b for b in blasts if b.cables]
        assert domain.members <= len(blasts)
        worst_cut = max(b.gpus_cut for b in blasts)
        if not servers_in_parts(fabric):
            assert domain.fatal == sum(b.gpus_cut > 0 or b.servers_apart > 0 for b in alive)
            assert domain.worst.gpus_cut + domain.worst.servers_apart > 0 or worst_cut == 0


def servers_in_parts(fabric: Fabric) -> bool:
    """Whether the network already falls into several sets of servers: then 'the rest' is not one thing."""
    reached, queue = {0}, deque([0])
    graph = neighbours(fabric)
    nic_of: dict[int, list[int]] = {}
    for nic in fabric.devices(Kind.NIC).tolist():
        nic_of.setdefault(int(fabric.server[nic]), []).append(nic)
    seen: set[int] = set()
    while queue:
        server = queue.popleft()
        todo = deque(nic_of[server])
        while todo:
            node = todo.popleft()
            for near, _ in graph[node]:
                if near in seen:
                    continue
                seen.add(near)
                if fabric.kind[near] >= Kind.LEAF:
                    todo.append(near)
                elif int(fabric.server[near]) not in reached:
                    reached.add(int(fabric.server[near]))
                    queue.append(int(fabric.server[near]))
    has = {int(fabric.server[n]) for n in fabric.devices(Kind.NIC).tolist() if graph[n]}
    return not has <= reached or 0 not in has


@QUICK
@given(broken(), st.data())
def test_reachability_is_that_of_every_ordered_pair(fabric: Fabric, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, fabric.num_gpus))
    gpus = data.draw(st.permutations(range(fabric.num_gpus)))[:size]
    comm = Communicator(np.array(gpus, np.int32), "job")
    (found,) = reachability(fabric, [comm]).groups
    joined = {g: search(fabric, int(fabric.nic_of_gpu[g]))[0] for g in gpus}
    expected: Counter[str] = Counter()
    ways: dict[tuple[str, str], str] = {}
    for one in gpus:
        for other in gpus:
            if one == other:
                continue
            way = one_way(fabric, gpus, joined, one, other)
            expected[way] += 1
            ways[fabric.device_name(one), fabric.device_name(other)] = way
    counted = {way: getattr(found, way) for way in ("inside", "direct", "relayed", "unreachable")}
    assert {way: n for way, n in counted.items() if n} == dict(expected)
    assert {way for way, _ in found.examples} == set(expected)
    for way, pair in found.examples:
        assert ways[pair.source, pair.destination] == way
        assert bool(pair.relay) == (way == "relayed")


def one_way(fabric: Fabric, gpus: list[int], joined: dict[int, dict[int, int]], one: int, other: int) -> str:
    rail, server, goal = fabric.rail[fabric.nic_of_gpu], fabric.server, int(fabric.nic_of_gpu[other])
    if server[one] == server[other]:
        return "inside"
    if goal in joined[one]:
        return "direct"
    near = [g for g in gpus if server[g] == server[one] and rail[g] == rail[other] and goal in joined[g]]
    return "relayed" if near else "unreachable"


@QUICK
@given(broken(), st.data())
def test_one_more_fault_never_makes_more_ways(fabric: Fabric, data: st.DataObject) -> None:
    network = np.flatnonzero(fabric.role >= Role.NODE_LEAF).tolist()
    worse = fail(fabric, [data.draw(st.sampled_from(network))])
    before, after = audit(fabric), audit(worse)
    assert after.pairs_unjoined >= before.pairs_unjoined
    assert after.bisection <= before.bisection * (1 + 1e-9)
    assert after.diversity.joined <= before.diversity.joined
    assert sum(p.used for p in after.ports) <= sum(p.used for p in before.ports)
    assert after.nic_ports_bare >= before.nic_ports_bare
    world = [Communicator(np.arange(fabric.num_gpus, dtype=np.int32))]
    lost = [reachability(f, world).total("unreachable") for f in (fabric, worse)]
    assert lost[1] >= lost[0]
