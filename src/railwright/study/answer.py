"""The answer in three sentences: which fabric, is the network the bottleneck, do rails and PXN help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railwright.spec.study import Study
from railwright.study.bottleneck import bottleneck
from railwright.study.result import Curve, SensitivityRow, VariantResult
from railwright.study.words import percent, share
from railwright.training.result import StepResult
from railwright.units import number, show_size, show_time

CLOSE = 0.01
"""Designs within 1 % of the fastest count as equally fast: the noise floor between two well-built
fabrics is 0.8-1.7 % (MLPerf GPT-3 logs, 512-10,752 GPUs)."""


@dataclass(frozen=True)
class Candidate:
    """A fault-free design that runs the first job; `index` is its place among the variants."""

    index: int
    variant: VariantResult
    step: StepResult

    @property
    def parts(self) -> tuple[int, int]:
        """(switches, cables): what the design costs, before prices."""
        counts = self.variant.counts
        assert counts is not None
        return counts.switches, counts.cables


def answer(
    studies: Sequence[Study],
    variants: Sequence[VariantResult],
    rows: Sequence[SensitivityRow],
    asked: Sequence[SensitivityRow],
) -> tuple[str, ...]:
    """Up to three sentences, from the results alone; the first two are of the recommended variant.

    studies   the study as written, then one per variant, in the order of `variants`
    rows      the sensitivity, for what would change the verdict on PXN
    asked     what-ifs of the first job on the recommended variant, for what holds it back
    """
    best = variants[recommended(studies, variants)]
    sentences = (
        _which_fabric(studies, variants),
        bottleneck(best, asked, best.name if len(variants) > 1 else ""),
        _rails_and_pxn(studies, variants, rows),
    )
    return tuple(s for s in sentences if s)


def candidates(studies: Sequence[Study], variants: Sequence[VariantResult]) -> list[Candidate]:
    """The distinct designs to choose from: no faults, the first job runs."""
    found = []
    for index, (study, variant) in enumerate(zip(studies, variants, strict=True)):
        if study.cluster.faults or not variant.jobs or variant.jobs[0].step is None:
            continue
        found.append(Candidate(index, variant, variant.jobs[0].step))
    return found


def recommended(studies: Sequence[Study], variants: Sequence[VariantResult]) -> int:
    """The variant that the answer recommends, by its place; the study as written where there is no choice."""
    designs = candidates(studies, variants)
    return _best(designs).index if designs else 0


def _best(designs: Sequence[Candidate]) -> Candidate:
    """The one with the fewest parts among the fastest."""
    return min(_close(designs), key=lambda d: (d.parts, d.step.step_time))


def _close(designs: Sequence[Candidate]) -> list[Candidate]:
    """Those that count as fast as the fastest."""
    fastest = min(d.step.step_time for d in designs)
    return [d for d in designs if d.step.step_time <= fastest * (1 + CLOSE)]


def _which_fabric(studies: Sequence[Study], variants: Sequence[VariantResult]) -> str:
    """The design with the fewest parts among the fastest, and what the others would bring."""
    designs = candidates(studies, variants)
    if not designs:
        counts = variants[0].counts
        assert counts is not None
        return (
            f"The fabric as written takes {_parts(counts.switches, counts.cables)} "
            f"for {number(counts.gpus, 'GPU')}."
        )
    close, best = _close(designs), _best(designs)
    verb = "Build" if len({d.parts for d in designs}) > 1 else "Choose" if len(designs) > 1 else "You have"
    step = best.step
    low, high = step.step_time * step.error_low, step.step_time * step.error_high
    sentence = (
        f"{verb} '{best.variant.name}': {_parts(*best.parts)}, {show_time(step.step_time)} a step"
        f"{_of_job(best.variant)} (80 % of measurements: {show_time(low)} to {show_time(high)}), "
        f"{step.tokens_per_second:,.0f} {step.unit}/s"
    )
    dearer = [d for d in close if d.parts != best.parts]
    if dearer:
        names = ", ".join(f"'{d.variant.name}'" for d in dearer)
        extra = max(d.parts for d in dearer)
        sentence += (
            f"; {names} {'is' if len(dearer) == 1 else 'are'} no faster for this job "
            f"(within {share(CLOSE)}) and take{'s' if len(dearer) == 1 else ''} up to {_parts(*extra)}"
        )
    for slower in (d for d in designs if d not in close):
        loss = slower.step.step_time / best.step.step_time - 1
        sentence += f"; '{slower.variant.name}' takes {share(loss)} longer"
    if best.variant.fabric is not None and best.variant.fabric.family == "rail-only":
        sentence += "; without spines its rails meet only over NVLink, so every job on it depends on PXN"
    return sentence + "."


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
        if study.cluster.faults != base_study.cluster.faults:
            continue
        only_pxn = study.cluster == base_study.cluster and study.nccl.pxn != base_study.nccl.pxn
        families = (base_study.cluster.compute.family, study.cluster.compute.family)
        if only_pxn:
            on, off = (base, variant) if base_study.nccl.pxn else (variant, base)
            told.append(_compare("PXN changes", on, off))
        elif study.nccl == base_study.nccl and set(families) == {"rail-optimised", "fat-tree"}:
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


def _parts(switches: int, cables: int) -> str:
    return f"{number(switches, 'switch', 'switches')} and {number(cables, 'cable')}"


def curve_of(variant: VariantResult, op: str) -> Curve | None:
    """The variant's curve of one collective."""
    return next((c for c in variant.curves if c.op == op), None)
