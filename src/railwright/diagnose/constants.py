"""Rates, noise and what evidence tells, read once from data/*.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from railwright.shipped import read_data


@dataclass(frozen=True)
class Seen:
    """What an observation says: how often a faulty element shows it, and how often it comes by itself.

    leak   probability without any fault
    seen   kind of element -> probability that a fault of it shows
    """

    leak: float
    seen: Mapping[str, float]


@dataclass(frozen=True)
class Counter:
    """One port counter: 'physical', 'congestion', 'elsewhere', 'configuration' or 'management'."""

    meaning: str
    threshold: float = 0.0
    says: Seen | None = None


@dataclass(frozen=True)
class Xid:
    """One GPU driver error number."""

    number: int
    group: str
    meaning: str
    action: str


@dataclass(frozen=True)
class Noise:
    """How measurements scatter, as in data/evidence.yaml."""

    healthy: float
    faulty: float
    tails: float
    outlier: float
    dead: float
    one_way: float


def rate(kind: str) -> float:
    """Faults of one element of a kind [1/year]; leaves, spines and cores are switches."""
    named = "switch" if kind in ("leaf", "spine", "core") else kind
    return float(_evidence()["rates"][named]["value"])


def slows(kind: str) -> float:
    """Part of the faults of a kind of element that slow what goes through it."""
    named = "switch" if kind in ("leaf", "spine", "core") else kind
    return float(_evidence()["slows"][named])


def expected_faults() -> float:
    """Faults that are expected before any evidence."""
    return float(_evidence()["prior"]["expected_faults"]["value"])


@cache
def noise() -> Noise:
    """The scatter of measurements."""
    return Noise(**{name: float(record["value"]) for name, record in _evidence()["noise"].items()})


@cache
def counters() -> Mapping[str, Counter]:
    """Port counters by name."""
    return {name: _counter(record) for name, record in _evidence()["counters"].items()}


def says(section: str, name: str) -> Seen:
    """What an observation of 'links', 'ranks' or 'xid_seen' tells."""
    record = _evidence()[section][name]
    return Seen(float(record["leak"]), {k: float(v) for k, v in record["seen"].items()})


@cache
def xids() -> Mapping[int, Xid]:
    """GPU driver errors by number."""
    return {
        int(number): Xid(int(number), record["group"], record["meaning"], record["action"])
        for number, record in _load("xid.yaml")["xids"].items()
    }


def share(seen: Seen, kind: str) -> float:
    """Probability that a fault of this kind of element shows."""
    named = "switch" if kind in ("leaf", "spine", "core") else kind
    return float(seen.seen.get(named, 0.0))


def _counter(record: Mapping[str, Any]) -> Counter:
    if record["meaning"] != "physical":
        return Counter(record["meaning"])
    seen = Seen(float(record["leak"]), {k: float(v) for k, v in record["seen"].items()})
    return Counter("physical", float(record["threshold"]), seen)


@cache
def _evidence() -> Mapping[str, Any]:
    return _load("evidence.yaml")


@cache
def _load(name: str) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = read_data("diagnose", name)
    return loaded
