"""No accepted rack passes a limit, in any scenario its redundancy asks for; counted once more from its cords.

The test shares no code with the planner's own check: it starts from what each machine draws, splits it over
the cords that are alive, and adds currents as complex numbers.
"""

from __future__ import annotations

import cmath
import math
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.site.circuits import Machine, RackPower, Supplying
from railwright.site.connecting import connect
from railwright.site.loading import load_site_parts
from railwright.site.parts import Intake

PARTS = load_site_parts()
EPS = 1e-6


@st.composite
def loads(draw: st.DrawFn) -> list[Machine]:
    made = []
    for index in range(draw(st.integers(1, 4))):
        supplies = draw(st.sampled_from([2, 2, 4, 6, 8, 3, 1]))
        watts = draw(st.integers(300, 3300))
        used = draw(st.one_of(st.floats(0.15, 0.5), st.floats(0.15, 0.5), st.floats(0.2, 1.05)))
        inlet = draw(st.sampled_from(["c14", "c20", "c20", "iec60309-60a-415v"]))
        scale = 8 if inlet.startswith("iec") else 1
        intake = Intake(
            f"m{index}", supplies, watts * scale, inlet, draw(st.integers(0, supplies // 2)),
            draw(st.sampled_from([1.0, 1.06, 1.3])), source="test",
        )  # fmt: skip
        machine = Machine(f"m{index}", "server", 1, used * supplies * watts * scale, intake)
        made += [machine] * draw(st.integers(1, 4))
    return made


@st.composite
def supplies(draw: st.DrawFn) -> tuple[Supplying, int]:
    redundancy = draw(st.sampled_from(["n", "n+1", "2n"]))
    feeds = {"n": draw(st.integers(1, 3)), "n+1": draw(st.integers(2, 4)), "2n": 2}[redundancy]
    pdus = feeds * draw(st.integers(1, 2))
    pdu = PARTS.pdus[draw(st.sampled_from(sorted(PARTS.pdus)))]
    practice = draw(st.sampled_from(["nec", "iec"]))
    factor = draw(st.sampled_from([1.0, 0.95]))
    supplying = Supplying(
        pdu, PARTS.plugs[pdu.plug], dict(PARTS.plugs), dict(PARTS.outlets), feeds, redundancy, practice,
        0.8 if practice == "nec" else 1.0, factor,
    )  # fmt: skip
    return supplying, pdus


def alive(made: RackPower, lost: int | None) -> dict[int, float]:
    """Watts of every cord after a feed has died."""
    left = Counter(cord.machine for cord in made.cords if cord.feed != lost)
    return {
        number: made.machines[cord.machine].watts / left[cord.machine]
        for number, cord in enumerate(made.cords)
        if cord.feed != lost
    }


def lines(legs: dict[str, float], phases: int) -> list[float]:
    """Line currents as complex sums."""
    if phases == 1:
        return [sum(legs.values())]
    volt = {p: cmath.exp(-2j * math.pi / 3 * k) for k, p in enumerate("ABC")}
    total = dict.fromkeys("ABC", 0j)
    for leg, amps in legs.items():
        over = volt[leg[0]] - (volt[leg[1]] if len(leg) == 2 else 0)
        phasor = amps * over / abs(over)
        total[leg[0]] += phasor
        if len(leg) == 2:
            total[leg[1]] -= phasor
    return [abs(total[p]) for p in "ABC"]


def check_circuits(made: RackPower, lost: int | None, peak: bool) -> None:
    rules, watts = made.supplying, alive(made, lost)
    allowed = 1.0 if peak else rules.derate
    for number, circuit in enumerate(made.circuits):
        mine = [(i, c) for i, c in enumerate(made.cords) if c.circuit == number and i in watts]
        volts = circuit.plug.volts
        legs: dict[str, float] = {}
        banks: dict[int, float] = {}
        for index, cord in mine:
            assert cord.feed == circuit.feed
            drawn = watts[index] * (made.machines[cord.machine].intake.peak if peak else 1.0)
            if cord.bank < 0:
                amps = drawn / rules.power_factor / (math.sqrt(3) * volts)
                assert amps <= circuit.plug.amps * allowed + EPS
                continue
            leg = circuit.banks[cord.bank].bank.legs
            amps = drawn / rules.power_factor / (volts if len(leg) == 2 else volts / math.sqrt(3))
            if not peak:
                outlet = PARTS.outlets[cord.outlet]
                rating = outlet.amps_nec if rules.practice == "nec" else outlet.amps_iec
                assert amps <= rating * allowed + EPS, "an outlet"
            legs[leg] = legs.get(leg, 0.0) + amps
            banks[cord.bank] = banks.get(cord.bank, 0.0) + amps
        for bank, amps in banks.items():
            assert amps <= circuit.banks[bank].bank.breaker * allowed + EPS, "a bank"
        for amps in lines(legs, circuit.plug.phases):
            assert amps <= circuit.plug.amps * allowed + EPS, "a line"


@settings(max_examples=250)
@given(loads(), supplies())
def test_an_accepted_rack_keeps_every_limit_whatever_feed_dies(machines, fed):
    supplying, pdus = fed
    try:
        made = connect(machines, supplying, pdus)
    except PlanError:
        return
    scenarios = [None, *(range(supplying.feeds) if supplying.redundancy != "n" else ())]
    for lost in scenarios:
        check_circuits(made, lost, peak=False)
        check_circuits(made, lost, peak=True)
    for index, machine in enumerate(machines):
        mine = [cord for cord in made.cords if cord.machine == index]
        assert len(mine) == machine.intake.supplies, "every supply has its cord"
        for lost in scenarios:
            left = [cord for cord in mine if cord.feed != lost]
            assert len(left) >= max(machine.intake.needs if lost is not None else 0, 1)
            assert len(left) * machine.intake.watts >= machine.watts - EPS
    used = Counter((cord.circuit, cord.bank, cord.outlet) for cord in made.cords if cord.bank >= 0)
    for (circuit, bank, outlet), count in used.items():
        assert count <= getattr(made.circuits[circuit].banks[bank].bank, outlet), "an outlet used twice"


@settings(max_examples=60)
@given(loads(), supplies())
def test_planning_is_repeatable_and_power_is_conserved(machines, fed):
    supplying, pdus = fed
    try:
        made = connect(machines, supplying, pdus)
    except PlanError:
        return
    assert connect(machines, supplying, pdus) == made
    for scenario in range(supplying.scenarios):
        carried = sum(circuit.watts[scenario] for circuit in made.circuits)
        assert abs(carried - sum(m.watts for m in machines)) < 1e-6 * max(carried, 1.0)
