"""Which variant the answer recommends: the fewest parts among those that train fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railwright.spec.study import Study
from railwright.study.result import VariantResult
from railwright.training.lanes.result import StepResult

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
    def parts(self) -> tuple[int, int, int]:
        """(GPUs, switches, cables): what the design costs, before prices, the dearest first."""
        counts = self.variant.counts
        assert counts is not None
        return counts.gpus, counts.switches, counts.cables

    @property
    def job_gpus(self) -> int:
        """GPUs of the cluster that the job takes."""
        return round(self.step.tokens_per_second / self.step.tokens_per_second_per_gpu)

    def longer(self, other: Candidate) -> float:
        """By which share this design takes longer than the other for as many tokens, e.g. 0.04.

        Of steps with as many tokens that is how much longer its step is; a larger batch, longer sequences
        or more GPUs make a longer step that gets more done.
        """
        return other.step.tokens_per_second / self.step.tokens_per_second - 1


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
    return best(designs).index if designs else 0


def best(designs: Sequence[Candidate]) -> Candidate:
    """The one with the fewest parts among the fastest."""
    return min(close(designs), key=lambda d: (d.parts, -d.step.tokens_per_second))


def close(designs: Sequence[Candidate]) -> list[Candidate]:
    """Those that count as fast as the fastest, by throughput."""
    fastest = max(designs, key=lambda d: d.step.tokens_per_second)
    return [d for d in designs if d.longer(fastest) <= CLOSE]
