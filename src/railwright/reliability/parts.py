"""The parts a job stands on, counted on its fabric, and how often each interrupts it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from railwright.errors import RailwrightError, nearest
from railwright.fabric import lost_servers
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.reliability.constants import NODE_GPUS, constant
from railwright.reliability.rates import PartRate, part_rates
from railwright.reliability.result import Component
from railwright.spec.reliability import Flaps, Reliability
from railwright.spec.study import Fault
from railwright.spec.training import TrainingJob
from railwright.training.layout.placement import taken
from railwright.training.layout.sizes import job_gpus
from railwright.units import DAY, YEAR

SERVER_OUT = ("gpu", "hbm", "sdc", "nic", "link", "node", "psu", "host", "fan", "psu-drained")
"""Components whose failure sends one server to repair."""


@dataclass(frozen=True)
class Stock:
    """What the job stands on.

    units    of each kind
    servers  of the job
    nodes    of eight GPUs
    homes    cables of one NIC: with two or more, a link or leaf does not stop the job
    leaf_servers  servers that the first leaf takes away with it
    """

    gpus: int
    servers: int
    nodes: float
    units: Mapping[str, float]
    homes: int
    leaf_servers: int

    @property
    def alone(self) -> bool:
        """Whether one failure may take all of the job: it lies in one server that is one node."""
        return max(self.nodes, self.servers) < 2


def stock(fabric: Fabric, job: TrainingJob, servers_per_feed: int | None = None) -> Stock:
    """Count the parts that the job's servers touch: cables, leaves, and what lies above them."""
    gpus = job_gpus(job, fabric)
    own = taken(job, fabric)
    used = np.unique(fabric.server[own])
    servers = len(used)
    nodes = gpus / NODE_GPUS if fabric.gpus_per_server >= NODE_GPUS else float(servers)
    nics = fabric.devices(Kind.NIC)
    nics = nics[np.isin(fabric.server[nics], used)]
    if len(own) < servers * fabric.gpus_per_server:
        # Of a server that it takes a part of, a job stands on the NICs of its own GPUs.
        nics = np.intersect1d(nics, fabric.nic_of_gpu[own])
    below = np.flatnonzero((fabric.role == Role.NODE_LEAF) & np.isin(fabric.a, nics))
    leaves = np.unique(fabric.b[below])
    up = np.flatnonzero((fabric.role == Role.LEAF_SPINE) & np.isin(fabric.a, leaves) & ~fabric.backplane)
    spines = np.unique(fabric.b[up])
    top = np.flatnonzero((fabric.role == Role.SPINE_CORE) & np.isin(fabric.a, spines) & ~fabric.backplane)
    crosses = servers > 1  # a job inside one server needs nothing of the network
    units = {
        "gpu": gpus,
        "nic": crosses * len(nics),
        "link": crosses * len(below),
        "leaf": crosses * len(leaves),
        "spine": crosses * len(spines),
        "core": crosses * len(np.unique(fabric.b[top])),
        "trunk": crosses * (len(up) + len(top)),
        "node": nodes,
        "feed": servers / servers_per_feed if servers_per_feed else 0.0,
    }
    gone = lost_servers(fabric, [Fault(element=fabric.device_name(int(leaves[0])))])
    return Stock(
        gpus,
        servers,
        nodes,
        {name: float(number) for name, number in units.items()},
        max(round(len(below) / len(nics)), 1),
        len(np.intersect1d(gone, used)),
    )


def components(
    stock: Stock, asked: Reliability, rates: tuple[PartRate, ...] | None = None
) -> tuple[Component, ...]:
    """Every component's contribution, in the order of the data file; flaps last where the study gives them.

    Raises RailwrightError for an unknown fleet, or a factor of an unknown component.
    """
    known = rates or part_rates(asked.rates)
    scale = _scale(stock, asked, known)
    found = [
        _component(
            part.name, part.what, part.unit, stock, stops(part, stock),
            [scale * asked.factors.get(part.name, 1.0) * r for r in (part.rate, part.low, part.high)],
            part.source, asked.servers_per_feed,
        )
        for part in known
    ]  # fmt: skip
    if asked.flaps is not None:
        # The study's own count of interruptions has those by flaps in it.
        fatal = fatal_flaps(asked.flaps) if asked.interruptions is None else 0.0
        rate = asked.flaps.per_link_day * YEAR / DAY * fatal
        found.append(
            _component(
                "flap", "link flap that outlasts the transport's patience", "link", stock, stock.homes == 1,
                [rate, rate, rate], "the study's flaps", None,
            )
        )  # fmt: skip
    total = sum(c.rate * c.units for c in found if c.stops)
    if not total:
        raise RailwrightError(
            "reliability: every component that stops the job has rate 0, so nothing ever interrupts it; "
            "raise a factor, or leave the section out"
        )
    return tuple(replace(c, share=c.rate * c.units / total) if c.stops else c for c in found)


def _scale(stock: Stock, asked: Reliability, known: Sequence[PartRate]) -> float:
    """What multiplies every rate, beside the study's factors: age and correlation, or what the study's own
    count of interruptions is over that of the rates. [1]"""
    names = [part.name for part in known]
    for name in asked.factors:
        if name not in names:
            raise RailwrightError(
                f"reliability.factors: there is no component '{name}'; known are {', '.join(names)}"
                f"{nearest(name, names)}"
            )
    scale = asked.correlated * age_factor(asked.age)
    if asked.interruptions is None:
        return scale
    if scale != 1:
        raise RailwrightError(
            "reliability.interruptions: it is your own count, with age and correlation in it; leave "
            "reliability.age and reliability.correlated out"
        )
    plain = sum(
        part.rate * asked.factors.get(part.name, 1.0) * stock.units[part.unit]
        for part in known
        if stops(part, stock)
    )
    return asked.interruptions / per_1000_node_days(plain, stock.nodes) if plain else 0.0


def stops(part: PartRate, stock: Stock) -> bool:
    """Whether the part interrupts this job: a NIC with two cables outlives one of them and its leaf."""
    return part.stops and not (stock.homes > 1 and part.unit in ("link", "leaf"))


def per_1000_node_days(per_year: float, nodes: float) -> float:
    """Failures of the whole job in a year as the unit of all rates."""
    return per_year / nodes * DAY / YEAR * 1000


def age_factor(age: float | None) -> float:
    """Rate at an age over the rate at the published fleets' age: a power-law process. [1]"""
    if age is None:
        return 1.0
    shape, young = constant("growth_shape").value, constant("young_age").value
    return float((max(age, DAY) / young) ** (shape - 1))


def fatal_flaps(flaps: Flaps) -> float:
    """Share of the flaps that outlast the transport's retries, of a lognormal with that median and p99."""
    mu, sigma = _lognormal(flaps)
    return float(ndtr((mu - math.log(constant("transport_timeout").value)) / sigma))


def stalls(flaps: Flaps, links: float) -> float:
    """Share of the time the job stands still in flaps that it survives: none overlap, all ranks wait."""
    mu, sigma = _lognormal(flaps)
    cut = (math.log(constant("transport_timeout").value) - mu) / sigma
    survived = math.exp(mu + sigma**2 / 2) * float(ndtr(cut - sigma))
    return 1 - math.exp(-flaps.per_link_day / DAY * links * survived)


def _lognormal(flaps: Flaps) -> tuple[float, float]:
    if not 0 < flaps.median < flaps.p99:
        raise RailwrightError(
            f"reliability.flaps: the median ({flaps.median:g} s) is above 0 and below the p99 "
            f"({flaps.p99:g} s)"
        )
    return math.log(flaps.median), math.log(flaps.p99 / flaps.median) / float(ndtri(0.99))


def _component(
    name: str, what: str, unit: str, stock: Stock, stops: bool, rates: list[float], source: str,
    servers_per_feed: int | None,
) -> Component:  # fmt: skip
    units = stock.units[unit]
    rate, low, high = rates
    per_year = rate * units
    taken = {"leaf": stock.leaf_servers, "feed": servers_per_feed or 0}
    return Component(
        name=name, what=what, unit=unit, units=units, rate=rate, low=low, high=high, stops=stops,
        per_1000_node_days=per_1000_node_days(per_year, stock.nodes),
        mtti=YEAR / per_year if per_year else math.inf,
        share=0.0, servers=taken.get(name, int(name in SERVER_OUT)), source=source,
    )  # fmt: skip
