"""Cable runs measured by hand: heights, trays, slack, and the medium that follows."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright import export
from railwright.catalog import load_catalog
from railwright.cost.prices import price_book
from railwright.cost.quantities import quantities
from railwright.errors import PlanError
from railwright.fabric import Kind, Role
from railwright.fabric.names import device_names
from railwright.fabric.wired.breakout import pieces
from railwright.site import bill, cable_rows, plan_site
from railwright.site.loading import load_site_parts
from railwright.site.media import alike_in_cages, ladder, leg_end, rungs, stock_length
from railwright.site.runs import tray_way
from railwright.spec import load_study_text

PARTS = load_site_parts()
SHIPPED = load_catalog()
SERVER_HEIGHT = 0.08 + 4 * 0.04445
"""Middle of 8 units from unit 1 up, above a base of 8 cm."""
LEAF_HEIGHT = 0.08 + 47.5 * 0.04445
"""Middle of unit 48."""


def planned(site: str, servers: int = 2, compute: str = "{family: single-switch, switch: qm9700}"):
    text = f"""
railwright: 1
name: hand
cluster: {{servers: {servers}, server: dgx-h100, compute: {compute}}}
site: {{{site}}}
"""
    return plan_site(load_study_text(text))


def lengths(plan) -> dict[tuple[str, str], float]:
    """(server, leaf) -> length of its first cable."""
    run, fabric = plan.runs["compute"], plan.networks["compute"]
    names = device_names(fabric)
    found: dict[tuple[str, str], float] = {}
    for cable, length in zip(run.cable.tolist(), run.length.tolist(), strict=True):
        a, b = names[int(fabric.a[cable])], names[int(fabric.b[cable])]
        found.setdefault((a.split("/")[0], b), length)
    return found


def test_two_servers_and_a_switch_in_one_row():
    """Up 2.7 - 0.2578 at the server, down 2.7 - 2.1914 at the leaf, one or two racks of 0.6 m along the row;
    5 % slack and half a metre coiled at each end."""
    plan = planned("servers_per_rack: 1, switches: end")
    assert [(rack.name, rack.kind) for rack in plan.racks] == [
        ("R01-01", "servers"),
        ("R01-02", "servers"),
        ("R01-03", "network"),
    ]
    up = (2.7 - SERVER_HEIGHT) + (2.7 - LEAF_HEIGHT)
    found = lengths(plan)
    assert found["server-01", "leaf-01"] == pytest.approx((up + 1.2) * 1.05 + 1.0)
    assert found["server-02", "leaf-01"] == pytest.approx((up + 0.6) * 1.05 + 1.0)
    assert found["server-01", "leaf-01"] == pytest.approx(5.358, abs=1e-3)
    assert found["server-02", "leaf-01"] == pytest.approx(4.728, abs=1e-3)


def test_five_metres_are_the_end_of_active_copper():
    plan = planned("servers_per_rack: 1, switches: end")
    run = plan.runs["compute"]
    kinds = [run.media[m].name for m in run.medium.tolist()]
    assert kinds == ["mmf-400g"] * 8 + ["acc-400g"] * 8
    assert run.bought.tolist() == [7.0] * 8 + [5.0] * 8
    # Eight cables end in four twin-port cages at the server and four at the leaf.
    assert [(m.medium, m.ports, m.count) for m in run.modules] == [("mmf-400g", 2, 8)]


def test_a_row_behind_is_reached_over_a_cross_tray():
    """Two racks a row: the third stands behind the second; cross trays lead over both ends of a row."""
    plan = planned("servers_per_rack: 1, switches: end, racks_per_row: 2")
    assert plan.racks[2].name == "R02-02"
    up = (2.7 - SERVER_HEIGHT) + (2.7 - LEAF_HEIGHT)
    across = 1.2 + 1.2
    found = lengths(plan)
    assert found["server-01", "leaf-01"] == pytest.approx((up + 1.2 + across) * 1.05 + 1.0)
    assert found["server-02", "leaf-01"] == pytest.approx((up + 0.6 + across) * 1.05 + 1.0)
    amid = planned("servers_per_rack: 1, switches: end, racks_per_row: 2, cross_trays: 1")
    assert lengths(amid)["server-01", "leaf-01"] == pytest.approx((up + 0.6 + across) * 1.05 + 1.0)


def test_inside_a_rack_a_cable_needs_no_tray():
    plan = planned("service_loop: 0 m, slack: 0.0")
    assert len(plan.racks) == 1
    assert lengths(plan)["server-01", "leaf-01"] == pytest.approx(LEAF_HEIGHT - SERVER_HEIGHT + 0.6)
    assert plan.runs["compute"].bundles == 0


def test_cables_of_one_twin_port_cage_are_of_one_kind():
    """Ports 1 and 2 of a leaf, one cage, go to the two servers; the farther one needs glass: both do."""
    plan = planned("servers_per_rack: 1, switches: end", compute="{family: rail-optimised, switch: qm9700}")
    run, fabric = plan.runs["compute"], plan.networks["compute"]
    leaves = fabric.b[run.cable] == fabric.devices(Kind.LEAF)[0]
    assert run.length[leaves] == pytest.approx([5.358, 4.728], abs=1e-3)
    assert [run.media[m].kind for m in run.medium[leaves].tolist()] == ["multimode", "multimode"]


def test_cages_raise_each_other_until_nothing_changes():
    """A chain of shared cages: one long cable makes all of them optical, a separate cable stays copper."""
    first = np.array([0, 0, 2, 0])
    cages_a, cages_b = np.array([1, 2, 3, 9]), np.array([2, 3, 4, 8])
    assert alike_in_cages(first, cages_a, cages_b).tolist() == [2, 2, 2, 0]


def test_the_middle_of_a_group_is_where_its_leaves_cost_least_cable():
    """Brute force over every place of the leaf rack in a row of nine."""
    x = np.arange(9) * 0.6
    total = [
        float(tray_way(np.delete(x, at), np.zeros(8), np.full(8, x[at]), np.zeros(8), np.array([0.0])).sum())
        for at in range(9)
    ]
    assert int(np.argmin(total)) == 4
    rails = "{family: rail-optimised, switch: qm9700}"
    middle = planned("servers_per_rack: 2, switches: middle", 16, rails)
    end = planned("servers_per_rack: 2, switches: end", 16, rails)
    assert [rack.kind for rack in middle.racks].index("network") == 4
    assert middle.runs["compute"].length.sum() < end.runs["compute"].length.sum()


def test_reach_decides_the_medium():
    kinds = ladder(PARTS.media, "infiniband", 400e9 / 8)
    far = np.array([2.9, 3.0, 3.1, 5.0, 5.1, 50.0, 50.1, 500.0, 501.0])
    names = [kinds[rung].name.split("-")[0] for rung in rungs(kinds, far).tolist()]
    assert names == ["dac", "dac", "acc", "acc", "mmf", "mmf", "smf", "smf", "fr4"]
    for kind in kinds:
        within = far[far <= kind.reach]
        bought = stock_length(kind, within)
        assert (bought >= within - 1e-9).all()
        assert (bought <= kind.reach).all()


def test_beyond_every_reach_is_refused_with_the_length_and_what_would_help():
    with pytest.raises(PlanError, match=r"compute: a cable of .* km is beyond every infiniband medium"):
        planned("slack: 900.0")


def test_labels_bundles_and_the_bill_count_every_cable():
    plan = planned("servers_per_rack: 1, switches: end", 6)
    rows = list(cable_rows(plan))
    assert len(rows) == 48
    assert rows[0][2] == "server-01/nic-0:1 > leaf-01:1"
    assert rows[0][3] == "leaf-01:1 > server-01/nic-0:1"
    bundles = [row[-1] for row in rows]
    assert sorted(set(bundles)) == [f"B{i:05d}" for i in range(1, 7)]
    cables = sum(line.quantity for line in bill(plan) if line.item in ("cable", "fibre cable"))
    assert cables == 48


def split_ports(servers: int, site: str = "servers_per_rack: 4"):
    """A management network of 25 Gb/s, four cables to a port of 100."""
    text = f"""
railwright: 1
name: hand
cluster:
  servers: {servers}
  server: dgx-h100
  compute: {{family: single-switch, switch: qm9700}}
  inband: {{family: fat-tree, switch: sn4600c, tiers: 2, rate: 25 Gb/s, breakout: 4}}
site: {{{site}}}
"""
    return plan_site(load_study_text(text))


def test_copper_legs_of_a_port_are_one_cable():
    """5 servers beside their leaf: two ports of the leaf, and two cables of 100 Gb/s that split in four."""
    plan = split_ports(5, "rack_power: 100 kW, servers_per_rack: 5, power: {redundancy: n}")
    run, fabric = plan.runs["inband"], plan.networks["inband"]
    legs = fabric.role[run.cable] == Role.NODE_LEAF
    assert np.count_nonzero(legs) == 5
    assert [run.media[m].name for m in run.medium[legs].tolist()] == ["dac-100ge"] * 5
    lines = {line.part: line.quantity for line in bill(plan) if line.item == "breakout cable"}
    assert sum(lines.values()) == 2
    assert all(part.startswith("dac-100ge 1:4, ") for part in lines)
    numbers = [row[-2] for row in cable_rows(plan) if row[1] == "inband" and row[6] == "node-leaf"]
    assert numbers == ["S00001"] * 4 + ["S00002"]
    # Legs are made alike: all of a cable are as long as its longest needs.
    for cable in ("S00001", "S00002"):
        mine = np.flatnonzero(legs)[[number == cable for number in numbers]]
        needed = stock_length(run.media[run.medium[mine[0]]], run.length[mine])
        assert run.bought[mine].tolist() == [needed.max()] * len(mine)


def test_glass_legs_have_modules_of_their_own_rate():
    """8 servers, a rack each: two ports take a module of 100 Gb/s, every server one of 25, and both uplinks
    stay copper; watts are those of what is plugged in."""
    plan = split_ports(8, "servers_per_rack: 1, switches: end, service_loop: 2 m")
    modules = plan.runs["inband"].modules
    assert [(m.medium, m.count, m.watts) for m in modules] == [
        ("mmf-100ge", 2, 2.5),
        ("mmf-25ge", 8, 1.0),
    ]
    fibres = {line.part: line.quantity for line in bill(plan) if line.item == "breakout fibre cable"}
    assert sum(fibres.values()) == 2


def test_what_splits_has_lanes_side_by_side():
    """Beyond multimode a port of 100 Gb/s that is split takes PSM4 (a fibre a lane), where a whole one takes
    the four colours of CWDM4; its legs are LR.  A DR4 of 400 Gb/s splits in legs of DR."""
    whole, split = (ladder(PARTS.media, "ethernet", 100e9 / 8, legs) for legs in (1, 4))
    assert [m.name for m in whole] == ["dac-100ge", "mmf-100ge", "smf-100ge"]
    assert [m.name for m in split] == ["dac-100ge", "mmf-100ge", "psm4-100ge"]
    assert leg_end(PARTS.media, split[1], 25e9 / 8, 60.0).name == "mmf-25ge"
    assert leg_end(PARTS.media, split[2], 25e9 / 8, 200.0).name == "smf-25ge"
    fast = ladder(PARTS.media, "ethernet", 400e9 / 8, 4)
    assert leg_end(PARTS.media, fast[-1], 100e9 / 8, 300.0).name == "dr-100ge"
    # NDR200: two adapters of 200 Gb/s take the modules of 400 that their port has (LinkX 1:2 splitters).
    halves = ladder(PARTS.media, "infiniband", 400e9 / 8, 2)
    assert leg_end(PARTS.media, halves[2], 200e9 / 8, 30.0).name == "mmf-400g"
    with pytest.raises(PlanError, match=r"no infiniband cable for 6\.4 Tb/s in 8 legs is known"):
        ladder(PARTS.media, "infiniband", 6400e9 / 8, 8)


@settings(max_examples=20)
@given(
    st.integers(2, 60), st.sampled_from([1, 2, 4]),
    st.sampled_from(["fat-tree", "rail-optimised", "dual-plane"]), st.integers(1, 4), st.integers(0, 5),
)  # fmt: skip
def test_the_room_buys_the_cables_of_the_bill_of_materials(servers, breakout, family, per_rack, reserved):
    """As many whole and breakout cables as the bill of materials and the price have, on any design; the room
    leaves out those to machines that it does not place."""
    storage = (
        f"{{family: {family}, switch: sn5600, ports_per_server: 2, breakout: {breakout}, "
        f"reserved_ports: {reserved}}}"
    )
    text = f"""
railwright: 1
name: hand
cluster:
  servers: {servers}
  server: dgx-h100
  compute: {{family: fat-tree, switch: qm9700}}
  storage: {storage}
site: {{servers_per_rack: {per_rack}}}
"""
    try:
        plan = plan_site(load_study_text(text))
    except PlanError as refusal:
        assume("reserved_ports" not in str(refusal))  # no port is left to reserve
        raise
    fabric = plan.networks["storage"]
    lines = csv.DictReader(export.render(fabric, "bom")["bom.csv"].splitlines())
    materials = sum(int(row["quantity"]) for row in lines if row["item"].endswith("cable"))
    run, taken = plan.runs["storage"], -(-reserved // breakout)
    assert len(run.pieces) == materials - taken
    assert sum(run.count(m) for m in range(len(run.media))) == len(run.pieces)
    priced = quantities([*plan.networks.items()], SHIPPED, price_book()).lines
    assert sum(x.quantity for x in priced if x.room == "storage network" and "cables" in x.what) == materials
    optical = sum(m.count for m in run.modules)
    assert optical <= 2 * len(run.cable)
    # A cable per port of the leaves that is in use, whatever it splits into.
    down = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    ports = np.unique(np.stack([fabric.b[down], (fabric.port_b[down] - 1) // breakout]), axis=1).shape[1]
    assert len(pieces(fabric, down)) == ports


def test_trays_that_do_not_clear_the_racks_are_refused():
    with pytest.raises(PlanError, match="tray_height"):
        planned("tray_height: 2 m")


def test_modules_are_of_whole_ports_where_cables_break_out():
    """16 cables of 200 Gb/s from 8 ports of 400: two ports share a cage of a QM9700, and two NICs one of a
    DGX H100, so 4 and 8 modules of two ports."""
    plan = planned(
        "servers_per_rack: 1, switches: end, service_loop: 3 m",
        compute="{family: single-switch, switch: qm9700, nic_ports: 1, breakout: 2}",
    )
    modules = plan.runs["compute"].modules
    assert [(m.medium, m.ports, m.count) for m in modules] == [("mmf-400g", 2, 12)]
    counted = {line.part: line.quantity for line in bill(plan) if line.item == "transceiver"}
    assert counted == {"mmf-400g, 2 ports": 12}
