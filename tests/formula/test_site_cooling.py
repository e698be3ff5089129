"""Heat by hand: air and coolant, the room's share, and phases over many racks."""

from __future__ import annotations

import pytest

from railwright.site import plan_site
from railwright.site.cooling import CFM, air_flow, coolant_flow, rack_heat, typical_pue
from railwright.site.electrical import imbalance
from railwright.site.feeding import landing
from railwright.spec import load_study_text


def planned(server: str, servers: int, site: str, network: str = "{family: single-switch, switch: q3400-ra}"):
    return plan_site(
        load_study_text(
            "railwright: 1\nname: warm\n"
            f"cluster: {{servers: {servers}, server: {server}, compute: {network}}}\n"
            f"site: {{{site}}}\n"
        )
    )


def test_a_kilowatt_warms_158_cfm_by_20_fahrenheit():
    """The trade's rule: CFM = 3.16 x W / degF."""
    assert air_flow(1000, 20 / 1.8) / CFM == pytest.approx(3.16 * 1000 / 20, rel=5e-3)


def test_a_hundred_kilowatts_warm_144_litres_a_minute_by_10_kelvin():
    assert coolant_flow(100e3, 10) * 60e3 == pytest.approx(143.5, abs=0.1)


def test_twice_the_rise_halves_the_flow():
    assert air_flow(40e3, 20) == pytest.approx(air_flow(40e3, 10) / 2)
    heat = rack_heat(10e3, 90e3, 11.1, 10)
    assert heat.air_flow == pytest.approx(air_flow(10e3, 11.1))
    assert heat.litres_per_minute == pytest.approx(coolant_flow(90e3, 10) * 60e3)


def test_pue_lies_between_the_published_figures():
    assert typical_pue(0.0) == 1.5
    assert typical_pue(1.0) == pytest.approx(1.15)
    plan = planned("dgx-h100", 4, "cooling: {pue: 1.2}")
    assert plan.site_power == pytest.approx(1.2 * plan.power)


def test_the_rooms_kilowatts_decide_servers_per_rack():
    for kilowatts, servers in ((11, 1), (21, 2), (35, 3), (45, 4), (55, 5), (65, 6)):
        plan = planned("dgx-h100", 18, f"rack_power: {kilowatts} kW, switches: end")
        assert plan.fill.servers == servers
    assert "height" in plan.fill.why, "six of 8 units fill a rack of 48"


def test_liquid_takes_its_share_and_the_room_what_is_left():
    plan = planned("gb200-nvl72", 1, "power: {redundancy: 2n}", "{family: rack-rails, switch: qm9700}")
    rack = max(range(len(plan.racks)), key=lambda i: plan.racks[i].power.watts)
    assert plan.heat[rack].liquid == pytest.approx(0.85 * 120e3)
    assert plan.heat[rack].air == pytest.approx(0.15 * 120e3)
    dry = planned("dgx-h100", 4, "cooling: {liquid_share: 0.7, air_limit: 15 kW}, switches: end")
    assert dry.fill.servers == 4, "30 % of 10.2 kW goes to air: four servers give 12.2 kW"
    assert "air_limit" in dry.fill.why


def test_phases_turn_from_rack_to_rack_and_even_out():
    assert [landing(i) for i in range(4)] == [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 1, 2)]
    plan = planned("dgx-h100", 18, "rack_power: 45 kW, power: {redundancy: n+1}, switches: end")
    lines = plan.racks[0].power.circuits[0].lines[0]
    assert imbalance(lines) > 0.2, "eight cords on three legs are uneven in one rack"
    assert max(imbalance(feed.phases) for feed in plan.feeds) < 0.12


def test_two_busway_runs_where_one_is_too_small():
    plan = planned("dgx-h100", 18, "switches: end, power: {busway: busway-400a-415v}")
    capacity = 3**0.5 * 415 * 400 * 0.8
    assert plan.power < capacity
    assert plan.busways == {(0, 0): 1}
    small = planned("dgx-h100", 18, "switches: end, power: {busway: busway-250a-415v}")
    assert small.busways == {(0, 0): 2}
