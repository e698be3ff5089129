"""Jobs of a study that take the same GPUs, or meet on uplinks: each is predicted alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from railwright.collectives import Machine
from railwright.errors import RailwrightError
from railwright.fabric.graph import Fabric, Kind, Role, server_name
from railwright.serving.simulator.cluster import places
from railwright.spec.study import ComputeNetwork, Study
from railwright.study.evaluate import Workshop
from railwright.training.layout.placement import place
from railwright.training.recommendation.dlrm import gpus_of
from railwright.units import listed

Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]

MOST = 4
"""Runs of neighbouring servers that a sentence names, and sets of jobs."""


def together(study: Study, machine: Machine) -> tuple[str, ...]:
    """A sentence that jobs on the same GPUs are each predicted alone, and one that jobs on GPUs of their own
    are predicted without each other's traffic; neither where nothing is shared."""
    if len(study.jobs) + len(study.recommendations) + len(study.serving) < 2:
        return ()
    fabric = machine.network.fabric
    every = np.arange(fabric.num_gpus)
    taken = list(_taken(study, machine))
    shared = _shared([np.isin(every, gpus) for _, gpus in taken], fabric)
    beside = _uplinks(taken, study.cluster.compute, fabric)
    if not shared:
        return beside
    parts = [
        f"{listed([taken[n][0] for n in jobs])} share {_named(servers)}" for jobs, servers in shared[:MOST]
    ]
    if len(shared) > MOST:
        parts.append(f"{len(shared) - MOST} more sets of jobs share others")
    return (
        f"each job is predicted alone, on the GPUs it takes, as if the others did not run: "
        f"{'; '.join(parts)}. Jobs that are to run at one time want GPUs of their own (servers, gpus).",
        *beside,
    )


def on_variants(studies: Sequence[Study], names: Sequence[str], workshop: Workshop) -> tuple[str, ...]:
    """What `together` says of the study as written and of its variants, each sentence once, behind the names
    of those that it is said of where it is not said of all."""
    found: dict[str, list[str]] = {}
    built = 0
    for study, name in zip(studies, names, strict=True):
        with suppress(RailwrightError):  # a fabric that cannot be built is told in its result
            machine = workshop.machine(study)
            built += 1
            for text in together(study, machine):
                found.setdefault(text, []).append(f"'{name}'")
    return tuple(text if len(on) == built else f"with {listed(on)}, {text}" for text, on in found.items())


def _uplinks(taken: list[tuple[str, Ints]], compute: ComputeNetwork, fabric: Fabric) -> tuple[str, ...]:
    """One sentence that jobs on GPUs of their own meet on uplinks that hashing or oversubscription fills."""
    scarce = [f"routing {compute.routing!r}"] if compute.routing != "adaptive" else []
    tiers = (("oversubscription", compute.oversubscription, _leaves), ("core_oversubscription",
             compute.core_oversubscription, _pods))  # fmt: skip
    if not len(fabric.devices(Kind.SPINE)):
        return ()
    wide = [(name, gpus) for name, gpus in taken if len(np.unique(fabric.group[gpus])) > 1]
    meeting: dict[str, None] = {}
    for field, ratio, below in tiers:
        if ratio <= 1 and compute.routing == "adaptive":
            continue
        used = [below(gpus, fabric) for _, gpus in wide]
        found = [
            name
            for (name, gpus), mine in zip(wide, used, strict=True)
            if any(
                np.isin(mine, theirs).any() and not np.isin(gpus, others).any()
                for (_, others), theirs in zip(wide, used, strict=True)
            )
        ]
        meeting.update(dict.fromkeys(found))
        scarce += [f"{field} {ratio:g}"] if found and ratio > 1 else []
    apart = [name for name, _ in wide if name in meeting]
    if not apart:
        return ()
    more = f" and {len(apart) - MOST} more" if len(apart) > MOST else ""
    names = ", ".join(apart[:MOST]) + more if more else listed(apart)
    return (
        f"{names} are predicted without each other's traffic, though they share uplinks, of which "
        f"each gets less under {' and '.join(scarce)}; `railwright queue` says how much less to rings that "
        "all send at once.",
    )


def _leaves(gpus: Ints, fabric: Fabric) -> Ints:
    """Leaves whose uplinks a job climbs that is under several groups of them."""
    own = (fabric.role == Role.NODE_LEAF) & np.isin(fabric.a, fabric.nic_of_gpu[gpus])
    return np.unique(fabric.b[own])


def _pods(gpus: Ints, fabric: Fabric) -> Ints:
    """Pods from whose spines a job climbs to the cores; none where it lies in one."""
    above = (fabric.role == Role.LEAF_SPINE) & np.isin(fabric.a, _leaves(gpus, fabric))
    pods = np.unique(fabric.group[fabric.b[above]])
    return pods if len(pods) > 1 and len(fabric.devices(Kind.CORE)) else pods[:0]


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


def _shared(taken: list[Bools], fabric: Fabric) -> list[tuple[tuple[int, ...], list[int]]]:
    """Jobs, by their numbers, that take the same GPUs, with the servers on which just these do.

    taken  which GPUs each job takes

    Of a server the largest sets count: where three jobs meet, two of them do too.
    """
    several = np.sum(taken, axis=0) > 1
    each = [fabric.server[: fabric.num_gpus], *taken]
    on: dict[int, list[tuple[int, ...]]] = {}
    for server, *takes in np.unique(np.stack(each)[:, several], axis=1).T.tolist():
        on.setdefault(server, []).append(tuple(n for n, mine in enumerate(takes) if mine))
    found: dict[tuple[int, ...], list[int]] = {}
    for server, sets in on.items():
        for jobs in sets:
            if not any(set(jobs) < set(others) for others in sets):
                found.setdefault(jobs, []).append(server)
    return list(found.items())


def _named(servers: list[int]) -> str:
    """'server-01 to server-04, server-09', named as in the drawing; the first few runs of many."""
    runs = np.split(np.array(servers), np.flatnonzero(np.diff(servers) > 1) + 1)
    words = [server_name(run[0]) + (f" to {server_name(run[-1])}" if len(run) > 1 else "") for run in runs]
    more = f" and {len(words) - MOST} more" if len(words) > MOST else ""
    return ", ".join(words[:MOST]) + more
