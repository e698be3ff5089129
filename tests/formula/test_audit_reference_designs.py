"""The audit of published fabrics, every figure counted by hand beside it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from math import comb
from pathlib import Path

import pytest

from fabric_cases import built
from railwright import fabric
from railwright.audit import audit, blast_radius, findings, lines
from railwright.audit.result import Audit, FaultDomain
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.spec.study import Cluster, ComputeNetwork, Fault, ServiceNetwork

CATALOG = load_catalog()
META = {
    "family": "fat-tree", "switch": "th4-400g", "tiers": 2, "servers_per_group": 2,
    "spine_switch": "arista-7800-576", "spines": 16, "spare_spines": 2,
}  # fmt: skip


def edr() -> Fabric:
    """A real machine of 2023: 4 leaves, 2 spines of 36 ports, 24 hosts and 12 uplinks a leaf (2:1)."""
    one_nic = replace(CATALOG.servers["dgx-1-v100"], name="host", gpus=1, nics=1)
    catalog = replace(CATALOG, servers={**CATALOG.servers, "host": one_nic})
    return built(96, "host", catalog, family="fat-tree", switch="sb7800", oversubscription=2.0)


def domain(found: Audit, what: str) -> FaultDomain:
    (one,) = [d for d in found.fault_domains if d.what == what]
    return one


def kinds(found: Audit) -> set[str]:
    return {f.kind for f in findings(found)}


def test_dgx_superpod_b200_of_four_units() -> None:
    """128 servers, 32 leaves of 32 GPUs, 16 spines, two cables from every leaf to every spine."""
    found = audit(built(128, "dgx-b200", family="rail-optimised", switch="qm9700"), CATALOG)
    inside, one_leaf = 128 * comb(8, 2), 32 * comb(32, 2)
    assert found.hops == ((0, inside), (1, one_leaf), (3, comb(1024, 2) - inside - one_leaf))
    assert found.pairs_unjoined == 0
    (leaf,) = found.oversubscription
    assert (leaf.switches, leaf.least, leaf.most, leaf.cut) == (32, 1.0, 1.0, ())
    assert (found.bisection, found.bisection_share) == (64 * 8 * 50e9, 1.0)
    d = found.diversity
    assert d.leaf_pairs == d.joined == comb(32, 2)
    assert (d.shortest_least, d.shortest_median) == (16 * 2 * 2, 16 * 2 * 2)
    assert (d.disjoint_least, d.disjoint_median, d.disjoint_exact) == (32, 32, True)
    assert found.rails.pairs == 8 * comb(128, 2)
    assert found.rails.one_leaf == pytest.approx(4 * comb(32, 2) / comb(128, 2))
    assert found.rails.within_rail == found.rails.one_leaf, "the spines serve all rails"
    assert [(p.tier, p.used, p.unused) for p in found.ports] == [("leaf", 2048, 0), ("spine", 1024, 0)]
    assert found.bundles[0].usual == 2
    assert findings(found) == []


def test_what_a_loss_costs_in_a_superpod() -> None:
    """A leaf takes a rail of its 32 servers; a spine a sixteenth of every leaf's uplinks; nobody is cut."""
    f = built(128, "dgx-b200", family="rail-optimised", switch="qm9700")
    leaf = blast_radius(f, "leaf-03")
    assert (leaf.gpus_cut, leaf.gpus_moved, leaf.rails_lost, leaf.cables) == (0, 32, 1, 64)
    assert leaf.leaf_pairs_cut == 31
    assert leaf.worst_pair is None, "the leaves that stay keep their uplinks"
    spine = blast_radius(f, "spine-16")
    assert spine.gpus_moved == spine.leaf_pairs_cut == 0
    assert dict(spine.bandwidth_lost) == {"node-leaf": 0.0, "leaf-spine": pytest.approx(1 / 16)}
    assert spine.worst_pair == ("leaf-01", "leaf-02", 32 * 50e9, 30 * 50e9)
    cable = blast_radius(f, "leaf-03 port 33")
    assert (cable.cables, cable.worst_pair) == (1, ("leaf-03", "leaf-01", 32 * 50e9, 31 * 50e9))
    both = blast_radius(f, [f"leaf-{i:02d}" for i in range(1, 9)], "PDU 1")
    assert (both.element, both.gpus_cut, both.servers_cut, both.gpus_moved) == ("PDU 1", 256, 32, 0)
    assert blast_radius(f, "server-05").gpus_cut == 8


def test_sixteen_units_in_three_tiers() -> None:
    """4 pods of 4 units: a rail of a pod has 4 leaves under 4 spines of its own, 8 cables to each."""
    found = audit(built(512, "dgx-b200", family="rail-optimised", switch="qm9700"), CATALOG)
    inside, one_leaf = 512 * comb(8, 2), 128 * comb(32, 2)
    in_pod = 4 * 8 * comb(4, 2) * 32 * 32
    assert found.hops == (
        (0, inside),
        (1, one_leaf),
        (3, in_pod),
        (5, comb(4096, 2) - inside - one_leaf - in_pod),
    )
    assert [(t.tier, t.least, t.most) for t in found.oversubscription] == [("leaf", 1, 1), ("spine", 1, 1)]
    assert found.bisection_share == 1.0
    assert found.diversity.disjoint_least == found.diversity.disjoint_median == 32
    assert found.diversity.shortest_least == 4 * 8 * 8
    assert found.rails.within_rail == pytest.approx(4 * comb(128, 2) / comb(512, 2)), (
        "a pod's share of a rail"
    )
    assert {d.what: d.fatal for d in found.fault_domains if d.what in ("leaf", "spine", "core")} == {
        "leaf": 0, "spine": 0, "core": 0,
    }  # fmt: skip
    assert findings(found) == []


def test_rail_only_joins_each_rail_to_itself() -> None:
    found = audit(built(64, "dgx-b200", family="rail-only", switch="qm9700"), CATALOG)
    assert found.hops == ((0, 64 * comb(8, 2)), (1, 8 * comb(64, 2)))
    assert found.pairs_unjoined == comb(512, 2) - 64 * comb(8, 2) - 8 * comb(64, 2) == 8 * 7 * comb(64, 2)
    assert found.oversubscription == ()
    assert found.bisection_share == 1.0, "half of the NICs are on each side of every rail's switch"
    assert (found.rails.one_leaf, found.rails.within_rail) == (1.0, 1.0)
    assert found.diversity.joined == 0
    assert [(f.kind, f.severity) for f in findings(found)] == [("unreachable pairs", "note")]


def test_meta_pod_keeps_its_ratio_with_two_of_18_cluster_switches_lost() -> None:
    """16 GPUs and 18 uplinks a ToR: 16:18, with two lost 16:16; the third makes it 16:15."""
    f = built(384, "hgx-h100", **META)
    assert audit(f, CATALOG).oversubscription[0].most == pytest.approx(16 / 18)
    two = fabric.apply_faults(f, [Fault(element="spine-03"), Fault(element="spine-11")])
    assert audit(two, CATALOG).oversubscription[0].most == pytest.approx(1.0)
    three = fabric.apply_faults(two, [Fault(element="spine-18")])
    assert audit(three, CATALOG).oversubscription[0].most == pytest.approx(16 / 15)
    assert "oversubscribed tier" not in kinds(audit(two, CATALOG))
    assert "oversubscribed tier" in kinds(audit(three, CATALOG))
    lost = blast_radius(f, ["spine-03", "spine-11"], "two cluster switches")
    assert lost.worst_pair == ("leaf-01", "leaf-02", 18 * 50e9, 16 * 50e9)
    assert lost.gpus_cut == lost.gpus_moved == lost.servers_apart == 0


def test_a_rack_switch_is_a_single_point_of_failure() -> None:
    """Meta's ToR: both servers of the rack hang on it with all of their NICs."""
    found = audit(built(384, "hgx-h100", **META), CATALOG)
    leaf = domain(found, "leaf")
    assert (leaf.members, leaf.fatal, leaf.worst.gpus_cut, leaf.worst.servers_cut) == (192, 192, 16, 2)
    assert found.fault_domains[0] is leaf, "it costs more than a server"
    (finding,) = [f for f in findings(found) if f.kind == "single point of failure"]
    assert (finding.severity, finding.found) == ("warning", "192 of 192")


def test_edr_machine_two_to_one() -> None:
    f = edr()
    found = audit(f, CATALOG)
    assert (found.oversubscription[0].least, found.oversubscription[0].most) == (2.0, 2.0)
    assert found.hops == ((1, 4 * comb(24, 2)), (3, comb(4, 2) * 24 * 24))
    assert (found.diversity.shortest_least, found.diversity.disjoint_least) == (2 * 6 * 6, 12)
    assert found.bisection_share == pytest.approx(0.5)
    assert [(p.tier, p.used, p.unused, p.emptiest_unused) for p in found.ports] == [
        ("leaf", 144, 0, 0), ("spine", 48, 24, 12),
    ]  # fmt: skip
    assert kinds(found) == {"oversubscribed tier", "single point of failure", "stranded port"}
    leaf, nic, cable = (domain(found, what) for what in ("leaf", "nic", "node-leaf cable"))
    assert (leaf.fatal, leaf.worst.gpus_cut, leaf.worst.servers_cut) == (4, 24, 24)
    assert (nic.fatal, nic.worst.gpus_cut) == (cable.fatal, cable.worst.gpus_cut) == (96, 1)
    assert domain(found, "spine").fatal == 0


def test_the_last_spine_holds_the_leaves_together() -> None:
    """With one of the two spines gone, the other one, when lost, leaves four islands of 24 servers."""
    f = fabric.apply_faults(edr(), [Fault(element="spine-01")])
    found = audit(f, CATALOG)
    assert found.oversubscription[0].most == 4.0
    spine = domain(found, "spine")
    assert (spine.members, spine.fatal, spine.worst.element) == (1, 1, "spine-02")
    assert (spine.worst.gpus_cut, spine.worst.servers_apart, spine.worst.leaf_pairs_cut) == (0, 72, 6)
    assert spine.worst.worst_pair == ("leaf-01", "leaf-02", 6 * 12.5e9, 0.0)
    assert domain(found, "leaf-spine cable").fatal == 0, "six side by side"


def test_a_missing_cable_shows_as_an_uneven_bundle_and_an_unbalanced_tier() -> None:
    f = built(
        128, "dgx-b200", family="rail-optimised", switch="qm9700", faults=(Fault(element="leaf-07 port 36"),)
    )
    found = audit(f, CATALOG)
    (b,) = found.bundles
    assert (b.usual, b.fewest, b.uneven, b.first_uneven) == (2, 1, 1, "leaf-07 - spine-02")
    assert (found.oversubscription[0].worst, found.oversubscription[0].most) == ("leaf-07", 32 / 31)
    assert kinds(found) == {"uneven bundle", "unbalanced tier", "oversubscribed tier", "dead port"}
    assert [p.dead for p in found.ports] == [1, 1]
    assert found.diversity.disjoint_least == 31


def test_a_slow_link_counts_as_what_it_carries() -> None:
    slow = Fault(element="leaf-01 port 33", state="slow", rate="100 Gb/s")
    f = built(128, "dgx-b200", family="rail-optimised", switch="qm9700", faults=(slow,))
    assert audit(f).oversubscription[0].most == pytest.approx(32 * 50 / (31 * 50 + 12.5))


def test_a_dead_nic_is_a_bare_port_and_a_leaf_cut_from_above_is_a_fault() -> None:
    f = built(8, "dgx-h100", family="fat-tree", switch="qm9700", tiers=2)
    uplinks = tuple(Fault(element=f"leaf-01 port {p}") for p in range(33, 65))
    found = audit(fabric.apply_faults(f, [Fault(element="server-03/nic-2"), *uplinks]), CATALOG)
    assert (found.nic_ports_bare, found.first_bare_nic) == (1, "server-03/nic-2")
    assert found.oversubscription[0].cut == ("leaf-01",)
    assert findings(found)[0].severity == "fault"
    assert {"cut off", "NIC port without a cable", "unreachable pairs"} <= kinds(found)


def test_two_planes_a_nic_on_two_leaves_keeps_half() -> None:
    """Alibaba HPN: each port of a NIC on a leaf of its own; a leaf takes half of each NIC's rate."""
    nic = replace(CATALOG.nics["cx7-400"], name="dual", ports=2, rate=25e9)
    server = replace(CATALOG.servers["dgx-h100"], name="two-port", nic="dual")
    catalog = replace(
        CATALOG, nics={**CATALOG.nics, "dual": nic}, servers={**CATALOG.servers, "two-port": server}
    )
    found = audit(built(16, "two-port", catalog, family="rail-optimised", switch="qm8700"), catalog)
    leaf = domain(found, "leaf")
    assert (leaf.fatal, leaf.worst.gpus_cut, leaf.worst.gpus_moved, leaf.worst.gpus_slowed) == (0, 0, 0, 16)
    assert dict(found.hops)[1] == 8 * comb(16, 2)
    assert found.rails.one_leaf == 1.0


@pytest.mark.parametrize("family", sorted(fabric.FAMILIES))
@pytest.mark.parametrize(("server", "servers", "breakout"), [("dgx-h100", 8, 1), ("gb200-nvl72", 2, 2)])
def test_every_family_adds_up(family: str, server: str, servers: int, breakout: int) -> None:
    """Every pair of GPUs is counted once, and every port is live, dead, reserved or unused."""
    try:
        f = built(servers, server, family=family, switch="qm9700", breakout=breakout)
    except PlanError as refusal:
        pytest.skip(f"no such design: {refusal}")
    found = audit(f, CATALOG)
    assert sum(n for _, n in found.hops) + found.pairs_unjoined == comb(f.num_gpus, 2)
    assert all(
        p.used + p.dead + p.reserved + p.unused == p.switches * p.radix == 64 * p.switches
        for p in found.ports
    )
    assert found.nic_ports_bare == 0
    assert max(map(len, lines(found))) <= 80


def test_the_other_networks_of_a_cluster() -> None:
    """Storage on two leaves, 2 x 200G a host on halves of 400G ports: no GPUs, but the same figures."""
    storage = ServiceNetwork(
        family="rail-optimised",
        switch="qm9700",
        ports_per_server=2,
        breakout=2,
        hosts=6,
        oversubscription=2.0,
    )
    compute = ComputeNetwork(family="rail-optimised", switch="qm9700")
    cluster = Cluster(servers=30, server="dgx-h100", compute=compute, storage=storage)
    found = audit(fabric.build_networks(cluster, CATALOG)["storage"], CATALOG)
    assert (found.gpus, found.servers, found.hops, found.pairs_unjoined) == (0, 36, (), 0)
    assert found.oversubscription[0].most == pytest.approx(36 * 25 / (9 * 50))
    assert [(p.tier, p.used) for p in found.ports] == [("leaf", 2 * (18 + 9)), ("spine", 18)]
    spine = domain(found, "spine")
    assert (spine.fatal, spine.worst.servers_apart) == (0, 0), "every host is on both leaves"
    assert spine.worst.leaf_pairs_cut == 1
    assert max(map(len, lines(found))) <= 80


def test_a_director_drawn_as_modules() -> None:
    """A CS7520: 12 leaf modules of 18 external ports, 6 spine modules, 3 links between each two."""
    f = built(54, "dgx-1-v100", family="single-switch", switch="cs7520", expand_directors=True)
    found = audit(f, CATALOG)
    assert (found.oversubscription[0].switches, found.oversubscription[0].most) == (12, 1.0)
    assert [(p.tier, p.switches, p.radix, p.radix_known) for p in found.ports] == [
        ("leaf", 12, 36, False), ("spine", 6, 36, False),
    ]  # fmt: skip
    assert (found.bundles[0].usual, found.bundles[0].uneven) == (3, 0)
    assert (found.diversity.shortest_least, found.diversity.disjoint_least) == (6 * 3 * 3, 18)


@pytest.mark.parametrize("family", ["rail-optimised", "fat-tree", "rail-only"])
def test_the_costliest_switch_is_the_one_that_designing_names(family: str) -> None:
    """`fabric.largest_fault_domain`, written apart for designs, finds the same GPUs."""
    f = built(32, "dgx-h100", family=family, switch="qm9700")
    theirs = fabric.largest_fault_domain(f)
    switches = [d.worst for d in audit(f).fault_domains if d.what in ("leaf", "spine", "core")]
    assert switches[0].gpus_cut + 8 * switches[0].servers_apart == theirs.cut_off
    assert switches[0].gpus_moved == (0 if theirs.cut_off else theirs.without_nic)


def test_an_audit_is_plain_data_and_fits_a_terminal() -> None:
    f = built(40, "dgx-h100", family="rail-optimised", switch="qm9700", faults=(Fault(element="leaf-02"),))
    found = audit(f, CATALOG, {"PDU 1": ["leaf-01", "spine-01"], "row 2": ["server-03", "server-04"]})
    assert json.loads(json.dumps(asdict(found)))["gpus"] == 320
    assert json.dumps([asdict(x) for x in findings(found)])
    assert max(map(len, lines(found))) <= 80
    assert [d.worst.gpus_cut for d in found.fault_domains if d.what == "group"] == [16, 0]
    assert audit(f, CATALOG) == audit(f, CATALOG)


def test_the_page_shows_what_comes_out() -> None:
    """docs/audit.md prints this audit; when a figure moves, the page has to move with it."""
    pulled = Fault(element="leaf-07 port 36")
    f = built(128, "dgx-b200", family="rail-optimised", switch="qm9700", faults=(pulled,))
    text = lines(audit(f, CATALOG, {"PDU 1": ["leaf-01", "leaf-02", "spine-01"]}))
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    assert "\n".join(text) in page


def test_without_a_catalogue_the_highest_port_stands_in() -> None:
    spine = audit(edr()).ports[1]
    assert (spine.radix, spine.radix_known, spine.unused) == (24, False, 0)


@pytest.mark.alone
def test_16384_gpus_take_less_than_three_seconds() -> None:
    f = built(2048, "dgx-b200", family="rail-optimised", switch="qm9700")
    start = time.perf_counter()
    found = audit(f, CATALOG)
    assert time.perf_counter() - start < 3.0
    assert sum(pairs for _, pairs in found.hops) == comb(16384, 2)
