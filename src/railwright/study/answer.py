"""The answer in three sentences: which fabric, is the network the bottleneck, do rails and PXN help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railwright.spec.study import Study
from railwright.study.result import Curve, VariantResult
from railwright.training.result import StepResult
from railwright.units import show_rate, show_time

CLOSE = 0.01
"""Designs within 1 % of the fastest count as equally fast: the noise floor between two well-built
fabrics is 0.8-1.7 % (MLPerf GPT-3 logs, 512-10,752 GPUs)."""
NETWORK_BOUND = 0.15
"""Exposed communication above this share of the step is called a bottleneck."""
KIND_NAMES = {
    "tp": "tensor-parallel collectives",
    "ep": "expert all-to-all",
    "pp": "pipeline sends",
    "dp": "gradient and parameter exchange",
}


@dataclass(frozen=True)
class Candidate:
    """A fault-free design that runs the first job."""

    variant: VariantResult
    step: StepResult

    @property
    def parts(self) -> tuple[int, int]:
        """(switches, cables): what the design costs, before prices."""
        counts = self.variant.counts
        assert counts is not None
        return counts.switches, counts.cables


def answer(studies: Sequence[Study], variants: Sequence[VariantResult]) -> tuple[str, ...]:
    """Up to three sentences, from the variants' results alone.

    studies   the study as written, then one per variant, in the order of `variants`
    """
    sentences = [
        _which_fabric(studies, variants),
        _bottleneck(variants[0]),
        _rails_and_pxn(studies, variants),
    ]
    return tuple(s for s in sentences if s)


def candidates(studies: Sequence[Study], variants: Sequence[VariantResult]) -> list[Candidate]:
    """The distinct designs to choose from: no faults, the first job runs."""
    found = []
    for study, variant in zip(studies, variants, strict=True):
        if study.cluster.faults or not variant.jobs or variant.jobs[0].step is None:
            continue
        found.append(Candidate(variant, variant.jobs[0].step))
    return found


def _which_fabric(studies: Sequence[Study], variants: Sequence[VariantResult]) -> str:
    """The design with the fewest parts among the fastest."""
    designs = candidates(studies, variants)
    if not designs:
        counts = variants[0].counts
        assert counts is not None
        return (
            f"The fabric as written takes {counts.switches} switches and {counts.cables} cables "
            f"for {counts.gpus} GPUs."
        )
    fastest = min(d.step.step_time for d in designs)
    close = [d for d in designs if d.step.step_time <= fastest * (1 + CLOSE)]
    best = min(close, key=lambda d: (d.parts, d.step.step_time))
    step, (switches, cables) = best.step, best.parts
    sentence = (
        f"Build '{best.variant.name}': {switches} switches and {cables} cables, "
        f"{show_time(step.step_time)} a step, {step.tokens_per_second:,.0f} tokens/s"
    )
    others = [d for d in designs if d.variant.name != best.variant.name]
    if not others:
        return sentence + "."
    told = []
    for other in others:
        slower = other.step.step_time / step.step_time - 1
        speed = (
            "as fast" if abs(slower) < 0.0005 else f"{abs(slower):.1%} {'slower' if slower > 0 else 'faster'}"
        )
        told.append(
            f"'{other.variant.name}' is {speed} with {other.parts[0]} switches and {other.parts[1]} cables"
        )
    return sentence + "; " + "; ".join(told) + "."


def _bottleneck(base: VariantResult) -> str:
    """Whether the network is the bottleneck of the first job as written, and where."""
    step = base.jobs[0].step if base.jobs else None
    if step is None:
        return ""
    exposed = {s.kind: s.exposed for s in step.shares if s.kind in KIND_NAMES and s.exposed > 0}
    compute = sum(s.exposed for s in step.shares if s.kind == "compute") / step.step_time
    verdict = "is" if step.network_share > NETWORK_BOUND else "is not"
    sentence = (
        f"The network {verdict} your bottleneck: exposed communication is {step.network_share:.0%} "
        f"of the step and compute {compute:.0%}"
    )
    if not exposed:
        return sentence + "."
    worst = max(exposed, key=lambda kind: exposed[kind])
    sentence += f", led by {KIND_NAMES[worst]} ({show_time(exposed[worst])} of {show_time(step.step_time)})"
    used = [c for c in step.collectives if c.kind == worst]
    if used:
        heaviest = max(used, key=lambda c: c.count * c.prediction.time)
        if heaviest.prediction.bottleneck is not None:
            sentence += f", whose busiest link is {heaviest.prediction.bottleneck.name}"
    return sentence + "."


def _rails_and_pxn(studies: Sequence[Study], variants: Sequence[VariantResult]) -> str:
    """What PXN and the rails change, from the variants that differ in just that."""
    base_study, base = studies[0], variants[0]
    told: list[str] = []
    for study, variant in zip(studies[1:], variants[1:], strict=True):
        if study.cluster.faults != base_study.cluster.faults:
            continue
        only_pxn = study.cluster == base_study.cluster and study.nccl.pxn != base_study.nccl.pxn
        only_family = (
            study.nccl == base_study.nccl
            and study.cluster.compute.family != base_study.cluster.compute.family
        )
        if only_pxn:
            on, off = (base, variant) if base_study.nccl.pxn else (variant, base)
            told.append(_compare("PXN", on, off))
        elif only_family and variant.fabric is not None:
            told.append(_compare(f"'{base.name}' against '{variant.name}'", base, variant))
    told = [text for text in told if text]
    return "; ".join(told) + "." if told else ""


def _compare(subject: str, better: VariantResult, other: VariantResult) -> str:
    """'PXN changes training throughput by +1.2 % and all_to_all busbw by +40 % at 1 KiB, +0 % at 1 GiB'."""
    parts = []
    if better.jobs and other.jobs and better.jobs[0].step and other.jobs[0].step:
        gain = better.jobs[0].step.tokens_per_second / other.jobs[0].step.tokens_per_second - 1
        parts.append(f"training throughput by {gain:+.1%}")
    pair = [curve_of(v, "all_to_all") for v in (better, other)]
    if pair[0] is not None and pair[1] is not None:
        small, large = (pair[0].points[i].busbw / pair[1].points[i].busbw - 1 for i in (0, -1))
        parts.append(
            f"all-to-all bandwidth by {small:+.0%} on small and {large:+.0%} on large messages "
            f"(to {show_rate(pair[0].points[-1].busbw)} a GPU)"
        )
    return f"{subject} changes {' and '.join(parts)}" if parts else ""


def curve_of(variant: VariantResult, op: str) -> Curve | None:
    """The variant's curve of one collective."""
    return next((c for c in variant.curves if c.op == op), None)
