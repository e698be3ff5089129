"""Failed network elements through the network engine: the true slowdown of a training step, and spare spines.

An element that is out does not always stop a job: spines, cores and trunk cables leave it slower until they
are mended.  How much slower is not assumed here: the step is simulated again on the fabric with the fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.fabric import apply_faults, lost_servers
from railwright.fabric.graph import Fabric, Role
from railwright.model.shape.architecture import Transformer
from railwright.reliability.result import Component, NetworkFault, NetworkFaults, SpareSwitch
from railwright.spec.study import Fault
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.layout.placement import taken
from railwright.training.layout.sizes import job_gpus
from railwright.units import HOUR, YEAR

Tell = Callable[[str], None]
SAME = 1e-3
"""Slowdowns up to this are none: collectives are not priced more finely."""


@dataclass(frozen=True)
class Step:
    """A predicted step [s], and the range that 80 % of measured over predicted ones are expected in."""

    time: float
    low: float
    high: float


_STEPS: WeakKeyDictionary[Machine, dict[str, Step]] = WeakKeyDictionary()


def step_of(job: TrainingJob, arch: Transformer, machine: Machine, faults: Sequence[str] = ()) -> Step:
    """The job's step with some elements dead, by their names; remembered per machine.

    Raises PlanError where a GPU of the job cannot join any more.
    """
    known = _STEPS.setdefault(machine, {})
    key = job.model_dump_json() + "|" + ",".join(sorted(faults))
    if key not in known:
        network = machine.network
        if faults:
            dead = [Fault(element=name) for name in faults]
            gone = np.setdiff1d(lost_servers(network.fabric, dead), _servers(job, network.fabric))
            network = replace(network, fabric=apply_faults(network.fabric, dead, gone.tolist()))
        step = simulate(job, arch, replace(machine, network=network), most_events=0)
        known[key] = Step(step.step_time, step.error_low, step.error_high)
    return known[key]


def step_time(job: TrainingJob, arch: Transformer, machine: Machine, faults: Sequence[str] = ()) -> float:
    """How long `step_of` is. [s]"""
    return step_of(job, arch, machine, faults).time


@dataclass(frozen=True)
class Mending:
    """How long an element is out, and what else can be done about it.

    repair  mean time until it is mended [s]
    swap    what a planned swap of one server costs the job [s]
    kept    spare servers
    """

    repair: float
    swap: float
    kept: int


def network_faults(
    job: TrainingJob,
    arch: Transformer,
    machine: Machine,
    parts: Mapping[str, Component],
    spares: int,
    times: Mending,
    tell: Tell = lambda what: None,
) -> NetworkFaults:
    """The step under a dead NIC, leaf, trunk cable, core and dead spines; what spare spines are worth.

    parts   components by name, for their numbers and rates
    spares  spines of a pod and plane beyond the need, as the study says
    times   of mending and swapping

    One element of each kind stands for all: the first that the job touches.  Kinds that can only be milder
    than one that costs nothing are not simulated.
    """
    fabric = machine.network.fabric
    tell("step on the sound fabric")
    healthy = step_time(job, arch, machine)
    above = _spines_above(fabric, job)
    live: dict[int, float] = {}
    rows: list[NetworkFault] = []

    def slowed(names: Sequence[str]) -> float:
        return max(step_time(job, arch, machine, names) / healthy, 1.0)

    if len(above) > spares + 1:
        names = [fabric.device_name(s) for s in above]
        tell(f"step with {spares + 1} dead spines")
        live[len(above)] = 1.0
        live[len(above) - spares - 1] = worst = slowed(names[: spares + 1])
        for dead in range(1, spares + 1):
            tell(f"step with {dead} dead spines")
            live[len(above) - dead] = slowed(names[:dead]) if worst > 1 + SAME else 1.0
    for what, element in _first_of_each(fabric, job):
        milder = what in ("spine", "trunk") and bool(live) and max(live.values()) <= 1 + SAME
        tell(f"step with a dead {what}")
        rows.append(
            _row(what, element, parts[what], times, slowed, milder, _lost(fabric, job, element))
        )  # fmt: skip
    full = len(above) if _tapers(fabric) else len(above) - spares
    gpus = job_gpus(job, fabric)
    worth = _worth(len(above), spares, full, live, parts["spine"], times.repair, gpus) if live else ()
    if worth:
        own = next(w for w in worth if w.spares == spares)
        rows = [replace(r, expected=own.loss) if r.what == "spine" else r for r in rows]
    return NetworkFaults(
        healthy, tuple(rows), tuple(sorted(live.items(), reverse=True)), worth,
        1 - float(np.prod([1 - r.expected for r in rows])), _words(rows, worth, spares),
    )  # fmt: skip


def _servers(job: TrainingJob, fabric: Fabric) -> NDArray[np.int32]:
    return np.unique(fabric.server[taken(job, fabric)])


def _spines_above(fabric: Fabric, job: TrainingJob) -> list[int]:
    """The live spines above the job's first leaf: those of one pod and plane."""
    leaf = _first(fabric, Role.NODE_LEAF, int(fabric.nic_of_gpu[taken(job, fabric)[0]]))
    up = _alive(fabric) & (fabric.role == Role.LEAF_SPINE) & (fabric.a == leaf)
    return [int(spine) for spine in np.unique(fabric.b[up])]


def _tapers(fabric: Fabric) -> bool:
    """Whether the tier above the spines carries less than the one below: then every spine's links count."""
    carried = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2])
    top = carried[fabric.role == Role.SPINE_CORE].sum()
    return bool(0 < top < 0.999 * carried[fabric.role == Role.LEAF_SPINE].sum())


def _first_of_each(fabric: Fabric, job: TrainingJob) -> list[tuple[str, str]]:
    """(component, element's name) of the first NIC, leaf, trunk cable, spine and core above the job."""
    nic = int(fabric.nic_of_gpu[taken(job, fabric)[0]])
    leaf = _first(fabric, Role.NODE_LEAF, nic)
    found = [("nic", fabric.device_name(nic)), ("leaf", fabric.device_name(leaf))]
    homes = np.flatnonzero(_alive(fabric) & (fabric.role == Role.NODE_LEAF) & (fabric.a == nic))
    if len(homes) > 1:
        # With one cable, losing it is losing the NIC.
        found.insert(1, ("link", f"{fabric.device_name(leaf)} port {fabric.port_b[homes[0]]}"))
    spine = _first(fabric, Role.LEAF_SPINE, leaf)
    if spine >= 0:
        cable = int(np.flatnonzero(_alive(fabric) & (fabric.role == Role.LEAF_SPINE) & (fabric.a == leaf))[0])
        found.append(("trunk", f"{fabric.device_name(spine)} port {fabric.port_b[cable]}"))
        found.append(("spine", fabric.device_name(spine)))
        core = _first(fabric, Role.SPINE_CORE, spine)
        if core >= 0:
            found.append(("core", fabric.device_name(core)))
    return found


def _alive(fabric: Fabric) -> NDArray[np.bool_]:
    return np.minimum(fabric.capacity[0::2], fabric.capacity[1::2]) > 0


def _first(fabric: Fabric, role: Role, lower: int) -> int:
    """The first device above `lower`, or -1."""
    cables = np.flatnonzero(_alive(fabric) & (fabric.role == role) & (fabric.a == lower) & ~fabric.backplane)
    return int(fabric.b[cables[0]]) if len(cables) else -1


def _lost(fabric: Fabric, job: TrainingJob, element: str) -> int:
    return len(np.intersect1d(lost_servers(fabric, [Fault(element=element)]), _servers(job, fabric)))


def _row(
    what: str, element: str, part: Component, times: Mending,
    slowed: Callable[[Sequence[str]], float], milder: bool, lost: int,
) -> NetworkFault:  # fmt: skip
    events = part.rate * part.units / YEAR
    # Share of the time in which at least one of them is out.
    out = 1 - math.exp(-events * times.repair)
    if lost:
        servers = f"{lost} server{'s' if lost > 1 else ''} of the job"
        if lost > times.kept:
            why = f"takes {servers} away, more than there are spares: it stands still until mended"
            return NetworkFault(what, element, None, lost, out, why)
        why = f"takes {servers} away: it restarts on spares"
        return NetworkFault(what, element, None, lost, 0.0, why)
    try:
        slowdown = 1.0 if milder else slowed([element])
    except PlanError as no:
        return NetworkFault(what, element, None, 0, 0.0, str(no))
    expected = out * (1 - 1 / slowdown)
    if what == "nic":
        expected = 0.0
        why = "its server is swapped for a spare; the slowdown is that of carrying on with it"
    elif milder:
        why = "milder than dead spines, which cost nothing"
    elif slowdown <= 1 + SAME:
        why = "the others have room for its traffic"
    elif what == "link" and times.swap < times.repair * (1 - 1 / slowdown) and times.kept:
        expected = min(events * times.swap, 1.0)
        why = "its server is swapped for a spare, which costs less than carrying on"
    else:
        why = "the step waits for the traffic that moves to the others"
    return NetworkFault(what, element, slowdown, 0, expected, why)


def _worth(
    above: int, own: int, full: int, live: Mapping[int, float], part: Component, repair: float, gpus: int
) -> tuple[SpareSwitch, ...]:
    """What each number of spare spines saves, from none to two more than there are.

    full  spines that a job which is bound by their links needs for its best speed
    """
    out = min(part.rate * repair / YEAR, 1.0)
    pods = max(round(part.units / above), 1)
    needed = above - own
    fewest, worst = min(live.items())

    def step(alive: int) -> float:
        if alive in live:
            return live[alive]
        return 1.0 if alive > above else max(worst * fewest / max(alive, 1), 1.0) if alive < fewest else worst

    rows = []
    for spares in range(own + 3):
        total = needed + spares
        dead = np.arange(total)
        # The slowest pod holds the job: the most dead spines of any.
        most = np.diff(np.concatenate([[0.0], bdtr(dead, total, out) ** pods]))
        loss = float(sum(p * (1 - 1 / step(total - int(d))) for d, p in zip(dead, most, strict=True)))
        bound = float(
            sum(p * (1 - min((total - int(d)) / full, 1.0)) for d, p in zip(dead, most, strict=True))
        )
        rows.append(SpareSwitch(spares, total, loss, bound, loss * gpus * YEAR / HOUR))
    return tuple(rows)


def _words(rows: Sequence[NetworkFault], worth: Sequence[SpareSwitch], own: int) -> tuple[str, ...]:
    words = []
    for row in rows:
        if row.slowdown is not None and row.slowdown > 1 + SAME and row.what not in ("nic", "link"):
            words.append(f"A dead {row.what} makes the step {row.slowdown:.3f} x as long until it is mended.")
    harmless = [r.what for r in rows if r.slowdown is not None and r.slowdown <= 1 + SAME]
    if harmless:
        words.append(f"Costs this job nothing: a dead {', '.join(harmless)}.")
    if worth:
        here, other = worth[own], worth[0] if own else worth[1]
        words.append(
            f"{own or 'No'} spare spine{'' if own == 1 else 's'} ({here.spines} a pod): this step loses "
            f"{100 * here.loss:.3f} % of its time to dead spines; with {other.spines} a pod it would lose "
            f"{100 * other.loss:.3f} %, {abs(other.gpu_hours - here.gpu_hours):,.0f} GPU-hours a year apart. "
            f"A job bound by the spines' links would lose {100 * here.bound_loss:.3f} % and "
            f"{100 * other.bound_loss:.3f} %."
        )
    return tuple(words)
