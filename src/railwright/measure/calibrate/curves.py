"""Measured curves as what a fit needs: their points by family, beside the terms of their prediction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from railwright.collectives import CollectivePrediction, Machine, sweep
from railwright.collectives.family import Family, family_of
from railwright.collectives.group import Group, group_of
from railwright.collectives.predict import OPS
from railwright.collectives.profile import family_name
from railwright.errors import PlanError
from railwright.measure.compare.findings import BOUND, SMALL
from railwright.measure.compare.place import other_gpus, place
from railwright.measure.compare.suspects import bounds
from railwright.measure.fitting.fit import Part
from railwright.measure.logs.curve import MeasuredCurve, one_half
from railwright.traffic.demand import Communicator
from railwright.units import show_rate, show_size, show_time

UNTRUE = ("made up", "different rank counts", "failed the check", "size over time is")
"""Notes of a log's reader after which its numbers are no measurement."""


@dataclass(frozen=True)
class Sorted:
    """Every usable point, by family.

    parts    family -> one Part per curve
    shipped  family -> its constants without a profile
    refused  curves that were not used, in sentences
    notes    what was assumed of the others
    """

    parts: dict[str, list[Part]]
    shipped: dict[str, Family]
    refused: tuple[str, ...]
    notes: tuple[str, ...]


def sort_points(curves: Iterable[MeasuredCurve], machine: Machine) -> Sorted:
    """The points of all curves by the family that prices them; curves that cannot be believed are refused."""
    nominal = replace(machine, profile=None)
    parts: dict[str, list[Part]] = {}
    shipped: dict[str, Family] = {}
    refused: list[str] = []
    notes: list[str] = []
    for curve in one_half(curves):
        try:
            groups, told = _placed(curve, nominal)
            predictions = _believed(curve, nominal, groups)
        except PlanError as no:
            refused.append(str(no))
            continue
        notes += told
        group = group_of(nominal, groups[0])
        for algorithm in dict.fromkeys(p.algorithm for p in predictions):
            name, family = family_name(group, algorithm), family_of(group, algorithm)
            shipped.setdefault(name, family)
            parts.setdefault(name, []).append(_part(curve, group, predictions, algorithm, family))
    return Sorted(parts, shipped, tuple(dict.fromkeys(refused)), tuple(dict.fromkeys(notes)))


def _placed(curve: MeasuredCurve, machine: Machine) -> tuple[tuple[Communicator, ...], tuple[str, ...]]:
    where = f"{curve.file}:{curve.line}"
    if curve.op not in OPS:
        raise PlanError(f"{where}: '{curve.op}' is not predicted, so it calibrates nothing; measure one of "
                        f"{', '.join(OPS)}.")  # fmt: skip
    groups, notes = place(curve, machine)
    if len(groups[0]) < 2:
        raise PlanError(f"{where}: {curve.op} ran on one rank, so that nothing was sent; measure on a whole "
                        "node at least, with the tests built with MPI=1.")  # fmt: skip
    if others := other_gpus(curve, machine.gpu):
        raise PlanError(f"{where}: {curve.op} is not used ({others}); name the server that ran in the study "
                        "(cluster.server).")  # fmt: skip
    for mark in UNTRUE:
        for note in curve.notes:
            if mark in note:
                raise PlanError(f"{where}: {curve.op} is not used ({note}); repair that and measure again.")
    return groups, notes


def _believed(
    curve: MeasuredCurve, machine: Machine, groups: tuple[Communicator, ...]
) -> tuple[CollectivePrediction, ...]:
    """The prediction at the measured sizes. Raises PlanError where the machine cannot have made it."""
    where = f"{curve.file}:{curve.line}: {curve.op} over {len(groups[0])} ranks is not used"
    predictions = sweep(machine, curve.op, [p.size for p in curve.points], groups)  # type: ignore[arg-type]
    least = bounds(machine, predictions[0].op, groups, predictions)
    for point, prediction, bound in zip(curve.points, predictions, least, strict=True):
        if point.size >= SMALL and point.time * BOUND < bound:
            busbw = prediction.busbw * prediction.time / point.time
            raise PlanError(
                f"{where}: {show_rate(busbw)} at {show_size(point.size)} is {bound / point.time:.2f} times "
                "what the study's wires carry under any algorithm; compare the log's devices and rank count, "
                "and ibstat's rates, with the study's cluster, then measure again."
            )
    across = any(g.num_servers(machine.network.fabric) > 1 for g in groups)
    quickest = min(curve.points, key=lambda p: p.time)
    if across and group_of(machine, groups[0]).nodes > 1 and quickest.time < 2 * machine.nic.latency:
        raise PlanError(
            f"{where}: {show_time(quickest.time)} at {show_size(quickest.size)} is less than one message "
            f"takes from NIC to NIC ({show_time(2 * machine.nic.latency)}); read the rank count and the time "
            "unit of the log, then measure again."
        )
    return predictions


def _part(
    curve: MeasuredCurve,
    group: Group,
    predictions: tuple[CollectivePrediction, ...],
    algorithm: str,
    family: Family,
) -> Part:
    chosen = [(p, q) for p, q in zip(curve.points, predictions, strict=True) if q.algorithm == algorithm]
    terms: list[Mapping[str, float]] = [{t.name: t.seconds for t in q.terms} for _, q in chosen]
    messages = np.array([t.get("messages", 0.0) for t in terms])
    wire = np.array([t["bandwidth"] for t in terms])
    return Part(
        log=curve.file,
        line=curve.line,
        op=curve.op,
        ranks=group.ranks,
        nodes=group.nodes,
        size=np.array([p.size for p, _ in chosen]),
        measured=np.array([p.time for p, _ in chosen]),
        steps=np.array([t["steps"] for t in terms]),
        filling=np.array([q.filling for _, q in chosen]),
        hidden=np.array([q.hidden for _, q in chosen]),
        posting=np.where(messages > 0, messages + wire, 0.0),
        bandwidth=wire,
        family=family,
    )
