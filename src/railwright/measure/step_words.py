"""What a training log beside its prediction says, in sentences."""

from __future__ import annotations

from railwright.measure.step_compare import DRIFT, SLOW, STEADY, ComparedSteps
from railwright.units import show_share, show_time

CLOSE = 0.07
"""Reserved memory is as predicted within this share: what published peaks are asked to be within
(`training_bars`)."""


def words(found: ComparedSteps) -> list[str]:
    """The verdict with what explains it, how steps differ among themselves, memory, and what was assumed."""
    told = [_verdict(found), *_explained(found), *_spread(found), *_memory(found)]
    return [*told, *(f"{note[0].upper()}{note[1:]}." for note in found.notes)]


def _verdict(found: ComparedSteps) -> str:
    step = found.predicted
    away = f"{_than(found.ratio - 1)} the predicted {show_time(step.step_time)}"
    if found.verdict == "as expected":
        return f"A step takes {show_time(found.measured)}, {away}: as expected of this job."
    return (
        f"A step takes {show_time(found.measured)}, {away}: {found.verdict} than 80 % of measurements "
        f"({step.error_source})."
    )


def _than(change: float) -> str:
    """'6 % longer than'."""
    return f"{show_share(abs(change))} {'longer' if change > 0 else 'shorter'} than"


def _explained(found: ComparedSteps) -> list[str]:
    if found.verdict == "as expected":
        return []
    fits = [one for one in found.explanations if one.fits]
    if not fits:
        return [
            "No single change that we know explains it; `railwright trace compare` of a PyTorch profile says "
            "which part is longer than predicted."
        ]
    named = " or ".join(f"'{one.name}'" for one in fits)
    return [f"{named} would explain it; check that first, in the job's own settings or on the machine."]


def _spread(found: ComparedSteps) -> list[str]:
    spread, told = found.spread, []
    if spread.slow:
        when = f", every {spread.every} steps" if spread.every else ""
        many = "1 step takes" if spread.slow == 1 else f"{spread.slow} steps take"
        cause = " (checkpoints, evaluations or garbage collection come so)" if spread.every else ""
        lost = show_share(spread.lost)
        told.append(f"{many} over one and a half times the median{when}{cause}: {lost} of the time.")
    if STEADY < spread.p95 < SLOW:
        told.append(
            f"The 95 % quantile is {spread.p95:.2f} times the median, where healthy jobs stay below "
            f"{STEADY:g}: look for GPUs that are slow at times, loaders that cannot keep up, or other jobs "
            "on the same links."
        )
    if abs(spread.drift) > DRIFT:
        told.append(
            f"The last quarter's steps are {_than(spread.drift)} the first quarter's: the job is not steady, "
            "and its median says little."
        )
    return told


def _memory(found: ComparedSteps) -> list[str]:
    if found.held is None:
        return []
    ran, ours = found.held
    if abs(ran / ours - 1) <= CLOSE:
        return []
    away = f"{show_share(abs(ran / ours - 1))} {'more' if ran > ours else 'less'}"
    return [
        f"PyTorch reserves {away} than predicted for the fullest GPU: the log may be another GPU's, or the "
        "job keeps other tensors than the study says (recompute, zero, offload)."
    ]
