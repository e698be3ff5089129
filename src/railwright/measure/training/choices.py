"""How published layouts of one job compare: what one gains over another, predicted and measured.

A search claims the difference of two steps of one model on one machine, whose errors are partly the same.
Records of one job in several layouts say how far off such differences are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from math import inf
from statistics import geometric_mean
from typing import NamedTuple

from railwright.errors import PlanError
from railwright.measure.bands import weighted
from railwright.measure.machines import Unsupported
from railwright.measure.table import Row
from railwright.measure.training.bands import GROWTH
from railwright.measure.training.jobs import job_of
from railwright.measure.training.unseen_runs import runs
from railwright.spec.training import TrainingJob

Records = Mapping[str, Mapping[str, str]]

OF_LAYOUT = ("layout", "overlap", "micro_batch")
"""What a search changes of a job."""

OF_RUN = ("family", "software", "kind", "notes")
"""What records of one job share beside it; bigscience's machine was in two states, which its notes tell."""

APART = (0.0, 0.03, 0.1, 0.2, 0.5, inf)
"""Gains between which pairs are counted together."""


class Pair(NamedTuple):
    """Two layouts of one job: by how much more steps the one that is predicted to be faster makes in the same
    time, less 1; measured, it may make fewer."""

    family: str
    predicted: float
    measured: float

    @property
    def off(self) -> float:
        return abs(self.predicted - self.measured)


class Step(NamedTuple):
    """What a published step took, and is predicted to. [s]"""

    family: str
    job: str
    layout: str
    predicted: float
    measured: float


def steps(rows: Sequence[Row], records: Records) -> Iterator[Step]:
    """Steps of records and of other people's runs, with what says which of them are one job."""
    found = {row.record: row for row in rows if row.family.startswith(("training ", "runs "))}
    for name, record in records.items():
        if name in found:
            try:
                job = job_of(record)
            except (Unsupported, PlanError):
                continue
            told = [record[key] for key in OF_RUN if key != "notes" or _changes(record)]
            yield _step(record["family"], told, job, found[name])
    for run in runs():
        if run.job.name in found:
            yield _step(run.group, [run.group, run.machine.gpu.name], run.job, found[run.job.name])


def _changes(record: Mapping[str, str]) -> bool:
    """Whether notes tell in which state the machine was."""
    return record["family"].startswith("bigscience")


def _step(family: str, told: Sequence[str], job: TrainingJob, row: Row) -> Step:
    fields = job.model_dump(exclude={*OF_LAYOUT, "name"})
    layout = [getattr(job, name) for name in OF_LAYOUT]
    return Step(family, repr((told, sorted(fields.items()))), repr(layout), row.predicted, row.measured)


def pairs(found: Sequence[Step]) -> tuple[list[Pair], Counter[str]]:
    """Every two layouts of one job that are not predicted alike, repeated steps in their means, and how many
    layouts a family has."""
    jobs: dict[tuple[str, str], dict[str, list[Step]]] = defaultdict(lambda: defaultdict(list))
    for step in found:
        jobs[step.family, step.job][step.layout].append(step)
    made: list[Pair] = []
    layouts: Counter[str] = Counter()
    for (family, _), tried in jobs.items():
        times = [
            (geometric_mean(s.predicted for s in same), geometric_mean(s.measured for s in same))
            for same in tried.values()
        ]
        if len(times) > 1:
            layouts[family] += len(times)
        for one, other in combinations(times, 2):
            (fast, first), (slow, second) = sorted((one, other))
            if fast < slow:
                made.append(Pair(family, slow / fast - 1, second / first - 1))
    return made, layouts


def choices(rows: Sequence[Row], records: Records) -> str:
    """The pairs by how far apart they are predicted, as YAML: training/data/choices.yaml."""
    made, layouts = pairs(list(steps(rows, records)))
    lines = [
        "# Written by tools/readme.py from `railwright validate training`; do not edit.",
        "# Pairs of published layouts of one job (same model, GPUs, batch, number format, software), by how",
        "# many more steps the one makes that is predicted to be faster: `from` to the next one's.",
        "# right  share that was measured in that order",
        "# half, most  points by which 50 and 80 % of measured gains are off the predicted ones, at most",
        f"# {len(made):,} pairs of {len(layouts)} families; one of n layouts weighs n**{GROWTH:g}, shared",
        "# out over its pairs.",
        "gains:",
    ]
    for low, high in pairwise(APART):
        some = [pair for pair in made if low <= pair.predicted < high]
        weights = _weights(some, made, layouts)
        right = sum(w for w, p in zip(weights, some, strict=True) if p.measured > 0) / sum(weights)
        half, most = (weighted([p.off for p in some], weights, share) for share in (0.5, 0.8))
        lines.append(
            f"- {{from: {low:g}, pairs: {len(some)}, families: {len({p.family for p in some})}, "
            f"right: {right:.2f}, half: {half:.3f}, most: {most:.3f}}}"
        )
    return "\n".join(lines) + "\n"


def _weights(some: Sequence[Pair], made: Sequence[Pair], layouts: Mapping[str, int]) -> list[float]:
    """Of each pair: its family's, which grows with its layouts as in the bands, shared out over all its
    pairs."""
    counts = Counter(pair.family for pair in made)
    return [layouts[pair.family] ** GROWTH / counts[pair.family] for pair in some]
