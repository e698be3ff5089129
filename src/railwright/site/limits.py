"""Every electrical limit of a rack, checked from the cords up; a rack is accepted without a single breach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from railwright.site.circuits import BankLoad, Circuit, RackPower, feed_name
from railwright.site.electrical import imbalance

_TOLERANCE = 1e-9


def breaches(power: RackPower) -> list[str]:
    """One sentence for every limit that is passed, in any scenario the redundancy asks for; none: accepted.

    Sustained currents stay within the derated rating of outlets, banks and lines; peaks within the rating
    itself.  Outlets are not used twice, and each machine keeps supplies enough.
    """
    found = [text for circuit in power.circuits for text in _circuit(circuit, power)]
    found += _outlets(power)
    return found + _machines(power)


def scenario_name(scenario: int) -> str:
    """'' for the whole, else 'without feed B'."""
    return f" without feed {feed_name(scenario - 1)}" if scenario else ""


def worst_imbalance(power: RackPower) -> float:
    """Largest imbalance of the lines of a three-phase circuit while all feeds are alive.

    Circuits that carry less than half of what they may are left out: they are uneven without harm.
    """
    half = 0.5 * power.supplying.derate
    of = [
        imbalance(c.lines[0])
        for c in power.circuits
        if c.plug.phases == 3 and max(c.lines[0]) > half * c.plug.amps
    ]
    return max(of, default=0.0)


def _circuit(circuit: Circuit, power: RackPower) -> Iterator[str]:
    derate = power.supplying.derate
    for scenario, (lines, peaks) in enumerate(zip(circuit.lines, circuit.peak_lines, strict=True)):
        name = scenario_name(scenario)
        for line, (amps, peak) in enumerate(zip(lines, peaks, strict=True)):
            rating = circuit.plug.amps
            which = f"line {'ABC'[line]} of {circuit.name}{name}"
            if amps > rating * derate * (1 + _TOLERANCE):
                yield f"{which} would carry {amps:.1f} A of the {rating * derate:g} A it may, all day"
            if peak > rating * (1 + _TOLERANCE):
                yield f"{which} would peak at {peak:.1f} A, over its {rating:g} A breaker"
        for number, load in enumerate(circuit.banks, 1):
            yield from _bank(load, number, scenario, circuit.name, derate)


def _bank(load: BankLoad, number: int, scenario: int, circuit: str, derate: float) -> Iterator[str]:
    which = f"bank {number} ({load.bank.legs}) of {circuit}{scenario_name(scenario)}"
    limit = load.bank.breaker * derate
    if load.amps[scenario] > limit * (1 + _TOLERANCE):
        yield f"{which} would carry {load.amps[scenario]:.1f} A of the {limit:g} A it may, all day"
    if load.peak[scenario] > load.bank.breaker * (1 + _TOLERANCE):
        yield f"{which} would peak at {load.peak[scenario]:.1f} A, over its {load.bank.breaker:g} A breaker"


def _outlets(power: RackPower) -> list[str]:
    used: Counter[tuple[int, int, str]] = Counter(
        (cord.circuit, cord.bank, cord.outlet) for cord in power.cords if cord.bank >= 0
    )
    found = []
    for (circuit, bank, outlet), count in sorted(used.items()):
        have = getattr(power.circuits[circuit].banks[bank].bank, outlet)
        if count > have:
            name = power.circuits[circuit].name
            found.append(f"bank {bank + 1} of {name} has {have} {outlet.upper()} outlets for {count} cords")
    return found


def _machines(power: RackPower) -> list[str]:
    if not power.supplying.tolerate:
        return []
    return [
        f"without feed {feed_name(left.feed)} a {machine.part} keeps {left.supplies} supplies"
        for machine, of in zip(power.machines, power.survival, strict=True)
        for left in of
        if not left.enough
    ]
