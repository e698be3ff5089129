"""Published effects of rails and PXN beside what this study predicts for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources

from railwright.errors import PlanError
from railwright.model.architecture import Transformer
from railwright.spec import override
from railwright.spec.study import Study
from railwright.study.evaluate import Workshop, architecture, curve
from railwright.study.result import PublishedEffect
from railwright.study.sensitivity import first_job, pxn_gain

KIB, MIB = 1024.0, 1024.0**2
SMALL = (1 * KIB, 16 * KIB, 256 * KIB)
LARGE = (256 * MIB, 1024 * MIB)


def published_effects(study: Study, workshop: Workshop) -> tuple[PublishedEffect, ...]:
    """The effects whose setting this study shares: rails and PXN, a MoE model for the training ones."""
    if study.cluster.compute.family != "rail-optimised":
        return ()
    text = resources.files("railwright.measure").joinpath("data/effects.json").read_text(encoding="utf-8")
    found = []
    for record in json.loads(text):
        predict = PREDICTORS.get(record["id"])
        if predict is None:
            continue
        predicted = predict(study, workshop)
        if predicted is not None:
            why = record["mechanism"]
            found.append(
                PublishedEffect(record["effect"], record["published"], predicted, why, record["source"])
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
        return (
            f"{min(gains):+.0%} … {max(gains):+.0%}"
            if max(gains) - min(gains) > 0.005
            else f"{gains[0]:+.0%}"
        )

    return gain


def _training_gain(study: Study, workshop: Workshop) -> str | None:
    """Throughput of the first job (a MoE) with PXN over without."""
    if _moe(study) is None:
        return None
    gain = pxn_gain(study, workshop)
    return None if gain is None else f"{gain:+.1%}"


def _network_share(study: Study, workshop: Workshop) -> str | None:
    """Share of the step in communication with every overlap off."""
    if not study.jobs:
        return None
    off = {f"jobs.0.overlap.{kind}": False for kind in ("dp", "tp", "ep", "pp")}
    step = first_job(override(study, off), workshop).step
    if step is None:
        return None
    scale_out = sum(s.exposed for s in step.shares if s.kind in ("ep", "pp", "dp")) / step.step_time
    return f"{step.network_share:.0%} (of it {scale_out:.0%} over the fabric)"


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
