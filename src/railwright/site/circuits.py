"""What stands in one rack and how it is fed: machines, cords, circuits, and what each circuit carries.

Scenarios: number 0 is everything alive; number 1 + f is feed f dead.  Tuples over scenarios are that long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railwright.site.electrical import bank_limited, leg_voltage, single_phase, three_phase
from railwright.site.parts import Bank, Intake, Outlet, Pdu, Plug

Redundancy = Literal["n", "n+1", "2n"]


@dataclass(frozen=True)
class Machine:
    """Something in a rack that takes power.

    part   catalogue name; kind  'server', 'leaf', 'spine', 'core' or 'host'
    watts  sustained, peak  for a moment [W]
    """

    part: str
    kind: str
    units: int
    watts: float
    intake: Intake

    @property
    def peak(self) -> float:
        return self.watts * self.intake.peak


@dataclass(frozen=True)
class Supplying:
    """How racks are fed: the PDU with its plug and outlets, feeds, and the rules of the trade.

    derate  share of a breaker that a continuous load may take; practice  whose outlet ratings hold
    tolerate  whether every single feed may die (n+1, 2n)
    """

    pdu: Pdu
    plug: Plug
    plugs: dict[str, Plug]
    outlets: dict[str, Outlet]
    feeds: int
    redundancy: Redundancy
    practice: Literal["nec", "iec"]
    derate: float
    power_factor: float

    @property
    def tolerate(self) -> bool:
        return self.redundancy != "n"

    @property
    def scenarios(self) -> int:
        return 1 + (self.feeds if self.tolerate else 0)

    def outlet_amps(self, outlet: str) -> float:
        """What an outlet may carry all day. [A]"""
        part = self.outlets[outlet]
        return (part.amps_nec if self.practice == "nec" else part.amps_iec) * self.derate


@dataclass(frozen=True)
class Cord:
    """One cord.  machine, supply: numbers in the rack; circuit, bank: where it is plugged in (bank -1: the
    circuit itself); outlet: of the PDU, or the receptacle of the room; watts over scenarios [W]"""

    machine: int
    supply: int
    feed: int
    circuit: int
    bank: int
    inlet: str
    outlet: str
    watts: tuple[float, ...]


@dataclass(frozen=True)
class BankLoad:
    """What a bank of outlets carries over scenarios, sustained and at peak [A]."""

    bank: Bank
    amps: tuple[float, ...]
    peak: tuple[float, ...]
    c13: int
    c19: int


@dataclass(frozen=True)
class Circuit:
    """One branch circuit of the room: a PDU, or a power shelf's own whip.

    lines, peak_lines  per scenario the currents of its conductors [A]
    watts              per scenario [W]
    """

    name: str
    feed: int
    plug: Plug
    banks: tuple[BankLoad, ...]
    lines: tuple[tuple[float, ...], ...]
    peak_lines: tuple[tuple[float, ...], ...]
    watts: tuple[float, ...]


@dataclass(frozen=True)
class Survival:
    """A machine after one feed has died: supplies left, what they deliver [W], and whether that is enough."""

    feed: int
    supplies: int
    watts: float
    enough: bool


@dataclass(frozen=True)
class RackPower:
    """A rack's machines on its circuits.  survival: per machine, one for each feed."""

    machines: tuple[Machine, ...]
    supplying: Supplying
    cords: tuple[Cord, ...]
    circuits: tuple[Circuit, ...]
    survival: tuple[tuple[Survival, ...], ...]

    @property
    def watts(self) -> float:
        return sum(machine.watts for machine in self.machines)

    @property
    def peak(self) -> float:
        return sum(machine.peak for machine in self.machines)

    @property
    def pdus(self) -> int:
        return sum(1 for circuit in self.circuits if circuit.banks)

    def survivors(self) -> tuple[bool, ...]:
        """For each feed, whether every machine outlives it."""
        return tuple(
            all(of_machine[feed].enough for of_machine in self.survival)
            for feed in range(self.supplying.feeds)
        )


@dataclass(frozen=True)
class Capacity:
    """What a PDU carries all day [VA]: by its line currents, by its banks, and which binds."""

    line: float
    banks: float

    @property
    def power(self) -> float:
        return min(self.line, self.banks)

    @property
    def binding(self) -> Literal["line", "banks"]:
        return "line" if self.line <= self.banks else "banks"


def pdu_capacity(pdu: Pdu, plug: Plug, derate: float) -> Capacity:
    """A PDU's continuous capacity: the smaller of what its plug and what all its banks may carry.

    AP8966: lines bind, 17.29 kVA.  AP8868: banks bind, 9.98 kVA, though its plug alone would carry 14.41.
    """
    line = (three_phase if plug.phases == 3 else single_phase)(plug.volts, plug.amps, derate)
    banks = sum(bank_limited(leg_voltage(b.legs, plug.volts), 1, b.breaker, derate) for b in pdu.banks)
    return Capacity(line, banks)


def feed_name(feed: int) -> str:
    """'A', 'B', …"""
    return chr(ord("A") + feed)


def survival(machine: Machine, per_feed: tuple[int, ...]) -> tuple[Survival, ...]:
    """What is left of a machine's supplies after each feed dies, `per_feed` of them on each."""
    intake = machine.intake
    result = []
    for feed, lost in enumerate(per_feed):
        left = intake.supplies - lost
        watts = left * intake.watts
        result.append(Survival(feed, left, watts, left >= max(intake.needs, 1) and watts >= machine.watts))
    return tuple(result)
