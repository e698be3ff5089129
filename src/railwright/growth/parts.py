"""The ladder, the networks, the outlets and what is reused, as the data files say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from railwright.growth.asking import Task
from railwright.shipped import read_data


@dataclass(frozen=True)
class Step:
    """One rung.  server: catalogue name; machines: how many, 0 where it is worked out."""

    name: str
    title: str
    server: str
    machines: int


@dataclass(frozen=True)
class Speed:
    """One network between servers.  nic, switch: catalogue names; nics: adapters of a server."""

    name: str
    nic: str
    switch: str
    nics: int


@dataclass(frozen=True)
class WallOutlet:
    """An outlet of an office.  volts [V], amps [A]; derate: share a continuous load may take."""

    name: str
    title: str
    volts: float
    amps: float
    derate: float
    source: str
    status: str

    @property
    def power(self) -> float:
        """What a load may take of it all day. [W]"""
        return self.volts * self.amps * self.derate


@dataclass(frozen=True)
class Reuse:
    """What equipment of a step becomes.  needs: 'nics', 'rack' or '' (growth/data/reuse.yaml)."""

    step: str
    what: str
    becomes: str
    needs: str
    source: str
    status: str


@cache
def steps() -> tuple[Step, ...]:
    return tuple(Step(**row) for row in _data("steps")["steps"])


@cache
def speeds() -> tuple[Speed, ...]:
    """Slowest first."""
    return tuple(Speed(**row) for row in _data("networks")["networks"])


@cache
def wall_outlets() -> tuple[WallOutlet, ...]:
    """Weakest first."""
    return tuple(sorted((WallOutlet(**row) for row in _data("outlets")), key=lambda o: o.power))


@cache
def reuses() -> tuple[Reuse, ...]:
    rows: list[Reuse] = []
    for row in _data("reuse"):
        source = rows[-1].source if row["source"] == "same" else row["source"]
        rows.append(Reuse(row["from"], row["what"], row["becomes"], row["needs"], source, row["status"]))
    return tuple(rows)


def constant(name: str) -> float:
    """A figure of steps.yaml, in the unit written there."""
    return float(_data("steps")["constants"][name]["value"])


def batch_of(task: Task, sequence: int) -> int:
    """Sequences of one optimizer step."""
    row = _data("steps")["batches"][task]
    if "sequences" in row:
        return int(row["sequences"])
    return max(1, round(float(row["tokens"]) / sequence))


def saved_bytes(task: Task) -> float:
    """Bytes of one parameter that cross the storage network at once."""
    return float(_data("steps")["saved"][task]["value"])


@cache
def _data(name: str) -> Any:
    return read_data("growth", f"{name}.yaml")
