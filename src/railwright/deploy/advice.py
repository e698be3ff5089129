"""How people should share these machines: the least machinery that keeps them apart as they ask."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.errors import PlanError
from railwright.spec.sharing import Scheduler, Sharing

ORDER: tuple[Scheduler, ...] = ("masks", "queue", "slurm-node", "slurm", "kubernetes")
"""From the least to set up to the most."""

NAMES: dict[Scheduler, str] = {
    "masks": "CUDA_VISIBLE_DEVICES per person",
    "queue": "a queue on the one machine (task-spooler)",
    "slurm-node": "Slurm on the one machine",
    "slurm": "a Slurm cluster",
    "kubernetes": "Kubernetes with Kueue",
}


@dataclass(frozen=True)
class Advice:
    """What to share the machines with.

    scheduler  what the bundle is written for
    why        one sentence
    against    (way not taken, its reason), from the least to set up to the most
    grow       when to move on, one sentence; '' where there is nothing beyond
    asked      whether the study named the scheduler itself
    """

    scheduler: Scheduler
    why: str
    against: tuple[tuple[Scheduler, str], ...]
    grow: str
    asked: bool


def advise(sharing: Sharing, hosts: int, gpus: int) -> Advice:
    """The first way, in order of effort, that nothing speaks against.

    hosts  operating systems in the cluster
    gpus   GPUs of one host
    Raises PlanError where the study asks for a way that cannot work here, with the reason.
    """
    reasons = {way: _against(way, sharing, hosts, gpus) for way in ORDER}
    fit = [way for way in ORDER if not reasons[way]]
    asked = sharing.scheduler
    if asked != "auto":
        if reasons[asked]:
            raise PlanError(
                f"sharing.scheduler: {NAMES[asked]} does not do here: {reasons[asked]}; "
                f"take {' or '.join(fit)}, or leave it out"
            )
        chosen = asked
    else:
        chosen = fit[0]
    against = tuple(
        (way, reasons[way] or "it would do, with more to set up and keep") for way in ORDER if way != chosen
    )
    return Advice(chosen, _why(chosen, sharing, hosts, gpus), against, _grow(chosen), asked != "auto")


def _against(way: Scheduler, sharing: Sharing, hosts: int, gpus: int) -> str:
    """Why a way cannot work; '' where it can."""
    if way in ("masks", "queue", "slurm-node") and hosts > 1:
        return f"it knows one machine, and there are {hosts}"
    if way == "masks" and sharing.users > gpus:
        return f"{sharing.users} people cannot have a GPU of {gpus} each, and nobody waits in line"
    if way in ("masks", "queue") and sharing.isolation != "none":
        return "it is an agreement: any process can still open every GPU"
    if way in ("slurm-node", "slurm") and sharing.isolation == "tenants":
        return (
            "its jobs share one kernel and one set of accounts: parties that do not trust each other do not"
        )
    if way == "slurm" and hosts == 1:
        return "there is one machine"
    if way != "kubernetes" and sharing.services and (hosts > 1 or way == "queue"):
        return "its jobs end: services that must run on, restart and move need something that keeps them up"
    if way == "kubernetes" and hosts == 1 and not sharing.services and sharing.isolation != "tenants":
        return "one machine without services does not need it"
    return ""


def _why(way: Scheduler, sharing: Sharing, hosts: int, gpus: int) -> str:
    people = f"{sharing.users} {'person' if sharing.users == 1 else 'people'}"
    machines = f"{hosts} hosts of {gpus} GPUs" if hosts > 1 else f"one host of {gpus} GPUs"
    because = {
        "masks": "everybody can have GPUs of their own, and they agree among themselves",
        "queue": "there are more people than GPUs, so jobs must wait in line, but need no walls between them",
        "slurm-node": "jobs must be kept apart, and one scheduler on the machine does that with cgroups",
        "slurm": "jobs span hosts and queue for them; the fabric's tree decides who sits together",
        "kubernetes": "tenants are kept apart, or services run beside jobs; Kueue follows the fabric's tree",
    }[way]
    return f"{people} on {machines}: {because}."


def _grow(way: Scheduler) -> str:
    return {
        "masks": "Move to a queue when somebody waits for another's GPUs while they idle.",
        "queue": "Move to Slurm on this machine when a job takes memory or GPUs from another.",
        "slurm-node": "Move to a Slurm cluster with the second machine: the files stay, nodes are added.",
        "slurm": "Move services and tenants to Kubernetes when they come; training can stay.",
        "kubernetes": "",
    }[way]
