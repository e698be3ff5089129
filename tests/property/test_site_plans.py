"""Laws of a site plan: everything stands once, nothing overlaps, no limit of room or reach is passed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.fabric import Kind, Role
from railwright.site import SitePlan, bill, plan_site
from railwright.site.runs import cross_places
from railwright.spec import load_study_text

FAMILIES = (
    "{family: single-switch, switch: q3400-ra}",
    "{family: rail-optimised, switch: qm9700}",
    "{family: rail-optimised, switch: qm9700, servers_per_group: 4}",
    "{family: fat-tree, switch: qm9700, servers_per_group: 2}",
    "{family: fat-tree, switch: qm9700, servers_per_group: 4, oversubscription: 2.0}",
)
SERVICES = (
    "",
    "storage: {family: fat-tree, switch: qm8700, ports_per_server: 2, hosts: 3}, "
    "oob: {family: single-switch, switch: ethernet-1g-48}",
    "inband: {family: fat-tree, switch: sn3700c, servers_per_group: 4}",
)


@st.composite
def sites(draw: st.DrawFn) -> str:
    redundancy, server = draw(
        st.sampled_from(
            [
                ("n", "dgx-h100"),
                ("n", "dgx-b200"),
                ("n+1", "dgx-h100"),
                ("n+1", "dgx-b300"),
                ("2n", "gh200-1"),
            ]
        )
    )
    pdu = draw(st.sampled_from(["pdu-415v-60a", "pdu-208v-60a"]))
    site = [
        f"power: {{redundancy: {redundancy}, pdu: {pdu}}}",
        f"rack: {draw(st.sampled_from(['rack-42u', 'rack-48u', 'rack-52u']))}",
        f"racks_per_row: {draw(st.integers(1, 9))}",
        f"switches: {draw(st.sampled_from(['auto', 'middle', 'end']))}",
        f"cross_trays: {draw(st.integers(1, 4))}",
        f"rack_power: {draw(st.sampled_from([18, 30, 45, 60]))} kW",
    ]
    services = draw(st.sampled_from(SERVICES))
    return f"""
railwright: 1
name: drawn
cluster:
  {{servers: {draw(st.integers(1, 17))}, server: {server}, compute: {draw(st.sampled_from(FAMILIES))}
  {", " + services if services else ""}}}
site: {{{", ".join(site)}}}
"""


def check_places(plan: SitePlan) -> None:
    units = plan.parts.racks[plan.site.rack].units
    names = Counter(placed.name for rack in plan.racks for placed in rack.content)
    assert max(names.values()) == 1, "everything stands once"
    switches = sum(
        len(fabric.devices(kind)) for fabric in plan.networks.values() for kind in (Kind.LEAF, Kind.SPINE)
    )
    kinds = Counter(placed.kind for rack in plan.racks for placed in rack.content)
    assert kinds["server"] == plan.networks["compute"].num_servers
    assert kinds["leaf"] + kinds["spine"] == switches
    for rack in plan.racks:
        taken: list[int] = []
        for placed in rack.content:
            taken += range(placed.unit, placed.unit + placed.units)
        assert len(taken) == len(set(taken)), "two machines in one unit"
        assert min(taken) >= 1
        assert max(taken) <= units
        assert rack.power.watts <= (plan.site.rack_power or np.inf)
        assert rack.power.watts == pytest.approx(sum(placed.watts for placed in rack.content))
    assert len({(rack.row, rack.place) for rack in plan.racks}) == len(plan.racks)
    assert max(rack.place for rack in plan.racks) < plan.floor.racks_per_row


def check_cables(plan: SitePlan) -> None:
    for name, run in plan.runs.items():
        fabric = plan.networks[name]
        assert len(run.cable) == np.count_nonzero(fabric.role >= Role.NODE_LEAF)
        reach = np.array([kind.reach for kind in run.media])[run.medium]
        assert (run.length <= run.bought + 1e-9).all(), "ordered too short"
        assert (run.bought <= reach + 1e-9).all(), "beyond its reach"
        x = np.array([rack.x for rack in plan.racks])
        y = np.array([rack.y for rack in plan.racks])
        direct = np.hypot(x[run.rack_a] - x[run.rack_b], y[run.rack_a] - y[run.rack_b])
        assert (run.way >= direct - 1e-9).all(), "no way is shorter than the straight line"
        tied = run.bundle[run.bundle >= 0]
        assert np.bincount(tied, minlength=run.bundles).max(initial=0) <= 48
        assert len(np.unique(tied)) == run.bundles
    lines = bill(plan)
    cables = sum(line.quantity for line in lines if line.item in ("cable", "fibre cable"))
    assert cables == sum(len(run.cable) for run in plan.runs.values())
    cords = sum(line.quantity for line in lines if line.item == "cord")
    assert cords == sum(m.intake.supplies for rack in plan.racks for m in rack.power.machines)


@settings(max_examples=50)
@given(sites())
def test_an_accepted_site_keeps_every_limit(text: str):
    try:
        plan = plan_site(load_study_text(text))
    except PlanError:
        return
    check_places(plan)
    check_cables(plan)
    assert sum(feed.normal for feed in plan.feeds) == pytest.approx(plan.power)
    assert sum(h.air + h.liquid for h in plan.heat) == pytest.approx(plan.power)
    assert all(place >= 0 for place in cross_places(plan.site, 1.0))
    if plan.site.power.redundancy != "n":
        assert all(all(rack.power.survivors()) for rack in plan.racks)
        assert sum(feed.worst for feed in plan.feeds) >= plan.power - 1e-6
