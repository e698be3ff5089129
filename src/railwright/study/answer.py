"""The answer in a few sentences: which fabric, is the network the bottleneck, do rails and PXN help; and are
promises to users kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railwright.fabric.graph import Fabric
from railwright.serving.result import ServingResult
from railwright.spec.study import ComputeNetwork, Study
from railwright.study.bottleneck import bottleneck
from railwright.study.choosing import CLOSE, Candidate, best, candidates, close, recommended
from railwright.study.result import Curve, SensitivityRow, VariantResult
from railwright.study.words import percent, share
from railwright.units import number, show_size, show_time

NAMED = 4
"""Variants that are named of those of which one thing is said; the rest are counted."""

DRAWN = ("family", "servers_per_group", "lengths")
"""Fields of a network that come with its family, so that they may differ where rails stand beside a tree."""

SLOWER = 4
"""What is said of slower variants; the nearest come first, and the rest are left to the table."""


def answer(
    studies: Sequence[Study],
    variants: Sequence[VariantResult],
    rows: Sequence[SensitivityRow],
    asked: Sequence[SensitivityRow],
    serving: Sequence[ServingResult] = (),
) -> tuple[str, ...]:
    """Up to three sentences, from the results alone, the first two of the recommended variant; and one for
    each of a few serving jobs, which come first where nothing trains.

    studies   the study as written, then one per variant, in the order of `variants`
    rows      the sensitivity, for what would change the verdict on PXN
    asked     what-ifs of the first job on the recommended variant, for what holds it back
    serving   serving jobs, on that variant
    """
    spoken_of = variants[recommended(studies, variants)]
    sentences = (
        _which_fabric(studies, variants),
        bottleneck(spoken_of, asked, spoken_of.name if len(variants) > 1 else ""),
        _rails_and_pxn(studies, variants, rows),
    )
    served = _served(serving)
    told = (*sentences, *served) if candidates(studies, variants) else (*served, *sentences)
    return tuple(s for s in told if s)


def _served(jobs: Sequence[ServingResult]) -> tuple[str, ...]:
    """Whether the promises to users of each are kept, in the words of its own answer."""
    if len(jobs) == 1:
        return jobs[0].words[:1]
    told = tuple(f"Serving {job.name}: {job.words[0]}" for job in jobs[:NAMED] if job.words)
    return (*told, f"{len(jobs) - NAMED} more serving jobs are below.") if len(jobs) > NAMED else told


def _which_fabric(studies: Sequence[Study], variants: Sequence[VariantResult]) -> str:
    """The design with the fewest parts among the fastest, and what the others would bring."""
    designs = candidates(studies, variants)
    if not designs:
        counts = variants[0].counts
        assert counts is not None
        return (
            f"The fabric as written takes {_parts((0, counts.switches, counts.cables))} "
            f"for {number(counts.gpus, 'GPU')}."
        )
    chosen = best(designs)
    verb = "Build" if len({d.parts for d in designs}) > 1 else "Choose" if len(designs) > 1 else "You have"
    step = chosen.step
    low, high = step.step_time * step.error_low, step.step_time * step.error_high
    sized = len({d.parts[0] for d in designs}) > 1
    sentence = (
        f"{verb} '{chosen.variant.name}': {_parts(chosen.parts, sized)}, {show_time(step.step_time)} a step"
        f"{_of_job(chosen.variant)} (80 % of measurements: {show_time(low)} to {show_time(high)}), "
        f"{step.tokens_per_second:,.0f} {step.unit}/s"
    )
    dearer = [d for d in close(designs) if d.parts != chosen.parts]
    if dearer:
        extra = max(d.parts for d in dearer)
        sentence += (
            f"; {_names(dearer)} {'is' if len(dearer) == 1 else 'are'} no faster for this job "
            f"(within {share(CLOSE)}) and take{'s' if len(dearer) == 1 else ''} up to {_parts(extra, sized)}"
        )
    sentence += "".join(f"; {told}" for told in _slower(designs, chosen))
    return f"{sentence}{_apart(chosen.variant.fabric)}."


def _apart(fabric: Fabric | None) -> str:
    """What a fabric whose rails no switch joins asks of what is sent between them."""
    if fabric is None or fabric.family != "rail-only" or len(np.unique(fabric.rail[fabric.nic_of_gpu])) == 1:
        return ""
    if fabric.scale_up == "pcie":
        return "; without spines and NVLink nothing goes from one of its rails to another"
    return "; without spines its rails meet only over NVLink, so all that is sent between them depends on PXN"


def _slower(designs: Sequence[Candidate], chosen: Candidate) -> list[str]:
    """ "'B' and 'C' take 4 % longer for as many tokens": what those lose that are not as fast as the fastest.

    Variants of which the same is to be said share it; of many, the nearest are told and the others counted.
    """
    fast = close(designs)
    groups: dict[str, list[Candidate]] = {}
    for design in designs:
        if design not in fast:
            groups.setdefault(_loss(design, chosen), []).append(design)
    told = list(groups.items())
    if len(told) > SLOWER:
        told.sort(key=lambda group: min(d.longer(chosen) for d in group[1]))
    sentences = [
        f"{_names(group)} take{'s' if len(group) == 1 else ''} {loss}" for loss, group in told[:SLOWER]
    ]
    rest = [design.longer(chosen) for _, group in told[SLOWER:] for design in group]
    if rest:
        others = "1 more takes" if len(rest) == 1 else f"{len(rest)} more take up to"
        sentences.append(f"{others} {share(max(rest))} longer (see the table)")
    return sentences


def _loss(design: Candidate, chosen: Candidate) -> str:
    """'4 % longer for as many tokens, on 64 GPUs (2 % more GPU hours)'; what is equal is not told."""
    loss = design.longer(chosen)
    # 1.3 % is more than CLOSE, within which designs are as fast.
    text = f"{share(loss) if loss >= 2 * CLOSE else f'{100 * loss:.1f} %'} longer"
    if design.step.tokens != chosen.step.tokens:
        text += f" for as many {design.step.unit}"
    if design.job_gpus != chosen.job_gpus:
        hours = (1 + loss) * design.job_gpus / chosen.job_gpus - 1
        told = share(abs(hours))
        more = "as many" if told == share(0.0) else f"{told} {'more' if hours > 0 else 'fewer'}"
        text += f", on {number(design.job_gpus, 'GPU')} ({more} GPU hours)"
    return text


def _names(designs: Sequence[Candidate]) -> str:
    """ "'A', 'B'", and how many more of many."""
    told = ", ".join(f"'{d.variant.name}'" for d in designs[:NAMED])
    return told + (f" and {len(designs) - NAMED} more" if len(designs) > NAMED else "")


def _of_job(variant: VariantResult) -> str:
    """Whose step it is, where the study has several jobs."""
    return f" of '{variant.jobs[0].name}'" if len(variant.jobs) > 1 else ""


def _rails_and_pxn(
    studies: Sequence[Study], variants: Sequence[VariantResult], rows: Sequence[SensitivityRow]
) -> str:
    """What PXN and the rails change, from the variants that differ in just that, and what would change it."""
    base_study, base = studies[0], variants[0]
    told: list[str] = []
    for study, variant in zip(studies[1:], variants[1:], strict=True):
        pxn, family = study.nccl.pxn, study.cluster.compute.family
        families = (base_study.cluster.compute.family, family)
        if pxn != base_study.nccl.pxn and _with(base_study, pxn=pxn) == _with(study):
            on, off = (base, variant) if base_study.nccl.pxn else (variant, base)
            told.append(_compare("PXN changes", on, off))
        elif set(families) == {"rail-optimised", "fat-tree"} and _with(
            base_study, study.cluster.compute
        ) == _with(study):
            rails, tree = (base, variant) if families[0] == "rail-optimised" else (variant, base)
            told.append(_compare("rails instead of a fat tree change", rails, tree))
    told = [text for text in told if text]
    if not told:
        return ""
    sentence = f"With {base_study.cluster.compute.routing} routing, " + "; ".join(told)
    most = max(
        (row for row in rows if row.pxn_gain is not None), key=lambda r: r.pxn_gain or 0.0, default=None
    )
    if most is not None and most.pxn_gain is not None and most.pxn_gain > CLOSE:
        sentence += (
            f"; PXN would be worth most to this job under '{most.name}': {percent(most.pxn_gain)} throughput"
        )
    return sentence + "."


def _with(study: Study, drawn: ComputeNetwork | None = None, pxn: bool | None = None) -> tuple[object, ...]:
    """What decides a job's time and a curve, with another's drawing of the network, or with or without PXN.

    A family brings its own groups of servers and cable lengths; a switch, a routing or an oversubscription of
    its own would be told as what rails are worth.
    """
    network, nccl = study.cluster.compute, study.nccl
    if drawn is not None:
        same = {name: getattr(drawn, name) for name in DRAWN}
        network = network.model_copy(update=same)
    if pxn is not None:
        nccl = nccl.model_copy(update={"pxn": pxn})
    cluster = study.cluster.model_copy(update={"compute": network})
    return cluster, nccl, study.jobs, study.recommendations, study.sweeps


def _compare(subject: str, better: VariantResult, other: VariantResult) -> str:
    """'PXN changes training throughput by +1 % and all-to-all bandwidth by +40 % at 1 KiB and …'."""
    parts = []
    if better.jobs and other.jobs and better.jobs[0].step and other.jobs[0].step:
        gain = better.jobs[0].step.tokens_per_second / other.jobs[0].step.tokens_per_second - 1
        parts.append(f"training throughput by {percent(gain, 1)}")
    pair = [curve_of(v, "all_to_all") for v in (better, other)]
    if pair[0] is not None and pair[1] is not None and pair[1].points[0].busbw:
        ends = [
            f"{percent(mine.busbw / its.busbw - 1)} at {show_size(mine.size)}"
            for mine, its in ((pair[0].points[i], pair[1].points[i]) for i in (0, -1))
        ]
        parts.append(f"all-to-all bandwidth by {' and '.join(ends)}")
    return f"{subject} {' and '.join(parts)}" if parts else ""


def _parts(parts: tuple[int, int, int], sized: bool = False) -> str:
    """'12 switches and 496 cables'; with the cluster's GPUs before them where these differ (`sized`)."""
    gpus, switches, cables = parts
    network = f"{number(switches, 'switch', 'switches')} and {number(cables, 'cable')}"
    return f"{number(gpus, 'GPU')}, {network}" if sized else network


def curve_of(variant: VariantResult, op: str) -> Curve | None:
    """The variant's curve of one collective."""
    return next((c for c in variant.curves if c.op == op), None)
