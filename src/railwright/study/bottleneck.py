"""What holds a job back: the one thing without which its step would be shortest.

A step in which communication runs beside compute is as long as the longer of both, whatever the shares of
its instants say.  So shares do not decide; whole simulations do in which one thing takes no time
(`training.whatif.changes.FREE`), and the answer, the critical path and the rows of what-ifs agree by
construction: what a thing is worth is the row's step beside the predicted one, and, but for what
communication slows beside it and for its own launches, never more than its part of the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from railwright.fabric.graph import Fabric, Role
from railwright.study.result import SensitivityRow, VariantResult
from railwright.study.words import share
from railwright.training.lanes.result import ADAM, COMMUNICATION, StepResult
from railwright.training.whatif.changes import (
    FREE_BETWEEN,
    FREE_COMMUNICATION,
    FREE_LAUNCHES,
    FREE_WORK,
    INFINITE_COMPUTE,
)
from railwright.units import listed, show_time

What = Literal["data", "adam", "copy", "network", "servers", "communication", "host", "compute"]

SLOWS = 0.15
"""What would take more than this share off the step is said to slow the job, or to be its bottleneck where a
GPU waits beside it."""
SHOWN = 0.005
"""A part of the step that rounds to 0 % is not told."""
KIND_NAMES = {
    "tp": "tensor-parallel collectives",
    "cp": "context-parallel exchange",
    "ep": "expert all-to-all",
    "emb": "exchange of embeddings",
    "pp": "pipeline sends",
    "dp": "gradient and parameter exchange",
}
WAITS = {
    "host": "waiting for launches",
    "bubble": "the pipeline bubble",
    "copy": "copies to and from host memory",
    "adam": "CPU Adam (the optimizer on the host)",
    "data": "waiting for data",
}
"""What a step spends on neither compute nor communication."""
VERDICTS: dict[What, str] = {
    "data": "Loading data is your bottleneck",
    "adam": "The optimizer on the host is your bottleneck, not the network",
    "copy": "Copies to and from host memory are your bottleneck, not the network",
    "network": "The network is your bottleneck",
    "servers": "Communication inside your servers is the bottleneck, rather than the network between them",
    "communication": "Communication is your bottleneck, the network and the links inside your servers "
    "together",
    "host": "The host is your bottleneck, not the network, since it launches kernels more slowly than the "
    "GPU runs them",
}


@dataclass(frozen=True)
class Savings:
    """By which share a step is shorter with one thing free, 0..1.

    communication, between  all of it; that of collectives which leave a server, as their busiest links do
    work           kernels and the host's launches, which hide each other
    compute, launches  each of these alone
    data, adam, copy   waiting for data, the optimizer on the host, copies that nothing hides: their shares
    """

    communication: float = 0.0
    between: float = 0.0
    work: float = 0.0
    compute: float = 0.0
    launches: float = 0.0
    data: float = 0.0
    adam: float = 0.0
    copy: float = 0.0

    @property
    def inside(self) -> float:
        """What communication inside servers adds to that between them."""
        return self.communication - self.between


def savings(step: StepResult, rows: Iterable[SensitivityRow], fabric: Fabric | None = None) -> Savings:
    """What a step would be shorter by, from its what-ifs; a job without a row has nothing to free there.

    fabric  that the step was predicted on; None counts all that leaves a server as the network's

    A collective that leaves a server may wait for links inside it: rings of GPUs that meet over PCIe, or of
    racks whose NICs together outrun NVLink.  A faster network is worth nothing there.
    """
    saved = {r.name: 1 - r.step_time / step.step_time for r in rows if r.step_time is not None}
    waited = {s.kind: s.exposed / step.step_time for s in step.shares}
    data, adam, copy = (waited.get(kind, 0.0) for kind in ("data", ADAM, "copy"))
    # One GPU that waits for nothing has no row of what would leave nothing of its step.
    alone = 1 - data - adam - copy
    compute = saved.get(INFINITE_COMPUTE, alone)
    return Savings(
        communication=saved.get(FREE_COMMUNICATION, 0.0),
        between=saved.get(FREE_BETWEEN, 0.0) * (_network_bound(fabric, step) if fabric else 1.0),
        # Several without a row of both launch nothing.
        work=saved.get(FREE_WORK, compute if FREE_COMMUNICATION in saved else alone),
        compute=compute,
        launches=saved.get(FREE_LAUNCHES, 0.0),
        data=data,
        adam=adam,
        copy=copy,
    )


def what_holds(saved: Savings) -> What:
    """The bottleneck: what is worth most when it is free."""
    rest: list[tuple[float, What]] = [(saved.data, "data"), (saved.adam, "adam"), (saved.copy, "copy")]
    most, which = max(rest, key=lambda one: one[0])
    if most > max(saved.communication, saved.work):
        return which
    other = max(most, saved.work)
    if saved.communication > other:
        if saved.between > max(other, saved.inside):
            return "network"
        return "servers" if saved.inside > other else "communication"
    # Launches and kernels that run beside each other are worth little alone; then the GPU's work is told.
    return "host" if saved.launches > max(saved.compute, SLOWS) else "compute"


def bottleneck(variant: VariantResult, rows: Sequence[SensitivityRow], whose: str = "") -> str:
    """Whether the network is the bottleneck of a variant's first job, and where.

    rows   what-ifs of that job on that variant; those of FREE count
    whose  name of the variant, where the study has several
    """
    step = variant.jobs[0].step if variant.jobs else None
    if step is None:
        return ""
    saved = savings(step, rows, variant.fabric)
    verdict = _verdict(saved)
    of = [f"With '{whose}'"] if whose else []
    if len(variant.jobs) > 1:
        of.append(f"{'in' if of else 'In'} job '{variant.jobs[0].name}'")
    if of:
        verdict = f"{', '.join(of)}, {verdict[0].lower()}{verdict[1:]}"
    return f"{verdict}: {_worth(saved)}; {_spent(variant, step, what_holds(saved))}.{_others(variant)}"


def _verdict(saved: Savings) -> str:
    what = what_holds(saved)
    if what != "compute":
        return VERDICTS[what]
    if saved.between > SLOWS:
        return "The network slows you, but is not your main bottleneck"
    return "The network is not your bottleneck"


def _worth(saved: Savings) -> str:
    """'free communication would take 19 % off the step (13 % between servers), free compute … 64 %'."""
    between = f" ({share(saved.between)} between servers)" if saved.between >= SHOWN else ""
    told = [(saved.communication, "free communication", between)]
    if what_holds(saved) == "host":
        told += [(saved.launches, "free kernel launches", ""), (saved.compute, "infinite compute", "")]
        if saved.communication > saved.launches:
            # Only together are kernels and launches, which hide each other, worth more than communication.
            told.append((saved.work, "free compute and launches", ""))
    elif saved.work == saved.compute:
        told.append((saved.work, "infinite compute", ""))
    else:
        told.append((saved.work, "free compute and launches", ""))
    told = sorted((one for one in told if one[0] >= SHOWN), key=lambda one: -one[0])
    if not told:
        return "neither communication nor compute alone would shorten the step"
    (most, first, more), *rest = told
    parts = [f"{first} would take {share(most)} off the step{more}"]
    parts += [f"{name} {share(worth)}{more}" for worth, name, more in rest]
    return listed(parts)


def _spent(variant: VariantResult, step: StepResult, what: What) -> str:
    """'compute is 76 % of the step and exposed communication 21 % (…), led by expert all-to-all (…)'.

    what  the verdict, whose part of the step is told where it is a wait
    """
    exposed = {s.kind: s.exposed for s in step.shares if s.kind in COMMUNICATION and s.exposed > 0}
    between = exposed_between(variant.fabric, step)
    inside = sum(exposed.values()) - between
    compute = step.exposed("compute")
    # A wait that is longer than all communication is what the reader looks for instead.
    waits = "".join(
        f", {WAITS[s.kind]} {share(s.exposed / step.step_time)}"
        for s in sorted(step.shares, key=lambda s: -s.exposed)
        if s.kind in WAITS and s.exposed > (0.0 if s.kind in ("data", what) else between + inside)
    )
    sentence = (
        f"compute is {share(compute / step.step_time)} of the step{waits} and "
        f"exposed communication {share(step.exposed_share)}"
    )
    if not exposed:
        return sentence
    places = ((between, "between servers"), (inside, "inside"))
    told = [f"{share(s / step.step_time)} {place}" for s, place in places if s > SHOWN * step.step_time]
    sentence += f" ({', '.join(told)})" if len(told) > 1 else ""
    worst = max(exposed, key=lambda kind: exposed[kind])
    sentence += f", led by {KIND_NAMES[worst]} ({show_time(exposed[worst])} of {show_time(step.step_time)})"
    used = [c for c in step.collectives if c.kind == worst]
    if used:
        heaviest = max(used, key=lambda c: c.count * c.prediction.time)
        if heaviest.prediction.bottleneck is not None:
            sentence += f", whose busiest link is {heaviest.prediction.bottleneck.name}"
    return sentence


def _others(variant: VariantResult) -> str:
    """What of the other jobs' steps is exposed communication, where it is much; they have no what-ifs."""
    much = [
        f"{share(job.step.exposed_share)} of the step of job '{job.name}'"
        for job in variant.jobs[1:]
        if job.step is not None and job.step.exposed_share > SLOWS
    ]
    if not much:
        return ""
    return (
        f" Exposed communication is {listed(much)}; what-ifs are of the first job, so ask what a faster "
        "network would do in a study of that job."
    )


def exposed_between(fabric: Fabric | None, step: StepResult) -> float:
    """Exposed communication whose busiest link is a cable between servers, or the PCIe lane to a NIC on its
    way there; the rest is inside them. [s]

    fabric  that the step was predicted on; None counts all as inside
    """
    return sum(
        _between_servers(fabric, step, s.kind) * s.exposed
        for s in step.shares
        if s.kind in COMMUNICATION and s.exposed > 0
    )


def _network_bound(fabric: Fabric, step: StepResult) -> float:
    """Part of the exposed time of collectives that leave a server whose busiest link is on the way out; 1
    where none is exposed."""
    leaving = 0.0
    for s in step.shares:
        used = [(c.crosses, c.count * c.prediction.time) for c in step.collectives if c.kind == s.kind]
        if s.kind in COMMUNICATION and (total := sum(seconds for _, seconds in used)):
            leaving += s.exposed * sum(seconds for crosses, seconds in used if crosses) / total
    return exposed_between(fabric, step) / leaving if leaving else 1.0


def _between_servers(fabric: Fabric | None, step: StepResult, kind: str) -> float:
    """Part of one kind of communication, by time, whose busiest link does not join GPUs of one server."""
    seconds = {True: 0.0, False: 0.0}
    for used in step.collectives:
        limit = used.prediction.bottleneck
        if used.kind == kind and limit is not None and fabric is not None:
            role = Role(int(fabric.role[limit.link // 2]))
            seconds[role is not Role.SCALE_UP] += used.count * used.prediction.time
    return seconds[True] / total if (total := sum(seconds.values())) else 0.0
