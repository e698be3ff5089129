"""The only way out: a result that knows its inputs, its assumptions and its expected error."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from railwright.collectives.prediction import CollectivePrediction
from railwright.cost.priced import Priced
from railwright.fabric.counts import Counts
from railwright.fabric.graph import Fabric
from railwright.reliability.result import Goodput
from railwright.serving.result import ServingResult
from railwright.site.plan import SitePlan
from railwright.spec import override
from railwright.spec.study import Study
from railwright.training.lanes.critical import CriticalPath
from railwright.training.lanes.result import StepResult
from railwright.training.memory.cached import Reserved


@dataclass(frozen=True)
class Curve:
    """One collective over sizes on one variant: predictions in ascending size."""

    op: str
    label: str
    points: tuple[CollectivePrediction, ...]


@dataclass(frozen=True)
class JobResult:
    """One job on one variant: its step, or why it cannot run.

    critical   of the recommended variant, the chain of tasks that sets the step's length, operator by
               operator also where the timeline has whole passes; None elsewhere
    worth      of the first job there, by which share its step is shorter without 'compute', 'launches' and
               'communication'
    reserved   of the study as written and the recommended variant, what PyTorch's allocator holds; None
               elsewhere, and without PyTorch
    """

    name: str
    step: StepResult | None
    infeasible: str = ""
    critical: CriticalPath | None = None
    reserved: Reserved | None = None
    worth: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class VariantResult:
    """One variant of the study (the study as written is the first one).

    fabric    None when the fabric itself is impossible; then `infeasible` says why
    """

    name: str
    why: str
    fabric: Fabric | None
    counts: Counts | None
    curves: tuple[Curve, ...]
    jobs: tuple[JobResult, ...]
    infeasible: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SensitivityRow:
    """What one changed assumption does to the first job.

    step_time    with the change [s]; None when it cannot run (then `note` says why)
    effect       throughput against the study as written, of a what-if against the recommended variant, e.g.
                 -0.03
    pxn_gain     throughput of rails with PXN over rails without, under this assumption; None if not defined
    changes      (kind of share, change of its exposed time [s]); they add up to the change of the step
    """

    name: str
    why: str
    step_time: float | None
    effect: float | None
    pxn_gain: float | None
    note: str = ""
    changes: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class PublishedEffect:
    """A published effect beside what this study predicts for it, in the same unit.

    under   (assumption, prediction) for each assumption that could move it, changed alone
    """

    name: str
    published: str
    predicted: str
    why: str
    source: str
    under: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Assumption:
    """A constant or choice the answer rests on, with its source."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, eq=False)
class Rooms:
    """The rooms beside training; None, or empty, where the study has no such section."""

    serving: tuple[ServingResult, ...] = ()
    goodput: Goodput | None = None
    site: SitePlan | None = None
    money: Priced | None = None


@dataclass(frozen=True)
class Result:
    """Everything `railwright run` knows at the end.

    answer     three sentences
    recommended  the place among `variants` of the one that the answer recommends and speaks of
    bottleneck   what holds the first job back there (`study.bottleneck.What`), '' without a job
    what_ifs   the first job there with one thing changed that no study has to write down (`training.whatif`)
    rooms      serving, failures, site and money, where the study has these sections
    spec_hash  SHA-256 of the study's canonical JSON
    """

    study: Study
    version: str
    spec_hash: str
    models_used: tuple[str, ...]
    answer: tuple[str, ...]
    variants: tuple[VariantResult, ...]
    sensitivity: tuple[SensitivityRow, ...]
    published: tuple[PublishedEffect, ...]
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]
    seconds: float
    what_ifs: tuple[SensitivityRow, ...] = ()
    recommended: int = 0
    bottleneck: str = ""
    rooms: Rooms = field(default_factory=Rooms)

    @cached_property
    def design(self) -> Study:
        """The study with the changes of the recommended variant: rooms, assumptions and what the report
        audits are of it."""
        chosen = self.recommended
        return override(self.study, self.study.variants[chosen - 1].set) if chosen else self.study
