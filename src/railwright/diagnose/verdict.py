"""From evidence to a diagnosis: infer, then say of each suspect why, what it takes with it and what next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from railwright.diagnose.blast import blast_of
from railwright.diagnose.constants import expected_faults
from railwright.diagnose.elements import SHOWN, Elements
from railwright.diagnose.evidence import Evidence
from railwright.diagnose.inference.classes import Problem, problem
from railwright.diagnose.inference.infer import VARIANTS, Found, infer
from railwright.diagnose.inference.next_test import next_tests, settles
from railwright.diagnose.paths import Routing
from railwright.diagnose.result import Diagnosis, Suspect
from railwright.fabric.graph import Fabric, Kind, Role

Ints = NDArray[np.int64]

SHOW = 0.02
"""Least probability of a suspect that is shown."""
MANY = 5
"""Pieces of evidence told of each suspect."""
WAYS = ("both", "out", "in")


def diagnose(
    elements: Elements, evidence: Evidence, routing: Routing | None = None, most: int = 6
) -> Diagnosis:
    """Rank what can explain the evidence.

    routing  how paths of new tests run; None: none are proposed
    most     faults at once
    """
    posed = problem(evidence, elements.weights(), elements.slows(), expected_faults())
    found = infer(posed, most)
    order = np.argsort(-found.probability, kind="stable")
    shown = [int(k) for k in order if found.probability[k] >= SHOW]
    suspects = tuple(_suspect(elements, evidence, posed, found, k) for k in shown)
    tests = next_tests(elements, posed, found, shown, routing) if routing is not None else ()
    untested: dict[str, int] = {}
    for e in np.flatnonzero(posed.class_of < 0).tolist():
        untested[elements.kind[e]] = untested.get(elements.kind[e], 0) + 1
    return Diagnosis(
        suspects, found.none, found.expected, _unclear(suspects, posed, routing),
        {kind: untested[kind] for kind in SHOWN if kind in untested}, tests, evidence.notes,
    )  # fmt: skip


def _suspect(elements: Elements, evidence: Evidence, posed: Problem, found: Found, k: int) -> Suspect:
    members = posed.members(k)
    left = float(found.left[k])
    # Members of one class differ at most in what they were before the evidence, and in what slows.
    shares = posed.prior[members] * (posed.slows[members] if left < 1 else 1 - posed.slows[members])
    shares = shares / shares.sum()
    order = np.lexsort((members, -shares))
    whole = float(found.probability[k])
    readings = tuple(
        (elements.name[int(members[i])], elements.kind[int(members[i])], float(whole * shares[i]))
        for i in order
    )
    first = int(members[order[0]])
    told, against, measured = _why(evidence, posed, found, k)
    gpus, words = blast_of(elements, first)
    return Suspect(
        readings[0][0], readings[0][1], whole, readings[:12], len(readings), left if measured else None,
        WAYS[int(found.variant[k])], told, against, gpus, words,
        settles(tuple(kind for _, kind, _ in readings), readings[0][0]),
    )  # fmt: skip


def _why(evidence: Evidence, posed: Problem, found: Found, k: int) -> tuple[tuple[str, ...], int, bool]:
    """(what speaks for a class, sound tests through it, whether any test went through it)."""
    told = [evidence.events[int(v)].text for v in posed.event_of[posed.event_class == k].tolist()]
    rates = posed.rates
    rows = np.unique(posed.row[posed.klass == k])
    if rates is None or not len(rows):
        return tuple(told[:MANY]), 0, False
    ways = VARIANTS[int(found.variant[k])]
    mine = (posed.klass == k) & np.isin(posed.way, ways)
    rows = np.unique(posed.row[mine])
    slow = rows[rates.y[rows] < -2.5 * rates.sigma[rows]]
    slow = slow[np.argsort(rates.y[slow], kind="stable")]
    if len(slow):
        told.append(f"{len(slow)} of {len(rows)} measurements through it are slow")
    told += [f"{rates.labels[int(i)]} ({np.exp(rates.y[i]):.0%})" for i in slow[: max(0, MANY - len(told))]]
    return tuple(told[: MANY + 1]), len(rows) - len(slow), bool(len(slow))


def _unclear(suspects: tuple[Suspect, ...], posed: Problem, routing: Routing | None) -> tuple[str, ...]:
    out = []
    for suspect in suspects:
        if len(suspect.alternatives) > 1:
            others = ", ".join(f"{name} ({p:.0%})" for name, _, p in suspect.alternatives[1:5])
            more = len(suspect.alternatives) - 5
            tail = f" and {more} more" if more > 0 else ""
            out.append(f"{suspect.element} is not told from {others}{tail}: all evidence meets them alike")
    hashed = posed.rates is not None and bool((posed.weight < 1).any())
    if hashed and routing is not None:
        how = "hashed" if routing.name == "ecmp" else "spread over all paths"
        out.append(
            f"transfers are {how}, so pair tests reach as far as the leaf: which cable or spine above it is "
            "at fault, only port counters, static tables or tests with fixed source ports can tell"
        )
    return tuple(out)


def marked(elements: Elements, result: Diagnosis) -> Fabric | None:
    """The fabric with every fault of the diagnosis drawn as a slow or failed element; None without one."""
    fabric = elements.fabric
    if fabric is None:
        return None
    capacity = fabric.capacity.copy()
    for suspect in result.faults:
        left = 0.5 if suspect.left is None or suspect.left > 0.99 else suspect.left
        best = suspect.alternatives[0][2]
        for name in (name for name, _, p in suspect.alternatives if p > 0.8 * best):
            cables = _cables(elements, fabric, name)
            for links in (2 * cables, 2 * cables + 1):
                capacity[links] = np.minimum(
                    capacity[links], (left if left > 0.02 else 0.0) * fabric.rate[cables]
                )
    return replace(fabric, capacity=capacity)


def _cables(elements: Elements, fabric: Fabric, name: str) -> Ints:
    """Cables that an element is, or has."""
    element = elements.find(name)
    if element is None:
        return np.zeros(0, np.int64)
    devices = np.flatnonzero(elements.of_device == element)
    if elements.kind[element] == "gpu":
        devices = fabric.nic_of_gpu[devices].astype(np.int64)
    servers = np.flatnonzero(elements.of_server == element)
    if len(servers):
        devices = np.flatnonzero(np.isin(fabric.server, servers) & (fabric.kind == Kind.NIC))
    touched = np.isin(fabric.a, devices) | np.isin(fabric.b, devices)
    own = np.flatnonzero(elements.of_cable == element)
    return np.union1d(np.flatnonzero(touched & (fabric.role >= Role.NODE_LEAF)), own).astype(np.int64)
