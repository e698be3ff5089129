"""What a reader of a goodput should know of where its figures come from, and what would make them better."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.reliability.checkpointing import PUBLISHED
from railwright.reliability.constants import constant
from railwright.reliability.parts import age_factor
from railwright.reliability.replay import Spares
from railwright.reliability.result import CheckpointTimes
from railwright.spec.reliability import Reliability
from railwright.spec.study import Study
from railwright.training.demand.whole_runs import over_benchmarks
from railwright.units import DAY, show_rate


@dataclass(frozen=True)
class Kept:
    """Spare servers.

    servers  that there are
    enough   that 99 % of the time ask for
    wanted   nodes that 99 and 99.9 % of the time ask for, and how they were counted
    beyond   that the study's cluster has beyond its job's
    """

    servers: int
    enough: int
    wanted: tuple[Spares, ...]
    beyond: int


def notes(
    study: Study, gpu: str, saved: CheckpointTimes, kept: Kept, networked: bool = True
) -> tuple[str, ...]:
    """Sentences: of steps, of the rates, of checkpoints, of spares."""
    asked = study.reliability or Reliability()
    missing = "The study has no reliability section: every figure is a published default."
    return (
        *((missing,) if study.reliability is None else ()),
        f"{over_benchmarks()}, which no date here counts.",
        *_of_rates(asked, gpu),
        *_of_storage(study, asked, saved, flaps=networked),
        *_of_spares(asked, kept),
    )


def _of_rates(asked: Reliability, gpu: str) -> list[str]:
    found = []
    if asked.rates == "pooled" and asked.interruptions is None:
        found.append(
            "Rates are pooled over published fleets; each of Meta's two predicted from the others is off by "
            "a third (docs/reliability/goodput.md). Your own count is better: reliability.interruptions."
        )
    if not gpu.startswith(("h100", "h800", "h200")):
        found.append(
            f"No public fleet of {gpu} gives its failures by cause: the rates are those of H100 and kin."
        )
    if asked.age is not None:
        found.append(
            f"At {asked.age / DAY:.0f} days in service rates are {age_factor(asked.age):.2f} times those of "
            "the published fleets; published growth disagrees (exponent 0.55 to 1.14)."
        )
    return found


def _of_storage(study: Study, asked: Reliability, saved: CheckpointTimes, flaps: bool) -> list[str]:
    """Of what checkpoints are written to, and of link flaps between."""
    own, storage, published = asked.checkpoint, study.cluster.storage, constant("written_bandwidth")
    found = []
    if storage is not None and not storage.hosts and own.bandwidth is None:
        found.append("The storage network has no hosts: storage itself is taken to keep up with all servers.")
    if saved.limit == PUBLISHED:
        found.append(
            f"The study has no storage network: checkpoints are written at {show_rate(published.value)}, of "
            f"the {show_rate(published.low)} to {show_rate(published.high)} of published jobs. Your own is "
            "better: cluster.storage with its hosts, or reliability.checkpoint.bandwidth."
        )
    if saved.lag and own.interval is None and saved.interval <= saved.lag * (1 + 1e-9):
        found.append(
            "Checkpoints follow each other without a pause: storage, not the cost, sets the interval."
        )
    if flaps and asked.flaps is None:
        found.append(
            "Link flaps count only where they ended a job; give reliability.flaps for the stalls too."
        )
    if saved.bandwidth > published.high and own.bandwidth is None:
        found.append(
            "Checkpoints are written as fast as the storage network carries; published jobs write at 50 to "
            "200 GB/s."
        )
    return found


def _of_spares(asked: Reliability, kept: Kept) -> list[str]:
    counted, found = kept.wanted[0], []
    if kept.servers < kept.enough:
        found.append(
            f"Spare servers: {kept.servers}, fewer than the {kept.enough} that 99 % of the time ask for."
        )
    elif asked.spares is None and not kept.beyond:
        found.append(
            f"Spare servers: {kept.servers}, assumed beside the study's cluster, which has none to spare."
        )
    elif asked.spares is None and kept.servers < kept.beyond:
        found.append(
            f"Spare servers: {kept.servers} of the {kept.beyond} that the cluster has beyond the job, for "
            "99 % of the time; the others are free for other work, unless reliability.spares keeps them."
        )
    found.append(
        f"Spare nodes: independent failures would ask for {counted.independent} at 99 %, the replayed trace "
        f"for {counted.replayed}, and a cluster that fails together like the trace's own for "
        f"{counted.scaled}."
    )
    return found
