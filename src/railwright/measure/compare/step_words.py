"""What a training log beside its prediction says, in sentences."""

from __future__ import annotations

from railwright.measure.compare.step_flops import AGAIN, LoggedFlops
from railwright.measure.compare.steps import DRIFT, NOT_JUDGED, SLOW, STEADY, ComparedSteps
from railwright.units import show_flop_rate, show_flops, show_share, show_time

FOLD = 10.0
"""Times as long from which that is said instead of a share."""
SAME = "as predicted"
CLOSE = 0.07
"""Reserved memory is as predicted within this share: what published peaks are asked to be within
(`training.bars`)."""


def words(found: ComparedSteps) -> list[str]:
    """The verdict with what explains it, whether the log is of this job by its FLOPs, how steps differ among
    themselves, memory, and what was assumed."""
    counted = [] if found.flops is None else [flop_words(found.flops)]
    told = [_verdict(found), *_explained(found), *counted, *_spread(found), *_memory(found)]
    return [*told, *(f"{note[0].upper()}{note[1:]}." for note in found.notes)]


def flop_words(found: LoggedFlops) -> str:
    """Whose FLOPs a log's own TFLOP/s are."""
    own = f"Its own {show_flop_rate(found.rate)} are {show_flops(found.logged)} a step and GPU"
    if fitting := found.fitting():
        others = [f"{name} {_away(found.off(name))}" for name in found.counted if name not in fitting]
        beside = f" ({', '.join(others)})" if others else ""
        return (
            f"{own}, {_away(found.off(fitting[0]))} our model FLOPs with {' or '.join(fitting)} attention "
            f"scores{beside}: as far as they tell, the log is of the study's job."
        )
    if fitting := found.fitting(AGAIN):
        study = "" if found.recompute == "full" else f"; the study says recompute: {found.recompute}"
        return (
            f"{own}, {1 + found.off(fitting[0]):.2f} times our model FLOPs with {' or '.join(fitting)} "
            "attention scores: hardware FLOPs, which count the second forward pass of a job that computes "
            f"everything again (4/3){study}."
        )
    away = " and ".join(f"{_away(found.off(name))} with {name}" for name in found.counted)
    *some, last = found.another
    formulas = "".join(f", or its framework {formula}" for formula in found.formulas)
    return (
        f"{own}, {away} attention scores as we count: the job that ran has another {', '.join(some)} or "
        f"{last} than the study's{formulas}."
    )


def _away(change: float) -> str:
    """'6.0 % above'."""
    return f"{show_share(abs(change))} {'above' if change > 0 else 'below'}"


def _verdict(found: ComparedSteps) -> str:
    step = found.predicted
    away = _from_predicted(found.ratio - 1, step.step_time)
    if found.verdict == NOT_JUDGED and found.last == 0:
        return (
            f"The log tells the mean of a whole run, {show_time(found.measured)} a step, {away}; its "
            "warm-up, evaluations and checkpoints are in it, so no verdict is given."
        )
    if found.verdict == NOT_JUDGED:
        return (
            f"The log has one line with a step, {show_time(found.measured)}, {away}; a log's first line "
            "holds the warm-up (compilation, first allocations), so no verdict is given: give a log "
            "with more lines."
        )
    if found.verdict == "as expected" and away == SAME:
        return f"A step takes {show_time(found.measured)}, {SAME}."
    if found.verdict == "as expected":
        return f"A step takes {show_time(found.measured)}, {away}: as expected of this job."
    return (
        f"A step takes {show_time(found.measured)}, {away}: {found.verdict} than 80 % of measurements "
        f"({step.error_source})."
    )


def _from_predicted(change: float, seconds: float) -> str:
    """'6 % longer than the predicted 1.2 s', or as predicted where the share rounds to nothing."""
    if show_share(abs(change)) == show_share(0.0):
        return SAME
    return f"{_than(change)} the predicted {show_time(seconds)}"


def _than(change: float) -> str:
    """'6 % longer than', '160 times as long as'."""
    if 1 + change >= FOLD:
        return f"{1 + change:,.0f} times as long as"
    return f"{show_share(abs(change))} {'longer' if change > 0 else 'shorter'} than"


def _explained(found: ComparedSteps) -> list[str]:
    if found.impossible:
        return [
            f"It would take {show_flop_rate(found.needed)} of every GPU, whose peak is "
            f"{show_flop_rate(found.peak)}: no step of this job can be so short. The log is of another "
            "model, sequence, batch, number format or number of GPUs, or its times are not of whole steps."
        ]
    if found.verdict in ("as expected", NOT_JUDGED):
        return []
    fits = [one for one in found.explanations if one.fits]
    if not fits:
        return [
            "No single change that we know explains it; `railwright trace compare` of a PyTorch profile says "
            f"which part is {'shorter' if found.ratio < 1 else 'longer'} than predicted."
        ]
    named = " or ".join(f"'{one.name}'" for one in fits)
    return [f"{named} would explain it; check that first, in the job's own settings or on the machine."]


def _spread(found: ComparedSteps) -> list[str]:
    spread, told = found.spread, []
    if found.log.blurred:
        told.append(
            "Its times are worked out of rounded moving averages: how single steps differ is not told."
        )
    elif spread.slow:
        when = f", every {spread.every} steps" if spread.every else ""
        # A line's mean hides which of its steps was slow.
        line = "step" if spread.each == 1 else f"mean of {spread.each} steps"
        lines = "steps" if spread.each == 1 else f"means of {spread.each} steps"
        many = f"1 {line} takes" if spread.slow == 1 else f"{spread.slow} {lines} take"
        cause = " (checkpoints, evaluations or garbage collection come so)" if spread.every else ""
        lost = show_share(spread.lost)
        told.append(f"{many} over one and a half times the median{when}{cause}: {lost} of the time.")
    if STEADY < spread.p95 < SLOW and not found.log.blurred:
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
