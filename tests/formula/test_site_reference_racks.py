"""Reference racks: those that are built are accepted, their neighbours that cannot work are refused with the
reason."""

from __future__ import annotations

import pytest

from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.site.circuits import Machine, RackPower, Supplying
from railwright.site.connecting import connect, cord_name
from railwright.site.limits import breaches
from railwright.site.loading import load_site_parts

CATALOG, PARTS = load_catalog(), load_site_parts()


def machines(part: str, count: int) -> list[Machine]:
    of = CATALOG.servers.get(part) or CATALOG.switches[part]
    kind = "server" if part in CATALOG.servers else "leaf"
    return [Machine(part, kind, of.rack_units, of.power_max, PARTS.machines[part])] * count


def rack(part: str, count: int, pdu: str, pdus: int, redundancy: str = "n", feeds: int = 1) -> RackPower:
    kind = PARTS.pdus[pdu]
    supplying = Supplying(
        kind,
        PARTS.plugs[kind.plug],
        dict(PARTS.plugs),
        dict(PARTS.outlets),
        feeds,
        redundancy,
        "nec",
        0.8,
        1.0,
    )  # type: ignore[arg-type]
    made = connect(machines(part, count), supplying, pdus)
    assert breaches(made) == []
    return made


def refusal(*args, **kwargs) -> str:
    with pytest.raises(PlanError) as caught:
        rack(*args, **kwargs)
    return str(caught.value)


def test_two_dgx_b200_take_over_25_kw_and_stand_on_two_ap8966():
    made = rack("dgx-b200", 2, "apc-ap8966", 2)
    assert made.watts == pytest.approx(28.6e3)
    assert made.watts > 25e3, "the SuperPOD reference says over 25 kW a rack"
    assert {cord_name(cord) for cord in made.cords} == {"C19 to C20"}
    assert len(made.cords) == 12


def test_two_dgx_b200_do_not_stand_on_two_ap8868_though_the_plug_formula_says_so():
    naive = 2 * 14.411e3
    assert naive > 28.6e3
    said = refusal("dgx-b200", 2, "apc-ap8868", 2)
    assert "3 banks at 80 % of their breakers hold it to 9.98 kW" in said
    assert "says 14.4 kW" in said


def test_four_dgx_b300_take_56_kw_and_outlive_a_feed_on_three_pdus():
    made = rack("dgx-b300", 4, "pdu-415v-60a", 3, "n+1", 3)
    assert made.watts == pytest.approx(56e3)
    assert made.survivors() == (True, True, True)
    assert all(max(max(lines) for lines in c.lines) <= 48 for c in made.circuits)


def test_four_dgx_b300_do_not_outlive_a_feed_on_two_pdus():
    said = refusal("dgx-b300", 4, "pdu-415v-60a", 2, "2n", 2)
    assert "take 56 kW; 1 x pdu-415v-60a carry 34.5 kW after a feed has died" in said


def test_a_dgx_h100_does_not_outlive_one_of_two_feeds_but_one_of_three():
    said = refusal("dgx-h100", 2, "pdu-415v-60a", 2, "2n", 2)
    assert "keeps 3 of its 6 supplies, 9.9 kW of the 10.2 kW it takes" in said
    assert "`feeds: 3`" in said
    assert all(rack("dgx-h100", 2, "pdu-415v-60a", 3, "n+1", 3).survivors())


def test_a_dgx_b200_at_full_power_needs_six_feeds_to_outlive_one():
    said = refusal("dgx-b200", 2, "pdu-415v-60a", 3, "n+1", 3)
    assert "13.2 kW of the 14.3 kW" in said
    assert "`feeds: 6`" in said
    assert "cap it at 13.2 kW" in said


def test_an_nvl72_of_120_kw_outlives_a_feed_on_four_shelves_and_one_of_142_kw_does_not():
    made = rack("gb200-nvl72", 1, "pdu-415v-60a", 0, "2n", 2)
    assert len(made.circuits) == 8
    assert made.survival[0][0].watts == pytest.approx(132e3)
    assert max(max(lines) for c in made.circuits for lines in c.lines) == pytest.approx(41.7, abs=0.1)
    assert "132 kW of the 142 kW" in refusal("gb300-nvl72", 1, "pdu-415v-60a", 0, "2n", 2)
    assert all(rack("gb300-nvl72", 1, "pdu-415v-60a", 0, "n+1", 4).survivors())


def test_supplies_of_every_machine_are_spread_over_the_feeds_as_evenly_as_can_be():
    made = rack("dgx-h100", 3, "pdu-415v-60a", 3, "n+1", 3)
    for machine in range(3):
        feeds = [cord.feed for cord in made.cords if cord.machine == machine]
        assert sorted(feeds) == [0, 0, 1, 1, 2, 2]


def test_a_c14_inlet_takes_a_c13_outlet_and_a_c20_inlet_a_c19():
    made = rack("qm9700", 3, "pdu-415v-60a", 2, "2n", 2)
    assert {(cord.inlet, cord.outlet) for cord in made.cords} == {("c14", "c13")}
    assert {cord_name(cord) for cord in made.cords} == {"C13 to C14"}


def test_a_switch_takes_a_c19_outlet_by_another_cord_where_c13_are_gone():
    made = rack("qm9700", 10, "pdu-415v-60a", 1)
    names = [cord_name(cord) for cord in made.cords]
    assert names.count("C13 to C14") == 18, "all C13 of the PDU"
    assert names.count("C13 to C20") == 2


def test_three_bank_delta_pdus_stay_in_phase():
    made = rack("dgx-h100", 1, "pdu-208v-60a", 1)
    lines = made.circuits[0].lines[0]
    assert max(lines) - min(lines) == pytest.approx(0, abs=1e-9), "six equal cords on three pairs of legs"
