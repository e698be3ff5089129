"""Published effects of rails and PXN beside what this study predicts for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from railwright.errors import PlanError
from railwright.model.architecture import Transformer
from railwright.spec import override
from railwright.spec.study import Study
from railwright.study.evaluate import Workshop, architecture, curve
from railwright.study.result import PublishedEffect
from railwright.study.sensitivity import first_job, pxn_gain
from railwright.study.words import percent, share

KIB, MIB = 1024.0, 1024.0**2
SMALL = (1 * KIB, 16 * KIB, 256 * KIB)
LARGE = (256 * MIB, 1024 * MIB)


@dataclass(frozen=True)
class Assumed:
    """An assumption changed alone: fields of the study, or the cost that aggregated messages keep."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    sub_message_share: float | None = None


ASSUMED = (
    Assumed("ECMP routing", {"cluster.compute.routing": "ecmp"}),
    Assumed("static routing", {"cluster.compute.routing": "static"}),
    Assumed("2:1 oversubscription", {"cluster.compute.oversubscription": 2.0}),
    Assumed("aggregated messages keep 20 % of a post", sub_message_share=0.2),
    Assumed("aggregated messages keep 70 % of a post", sub_message_share=0.7),
)
"""What could move the published effects: routing, a thinner spine layer, and the least certain constant
(the range of collectives/data/nccl.yaml)."""


def published_effects(study: Study, workshop: Workshop) -> tuple[PublishedEffect, ...]:
    """The effects whose setting this study shares: rails and PXN, a MoE model for the training ones."""
    if study.cluster.compute.family != "rail-optimised":
        return ()
    text = resources.files("railwright.measure").joinpath("data/effects.json").read_text(encoding="utf-8")
    found = []
    for record in json.loads(text):
        predict = PREDICTORS[record["id"]]
        predicted = predict(study, workshop)
        if predicted is not None:
            under = []
            for assumed in ASSUMED:
                other = workshop.assuming(assumed.sub_message_share)
                under.append((assumed.name, predict(override(study, assumed.changes), other) or "impossible"))
            found.append(
                PublishedEffect(
                    record["effect"],
                    record["published"],
                    predicted,
                    record["mechanism"],
                    record["source"],
                    tuple(under),
                )
            )
    return tuple(found)


def _all_to_all_gain(sizes: tuple[float, ...]) -> Callable[[Study, Workshop], str | None]:
    """Predictor of the all-to-all bandwidth with PXN over without, at some total sizes."""

    def gain(study: Study, workshop: Workshop) -> str | None:
        try:
            on, off = (
                curve(workshop.machine(override(study, {"nccl.pxn": pxn})), "all_to_all", sizes, "").points
                for pxn in (True, False)
            )
        except PlanError:
            return None
        gains = [a.busbw / b.busbw - 1 for a, b in zip(on, off, strict=True)]
        shown = list(dict.fromkeys(percent(g) for g in (min(gains), max(gains))))
        return " … ".join(shown)

    return gain


def _training_gain(study: Study, workshop: Workshop) -> str | None:
    """Throughput of the first job (a MoE) with PXN over without."""
    if _moe(study) is None:
        return None
    gain = pxn_gain(study, workshop)
    return None if gain is None else percent(gain, 1)


def _network_share(study: Study, workshop: Workshop) -> str | None:
    """Share of the step in communication with every overlap off, and the part of it on the fabric."""
    if not study.jobs:
        return None
    off = {f"jobs.0.overlap.{kind}": False for kind in ("dp", "tp", "ep", "pp")}
    step = first_job(override(study, off), workshop).step
    if step is None:
        return None
    scale_out = sum(s.exposed for s in step.shares if s.kind in ("ep", "pp", "dp")) / step.step_time
    return f"{share(step.network_share)} (fabric {share(scale_out)})"


def _moe(study: Study) -> Transformer | None:
    """The first job's model when it is a mixture of experts."""
    arch = architecture(study.jobs[0].model) if study.jobs else None
    return arch if arch is not None and arch.is_moe else None


PREDICTORS: dict[str, Callable[[Study, Workshop], str | None]] = {
    "pxn-small": _all_to_all_gain(SMALL),
    "pxn-large": _all_to_all_gain(LARGE),
    "pxn-mixtral": _training_gain,
    "network-share": _network_share,
}
