"""Faults: what they take away, both directions, and where stranded GPUs go."""

from __future__ import annotations

import numpy as np
import pytest

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import Kind, Role
from railwright.fabric.faults import live_nics
from railwright.spec.study import Cluster, ComputeNetwork, Fault

CATALOG = load_catalog()


def built(*faults: Fault, family: str = "rail-optimised", servers: int = 4, server: str = "dgx-h100"):
    network = ComputeNetwork(family=family, switch="qm9700")
    return fabric.build(Cluster(servers=servers, server=server, compute=network, faults=faults), CATALOG)


def dead(f) -> set[str]:
    return {f.link_name(int(link)) for link in np.flatnonzero(f.capacity == 0)}


def test_a_failed_port_takes_its_cable_in_both_directions():
    f = built(Fault(element="leaf-03 port 64"))
    assert dead(f) == {"leaf-03 port 64 -> spine-01 port 12", "spine-01 port 12 -> leaf-03 port 64"}
    same = built(Fault(element="spine-01 port 12"))
    assert np.array_equal(f.capacity, same.capacity)


def test_a_failed_switch_takes_every_cable_of_it():
    f = built(Fault(element="spine-01"), servers=64)
    spine = f.devices(Kind.SPINE)[0]
    touched = (f.a == spine) | (f.b == spine)
    assert np.count_nonzero(touched) == 64
    assert np.array_equal(np.repeat(touched, 2), f.capacity == 0)


def test_a_slow_nic_is_slow_and_never_faster():
    slow = built(Fault(element="server-02/nic-2", state="slow", rate="100 Gb/s"))
    cable = (slow.a == slow.nic_of_gpu[10]) & (slow.role == Role.NODE_LEAF)
    assert slow.capacity[np.repeat(cable, 2)].tolist() == [12.5e9, 12.5e9]
    assert slow.rate[cable].tolist() == [50e9], "the nominal rate stays"
    healthy = built()
    assert np.array_equal(
        built(Fault(element="server-02/nic-2", state="slow", rate="900 Gb/s")).capacity, healthy.capacity
    )


def test_a_slow_server_is_slow_on_its_network_cables_only():
    f = built(Fault(element="server-02", state="slow", rate="100 Gb/s"))
    slowed = np.flatnonzero((f.capacity < np.repeat(f.rate, 2))[::2])
    assert (f.role[slowed] == Role.NODE_LEAF).all()
    assert (f.server[f.a[slowed]] == 1).all()
    assert len(slowed) == 8


def test_a_failed_leaf_moves_its_rail_to_the_next_nic_of_every_server():
    """Leaf 3 of one unit: rail 2 of all four servers goes over NIC 3, which two GPUs now share."""
    healthy, f = built(), built(Fault(element="leaf-03"))
    moved = np.flatnonzero(f.nic_of_gpu != healthy.nic_of_gpu)
    assert moved.tolist() == [2, 10, 18, 26]
    assert (f.rail[f.nic_of_gpu[moved]] == 3).all()
    assert any("4 GPU(s) on 4 server(s) send through another NIC" in note for note in f.notes)


def test_stranded_gpus_are_spread_evenly_over_live_nics():
    """Six of eight NICs dead: two left with four GPUs each."""
    f = built(*(Fault(element=f"server-02/nic-{i}") for i in (0, 1, 3, 4, 5, 7)))
    users = np.bincount(f.nic_of_gpu[f.server[: f.num_gpus] == 1] - f.num_gpus - 8, minlength=8)
    assert users.tolist() == [0, 0, 4, 0, 0, 0, 4, 0]
    assert live_nics(f)[8:16].tolist() == [False, False, True, False, False, False, True, False]


def test_a_moved_gpu_has_a_lane_to_its_new_nic_and_link_numbers_stay():
    healthy, f = built(), built(Fault(element="server-01/nic-7"))
    kept = healthy.num_cables
    assert f.num_cables == kept + 1
    assert np.array_equal(f.a[:kept], healthy.a)
    assert (f.a[-1], f.b[-1], Role(f.role[-1])) == (7, f.nic_of_gpu[7], Role.PCIE)
    assert f.nic_of_gpu[7] == f.num_gpus + 0, "round the corner: NIC 0"


def test_faults_add_up_in_any_order():
    first, second = Fault(element="leaf-03 port 64"), Fault(element="leaf-03", state="slow", rate="100 Gb/s")
    assert np.array_equal(built(first, second).capacity, built(second, first).capacity)
    again = fabric.apply_faults(built(first), [second])
    assert np.array_equal(again.capacity, built(first, second).capacity)


def test_no_fault_is_no_change():
    f = built()
    assert fabric.apply_faults(f, ()) is f


def test_a_network_cut_apart_says_so():
    f = built(Fault(element="spine-01"))
    assert any("8 parts instead of 1" in note for note in f.notes)
    assert not any("parts instead" in note for note in built(Fault(element="spine-01"), servers=64).notes)


def test_faults_keep_the_counts_and_lower_the_bisection():
    """Fat tree of 8 servers on two leaves: 32 uplinks each over one spine; a dead cable costs 1/32."""
    network = ComputeNetwork(family="fat-tree", switch="qm9700", tiers=2)
    cluster = Cluster(servers=8, server="dgx-h100", compute=network)
    healthy = fabric.build(cluster, CATALOG)
    broken = fabric.apply_faults(healthy, [Fault(element="leaf-01 port 33")])
    before, after = fabric.count(healthy, CATALOG), fabric.count(broken, CATALOG)
    assert after.cables == before.cables
    assert after.bisection == pytest.approx(before.bisection * 31 / 32)


@pytest.mark.parametrize(("server", "name"), [("dgx-h100", "nvswitch"), ("server-8x-l40s", "pcie")])
def test_a_fault_names_what_joins_the_gpus_as_the_drawing_does(server, name):
    f = built(Fault(element=f"server-02/{name}"), server=server)
    lanes = {(f"server-02/gpu-{g}", f"server-02/{name}") for g in range(8)}
    assert dead(f) == {f"{x} -> {y}" for a, b in lanes for x, y in ((a, b), (b, a))}
    other = {"nvswitch": "pcie", "pcie": "nvswitch"}[name]
    for element in (f"server-02/{other}", f"server-02/{name}1", "server-02/gpu-"):
        with pytest.raises(PlanError, match="names no element of this fabric"):
            built(Fault(element=element), server=server)
