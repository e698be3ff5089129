"""Jobs of a study that take the same GPUs: each is predicted alone, so they are not predicted at one time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from railwright.collectives import Machine
from railwright.errors import RailwrightError
from railwright.fabric.graph import Fabric, server_name
from railwright.serving.cluster import places
from railwright.spec.study import Study
from railwright.training.dlrm import gpus_of
from railwright.training.placement import place

Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]

MOST = 4
"""Runs of neighbouring servers that a sentence names."""


def together(study: Study, machine: Machine) -> tuple[str, ...]:
    """One sentence that jobs on the same GPUs are each predicted alone; none where no two share a GPU."""
    if len(study.jobs) + len(study.recommendations) + len(study.serving) < 2:
        return ()
    fabric = machine.network.fabric
    every = np.arange(fabric.num_gpus)
    shared = _shared([(name, np.isin(every, gpus)) for name, gpus in _taken(study, machine)])
    if not shared:
        return ()
    parts = [f"{_listed(names)} share {_servers(gpus, fabric)}" for names, gpus in shared]
    return (
        f"each job is predicted alone, on the GPUs it takes, as if the others did not run: "
        f"{'; '.join(parts)}. Jobs that are to run at one time want GPUs of their own (servers, gpus).",
    )


def _taken(study: Study, machine: Machine) -> Iterator[tuple[str, Ints]]:
    """Each job with its GPUs; one that cannot run takes none."""
    fabric = machine.network.fabric
    for job in study.jobs:
        with suppress(RailwrightError):
            yield job.name, np.unique(place(job, fabric).grid)
    for recommendation in study.recommendations:
        with suppress(RailwrightError):
            yield recommendation.name, np.arange(gpus_of(recommendation, fabric)[0])
    for serving in study.serving:
        with suppress(RailwrightError):
            prefill, others = places(serving, machine)
            yield serving.name, np.concatenate([*prefill, *others])


def _shared(taken: list[tuple[str, Bools]]) -> list[tuple[list[str], Bools]]:
    """Jobs that hang together by GPUs they share, with the GPUs that at least two of them take."""
    groups: list[tuple[list[int], Bools, Bools]] = []
    for number, (_, mine) in enumerate(taken):
        members, all_of, twice = [number], mine, np.zeros_like(mine)
        apart = []
        for group in groups:
            if (group[1] & mine).any():
                members, twice = [*group[0], *members], twice | group[2] | (group[1] & mine)
                all_of = group[1] | all_of
            else:
                apart.append(group)
        groups = [*apart, (sorted(members), all_of, twice)]
    groups.sort(key=lambda group: group[0])
    return [([taken[n][0] for n in members], twice) for members, _, twice in groups if len(members) > 1]


def _servers(gpus: Bools, fabric: Fabric) -> str:
    """'server-01 to server-04, server-09' that hold GPUs, named as in the drawing; the first few of many."""
    held = np.unique(fabric.server[: fabric.num_gpus][gpus])
    runs = np.split(held, np.flatnonzero(np.diff(held) > 1) + 1)
    words = [server_name(run[0]) + (f" to {server_name(run[-1])}" if len(run) > 1 else "") for run in runs]
    more = f" and {len(words) - MOST} more" if len(words) > MOST else ""
    return ", ".join(words[:MOST]) + more


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
