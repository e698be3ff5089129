"""One step of a profile: where it begins and ends, and what each instant of it went to.

Every instant belongs to computing while any kernel that is no communication runs (to the first of matrix
products, attention, optimizer and memory-bound kernels), else to a communication, else to a copy, else to
nobody: the GPU waits for its host.  So the shares add up to the step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Literal

from railwright.collectives.prediction import Op
from railwright.traces.kernels import Work, op_of, served_by, work_of
from railwright.traces.kineto import DEVICE, MARKS, Call, Profile, Span
from railwright.traces.refusal import wrong

Found = Literal["ProfilerStep", "repeated pattern", "whole trace"]

ORDER: tuple[Work, ...] = ("gemm", "attention", "optimizer", "memory", "communication", "copy")
"""Whose an instant is where several run."""

CALLS = ("c10d::", "_c10d_functional", "c10d_functional", "record_param_comms")
"""How operators begin that call a collective, or wait for one: DTensor's and FSDP2's are functional."""

ALIKE = 0.95
"""Part of the kernels that two steps must have in common to be the same step."""


@dataclass(frozen=True)
class Collective:
    """Calls of one collective in a step: what they are, how often, and the time of their kernels [s].

    `waiting` is in there: an NCCL kernel runs from when its own rank has come.
    serves   'ep' or 'tp' where the kernels' library serves that parallelism alone, else ''
    """

    op: Op | None
    call: Call | None
    times: tuple[float, ...]
    serves: str = ""


@dataclass(frozen=True)
class Step:
    """One step of one rank, measured.

    world     ranks of the job, where the profile says it
    busy      seconds that any span of a kind runs
    exposed   seconds of the step by kind, communication by the indices in `collectives` of all that run at
              once; adds up to `seconds`
    on_gpu    whether a device ran it; else it is the CPU's operators
    notes     what of the profile was left out or is doubtful, in words
    gpu       the GPU's name in the profile, '' where it does not say it
    """

    file: str
    rank: int | None
    world: int | None
    found: Found
    steps: int
    seconds: float
    busy: dict[str, float]
    exposed: dict[str, float]
    exposed_calls: dict[tuple[int, ...], float]
    collectives: tuple[Collective, ...]
    on_gpu: bool = True
    notes: tuple[str, ...] = ()
    gpu: str = ""


def step_of(profile: Profile, whole: bool = False) -> Step:
    """The step of median length; `whole` takes everything that was profiled for one step.

    Raises SpecError where nothing marks a step and no pattern of kernels repeats, or no mark encloses work.
    """
    work = [s for s in profile.spans if _works(s)]
    if not profile.on_gpu:
        work = _without(work, [s for s in profile.spans if s.name.startswith(CALLS)])
    windows: list[tuple[float, float]] = []
    found: Found = "whole trace"
    if not whole:
        windows, found = _marked(profile), "ProfilerStep"
        if windows and not any(s.end > begin and s.start < end for s in work for begin, end in windows):
            raise wrong(
                profile.file,
                "",
                f"none of its {len(windows)} ProfilerStep# marks encloses work; call profiler.step() after "
                "each step, inside the profiler, or take the whole trace for one step (--whole).",
            )
        if not windows:
            windows, found = _repeated(work), "repeated pattern"
        if not windows:
            raise wrong(
                profile.file,
                "",
                "no ProfilerStep# marks a step and no pattern of kernels repeats; profile several steps and "
                "call profiler.step() after each, or take the whole trace for one step (--whole).",
            )
    if not windows:
        windows = [(work[0].start, max(span.end for span in work))]
    windows.sort(key=lambda w: w[1] - w[0])
    begin, end = windows[(len(windows) - 1) // 2]
    marks = _marks(profile, "user_annotation") or _marks(profile, "gpu_user_annotation")
    notes = _doubts(work, windows, found, len(marks))
    return _measure(profile, work, begin, end, found, len(windows), notes)


def _doubts(
    work: Sequence[Span], windows: Sequence[tuple[float, float]], found: Found, marks: int
) -> tuple[str, ...]:
    """A sentence where marks and what they enclose do not fit: microbatches, or several steps for one."""
    if found == "whole trace":
        return () if marks < 2 else (
            f"The whole trace is taken for one step (--whole), and {marks} ProfilerStep# marks are in it: "
            "where each is a step, leave --whole out.",
        )  # fmt: skip
    updates = [span.start for span in work if work_of(span) == "optimizer"]
    updated = sum(any(begin <= at < end for at in updates) for begin, end in windows)
    # the last may be cut off in front of it
    if found != "ProfilerStep" or not 0 < updated < len(windows) - 1:
        return ()
    return (
        f"Kernels of the optimizer are in {updated} of {len(windows)} marked steps: where each is a "
        "microbatch, call profiler.step() once behind the optimizer instead.",
    )


def _works(span: Span) -> bool:
    if span.category in MARKS:
        return span.category == "user_annotation" and span.name.startswith("gloo:")
    return not span.name.startswith((*CALLS, "DistributedDataParallel"))


def _without(work: Sequence[Span], calls: Sequence[Span]) -> list[Span]:
    """Work of a CPU without what its threads spend in collectives that it calls: a backward pass's operators
    enclose the calls of its hooks, which enqueue and wait."""
    called: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for call in calls:  # by start: those inside another are in it already
        if not called[call.lane] or call.end > called[call.lane][-1][1]:
            called[call.lane].append((call.start, call.end))
    found: list[Span] = []
    for span in work:
        now = span.start
        inside = called[span.lane] if span.category == "cpu_op" else []
        for start, end in inside[bisect_right(inside, (span.start, span.end)) :]:
            if start >= span.end:
                break
            if start > now:
                found.append(replace(span, start=now, end=start))
            now = max(now, end)
        if now < span.end or span.start == span.end:
            found.append(replace(span, start=now, end=span.end))
    return sorted(found, key=lambda s: (s.start, s.end, s.name))


def _marked(profile: Profile) -> list[tuple[float, float]]:
    """Windows of ProfilerStep#: of what the host launched in them where the trace says it, else the device's
    marks where it has them, else from one host step to the next."""
    if windows := _of_launches(profile):
        return windows
    for category in ("gpu_user_annotation", "user_annotation"):
        if steps := _marks(profile, category):
            return [(begin, end) for begin, end in _to_the_next(steps) if end > begin]
    return []


def _marks(profile: Profile, category: str) -> list[tuple[float, float]]:
    """Begin and end of every ProfilerStep#.

    Kineto writes a device's mark once per stream that has work of the step, so marks of one name are one
    step, from the first stream's begin to the last one's end.
    """
    marks: dict[str, tuple[float, float]] = {}
    for span in profile.spans:
        if span.category == category and span.name.startswith("ProfilerStep"):
            begin, end = marks.get(span.name, (span.start, span.end))
            marks[span.name] = min(begin, span.start), max(end, span.end)
    return sorted(marks.values())


def _to_the_next(steps: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Each step to the begin of the next, the last to its own end."""
    ends = [begin for begin, _ in steps[1:]] + [end for _, end in steps[-1:]]
    return [(begin, end) for (begin, _), end in zip(steps, ends, strict=True)]


def _of_launches(profile: Profile) -> list[tuple[float, float]]:
    """Windows on the device of what each ProfilerStep# of the host launched, from its first work on the lane
    that computes to that of the next step, the last to its last work; empty where launches are not recorded.

    The host runs ahead of its device, and a mark on the device ends with the last kernel that the marking
    thread launched outside of other annotations: of a single step with the forward pass.
    """
    steps = _marks(profile, "user_annotation")
    known = [span for span in profile.spans if span.launched is not None]
    busy: dict[str, float] = defaultdict(float)
    for span in known:
        if work_of(span) not in ("communication", "copy"):
            busy[span.lane] += span.end - span.start
    if not steps or not busy:
        return []
    computes = max(sorted(busy), key=lambda lane: busy[lane])
    begins, ends = [first for first, _ in steps], [0.0] * len(steps)
    first = [float("inf")] * len(steps)
    for span in known:
        step = bisect_right(begins, span.launched or 0.0) - 1
        if step < 0 or (step == len(steps) - 1 and (span.launched or 0.0) > steps[-1][1]):
            continue
        ends[step] = max(ends[step], span.end)
        if span.lane == computes:
            first[step] = min(first[step], span.start)
    found = [(begin, end) for begin, end in zip(first, ends, strict=True) if begin < end]
    return [(begin, end) for begin, end in _to_the_next(found) if end > begin]


def _repeated(work: Sequence[Span]) -> list[tuple[float, float]]:
    """Windows between the runs of the rarest kernel between which the same kernels run.

    Layers and microbatches repeat too, but more runs before the first or behind the last of them than one of
    them has, and no optimizer in each.
    """
    ran = [span for span in work if span.category in DEVICE]
    names, starts = [span.name for span in ran], [span.start for span in ran]
    updates = {span.name for span in ran if work_of(span) == "optimizer"}
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    for name in sorted(places, key=lambda one: (len(places[one]), places[one][0])):
        where = places[name]
        if len(where) < 3:
            continue
        runs = [Counter(names[a:b]) for a, b in pairwise(where)]
        alike = [sum((a & b).values()) / max(a.total(), b.total()) for a, b in pairwise(runs)]
        length = median(run.total() for run in runs)
        # a step that is cut off at either end of the trace has no more than a step
        outside = max(where[0], len(names) - where[-1]) * ALIKE
        updated = not updates or all(updates & run.keys() for run in runs)
        if min(alike) >= ALIKE and length > 1 and outside <= length and updated:
            return [(starts[a], starts[b]) for a, b in pairwise(where)]
    return []


def _measure(
    profile: Profile,
    work: Sequence[Span],
    begin: float,
    end: float,
    found: Found,
    steps: int,
    notes: tuple[str, ...],
) -> Step:
    inside = [span for span in work if span.end > begin and span.start < end]
    kinds = [work_of(span) for span in inside]
    calls: dict[tuple[Op | None, Call | None, str], int] = {}
    times: list[list[float]] = []
    numbers: list[int] = []
    for span, kind in zip(inside, kinds, strict=True):
        number = -1
        if kind == "communication":
            key = (op_of(span), span.call, served_by(span))
            number = calls.setdefault(key, len(calls))
            if number == len(times):
                times.append([])
            if span.start >= begin:
                times[number].append(span.end - span.start)
        numbers.append(number)
    busy, exposed, exposed_calls = _sweep(inside, kinds, numbers, begin, end)
    collectives = tuple(Collective(op, call, tuple(times[i]), of) for (op, call, of), i in calls.items())
    return Step(
        profile.file, profile.rank, profile.world, found, steps, end - begin, busy, exposed, exposed_calls,
        collectives, profile.on_gpu, (*profile.notes, *notes), profile.gpu,
    )  # fmt: skip


def _sweep(
    spans: Sequence[Span], kinds: Sequence[Work], numbers: Sequence[int], begin: float, end: float
) -> tuple[dict[str, float], dict[str, float], dict[tuple[int, ...], float]]:
    """Busy and exposed seconds by kind, and exposed seconds by the collectives that run at once, in one walk
    over all edges."""
    edges: list[tuple[float, int, int]] = []
    for i, span in enumerate(spans):
        first, last = max(begin, span.start), min(end, span.end)
        if first < last:
            edges += [(first, 1, i), (last, 0, i)]
    edges.sort()
    running: dict[Work, dict[int, None]] = {kind: {} for kind in ORDER}
    busy: dict[str, float] = defaultdict(float)
    exposed: dict[str, float] = defaultdict(float)
    calls: dict[tuple[int, ...], float] = defaultdict(float)
    now = begin
    for instant, starts, i in [*edges, (end, 2, -1)]:
        passed = instant - now
        if passed > 0:
            active = [kind for kind in ORDER if running[kind]]
            for kind in active:
                busy[kind] += passed
            exposed[active[0] if active else "idle"] += passed
            if active and active[0] == "communication":
                calls[tuple(sorted({numbers[i] for i in running["communication"]}))] += passed
            now = instant
        if starts == 1:
            running[kinds[i]][i] = None
        elif starts == 0:
            del running[kinds[i]][i]
    return dict(busy), dict(exposed), dict(calls)
