"""Addresses and host routes: packets of every lane take the simulator's own path, on every family."""

import numpy as np
import pytest

from emulate_cases import FAMILIES, network, sixteen
from railwright.emulate.lanes import address, find_lanes, host_routes, primary_routes
from railwright.emulate.patterns import pattern
from railwright.emulate.topology import affordable, topology
from railwright.errors import PlanError
from railwright.fabric import apply_faults
from railwright.fabric.graph import Kind
from railwright.network import Network
from railwright.network.routing.paths import find_routes
from railwright.spec.study import Fault
from railwright.traffic import Traffic


def followed(plan, table, here, goal_node, goal):
    """Cables that packets to an address take, namespace by namespace."""
    wires = {w.cable: w for w in plan.wires}
    cables = []
    while here != goal_node:
        cable = table[here, goal]
        cables.append(cable)
        here = wires[cable].b if wires[cable].a == here else wires[cable].a
        assert len(cables) < 12, "packets run in a circle"
    return cables


def check_every_lane(net, name):
    plan = topology(net.fabric)
    script = pattern(name, net.fabric, 4096)
    lanes = find_lanes(net, plan, script.traffic)
    table = {}
    for route in host_routes(net.fabric, plan, lanes):
        assert (route.node, route.goal) not in table, "one route per address and namespace"
        table[route.node, route.goal] = route.wire
    for (u, v), several in lanes.paths.items():
        assert len(lanes.paths[v, u]) >= len(several), "every lane has a way back"
        for k, links in enumerate(several):
            assert followed(plan, table, u, v, address(v, u, k)) == [link // 2 for link in links]
    emulated = {wire.cable for wire in plan.wires}
    ptr, link, weight = find_routes(net, script.traffic).flat()
    for f, legs in enumerate(lanes.legs):
        wanted = {}
        for x, w in zip(
            link[ptr[f] : ptr[f + 1]].tolist(), weight[ptr[f] : ptr[f + 1]].tolist(), strict=True
        ):
            if x // 2 in emulated:
                wanted[x] = wanted.get(x, 0.0) + w
        carried = {}
        for leg in legs:
            assert sum(share for _, share in leg.parts) == pytest.approx(1.0)
            for k, share in leg.parts:
                for x in lanes.paths[leg.src, leg.dst][k]:
                    carried[x] = carried.get(x, 0.0) + share
        assert carried == pytest.approx(wanted, abs=1e-9), (
            "each link carries the share that the simulator says"
        )


@pytest.mark.parametrize("routing", ["adaptive", "ecmp", "static"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_pair_takes_the_simulators_path(family, routing):
    name = "pxn" if family == "rail-only" else "all-to-all"
    check_every_lane(network(family, routing), name)


@pytest.mark.parametrize("routing", ["adaptive", "ecmp", "static"])
def test_relays_split_a_path_in_two(routing):
    check_every_lane(network("rail-optimised", routing), "pxn")


@pytest.mark.parametrize(
    "element", ["spine-01 port 1", "server-01/nic-1", "server-02/nic-3 port 1", "leaf-01"]
)
def test_routes_go_around_what_is_known_to_be_dead(element):
    sound = sixteen("rail-optimised", 1.0)
    broken = Network(apply_faults(sound.fabric, [Fault(element=element)]))
    check_every_lane(broken, "all-to-all")


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "rail-only"])
def test_an_unmodified_library_reaches_every_gpu_by_its_one_address(family):
    net = network(family)
    plan = topology(net.fabric)
    n = net.fabric.num_gpus
    pairs = [(u, v) for u in range(n) for v in range(n) if u != v]
    ends = np.array(pairs, np.int32)
    everyone = Traffic(ends[:, 0], ends[:, 1], np.full(len(pairs), -1, np.int32), np.ones(len(pairs)))
    table = {(r.node, r.goal): r.wire for r in primary_routes(net, plan, everyone)}
    for u, v in pairs:
        followed(plan, table, u, v, address(v, v, 0))


def test_namespaces_are_gpus_and_live_switches_and_wires_their_cables():
    """4 servers of 4 GPUs, 2 groups x 4 rails: 16 GPUs, 4 scale-up switches, 8 leaves and their spines."""
    fabric = network("rail-optimised").fabric
    plan = topology(fabric, 25e6 / 8)
    spines = len(fabric.devices(Kind.SPINE))
    assert len(plan.names) == 16 + 4 + 8 + spines
    assert plan.names[0] == "server-01/gpu-0"
    # Every cable but the 16 lanes between a GPU and its own NIC.
    assert len(plan.wires) == fabric.num_cables - 16
    assert {round(w.rates[0] * 8 / 1e6) for w in plan.wires} == {25, 350}


def test_a_nic_that_several_gpus_share_lives_with_the_first_of_them():
    plan = topology(network("one NIC for four GPUs").fabric)
    assert plan.node_of[12:15].tolist() == [0, 4, 8]


def test_rates_go_down_with_the_gpus_so_that_cores_keep_up():
    """128 GPUs on 2 cores: 0.8 Gbit/s in all is 6.25 Mbit/s each; 16 GPUs may have the full 25."""
    assert affordable(128, 2, 0.0) * 8 == pytest.approx(6.25e6)
    assert affordable(16, 2, 1.5) * 8 == pytest.approx(25e6)
    # Five that want to run on two cores: 2/5 of the rate; a hundred: a quarter, and no less.
    assert affordable(16, 2, 5.0) * 8 == pytest.approx(10e6)
    assert affordable(16, 2, 100.0) * 8 == pytest.approx(6.25e6)


def test_too_many_gpus_are_refused_before_anything_is_built():
    from railwright.emulate.topology import refuse_too_many

    refuse_too_many(128, 8)
    with pytest.raises(PlanError, match="129 GPUs are too many to emulate: at most 128"):
        refuse_too_many(129, 3)
