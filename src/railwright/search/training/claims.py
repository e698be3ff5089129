"""How much of a claimed gain is in the error of a comparison, and in the choice of the best of many."""

from __future__ import annotations

from math import isinf

from railwright.model.shape.architecture import Transformer
from railwright.search.training.result import Candidate
from railwright.training.software.choices import choice
from railwright.training.software.constants import DECIDES

TUNED, MIDDLE, FIFTH = 39, 0.061, 0.198
"""Published layouts whose publishers chose them for speed, and what searches find beyond them: more steps in
the same time in the median, and above which a fifth of them lies.  Some of these gains are real.  The best of
a million predicted layouts is one of those whose errors flatter it, too, so that a search gains something
over any layout.
Source: benchmarks/search_recipes.py, 2026-11-28 (docs/training/search.md)."""


def launching(own: Candidate, best: Candidate) -> tuple[str, ...]:
    """What a gain over a layout becomes whose GPU waits for launches so much that their error is the step's,
    where the better one's does not: no published pair is such."""
    if own.step.launch_share < DECIDES or best.step.launch_share >= DECIDES:
        return ()
    low, high = own.step.error_low, own.step.error_high
    least, most = (own.time * factor / best.time - 1 for factor in (low, high))
    return (
        f"The layout as written waits for launches in {own.step.launch_share:.0%} of its step, where "
        f"predictions are off most: at {low:.2f} to {high:.2f} times its step (80% of measured ones) the "
        f"best one makes {least:.0%} to {most:.0%} more steps.",
    )


def spreading(own: Candidate | None, best: Candidate, arch: Transformer) -> tuple[str, ...]:
    """That fewer experts of a GPU even out less of what routing does, which stays as the job says."""
    if own is None or not arch.is_moe or best.job.expert_capacity is not None:
        return ()
    before, after = (arch.experts // one.job.layout.expert for one in (own, best))
    if after >= before:
        return ()
    return (
        f"A GPU has {after} of {arch.experts} experts instead of {before}: fewer even out less of what "
        f"routing does, and expert_imbalance ({best.job.expert_imbalance:g}) is taken to stay.",
    )


def trusted(gain: float) -> str:
    """What a reader should make of a best layout that makes more steps in the same time by `gain`."""
    pairs = choice(gain)
    apart = f"{pairs.low:.0%} and more" if isinf(pairs.high) else f"{pairs.low:.0%} to {pairs.high:.0%}"
    found = (
        f"Of {pairs.pairs} published pairs of layouts of one job predicted {apart} apart, {pairs.right:.0%} "
        f"were measured in that order; the measured gain is within {100 * pairs.most:.0f} points of the "
        "predicted one for 80%."
    )
    if gain > FIFTH:
        return found
    return (
        f"{found} Of {TUNED} layouts that their publishers tuned, searches call half at least {MIDDLE:.0%} "
        f"too slow and a fifth {FIFTH:.0%}: part of such a gain is the choice of the best among many."
    )
