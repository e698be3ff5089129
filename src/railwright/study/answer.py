"""The answer in three sentences: which fabric, is the network the bottleneck, do rails and PXN help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railwright.fabric.graph import Role
from railwright.spec.study import Study
from railwright.study.result import Curve, SensitivityRow, VariantResult
from railwright.study.words import percent, share
from railwright.training.result import StepResult
from railwright.units import number, show_size, show_time

CLOSE = 0.01
"""Designs within 1 % of the fastest count as equally fast: the noise floor between two well-built
fabrics is 0.8-1.7 % (MLPerf GPT-3 logs, 512-10,752 GPUs)."""
NETWORK_BOUND = 0.15
"""Exposed communication between servers above this share of the step is said to slow the job."""
SHOWN = 0.005
"""A part of the step that rounds to 0 % is not told."""
KIND_NAMES = {
    "tp": "tensor-parallel collectives",
    "cp": "context-parallel exchange",
    "ep": "expert all-to-all",
    "emb": "exchange of embeddings",
    "pp": "pipeline sends",
    "dp": "gradient and parameter exchange",
}


WAITS = {
    "host": "waiting for launches",
    "bubble": "the pipeline bubble",
    "copy": "copies to and from host memory",
    "adam": "CPU Adam (the optimizer on the host)",
    "data": "waiting for data",
}
"""What a step spends on neither compute nor communication."""


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


def answer(
    studies: Sequence[Study], variants: Sequence[VariantResult], rows: Sequence[SensitivityRow]
) -> tuple[str, ...]:
    """Up to three sentences, from the results alone.

    studies   the study as written, then one per variant, in the order of `variants`
    rows      the sensitivity, for what would change the verdict on PXN
    """
    sentences = (
        _which_fabric(studies, variants),
        bottleneck(variants[0]),
        _rails_and_pxn(studies, variants, rows),
    )
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
    """The design with the fewest parts among the fastest, and what the others would bring."""
    designs = candidates(studies, variants)
    if not designs:
        counts = variants[0].counts
        assert counts is not None
        return (
            f"The fabric as written takes {_parts(counts.switches, counts.cables)} "
            f"for {number(counts.gpus, 'GPU')}."
        )
    fastest = min(d.step.step_time for d in designs)
    close = [d for d in designs if d.step.step_time <= fastest * (1 + CLOSE)]
    best = min(close, key=lambda d: (d.parts, d.step.step_time))
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


def bottleneck(base: VariantResult) -> str:
    """Whether the network is the bottleneck of the first job as written, and where."""
    step = base.jobs[0].step if base.jobs else None
    if step is None:
        return ""
    exposed = {s.kind: s.exposed for s in step.shares if s.kind in KIND_NAMES and s.exposed > 0}
    between = exposed_between(base, step)
    compute = sum(s.exposed for s in step.shares if s.kind == "compute")
    other = max(s.exposed for s in step.shares if s.kind not in KIND_NAMES)
    inside = sum(exposed.values()) - between
    loading = sum(s.exposed for s in step.shares if s.kind == "data")
    if loading == other > between + inside:
        verdict = "Loading data is your bottleneck"
    elif between > max(other, inside):
        verdict = "The network is your bottleneck"
    elif inside > other:
        verdict = "Communication inside your servers is the bottleneck, rather than the network between them"
    elif between + inside > other:
        verdict = "Communication is your bottleneck, the network and the links inside your servers together"
    elif between > NETWORK_BOUND * step.step_time:
        verdict = "The network slows you, but is not your main bottleneck"
    else:
        verdict = "The network is not your bottleneck"
    # A wait that is longer than all communication is what the reader looks for instead.
    waits = "".join(
        f", {WAITS[s.kind]} {share(s.exposed / step.step_time)}"
        for s in sorted(step.shares, key=lambda s: -s.exposed)
        if s.kind in WAITS and s.exposed > (0.0 if s.kind == "data" else between + inside)
    )
    sentence = (
        f"{verdict}: compute is {share(compute / step.step_time)} of the step{waits} and "
        f"exposed communication {share(step.network_share)}"
    )
    if exposed:
        places = ((between, "between servers"), (inside, "inside"))
        told = [f"{share(s / step.step_time)} {place}" for s, place in places if s > SHOWN * step.step_time]
        sentence += f" ({', '.join(told)})" if len(told) > 1 else ""
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


def exposed_between(variant: VariantResult, step: StepResult) -> float:
    """Exposed communication whose busiest link is a cable between servers; the rest is inside them. [s]"""
    return sum(
        _between_servers(variant, step, s.kind) * s.exposed
        for s in step.shares
        if s.kind in KIND_NAMES and s.exposed > 0
    )


def _of_job(variant: VariantResult) -> str:
    """Whose step it is, where the study has several jobs."""
    return f" of '{variant.jobs[0].name}'" if len(variant.jobs) > 1 else ""


def _between_servers(base: VariantResult, step: StepResult, kind: str) -> float:
    """Part of one kind of communication, by time, whose busiest link is a cable, not inside a server."""
    seconds = {True: 0.0, False: 0.0}
    for used in step.collectives:
        limit = used.prediction.bottleneck
        if used.kind == kind and limit is not None and base.fabric is not None:
            role = Role(int(base.fabric.role[limit.link // 2]))
            seconds[role not in (Role.SCALE_UP, Role.PCIE)] += used.count * used.prediction.time
    return seconds[True] / total if (total := sum(seconds.values())) else 0.0


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
