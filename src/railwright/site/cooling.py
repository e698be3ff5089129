"""Heat: every watt that goes in comes out, by air or by coolant; how much of each has to flow."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.site.loading import constant

CFM = 0.3048**3 / 60
"""One cubic foot a minute [m3/s] (international foot)."""


@dataclass(frozen=True)
class RackHeat:
    """Heat of one rack by air and by coolant [W], and what must flow for it [m3/s]."""

    air: float
    liquid: float
    air_flow: float
    coolant_flow: float

    @property
    def cfm(self) -> float:
        return self.air_flow / CFM

    @property
    def litres_per_minute(self) -> float:
        return self.coolant_flow * 60e3


def air_flow(watts: float, rise: float) -> float:
    """Air that carries `watts` away while it warms by `rise` [K]. [m3/s]

    P / (density x heat capacity x rise) with standard air.  1 kW at 11.1 K (20 degF) takes 158 CFM, the rule
    of thumb CFM = 3.16 W / degF.
    """
    return watts / (constant("air_density") * constant("air_heat") * rise)


def coolant_flow(watts: float, rise: float) -> float:
    """Coolant (water) that carries `watts` away while it warms by `rise` [K]. [m3/s]"""
    return watts / (constant("coolant_heat") * rise)


def rack_heat(air: float, liquid: float, air_rise: float, liquid_rise: float) -> RackHeat:
    """A rack that gives `air` and `liquid` watts to air and coolant."""
    return RackHeat(air, liquid, air_flow(air, air_rise), coolant_flow(liquid, liquid_rise))


def typical_pue(liquid_share: float) -> float:
    """Power of a site over that of its machines, between the figures of air and of liquid cooling. [1]

    liquid_share  of the heat; linear between the middles of the two published ranges
    """
    return constant("pue_air") + liquid_share * (constant("pue_liquid") - constant("pue_air"))
