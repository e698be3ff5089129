"""Pipeline schedules that a job's software does not ship, in words; data/schedules.yaml says which do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from railwright.shipped import read_data
from railwright.spec.training import Layout, TrainingJob
from railwright.training.layout.schedule import STAGED, schedule_name


@dataclass(frozen=True)
class Shipped:
    """What the pipelines of some eras' software can run.

    schedules  names of `layout.schedule`; 'zb-h1 interleaved' is ZB-H1 with virtual stages alone
    source     where it was read
    """

    software: str
    eras: tuple[str, ...]
    schedules: tuple[str, ...]
    source: str


def of_schedule(job: TrainingJob) -> list[str]:
    """That a job's schedule has no stages to act on, or that its software does not ship it."""
    layout = job.layout
    if layout.pipeline == 1:
        return _idle(layout)
    name, have = _told(layout), shipped().get(job.software)
    if have is None or name in have.schedules:
        return []
    own = f"only {' and '.join(have.schedules)}" if have.schedules else "which has no pipelines"
    return [
        f"software {job.software} does not ship schedule {name} ({have.software}: {own}), and the step is "
        f"predicted as if it did; {_instead(name, have)}."
    ]


@cache
def shipped() -> dict[str, Shipped]:
    """Era -> what its software ships; eras of which that is not known are left out."""
    rows = [
        Shipped(row["software"], tuple(row["eras"]), tuple(row["schedules"]), row["source"])
        for row in _data()["shipped"]
    ]
    return {era: row for row in rows for era in row.eras}


def _idle(layout: Layout) -> list[str]:
    if layout.schedule in ("auto", "1f1b"):
        return []
    does = "does nothing" if layout.schedule in STAGED else "shortens nothing"
    return [
        f"schedule {layout.schedule} {does} while layout.pipeline is 1, where no stage waits for another; "
        "set pipeline above 1, or leave schedule at auto."
    ]


def _told(layout: Layout) -> str:
    """The schedule as the data name it."""
    name = schedule_name(layout)
    return f"{name} interleaved" if name == "zb-h1" and layout.virtual_pipeline > 1 else name


def _instead(name: str, have: Shipped) -> str:
    """Who ships a schedule, or what to choose."""
    eras = [era for era, row in shipped().items() if name in row.schedules]
    ready = "leave schedule at auto" if "1f1b" in have.schedules else ""
    if not have.schedules:
        ready = "set pipeline to 1"
    elif not ready:
        ready = f"set schedule to {' or '.join(have.schedules)}"
    others = f"name software that does ({', '.join(eras)})" if eras and len(eras) < 4 else ""
    where = _data()["elsewhere"].get(name, "")
    others = others or (f"use {where}" if where else "name software that does" if eras else "")
    return f"{ready}, or {others}" if others else ready


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = read_data("training", "schedules.yaml")
    return data
