"""Cords of one rack: which supply goes to which outlet, so that no limit is passed whatever feed dies.

Supplies of a machine are dealt over the feeds in turn; within a feed each goes to the PDU, then the bank,
that carries least.  What comes out is checked whole (limits.py): a rack is accepted only without a breach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from railwright.errors import PlanError
from railwright.site.circuits import (
    BankLoad,
    Circuit,
    Cord,
    Machine,
    RackPower,
    Supplying,
    feed_name,
    pdu_capacity,
    survival,
)
from railwright.site.electrical import leg_voltage, line_currents, three_phase
from railwright.site.limits import breaches
from railwright.units import show_power

# An inlet's cord, cheapest first: the outlet it is plugged into, and the cord's name.
CORDS = {
    "c14": (("c13", "C13 to C14"), ("c19", "C13 to C20")),
    "c20": (("c19", "C19 to C20"), ("c13", "C19 to C14")),
}


@dataclass
class _Bank:
    """A bank while cords are plugged in: watts over scenarios, outlets left and taken."""

    volts: float
    limit: float
    free: dict[str, int]
    watts: list[float]
    taken: dict[str, int] = field(default_factory=lambda: {"c13": 0, "c19": 0})


def connect(machines: Sequence[Machine], supplying: Supplying, pdus: int) -> RackPower:
    """Plug every supply of a rack in, on `pdus` PDUs (power shelves take circuits of their own).

    Raises PlanError naming the limit that would be passed, by how much, and what would help.
    """
    feeds = supplying.feeds
    dealt = _dealt(machines, feeds)
    _check_machines(machines, dealt, supplying)
    on_pdus = [m for m in machines if m.intake.inlet in CORDS]
    if on_pdus:
        _check_totals(on_pdus, supplying, pdus)
    count = pdus if on_pdus else 0
    state = [_banks(supplying) for _ in range(count)]
    cords: list[Cord] = []
    whips: list[tuple[int, Cord]] = []
    order = sorted(range(len(machines)), key=lambda i: -machines[i].watts / machines[i].intake.supplies)
    for index in order:
        machine = machines[index]
        per_feed = tuple(dealt[index].count(feed) for feed in range(feeds))
        for supply, feed in enumerate(dealt[index]):
            watts = _shares(machine, per_feed, feed, supplying)
            if machine.intake.inlet not in CORDS:
                plug = machine.intake.inlet
                cord = Cord(index, supply, feed, count + len(whips), -1, plug, plug, watts)
                whips.append((feed, cord))
                continue
            at, bank, outlet = _place(machine, watts, feed, state, supplying)
            cords.append(Cord(index, supply, feed, at, bank, machine.intake.inlet, outlet, watts))
    circuits = [_pdu_circuit(p, state[p], cords, machines, supplying) for p in range(count)]
    circuits += [_whip(cord, machines, supplying) for _, cord in whips]
    left = tuple(
        survival(machine, tuple(dealt[i].count(feed) for feed in range(feeds)))
        for i, machine in enumerate(machines)
    )
    every = sorted([*cords, *(cord for _, cord in whips)], key=lambda c: (c.machine, c.supply))
    made = RackPower(tuple(machines), supplying, tuple(every), tuple(circuits), left)
    wrong = breaches(made)
    if wrong:
        raise PlanError(f"{_content(machines)} on {_source(supplying, count)}: {wrong[0]}")
    return made


def cord_name(cord: Cord) -> str:
    """What to buy: 'C19 to C20', or the whip of a power shelf."""
    known = dict(CORDS.get(cord.inlet, ()))
    return known.get(cord.outlet, f"whip, {cord.outlet}")


def _dealt(machines: Sequence[Machine], feeds: int) -> list[tuple[int, ...]]:
    """Feed of every supply: each machine begins where the one before it ended: feeds stay even."""
    dealt, begin = [], 0
    for machine in machines:
        count = machine.intake.supplies
        dealt.append(tuple((begin + supply) % feeds for supply in range(count)))
        begin = (begin + count) % feeds
    return dealt


def _shares(
    machine: Machine, per_feed: tuple[int, ...], feed: int, supplying: Supplying
) -> tuple[float, ...]:
    """What one supply on `feed` draws in every scenario: live supplies share a machine's load evenly. [W]"""
    supplies = machine.intake.supplies
    shares = [machine.watts / supplies]
    for lost in range(supplying.scenarios - 1):
        left = supplies - per_feed[lost]
        shares.append(0.0 if lost == feed or not left else machine.watts / left)
    return tuple(shares)


def _check_machines(machines: Sequence[Machine], dealt: list[tuple[int, ...]], supplying: Supplying) -> None:
    for machine, feeds in zip(machines, dealt, strict=True):
        intake = machine.intake
        if intake.supplies * intake.watts < machine.watts:
            total = show_power(intake.supplies * intake.watts)
            raise PlanError(
                f"{intake.supplies} supplies of {show_power(intake.watts)} give {total}, less than the "
                f"{show_power(machine.watts)} a {machine.part} takes"
            )
        if not supplying.tolerate:
            continue
        per_feed = tuple(feeds.count(feed) for feed in range(supplying.feeds))
        for left in survival(machine, per_feed):
            if not left.enough:
                raise PlanError(_brown_out(machine, left.feed, left.supplies, left.watts, supplying))


def _brown_out(machine: Machine, feed: int, supplies: int, watts: float, supplying: Supplying) -> str:
    intake = machine.intake
    lost = intake.supplies - supplies
    text = (
        f"{supplying.redundancy} on {supplying.feeds} feeds: without feed {feed_name(feed)} a {machine.part} "
        f"keeps {supplies} of its {intake.supplies} supplies, {show_power(watts)} of the "
        f"{show_power(machine.watts)} it takes"
    )
    if intake.needs > supplies:
        text += f" ({intake.needs} are needed)"
    enough = [
        feeds
        for feeds in range(supplying.feeds + 1, intake.supplies + 1)
        if all(
            left.enough
            for left in survival(machine, tuple(len(range(f, intake.supplies, feeds)) for f in range(feeds)))
        )
    ]
    if lost == intake.supplies:
        return f"{text}; it has no second cord: ask for `redundancy: n`, or give it a transfer switch"
    cap = f"cap it at {show_power(watts)} (`power_max` in your own `catalog`), or ask for `redundancy: n`"
    if enough:
        return f"{text}; with `redundancy: n+1` and `feeds: {enough[0]}` it survives; or {cap}"
    return f"{text}; {cap}"


def _check_totals(machines: Sequence[Machine], supplying: Supplying, pdus: int) -> None:
    """The plain sum first: the commonest refusal deserves the plainest words."""
    capacity = pdu_capacity(supplying.pdu, supplying.plug, supplying.derate)
    need = sum(machine.watts for machine in machines) / supplying.power_factor
    left = pdus - (-(-pdus // supplying.feeds) if supplying.tolerate else 0)
    if need <= left * capacity.power:
        return
    plug = supplying.plug
    per_cent = f"{100 * supplying.derate:.0f} %"
    text = (
        f"{_content(machines)} take {show_power(need)}; {left} x {supplying.pdu.name} carry "
        f"{show_power(left * capacity.power)}"
        + (f" after a feed has died ({pdus} in the rack)" if left < pdus else "")
    )
    if capacity.binding == "banks":
        text += (
            f": its {len(supplying.pdu.banks)} banks at {per_cent} of their breakers hold it to "
            f"{show_power(capacity.power)} each, though the plug alone ("
            + ("sqrt(3) x " if plug.phases == 3 else "")
            + f"{plug.volts:g} V x {plug.amps:g} A x {supplying.derate:g}) says {show_power(capacity.line)}"
        )
    else:
        text += f", {per_cent} of {plug.amps:g} A at {plug.volts:g} V each"
    raise PlanError(f"{text}; take more or larger PDUs, or fewer servers per rack")


def _banks(supplying: Supplying) -> list[_Bank]:
    volts = supplying.plug.volts
    return [
        _Bank(
            leg_voltage(bank.legs, volts),
            bank.breaker * supplying.derate,
            {"c13": bank.c13, "c19": bank.c19},
            [0.0] * supplying.scenarios,
        )
        for bank in supplying.pdu.banks
    ]


def _place(
    machine: Machine, watts: tuple[float, ...], feed: int, state: list[list[_Bank]], supplying: Supplying
) -> tuple[int, int, str]:
    """PDU, bank and outlet of one supply; the state is changed."""
    inlet, factor = machine.intake.inlet, supplying.power_factor
    full = worn = False
    for outlet, _ in CORDS[inlet]:
        # Of a cord's two ends the weaker counts: a C14 plug on a C20 machine carries what a C13 outlet does.
        weakest = min(supplying.outlet_amps(outlet), supplying.outlet_amps(_own_outlet(inlet)))
        best: tuple[tuple[float, ...], int, int] | None = None
        for p, banks in enumerate(state):
            if p % supplying.feeds != feed:
                continue
            total = max(sum(b.watts[s] for b in banks) for s in range(supplying.scenarios))
            for b, bank in enumerate(banks):
                if not bank.free[outlet]:
                    full = True
                    continue
                if max(watts) / (bank.volts * factor) > weakest * (1 + 1e-9):
                    worn = True
                    continue
                after = max(x + y for x, y in zip(bank.watts, watts, strict=True))
                if after / (bank.volts * factor) > bank.limit * (1 + 1e-9):
                    continue
                leg = sum(
                    max(o.watts)
                    for o, part in zip(banks, supplying.pdu.banks, strict=True)
                    if part.legs == supplying.pdu.banks[b].legs
                )
                key = (total, leg, max(bank.watts), -bank.free[outlet])
                if best is None or key < best[0]:
                    best = key, p, b
        if best is not None:
            _, p, b = best
            bank = state[p][b]
            bank.watts = [x + y for x, y in zip(bank.watts, watts, strict=True)]
            bank.free[outlet] -= 1
            bank.taken[outlet] += 1
            return p, b, outlet
    raise PlanError(_no_outlet(machine, watts, feed, full, worn, supplying, len(state)))


def _no_outlet(
    machine: Machine,
    watts: tuple[float, ...],
    feed: int,
    full: bool,
    worn: bool,
    supplying: Supplying,
    pdus: int,
) -> str:
    amps = max(watts) / (
        leg_voltage(supplying.pdu.banks[0].legs, supplying.plug.volts) * supplying.power_factor
    )
    what = f"a supply of a {machine.part} draws up to {amps:.1f} A"
    if pdus <= feed:
        return f"feed {feed_name(feed)} has no PDU: {pdus} PDUs cannot be spread over {supplying.feeds} feeds"
    of = f"{supplying.pdu.name} on feed {feed_name(feed)}"
    own = _own_outlet(machine.intake.inlet).upper()
    if full and not worn:
        return f"{what}, and no {own} outlet of {of} is left on a bank that can carry it; take more PDUs"
    if worn:
        limit = supplying.outlet_amps(_own_outlet(machine.intake.inlet))
        return f"{what}; {of} has no outlet left that may carry it all day ({own}: {limit:g} A)"
    limit = supplying.pdu.banks[0].breaker * supplying.derate
    return f"{what}, and no bank of {of} has that much left of its {limit:g} A; take more or larger PDUs"


def _own_outlet(inlet: str) -> str:
    return "c13" if inlet == "c14" else "c19"


def _pdu_circuit(
    p: int, banks: list[_Bank], cords: list[Cord], machines: Sequence[Machine], supplying: Supplying
) -> Circuit:
    mine = [cord for cord in cords if cord.circuit == p]
    loads, scenarios = [], range(supplying.scenarios)
    for b, (bank, part) in enumerate(zip(banks, supplying.pdu.banks, strict=True)):
        here = [cord for cord in mine if cord.bank == b]
        amps = [sum(c.watts[s] for c in here) / (bank.volts * supplying.power_factor) for s in scenarios]
        peak = [
            sum(c.watts[s] * machines[c.machine].intake.peak for c in here)
            / (bank.volts * supplying.power_factor)
            for s in scenarios
        ]
        loads.append(BankLoad(part, tuple(amps), tuple(peak), bank.taken["c13"], bank.taken["c19"]))
    feed = p % supplying.feeds
    return Circuit(
        f"PDU {feed_name(feed)}{p // supplying.feeds + 1}",
        feed,
        supplying.plug,
        tuple(loads),
        tuple(_lines([(load.bank.legs, load.amps[s]) for load in loads], supplying) for s in scenarios),
        tuple(_lines([(load.bank.legs, load.peak[s]) for load in loads], supplying) for s in scenarios),
        tuple(sum(c.watts[s] for c in mine) for s in scenarios),
    )


def _lines(loads: list[tuple[str, float]], supplying: Supplying) -> tuple[float, ...]:
    legs: dict[str, float] = {}
    for leg, amps in loads:
        legs[leg] = legs.get(leg, 0.0) + amps
    if supplying.plug.phases == 1:
        return (sum(legs.values()),)
    return line_currents(legs)


def _whip(cord: Cord, machines: Sequence[Machine], supplying: Supplying) -> Circuit:
    plug = supplying.plugs[cord.outlet]
    unit = three_phase(plug.volts, 1.0) if plug.phases == 3 else plug.volts
    amps = [w / (unit * supplying.power_factor) for w in cord.watts]
    peak = machines[cord.machine].intake.peak
    return Circuit(
        f"shelf {feed_name(cord.feed)}{cord.supply + 1}",
        cord.feed,
        plug,
        (),
        tuple((a,) * plug.phases for a in amps),
        tuple((a * peak,) * plug.phases for a in amps),
        cord.watts,
    )


def _content(machines: Sequence[Machine]) -> str:
    """'2 dgx-b200 and 1 qm9700'."""
    parts: dict[str, int] = {}
    for machine in machines:
        parts[machine.part] = parts.get(machine.part, 0) + 1
    return " and ".join(f"{count} {part}" for part, count in parts.items())


def _source(supplying: Supplying, pdus: int) -> str:
    return f"{pdus} x {supplying.pdu.name}" if pdus else "circuits of their own"
