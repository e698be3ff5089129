"""Why the best layout beats the job's own, share by share, in words."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.collectives.machine import Machine
from railwright.model.shape.architecture import Transformer
from railwright.search.space.changes import told
from railwright.search.training.claims import launching, trusted
from railwright.search.training.reasons import reason
from railwright.search.training.result import Candidate
from railwright.search.training.walk import Stride
from railwright.training.checks.feed import feed_of
from railwright.training.layout.placement import place
from railwright.training.memory.cached import crowded, is_held, relies_on_growth
from railwright.units import GIB, show_time

SAME = 1e-6
"""Steps that differ by less than this part are not told apart."""

SMALLEST = 0.005
"""Shares that change by less than this part of the step are left out."""

USUAL = 0.89
"""What nine of ten published jobs fill of a GPU, by our count of tensors, CUDA and NCCL
(tests/validation/test_search_recipes.py)."""

SINGLE = 6
"""Changes of a walk that are told one by one."""

NAMES = {
    "compute": "compute",
    "bubble": "pipeline bubble",
    "tp": "exposed tensor-parallel communication",
    "cp": "exposed context-parallel communication",
    "ep": "exposed expert all-to-all",
    "pp": "exposed sending between stages",
    "dp": "exposed data-parallel communication",
    "host": "waiting for launches",
    "copy": "waiting for copies to and from host memory",
    "adam": "CPU Adam, the optimizer on the host",
}

PLACEMENTS = {
    "packed": "ranks fill servers in order, so that groups of neighbours stay in a server and under a leaf",
    "expert-across": "the ranks of an expert group sit on different servers, at one place of each: one rail",
    "spread": "neighbouring servers of the job sit under different leaves: more uplinks share the load",
}


def explain(
    own: Candidate | None,
    refused: str,
    best: Candidate,
    capacity: float,
    strides: Sequence[Stride] = (),
    lean: bool = False,
) -> tuple[str, ...]:
    """Sentences: the gain, how far to trust it, change by change, then every share that changes by more than
    0.5 % of the step, then memory, whether that is more than usual, and whether the holes between tensors fit
    beside them.

    strides  from the own layout to the best one (`walk.walk`)
    lean     whether the leanest was asked for
    """
    holes = _holes("the best one", best, capacity)
    if own is None:
        return (
            f"The layout as written cannot run: {refused}",
            f"The best one takes {show_time(best.time)} a step and needs {_gib(best.memory)} of "
            f"{_gib(capacity)}.",
            *_full(best, capacity),
            *holes,
        )
    full = not is_held(own.held, capacity)
    leaner = best.memory < own.memory * (1 - 1e-6)
    if _as_fast(own, best) and not leaner and not full:
        return (f"The layout as written is the best of the space: {show_time(own.time)} a step.", *holes)
    if full:
        holes = (*_holes("the one as written", own, capacity), *holes)
    gained = _gained(own, best, leaner, lean=lean and leaner and not full)
    words = [f"{gained} What changes: {told(own.setting, best.setting)}."]
    if best.time < own.time and not _as_fast(own, best):
        words += [trusted(own.time / best.time - 1), *launching(own, best)]
    if len(strides) > 1:
        words.append(_walked(own.time, strides))
    words += _shares(own, best)
    if own.setting["placement"] != best.setting["placement"]:
        words.append(f"Placement: {PLACEMENTS[best.setting['placement']]}.")
    return (*words, _memory(own, best, capacity), *_full(best, capacity), *holes)


def _as_fast(own: Candidate, best: Candidate) -> bool:
    return abs(own.time / best.time - 1) < SAME


def _gained(own: Candidate, best: Candidate, leaner: bool, lean: bool) -> str:
    """How much faster the best layout is; the leanest may be slower, and so may the best of a space that the
    own one is not in.

    lean  whether it was asked for as the leanest, and is
    """
    gain = own.time / best.time - 1
    if _as_fast(own, best):
        need = ", and needs less memory" if leaner else ""
        return f"Another layout is as fast as the one as written, {show_time(own.time)} a step{need}."
    if gain > 0:
        found, much = "The best layout", f"{gain:.1%} more"
    else:
        found, much = "The leanest layout" if lean else "The best of the space", f"{-gain:.1%} fewer"
    return (
        f"{found} takes {show_time(best.time)} a step, the one as written {show_time(own.time)}: "
        f"{much} steps in the same time."
    )


def _shares(own: Candidate, best: Candidate) -> list[str]:
    """Every share that changes, what is saved most first."""
    before, after = ({s.kind: s.exposed for s in c.step.shares} for c in (own, best))
    moved = {k: after.get(k, 0.0) - before.get(k, 0.0) for k in NAMES if k in before or k in after}
    found = []
    for kind, change in sorted(moved.items(), key=lambda item: item[1]):
        if abs(change) < SMALLEST * own.time:
            continue
        why = reason(kind, own, best)
        verb = "saves" if change < 0 else "costs"
        found.append(
            f"{NAMES[kind].capitalize()} {verb} {show_time(abs(change))} "
            f"({_time(before.get(kind, 0.0))} to {_time(after.get(kind, 0.0))})"
            + (f": {why}." if why else ".")
        )
    return found


def _memory(own: Candidate, best: Candidate, capacity: float) -> str:
    """What the fullest GPU holds and what one GPU sends, before and after."""
    network = (
        f"; what one GPU sends in groups that span servers goes from {own.network / 1e9:.1f} to "
        f"{best.network / 1e9:.1f} GB a step"
    )
    return (
        f"Memory goes from {_gib(own.memory)} to {_gib(best.memory)} of {_gib(capacity)} on the fullest GPU"
        + (network if own.network or best.network else "")
        + "."
    )


def _full(best: Candidate, capacity: float) -> tuple[str, ...]:
    """That a layout fills more of a GPU than published jobs do, where it does."""
    filled = best.memory / capacity
    if filled <= USUAL:
        return ()
    return (
        f"The best one fills {filled:.0%} of the GPU; nine of ten published jobs fill {USUAL:.0%} of theirs "
        "or less by the same count. Try leaner layouts of the list too.",
    )


def _walked(start: float, strides: Sequence[Stride]) -> str:
    """What every change brings after those before it; of the last ones, which bring least, their sum."""
    found, here, fitted = [], start, True
    fits = {(True, False): ", which does not fit", (False, True): ", which fits again"}
    for n, stride in enumerate(strides):
        rest = strides[n:]
        if n >= SINGLE and len(rest) > 1:
            again = fits.get((fitted, rest[-1].fits), "")
            found.append(f"what is left ({len(rest)} changes) {_moved(here, rest[-1].seconds)}{again}")
            break
        found.append(
            f"{told(stride.before, stride.after)} {_moved(here, stride.seconds)}"
            + fits.get((fitted, stride.fits), "")
        )
        here, fitted = stride.seconds, stride.fits
    return f"One change at a time, each time the one that helps most: {'; '.join(found)}."


def _moved(before: float, after: float) -> str:
    """How a change moves a step."""
    if abs(after - before) < SAME * before:
        return f"leaves {show_time(after)}"
    return f"{'saves' if after < before else 'costs'} {show_time(abs(after - before))} ({show_time(after)})"


def _holes(which: str, one: Candidate, capacity: float) -> tuple[str, ...]:
    """That the holes between the tensors of a layout do not fit beside them, and what helps."""
    tight = crowded(one.held, capacity) if one.held else ""
    if not one.held or not tight:
        return ()
    relied = " Its export sets that." if relies_on_growth(one.held, capacity) else ""
    return (f"Of {which} {tight}{relied}",)


def loading(best: Candidate, arch: Transformer, machine: Machine) -> tuple[str, ...]:
    """What the best layout would wait for its data set, by which layouts are not compared."""
    feed = feed_of(best.job, arch, place(best.job, machine.network.fabric))
    wait = feed.wait(best.time)
    words = "Layouts are compared as if their data were always there; for it the best one waits"
    return (f"{words} {show_time(wait)} more a step.",) if wait > 0.0 else ()


def _time(seconds: float) -> str:
    return show_time(seconds) if seconds > 0 else "none"


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
