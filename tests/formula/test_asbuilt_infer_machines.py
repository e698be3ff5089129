"""What the inference says of machines whose design is known, and what each sort of finding looks like."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from asbuilt_changes import cable, instead, without, wrong
from railwright import fabric
from railwright.asbuilt import (
    Link,
    Node,
    Wiring,
    as_text,
    fabric_names,
    infer,
    is_wrong,
    punch_list,
    summary,
    tally,
    to_fabric,
    to_wiring,
)
from railwright.asbuilt.read import read
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.export import render
from railwright.fabric import Kind, Role
from railwright.spec.study import Cluster, ComputeNetwork, Fault

CATALOG = load_catalog()
DATA = Path("/work/shared/data")
EDR = DATA / "ibnetdiscover" / "edr_4leaf_2spine_reconstructed.out"
IBSIM = DATA / "reliability" / "ibsim_rail_8hosts_8rails"
SUPERBENCH = DATA / "ibnetdiscover" / "superbench_ibnetdiscover.txt"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="real dumps lie outside the repository")


def superpod(servers: int = 32, **network) -> Wiring:
    """One to four scalable units of DGX H100 under QM9700 switches."""
    compute = ComputeNetwork(family="rail-optimised", switch="qm9700", servers_per_group=16, **network)
    cluster = Cluster(servers=servers, server="dgx-h100", compute=compute)
    return to_wiring(fabric.build(cluster, CATALOG), CATALOG)


def swapped(wiring: Wiring, one: Link, two: Link) -> Wiring:
    """The upper ends of two cables exchanged."""
    return instead(
        wiring,
        {one: replace(one, b=two.b, b_port=two.b_port), two: replace(two, b=one.b, b_port=one.b_port)},
    )


def test_a_superpod_is_recognised():
    """2 units of 16 servers: 8 rails, 16 leaves of 16 ports down and 16 up, 8 spines, 2 cables per pair."""
    found = infer(superpod(oversubscription=1.0))
    assert found.family == "rail-optimised"
    assert [len(found.switches(t)) for t in (1, 2, 3)] == [16, 4, 0]
    assert found.rails == tuple(f"nic-{i}" for i in range(8))
    assert (found.units, found.servers_per_unit) == (2, 16)
    assert (found.down, found.up, found.bundle) == (16, 16, (4,))
    assert found.oversubscription == 1.0
    assert found.speeds == ("4xNDR", "4xNDR")
    assert summary(found)[0].startswith("rail-optimised: 16 leaves, 4 spines; 32 servers, 256 adapters")


def test_a_part_filled_unit_does_not_stand_for_the_full_one():
    """37 servers: a unit of 32, whose leaves have 32 cables down and 32 up, and one of 5 servers."""
    compute = ComputeNetwork(family="rail-optimised", switch="qm9700")
    cluster = Cluster(servers=37, server="dgx-h100", compute=compute)
    found = infer(to_wiring(fabric.build(cluster, CATALOG), CATALOG))
    assert (found.units, found.servers_per_unit, found.down, found.up) == (2, 32, 32, 32)
    assert found.oversubscription == 1.0
    assert "2 scalable unit(s) of up to 32 servers" in "\n".join(summary(found))


@pytest.mark.parametrize(
    ("family", "servers", "tiers"),
    [("fat-tree", 24, 2), ("rail-only", 40, 1), ("single-switch", 8, 1), ("rail-optimised", 40, 2)],
)
def test_every_family_is_recognised(family, servers, tiers):
    compute = ComputeNetwork(family=family, switch="qm9700")
    cluster = Cluster(servers=servers, server="dgx-h100", compute=compute)
    found = infer(to_wiring(fabric.build(cluster, CATALOG), CATALOG))
    assert (found.family, found.tiers) == (family, tiers)


def test_a_removed_cable_is_one_missing_link_with_both_ports():
    machine = superpod()
    (finding,) = wrong(punch_list(without(machine, cable(machine, "leaf-03", 49))))
    assert (finding.kind, finding.severity) == ("missing link", "fault")
    assert finding.ends == (("leaf-03", 49), ("spine-01", 9))


def test_a_swap_within_a_server_says_what_would_tell_a_naming_order_from_it():
    machine = superpod()
    one, two = cable(machine, "server-05/nic-2", 1), cable(machine, "server-05/nic-6", 1)
    (finding,) = wrong(punch_list(swapped(machine, one, two)))
    assert finding.kind == "rail mismatch"
    assert {end[0] for end in finding.ends} == {"server-05/nic-2", "server-05/nic-6", "leaf-03", "leaf-07"}
    assert "named in another order" in finding.evidence
    assert "PCI" in finding.next_test


def test_the_same_exchange_on_several_servers_looks_like_a_naming_order():
    machine = superpod()
    broken = machine
    for server in ("server-03", "server-04", "server-05"):
        one, two = cable(machine, f"{server}/nic-0", 1), cable(machine, f"{server}/nic-1", 1)
        broken = swapped(broken, one, two)
    found = wrong(punch_list(broken))
    assert [f.kind for f in found] == ["rail mismatch"] * 3
    assert all("3 servers have the same adapters exchanged" in f.evidence for f in found)


def test_two_servers_exchanged_on_one_leaf_are_a_harmless_misplacement():
    """Both cables stay on their rail: only the port differs, which seven other rails show."""
    machine = superpod()
    one, two = cable(machine, "server-03/nic-4", 1), cable(machine, "server-09/nic-4", 1)
    (finding,) = wrong(punch_list(swapped(machine, one, two)))
    assert (finding.kind, finding.severity) == ("port misplaced", "warning")
    assert ("leaf-05", 9) in finding.ends


def test_a_leaf_that_is_gone_is_one_device_and_not_thirty_cables():
    machine = superpod(64)
    gone = machine.index()["leaf-12"]
    hosts = {k.a for k in machine.links if k.b == gone}
    kept = [i for i in range(len(machine.nodes)) if i != gone and i not in hosts]
    number = {i: n for n, i in enumerate(kept)}
    links = [
        replace(k, a=number[k.a], b=number[k.b]) for k in machine.links if k.a in number and k.b in number
    ]
    broken = Wiring("broken", tuple(machine.nodes[i] for i in kept), tuple(links))
    (alone,) = wrong(punch_list(broken))
    assert (alone.kind, alone.element) == ("missing device", "leaf of nic-3 in scalable unit 2")
    (designed,) = wrong(punch_list(broken, machine))
    assert (designed.kind, designed.element) == ("missing device", "leaf-12")
    assert "16 adapters behind it" in designed.evidence


def test_a_missing_spine_is_invisible_without_a_design_and_a_note_says_so():
    machine = superpod()
    gone = machine.index()["spine-02"]
    broken = Wiring(
        "broken",
        tuple(n for i, n in enumerate(machine.nodes) if i != gone),
        tuple(
            replace(k, a=k.a - (k.a > gone), b=k.b - (k.b > gone))
            for k in machine.links
            if gone not in (k.a, k.b)
        ),
    )
    found = punch_list(broken)
    assert not is_wrong(found)
    assert any(f.kind == "unused ports" and f.element == "every leaf" for f in found)
    assert [f.element for f in wrong(punch_list(broken, machine))] == ["spine-02"]


def test_a_machine_with_names_of_its_own_is_matched_to_the_design():
    """Other names of servers, adapters and switches, the first server missing, and one cable slow."""
    design = superpod()
    nodes = []
    for node in design.nodes:
        if node.kind == "host":
            number, adapter = int(node.host[-2:]) + 100, f"mlx5_{node.adapter[-1]}"
            name = f"gpu{number} {adapter}"
            nodes.append(replace(node, key=name, name=name, host=f"gpu{number}", adapter=adapter))
        else:
            nodes.append(replace(node, key=f"IB {node.name}", name=f"IB {node.name}"))
    slow = cable(design, "leaf-09", 50)
    links = [replace(k, speed="HDR", rate=25e9) if k == slow else k for k in design.links]
    keep = [i for i, n in enumerate(nodes) if n.host != "gpu101"]
    number_of = {i: n for n, i in enumerate(keep)}
    machine = Wiring(
        "own names",
        tuple(nodes[i] for i in keep),
        tuple(replace(k, a=number_of[k.a], b=number_of[k.b]) for k in links if k.a in number_of),
    )
    found = punch_list(machine, design)
    assert sorted(f.kind for f in wrong(found)) == ["degraded link", "missing device"]
    assert any(f.element == "server-01" for f in found)
    assert any(f.ends[0] == ("IB leaf-09", 50) for f in found if f.kind == "degraded link")
    assert any(f.kind == "own names" for f in found)


@pytest.mark.parametrize("form", ["ibnetdiscover", "ibnetdiscover-ports"])
def test_an_exported_dump_comes_back_as_the_design(form, tmp_path):
    """Exported adapters are called mlx5_*; a dump without the first server misses just that one."""
    compute = ComputeNetwork(family="rail-optimised", switch="qm9700", servers_per_group=16)
    drawn = fabric.build(Cluster(servers=32, server="dgx-h100", compute=compute), CATALOG)
    (text,) = render(drawn, form, catalog=CATALOG).values()
    path = tmp_path / "dump.txt"
    path.write_text(text)
    machine, design = read(path), to_wiring(drawn, CATALOG)
    assert not wrong(punch_list(machine))
    assert not wrong(punch_list(machine, design))
    gone = {i for i, node in enumerate(machine.nodes) if node.host == "server-01"}
    assert len(gone) == 8
    kept = [i for i in range(len(machine.nodes)) if i not in gone]
    number = {i: n for n, i in enumerate(kept)}
    links = [replace(k, a=number[k.a], b=number[k.b]) for k in machine.links if not {k.a, k.b} & gone]
    partly = Wiring("partly", tuple(machine.nodes[i] for i in kept), tuple(links))
    (finding,) = wrong(punch_list(partly, design))
    assert (finding.kind, finding.element) == ("missing device", "server-01")


def test_a_design_that_shares_nothing_is_refused():
    nameless = Wiring("x", (Node("1", "host", ""), Node("2", "switch", "a")), (Link(0, 1, 1, 1),))
    with pytest.raises(PlanError, match="no device name in common"):
        punch_list(nameless, superpod())


@pytest.mark.parametrize("links", [(), (Link(0, 1, 1, 1),)])
def test_next_to_nothing_is_no_error(links):
    """No network to speak of: nothing is proven, and nothing falls over."""
    nodes = (Node("1", "host", "n1 mlx5_0", host="n1", adapter="mlx5_0"), Node("2", "switch", "a", ports=4))
    assert not wrong([f for f in punch_list(Wiring("x", nodes, links)) if f.kind != "missing link"])
    assert not punch_list(Wiring("empty", (), ()))


def test_the_list_is_sorted_and_rendered():
    machine = superpod()
    broken = without(machine, cable(machine, "leaf-03", 49))
    slow = cable(broken, "leaf-01", 49)
    broken = instead(broken, {slow: replace(slow, width=1, rate=0.0)})
    one, two = cable(machine, "server-03/nic-4", 1), cable(machine, "server-09/nic-4", 1)
    found = punch_list(swapped(broken, one, two))
    assert [f.severity for f in found] == sorted(
        (f.severity for f in found), key=("fault", "warning", "note").index
    )
    assert tally(found).startswith("2 faults (1 degraded link, 1 missing link), 1 warning (1 port misplaced)")
    lines = as_text(found)
    assert lines[0] == "fault   degraded link: leaf-01 port 49 - spine-01 port 1"
    assert lines[1] == "        should be: 4xNDR; is: 1xNDR"


def test_faults_of_a_study_reach_the_wiring():
    """A slowed cable keeps the rate left to it, a failed one is down."""
    compute = ComputeNetwork(family="rail-optimised", switch="qm9700")
    cluster = Cluster(
        servers=32,
        server="dgx-h100",
        compute=compute,
        faults=(
            Fault(element="leaf-03 port 49", state="slow", rate="200 Gb/s"),
            Fault(element="leaf-04 port 50"),
        ),
    )
    found = wrong(punch_list(to_wiring(fabric.build(cluster, CATALOG), CATALOG)))
    assert sorted((f.kind, f.ends[0]) for f in found) == [
        ("degraded link", ("leaf-03", 49)),
        ("down port", ("leaf-04", 50)),
    ]


def test_the_machine_as_built_is_a_fabric_again():
    """Wiring and back: the same cables, ports and rates; a NIC without its cable is failed."""
    compute = ComputeNetwork(family="rail-optimised", switch="qm9700")
    drawn = fabric.build(Cluster(servers=32, server="dgx-h100", compute=compute), CATALOG)
    machine = to_wiring(drawn, CATALOG)
    again = to_fabric(machine, CATALOG, "dgx-h100")
    for column in (
        "kind",
        "server",
        "rail",
        "group",
        "a",
        "b",
        "port_a",
        "port_b",
        "rate",
        "role",
        "nic_of_gpu",
    ):
        assert np.array_equal(getattr(again, column), getattr(drawn, column)), column
    broken = to_fabric(without(machine, cable(machine, "server-07/nic-2", 1)), CATALOG)
    assert np.count_nonzero(broken.role == Role.NODE_LEAF) == 255
    assert broken.nic_of_gpu[6 * 8 + 2] != drawn.nic_of_gpu[6 * 8 + 2]
    assert any("assumed servers" in note for note in broken.notes)
    assert fabric_names(machine)["leaf-03"] == "leaf-03"
    assert len(again.devices(Kind.LEAF)) == 8


def test_a_machine_of_other_servers_is_refused():
    with pytest.raises(PlanError, match="8 adapters"):
        to_fabric(superpod(), CATALOG, next(s.name for s in CATALOG.servers.values() if s.nics == 4))


@pytest.mark.alone
def test_six_hundred_adapters_take_less_than_two_seconds():
    """76 servers of 8 adapters, 608 in all; the bar of issue 3."""
    machine = superpod(76)
    punch_list(machine)
    start = time.process_time()
    punch_list(machine)
    assert time.process_time() - start < 2.0


@needs_data
def test_the_real_edr_cluster():
    """96 hosts, 4 leaves of 24 down and 12 up, 2 spines; one cable at 4xDDR, and nothing else.

    Source: facts/reference_designs.yaml, 'edr-4leaf-2spine-real'.
    """
    found = infer(read(EDR))
    assert [len(found.switches(t)) for t in (1, 2, 3)] == [4, 2, 0]
    assert (found.servers, len(found.wiring.links), found.radix) == (96, 144, 36)
    assert (found.down, found.up, found.oversubscription, found.bundle) == (24, 12, 2.0, (6,))
    (finding,) = wrong(punch_list(found))
    assert (finding.kind, finding.expected, finding.found) == ("degraded link", "4xEDR", "4xDDR")
    assert finding.ends[0] == ("leafB", 11)
    assert finding.ends[1][0] == "spine2"


@needs_data
@pytest.mark.parametrize("tool", ["ibnetdiscover", "iblinkinfo"])
def test_the_ibsim_fabric_and_its_one_cut_cable(tool):
    """8 hosts x 8 rails, 8 leaves, 4 spines; leaf-r5 port 10 (to spine0 port 12) unlinked in the second dump.

    Source: GROUND_TRUTH.md beside the dumps.
    """
    sound = infer(read(IBSIM / f"{tool}.txt"))
    assert (sound.family, len(sound.rails), sound.servers) == ("rail-optimised", 8, 8)
    assert not wrong(punch_list(sound))
    (finding,) = wrong(punch_list(read(IBSIM / f"{tool}_linkdown.txt")))
    assert (finding.kind, finding.ends) == ("missing link", (("leaf-r5", 10), ("spine0", 12)))
    against = wrong(punch_list(read(IBSIM / f"{tool}_linkdown.txt"), sound.wiring))
    assert [f.ends for f in against] == [finding.ends]


@needs_data
def test_a_truncated_dump_with_a_director_gives_no_false_alarm():
    found = infer(read(SUPERBENCH))
    assert [len(modules) for modules in found.directors.values()] == [3]
    assert [len(found.switches(t)) for t in (1, 2, 3)] == [5, 2, 1]
    assert not wrong(punch_list(found))
