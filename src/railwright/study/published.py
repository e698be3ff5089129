"""Published effects of rails and PXN beside what this study predicts for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from railwright.errors import PlanError
from railwright.spec import override
from railwright.spec.study import Study
from railwright.spec.training import Overlap, TrainingJob
from railwright.study.bottleneck import exposed_between
from railwright.study.evaluate import Workshop, architecture, curve
from railwright.study.result import PublishedEffect
from railwright.study.sensitivity import first_job, pxn_gain
from railwright.study.words import percent, share
from railwright.traffic.placement import can_relay
from railwright.training.layout.placement import place
from railwright.training.layout.sizes import domain_of, job_gpus

KIB, MIB = 1024.0, 1024.0**2
SMALL = (1 * KIB, 16 * KIB, 256 * KIB)
LARGE = (256 * MIB, 1024 * MIB)
OVERLAPS = tuple(name for name, field in Overlap.model_fields.items() if field.annotation is bool)
"""Everything that a job may hide communication behind, by its field of `overlap`."""

NOT_PREDICTED = "not predicted"
"""Of a fabric that cannot be built, or a collective with more messages than can be solved one by one."""

Values = tuple[float, ...]


@dataclass(frozen=True)
class Assumed:
    """An assumption changed alone: fields of the study (a set per case), or what aggregated messages keep."""

    name: str
    changes: tuple[dict[str, Any], ...] = ({},)
    sub_message_share: float | None = None


ASSUMED = (
    Assumed(
        "ECMP routing, 4 seeds",
        tuple({"cluster.compute.routing": "ecmp", "cluster.compute.seed": seed} for seed in range(4)),
    ),
    Assumed("static routing", ({"cluster.compute.routing": "static"},)),
    Assumed("2:1 oversubscription", ({"cluster.compute.oversubscription": 2.0},)),
    Assumed("aggregated messages keep 20 % of a post", sub_message_share=0.2),
    Assumed("aggregated messages keep 70 % of a post", sub_message_share=0.7),
)
"""What could move the published effects: routing, a thinner spine layer, and the least certain constant
(the range of collectives/data/nccl.yaml)."""


@dataclass(frozen=True)
class Predictor:
    """How one published effect is predicted, and how its values are said.

    applies  whether a study holds what the effect is about
    """

    applies: Callable[[Study, Workshop], bool]
    values: Callable[[Study, Workshop], Values]
    say: Callable[[float], str]

    def predict(self, studies: Sequence[Study], workshop: Workshop) -> str:
        """The range of all values over the studies; '' where the effect is not defined, or NOT_PREDICTED."""
        try:
            found = [value for study in studies for value in self.values(study, workshop)]
        except PlanError:
            return NOT_PREDICTED
        if not found:
            return ""
        return " … ".join(dict.fromkeys(self.say(v) for v in (min(found), max(found))))


def published_effects(study: Study, workshop: Workshop) -> tuple[PublishedEffect, ...]:
    """The effects that are about what this study holds, on rails as all of them were published; none that
    cannot be predicted as the study is written."""
    if study.cluster.compute.family != "rail-optimised":
        return ()
    text = resources.files("railwright.measure").joinpath("data/effects.json").read_text(encoding="utf-8")
    found = []
    for record in json.loads(text):
        predictor = PREDICTORS[record["id"]]
        predicted = predictor.predict([study], workshop) if predictor.applies(study, workshop) else ""
        if predicted not in ("", NOT_PREDICTED):
            under = tuple(
                (
                    assumed.name,
                    predictor.predict(
                        [override(study, changes) for changes in assumed.changes],
                        workshop.assuming(assumed.sub_message_share),
                    ),
                )
                for assumed in ASSUMED
            )
            why, source = record["mechanism"], record["source"]
            found.append(
                PublishedEffect(record["effect"], record["published"], predicted, why, source, under)
            )
    return tuple(found)


def _exchanges_over_rails(study: Study, workshop: Workshop) -> bool:
    """Whether the study holds an all-to-all that PXN can send another way: a sweep of it, or that of experts,
    unless other kernels than NCCL's send what these exchange."""
    if not can_relay(workshop.machine(study).network.fabric):
        return False
    swept = any(sweep.op == "all_to_all" for sweep in study.sweeps)
    by_nccl = [job for job in study.jobs if job.layout.expert > 1 and job.expert_nodes is None]
    return swept or any(_experts_apart(job, study, workshop) for job in by_nccl)


def _trains_mixtral(study: Study, workshop: Workshop) -> bool:
    """Whether the first job is the published one, its experts' tokens over rails."""
    first = next(iter(study.jobs), None)
    return (
        first is not None
        and architecture(first.model) == architecture("mixtral-8x7b")
        and _experts_apart(first, study, workshop)
        and can_relay(workshop.machine(study).network.fabric)
    )


def _trains_over_the_network(study: Study, workshop: Workshop) -> bool:
    """Whether the first job trains a language model on several servers."""
    return bool(study.jobs) and _several(study.jobs[0], study, workshop)


def _several(job: TrainingJob, study: Study, workshop: Workshop) -> bool:
    """Whether a job lies on several servers."""
    fabric = workshop.machine(study).network.fabric
    return job_gpus(job, fabric) > domain_of(job, fabric)


def _experts_apart(job: TrainingJob, study: Study, workshop: Workshop) -> bool:
    """Whether a group of a job's experts lies on several servers; a job that cannot run has none."""
    try:
        return place(job, workshop.machine(study).network.fabric).servers("ep") > 1
    except PlanError:
        return False


def _all_to_all_gain(sizes: Values) -> Callable[[Study, Workshop], Values]:
    """Values of the all-to-all bandwidth with PXN over without, minus 1, at some total sizes."""

    def gain(study: Study, workshop: Workshop) -> Values:
        on, off = (
            curve(workshop.machine(override(study, {"nccl.pxn": pxn})), "all_to_all", sizes, "").points
            for pxn in (True, False)
        )
        # One GPU alone moves nothing, so there is nothing to gain.
        return tuple(a.busbw / b.busbw - 1 for a, b in zip(on, off, strict=True) if b.busbw)

    return gain


def _training_gain(study: Study, workshop: Workshop) -> Values:
    """Throughput of the first job with PXN over without, minus 1."""
    gain = pxn_gain(study, workshop)
    return () if gain is None else (gain,)


def _network_share(study: Study, workshop: Workshop) -> Values:
    """Share of the first job's step in communication between servers with every overlap off."""
    off = override(study, {f"jobs.0.overlap.{kind}": False for kind in OVERLAPS})
    step = first_job(off, workshop).step
    if step is None:
        return ()
    return (exposed_between(workshop.machine(off).network.fabric, step) / step.step_time,)


PREDICTORS = {
    "pxn-small": Predictor(_exchanges_over_rails, _all_to_all_gain(SMALL), percent),
    "pxn-large": Predictor(_exchanges_over_rails, _all_to_all_gain(LARGE), percent),
    "pxn-mixtral": Predictor(_trains_mixtral, _training_gain, lambda gain: percent(gain, 1)),
    "network-share": Predictor(_trains_over_the_network, _network_share, share),
}
"""Record of measure/data/effects.json -> its predictor."""
