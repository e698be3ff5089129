"""Predict a collective on a machine: NCCL's choice, its traffic solved on the fabric, its terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from railwright.collectives import p2p
from railwright.collectives.algorithm import Path
from railwright.collectives.choice import ALGORITHMS
from railwright.collectives.constants import nccl
from railwright.collectives.cost import Cost, Wires, collective, point_to_point, selected
from railwright.collectives.group import Group, shapes_of
from railwright.collectives.machine import Machine, is_multiple
from railwright.collectives.prediction import CollectivePrediction, Op
from railwright.collectives.rates import bus_factor
from railwright.collectives.sent import as_sent, hashed_as
from railwright.collectives.slots import busiest_slot
from railwright.errors import PlanError
from railwright.fabric.graph import Role
from railwright.network.routing.solution import Bottleneck, Network, Solution
from railwright.traffic.demand import Communicator, Traffic
from railwright.traffic.fingerprint import fingerprint
from railwright.traffic.groups import Groups

UNIT = float(2**30)
"""S at which traffic is solved; bandwidth scales linearly from there [byte]."""
MOST_MESSAGES = 20_000_000
"""Messages that are solved one by one: about 4,470 ranks in one group, half a minute and 3 GB."""
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")


Scope = Literal["all", "inside", "across"]
"""Groups that share links: all, or where some lie in one scale-up domain each and others do not, either."""


@dataclass
class Solved:
    """What was asked of one machine: group shapes by ranks, wires by (algorithm, op, ranks, scope)."""

    shapes: dict[bytes, tuple[Group, ...]]
    wires: dict[tuple[str, Op, bytes, Scope], tuple[Wires, Bottleneck | None]]


_SOLVED: WeakKeyDictionary[Machine, Solved] = WeakKeyDictionary()

Place = tuple[bytes, int | None, float]
"""Fingerprint of the traffic, queue pairs of a connection, latency of a NIC [s]."""
_WIRES: WeakKeyDictionary[Network, dict[Place, tuple[Wires, Bottleneck | None]]] = WeakKeyDictionary()


def predict(machine: Machine, op: Op, size: float, groups: Sequence[Communicator]) -> CollectivePrediction:
    """The time of `op` with S = size [byte] when all `groups` run it at once; of the slowest group.

    Raises PlanError for an op, size or communicator that makes no sense, for a forced algorithm that cannot
    run, and (from the network) where two ranks cannot reach each other.
    The first question about (op, algorithm, groups) solves the traffic; later ones only add up terms.
    """
    return sweep(machine, op, (size,), groups)[0]


def sweep(
    machine: Machine, op: Op, sizes: Sequence[float], groups: Sequence[Communicator]
) -> tuple[CollectivePrediction, ...]:
    """`predict` at several sizes, in the order given."""
    _check(op, sizes, groups)
    solved = _SOLVED.setdefault(machine, Solved({}, {}))
    key = b"|".join(np.asarray(g.gpus, np.int32).tobytes() for g in groups)
    shapes = solved.shapes.get(key)
    if shapes is None:
        _check_disjoint(groups)
        shapes = shapes_of(machine, groups)
        solved.shapes[key] = shapes
    return tuple(_one(machine, op, float(size), groups, shapes, key, solved) for size in sizes)


def _one(
    machine: Machine,
    op: Op,
    size: float,
    groups: Sequence[Communicator],
    shapes: tuple[Group, ...],
    key: bytes,
    solved: Solved,
) -> CollectivePrediction:
    costs: list[tuple[float, Cost, Group, Bottleneck | None]] = []
    mixed = len({group.nodes == 1 for group in shapes if group.ranks > 1}) > 1
    for group in shapes:
        if group.ranks == 1:
            continue
        algorithm, protocol = selected(op, size, group, machine.nccl)
        # Rings of a reduce-scatter send what those of an all-gather do.
        alike: Op = "all_gather" if (algorithm, op) == ("ring", "reduce_scatter") else op
        scope: Scope = "all" if not mixed else "inside" if group.nodes == 1 else "across"
        place = (algorithm, alike, key, scope)
        if place not in solved.wires:
            solved.wires[place] = _solve(machine, op, algorithm, _in_scope(machine, groups, scope))
        wires, bottleneck = solved.wires[place]
        if algorithm == "p2p":
            cost = point_to_point(op, size, group, machine.nccl, wires, machine.profile)
        else:
            cost = collective(op, size, group, algorithm, protocol, wires, machine.profile)
        costs.append((cost.time, cost, group, bottleneck))
    if not costs:
        return CollectivePrediction(
            op,
            size,
            1,
            len(groups),
            0.0,
            0.0,
            0.0,
            "none",
            "none",
            (),
            None,
            1.0,
            1.0,
            ("one rank: nothing to send",),
        )
    time, cost, group, bottleneck = max(costs, key=lambda c: c[0])
    algbw = size / time
    low, high = cost.family.band(size)
    rare_low, rare_high = cost.family.rare_band(size)
    return CollectivePrediction(
        op=op,
        size=size,
        ranks=group.ranks,
        groups=len(groups),
        time=time,
        algbw=algbw,
        busbw=algbw * bus_factor(op, group.ranks),
        algorithm=cost.algorithm,
        protocol=cost.protocol,
        terms=cost.terms,
        bottleneck=bottleneck,
        error_low=low,
        error_high=high,
        notes=_notes(cost, group, len(shapes)),
        rare_low=rare_low,
        rare_high=rare_high,
        filling=cost.filling,
        slot=cost.slot,
        hidden=cost.hidden,
    )


def _in_scope(machine: Machine, groups: Sequence[Communicator], scope: Scope) -> Sequence[Communicator]:
    """The groups of a scope: those inside a domain use its lanes alone and wait for no NIC of the others."""
    from railwright.traffic.placement import domain_of_gpu

    if scope == "all":
        return groups
    domain = domain_of_gpu(machine.network.fabric)
    return [g for g in groups if bool(np.all(domain[g.gpus] == domain[g.gpus[0]])) == (scope == "inside")]


def _solve(
    machine: Machine, op: Op, algorithm: str, groups: Sequence[Communicator]
) -> tuple[Wires, Bottleneck | None]:
    """Seconds per byte, path latencies and the bottleneck of all groups' traffic at once.

    Solved once per network and traffic: machines that differ in their GPUs or NCCL settings alone share it.
    """
    demands = _demands(machine, op, algorithm, groups).scaled(UNIT)
    if not len(demands):
        return Wires(0.0, 0.0), None
    place = (fingerprint(demands, groups), machine.nccl.qps_per_connection, machine.nic.latency)
    known = _WIRES.setdefault(machine.network, {})
    if place not in known:
        known[place] = _scaled(machine, place) or _solved(machine, demands, groups)
    return known[place]


def _scaled(machine: Machine, place: Place) -> tuple[Wires, Bottleneck | None] | None:
    """What was solved on a network of the same links at another rate; None where nothing was.

    Without bytes on scale-up links all rates are `factor` times as high, and all times as short.
    """
    if machine.alike is None or not is_multiple(machine.network, *machine.alike):
        return None
    network, factor = machine.alike
    found = _WIRES.get(network, {}).get(place)
    if found is None or found[0].scale_up:
        return None
    wires, bottleneck = found
    return replace(wires, network=wires.network / factor), bottleneck


def _solved(
    machine: Machine, demands: Traffic | Groups, groups: Sequence[Communicator]
) -> tuple[Wires, Bottleneck | None]:
    from railwright.network import solve

    fabric = machine.network.fabric
    solution = solve(hashed_as(machine.network, machine.nccl), demands, "last")
    across = solution.hops > 0
    reference = 2 * machine.nic.latency + sum(
        float(nccl()["one_switch_path"][part]) for part in ("switch", "cable")
    )
    beyond = np.maximum(0.0, solution.latency[across] - reference)
    path = Path(_slowest_mean(beyond, across, demands, solution, groups), float(beyond.max(initial=0.0)))
    lanes = np.repeat(fabric.role == Role.SCALE_UP, 2) & (fabric.capacity > 0)
    busiest = float(np.max(solution.load[lanes] / fabric.capacity[lanes], initial=0.0))
    network = solution.time if np.any(across) else 0.0
    slot = busiest_slot(fabric, demands)
    return Wires(network / UNIT, busiest / UNIT, path, slot / UNIT), solution.bottleneck


def _slowest_mean(
    beyond: NDArray[np.float64],
    across: NDArray[np.bool_],
    demands: Traffic | Groups,
    solution: Solution,
    groups: Sequence[Communicator],
) -> float:
    """The mean of what paths take beyond the reference, of the group where it is largest. [s]

    beyond  of the demands that are `across` the network [s]
    A group's steps wait for its own paths: those of another, shorter ones, make none of its steps shorter.
    """
    if not len(beyond):
        return 0.0
    if solution.members is not None or not isinstance(demands, Traffic):
        alike = np.ones(len(across)) if solution.members is None else solution.members
        return float(np.average(beyond, weights=alike[across]))
    gpus = np.concatenate([g.gpus for g in groups])
    group_of = np.zeros(int(gpus.max()) + 1, np.int64)
    group_of[gpus] = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    mine = group_of[demands.src[across]]
    number = np.bincount(mine)
    return float((np.bincount(mine, weights=beyond)[number > 0] / number[number > 0]).max())


def _demands(machine: Machine, op: Op, algorithm: str, groups: Sequence[Communicator]) -> Traffic | Groups:
    """All groups' traffic; an all-to-all over an adaptive fabric is described and never listed."""
    fabric = machine.network.fabric
    several = [g for g in groups if len(g) > 1]
    if op == "all_to_all":
        if machine.network.routing == "adaptive":
            each = [1.0 / len(g) for g in several]
            return Groups.all_to_all([g.gpus for g in several], each, machine.nccl.pxn)
        _check_messages(groups, machine.network.routing)
    build = p2p.traffic if algorithm == "p2p" else ALGORITHMS[algorithm].traffic
    sent = build(fabric, several, op, machine.nccl.pxn)
    return as_sent(fabric, sent, algorithm, machine.nccl, machine.network.routing)


def _notes(cost: Cost, group: Group, shapes: int) -> tuple[str, ...]:
    notes = [f"error band: {cost.family.basis}"]
    if group.generation == "cdna":
        notes.append("AMD: rings with NCCL's Ampere latencies; RCCL's own tuning is not modelled")
    if not group.scale_up and group.ranks > group.nodes:
        notes.append("no NVLink: traffic through CPU sockets is not modelled and can be ten times slower")
    if shapes > 1:
        notes.append(f"groups of {shapes} shapes; this is the slowest")
    return tuple(notes)


def _check(op: Op, sizes: Sequence[float], groups: Sequence[Communicator]) -> None:
    if op not in OPS:
        raise PlanError(f"'{op}' is not a collective; the known ones are {', '.join(OPS)}.")
    if not groups:
        raise PlanError(f"No communicator was given for {op}; give at least one group of ranks.")
    for size in sizes:
        if not (isfinite(size) and size > 0):
            raise PlanError(f"A collective of {size:g} bytes cannot be predicted; give a size above zero.")


def _check_messages(groups: Sequence[Communicator], routing: str) -> None:
    count = sum(len(g) * (len(g) - 1) for g in groups)
    if count > MOST_MESSAGES:
        raise PlanError(
            f"This all_to_all has {count:,} messages; under routing '{routing}' every one is solved, and at "
            f"most {MOST_MESSAGES:,} can be (about 4,470 ranks in one group): use routing 'adaptive', or "
            "smaller or fewer groups, such as the expert-parallel ones."
        )


def _check_disjoint(groups: Sequence[Communicator]) -> None:
    gpus = np.concatenate([g.gpus for g in groups])
    if len(np.unique(gpus)) != len(gpus) and len(groups) > 1:
        values, count = np.unique(gpus, return_counts=True)
        twice = int(values[np.argmax(count)])
        raise PlanError(
            f"GPU {twice} is in {int(count.max())} of the {len(groups)} groups that run at the same time; "
            "a GPU can run one of them: predict the others on their own."
        )
