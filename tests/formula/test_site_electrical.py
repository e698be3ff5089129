"""Electricity of racks: the figures of data sheets and of the talk, and currents against plain phasors."""

from __future__ import annotations

import cmath
import math

import pytest

from railwright.site.circuits import Machine, pdu_capacity, survival
from railwright.site.electrical import (
    LEGS,
    imbalance,
    leg_voltage,
    line_currents,
    single_phase,
    three_phase,
)
from railwright.site.loading import constant, load_site_parts

PARTS = load_site_parts()


def capacity(pdu: str, derate: float = 0.8):
    part = PARTS.pdus[pdu]
    return pdu_capacity(part, PARTS.plugs[part.plug], derate)


def test_an_ap8966_gives_17_29_kva_because_60_a_are_derated_to_48():
    assert three_phase(208, 60, 0.8) == pytest.approx(17.29e3, rel=1e-3)
    assert capacity("apc-ap8966").power == pytest.approx(17.2928e3, rel=1e-5)
    assert capacity("apc-ap8966").binding == "line"
    assert PARTS.plugs[PARTS.pdus["apc-ap8966"].plug].amps * 0.8 == 48


def test_an_ap8868_is_held_to_9_98_kw_by_its_banks_where_the_plug_formula_says_14_4():
    held = capacity("apc-ap8868")
    assert held.line == pytest.approx(14.411e3, rel=1e-4)
    assert held.banks == pytest.approx(3 * 208 * 16)
    assert held.power == pytest.approx(9.984e3)
    assert held.binding == "banks"
    assert held.line / held.power == pytest.approx(1.44, abs=0.005), "over-stated by 44 %"


def test_an_ap8868s_full_banks_draw_27_7_a_from_each_line():
    lines = line_currents({"AB": 16, "BC": 16, "CA": 16})
    assert lines == pytest.approx((27.71, 27.71, 27.71), abs=0.01)


@pytest.mark.parametrize(
    ("plug", "derate", "kva"),
    [
        ("nema-l6-30", 0.8, 4.992),
        ("nema-l15-30", 0.8, 8.646),
        ("nema-l21-30", 0.8, 8.646),
        ("cs8365", 0.8, 14.411),
        ("iec60309-30a-208v", 0.8, 8.646),
        ("iec60309-60a-208v", 0.8, 17.293),
        ("iec60309-30a-415v", 0.8, 17.251),
        ("iec60309-60a-415v", 0.8, 34.502),
        ("iec60309-32a-400v", 0.8, 17.736),
        ("iec60309-32a-400v", 1.0, 22.170),
        ("iec60309-63a-400v", 0.8, 34.918),
        ("iec60309-63a-400v", 1.0, 43.648),
    ],
)
def test_what_each_plug_carries(plug: str, derate: float, kva: float):
    part = PARTS.plugs[plug]
    of = three_phase if part.phases == 3 else single_phase
    assert of(part.volts, part.amps, derate) / 1e3 == pytest.approx(kva, abs=6e-4)


def test_c13_carries_2_5_kw_and_c19_3_2_to_3_3_kw():
    c13, c19 = PARTS.outlets["c13"], PARTS.outlets["c19"]
    assert single_phase(208, c13.amps_nec, 0.8) == pytest.approx(2496), "the talk says 2.5 kW"
    assert single_phase(208, c19.amps_nec, 0.8) == pytest.approx(3328)
    assert single_phase(200, c19.amps_nec, 0.8) == pytest.approx(3200), "the talk's 3.2 kW is at 200 V"
    assert (c13.plug, c19.plug) == ("c14", "c20")


def test_every_pdu_that_states_a_rating_meets_it():
    for pdu in PARTS.pdus.values():
        if pdu.rated:
            practice = 1.0 if PARTS.plugs[pdu.plug].volts == 400 else 0.8
            assert capacity(pdu.name, practice).power == pytest.approx(pdu.rated, rel=0.01), pdu.name


def test_netboxs_formula_agrees_where_no_bank_binds():
    for name in ("apc-ap8966", "apc-ap8965"):
        plug = PARTS.plugs[PARTS.pdus[name].plug]
        assert capacity(name).power == pytest.approx(
            round(plug.volts * plug.amps * 80 / 100 * 1.732), rel=2e-4
        )


@pytest.mark.parametrize("seed", range(20))
def test_line_currents_are_the_phasor_sums(seed: int):
    """Written out once more with complex numbers: every load in phase with the voltage on its legs."""
    amps = {leg: float((seed * 7 + 3 * i * i + 5 * i) % 23) for i, leg in enumerate(LEGS)}
    angle = {"A": 0.0, "B": -2 * math.pi / 3, "C": 2 * math.pi / 3}
    volt = {phase: cmath.exp(1j * angle[phase]) for phase in "ABC"}
    lines = dict.fromkeys("ABC", 0j)
    for leg, current in amps.items():
        if len(leg) == 1:
            lines[leg] += current * volt[leg]
            continue
        over = volt[leg[0]] - volt[leg[1]]
        phasor = current * over / abs(over)
        lines[leg[0]] += phasor
        lines[leg[1]] -= phasor
    assert line_currents(amps) == pytest.approx(tuple(abs(lines[p]) for p in "ABC"), abs=1e-9)


def test_a_load_between_two_lines_leaves_the_third_idle():
    assert line_currents({"AB": 10.0}) == pytest.approx((10, 10, 0), abs=1e-12)
    assert leg_voltage("AB", 208) == 208
    assert leg_voltage("A", 415) == pytest.approx(239.6, abs=0.01)


def test_imbalance_is_the_largest_departure_from_the_mean():
    assert imbalance((10, 10, 10)) == 0
    assert imbalance((12, 9, 9)) == pytest.approx(0.2)
    assert imbalance((0, 0, 0)) == 0


def test_six_supplies_on_two_feeds_leave_a_dgx_h100_9_9_kw_of_the_10_2_it_needs():
    machine = Machine("dgx-h100", "server", 8, 10.2e3, PARTS.machines["dgx-h100"])
    two, three = survival(machine, (3, 3)), survival(machine, (2, 2, 2))
    assert [left.watts for left in two] == [9.9e3, 9.9e3]
    assert not any(left.enough for left in two)
    assert [left.watts for left in three] == pytest.approx([13.2e3] * 3)
    assert all(left.enough for left in three)


def test_a_breaker_carries_80_percent_by_the_nec_and_all_of_it_by_iec_practice():
    assert constant("continuous_nec") == 0.8
    assert constant("continuous_iec") == 1.0


def test_every_figure_names_its_source():
    for kind in vars(PARTS).values():
        for part in kind.values():
            assert part.source, part.name
            assert part.status in ("read", "read_third_party", "computed", "memory", "estimated")
