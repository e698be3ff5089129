"""Why the best layout beats the job's own, share by share, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from railwright.collectives.machine import Machine
from railwright.model.architecture import Transformer
from railwright.search.changes import schedule_of, told
from railwright.search.result import Candidate
from railwright.search.walk import Stride
from railwright.training.cached import crowded, is_held, relies_on_growth
from railwright.training.feed import feed_of
from railwright.training.memory import GIB
from railwright.training.placement import place
from railwright.units import number, show_time

SAME = 1e-6
"""Steps that differ by less than this part are not told apart."""

SMALLEST = 0.005
"""Shares that change by less than this part of the step are left out."""

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

ONE_FORM = ("1f1b", "interleaved", "gpipe")
"""Schedules whose bubble is (p - 1) / (v m) of the passes; others fill theirs with weight gradients."""

RECOMPUTED = ("none", "selective", "full")
"""From nothing to all."""

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
    """Sentences: the gain, change by change, then every share that changes by more than 0.5 % of the step,
    then memory, and whether the holes between tensors fit beside them.

    strides  from the own layout to the best one (`walk.walk`)
    lean     whether the leanest was asked for
    """
    holes = _holes("the best one", best, capacity)
    if own is None:
        return (
            f"The layout as written cannot run: {refused}",
            f"The best one takes {show_time(best.time)} a step and needs {_gib(best.memory)} of "
            f"{_gib(capacity)}.",
            *holes,
        )
    full = not is_held(own.held, capacity)
    gain = own.time / best.time - 1
    leaner = best.memory < own.memory * (1 - 1e-6)
    if abs(gain) < SAME and not leaner and not full:
        return (f"The layout as written is the best of the space: {show_time(own.time)} a step.", *holes)
    if full:
        holes = (*_holes("the one as written", own, capacity), *holes)
    # The leanest layout may be slower, and so may the best of a space that the own one is not in.
    if gain > 0:
        found, much = "The best layout", f"{gain:.1%} more"
    else:
        found = "The leanest layout" if lean and leaner and not full else "The best of the space"
        much = f"{-gain:.1%} fewer"
    gained = (
        f"{found} takes {show_time(best.time)} a step, the one as written {show_time(own.time)}: "
        f"{much} steps in the same time."
    )
    if abs(gain) < SAME:
        need = ", and needs less memory" if leaner else ""
        gained = f"Another layout is as fast as the one as written, {show_time(own.time)} a step{need}."
    words = [f"{gained} What changes: {told(own.setting, best.setting)}."]
    if len(strides) > 1:
        words.append(_walked(own.time, strides))
    before, after = ({s.kind: s.exposed for s in c.step.shares} for c in (own, best))
    moved = {k: after.get(k, 0.0) - before.get(k, 0.0) for k in NAMES if k in before or k in after}
    for kind, change in sorted(moved.items(), key=lambda item: item[1]):
        if abs(change) < SMALLEST * own.time:
            continue
        why = REASONS.get(kind, _no_reason)(own, best)
        verb = "saves" if change < 0 else "costs"
        words.append(
            f"{NAMES[kind].capitalize()} {verb} {show_time(abs(change))} "
            f"({_time(before.get(kind, 0.0))} to {_time(after.get(kind, 0.0))})"
            + (f": {why}." if why else ".")
        )
    if own.setting["placement"] != best.setting["placement"]:
        words.append(f"Placement: {PLACEMENTS[best.setting['placement']]}.")
    network = (
        f"; what one GPU sends in groups that span servers goes from {own.network / 1e9:.1f} to "
        f"{best.network / 1e9:.1f} GB a step"
    )
    words.append(
        f"Memory goes from {_gib(own.memory)} to {_gib(best.memory)} of {_gib(capacity)} on the fullest GPU"
        + (network if own.network or best.network else "")
        + "."
    )
    return (*words, *holes)


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


def _bubble(own: Candidate, best: Candidate) -> str:
    a, b = own.setting, best.setting
    before, after = schedule_of(a), schedule_of(b)
    if all(s["pipeline"] == 1 or schedule_of(s) in ONE_FORM for s in (a, b)):
        return f"(p - 1) / (v m) is {_idle(best)} instead of {_idle(own)}"
    found = []
    if before != after:
        found.append(f"schedule {after}" + (f" instead of {before}" if a["pipeline"] > 1 else ""))
    for what, (old, new) in {
        "stages": (a["pipeline"], b["pipeline"]),
        "virtual stages": (a["virtual_pipeline"], b["virtual_pipeline"]),
        "microbatches": (_microbatches(own), _microbatches(best)),
    }.items():
        if old != new:
            found.append(f"{what} are {new} instead of {old}")
    return ", ".join(found)


def _idle(one: Candidate) -> str:
    s = one.setting
    count = _microbatches(one)
    if s["pipeline"] == 1:
        return "0 (one stage)"
    chunks = s["virtual_pipeline"]
    share = (s["pipeline"] - 1) / (chunks * count)
    return f"{s['pipeline'] - 1} / ({chunks} x {count}) = {share:.1%}"


def _microbatches(one: Candidate) -> int:
    # A step's tokens per rank and microbatch: gpus follow from what the step reports per GPU.
    gpus = round(one.step.tokens_per_second / one.step.tokens_per_second_per_gpu)
    s = one.setting
    data = gpus // (s["tensor"] * s["context"] * s["pipeline"])
    return int(one.job.global_batch // (data * s["micro_batch"]))


Reason = tuple[str, int]
"""Words, and whether what they say lengthens a share (1) or shortens it (-1); 0 for either."""


def _that_moved(kind: str, found: list[Reason], own: Candidate, best: Candidate) -> str:
    """The reasons that move a share as it was moved."""
    moved = 1 if _share(best, kind) > _share(own, kind) else -1
    return ", ".join(words for words, sign in found if sign != -moved)


def _compute(own: Candidate, best: Candidate) -> str:
    """What changes that lengthens or shortens computing, as it was lengthened or shortened."""
    a, b = own.setting, best.setting
    found: list[Reason] = []
    if (again := _again(a)) != (now := _again(b)):
        found.append((f"recomputation is {now} instead of {again}", _more_again(a, b)))
    if a["tensor"] != b["tensor"]:
        cut = f"products are {_cut(b['tensor'])} instead of {_cut(a['tensor'])}"
        found.append((cut, 1 if b["tensor"] > a["tensor"] else -1))
    if a["micro_batch"] != b["micro_batch"]:
        seen = f"kernels see {b['micro_batch']} sequences at a time instead of {a['micro_batch']}"
        found.append((seen, -1 if b["micro_batch"] > a["micro_batch"] else 1))
    repeated = [s["tensor"] > 1 and not s["sequence_parallel"] for s in (a, b)]
    if repeated == [False, True]:
        found.append(("norms and residuals are repeated on all tensor ranks", 1))
    elif repeated == [True, False]:
        found.append(("norms and residuals are no longer repeated on all tensor ranks", -1))
    beside = [s["tensor"] > 1 and s["overlap_tp"] for s in (a, b)]
    if beside[0] != beside[1]:
        runs = "tensor-parallel communication runs beside it and slows it"
        stops = "no tensor-parallel communication runs beside it"
        found.append((runs, 1) if beside[1] else (stops, -1))
    return _that_moved("compute", found, own, best)


def _again(setting: Mapping[str, Any]) -> str:
    """What of a stage is computed again."""
    layers = setting["recompute_layers"]
    if setting["recompute"] != "full" or layers is None:
        return str(setting["recompute"])
    return f"full for {layers} {'layer' if layers == 1 else 'layers'} of each stage"


def _more_again(a: Mapping[str, Any], b: Mapping[str, Any]) -> int:
    """Whether b computes more again than a (1) or less (-1); 0 where parts of all layers stand against some
    whole ones."""
    layers = [s["recompute_layers"] if s["recompute"] == "full" else None for s in (a, b)]
    if a["recompute"] == b["recompute"] == "full":
        pieces = [s["pipeline"] * s["virtual_pipeline"] for s in (a, b)]
        before, now = (n * size if n else inf for n, size in zip(layers, pieces, strict=True))
        return (now > before) - (now < before)
    if any(layers) and "selective" in (a["recompute"], b["recompute"]):
        return 0
    return 1 if RECOMPUTED.index(b["recompute"]) > RECOMPUTED.index(a["recompute"]) else -1


def _share(one: Candidate, kind: str) -> float:
    """Exposed seconds of a share of the step."""
    return sum(share.exposed for share in one.step.shares if share.kind == kind)


def _cut(parts: int) -> str:
    return "whole" if parts == 1 else f"cut over {parts} GPUs"


def _tensor(own: Candidate, best: Candidate) -> str:
    a, b = own.setting, best.setting
    found: list[Reason] = []
    if a["tensor"] != b["tensor"]:
        groups = f"groups of {b['tensor']}" if b["tensor"] > 1 else "no tensor groups"
        instead = f"{groups} instead of {a['tensor'] if a['tensor'] > 1 else 'none'}"
        found.append((instead, 1 if b["tensor"] > a["tensor"] else -1))
    both = min(a["tensor"], b["tensor"]) > 1
    if a["overlap_tp"] != b["overlap_tp"] and both:
        beside = b["overlap_tp"]
        found.append((f"{'' if beside else 'no '}shards of collectives run beside products", _less(beside)))
    if both and a["recompute"] != b["recompute"] and "full" in (a["recompute"], b["recompute"]):
        again = b["recompute"] == "full"
        found.append((f"recomputation {'repeats' if again else 'no longer repeats'} them", _less(not again)))
    return _that_moved("tp", found, own, best)


def _host(own: Candidate, best: Candidate) -> str:
    """What changes how many launches a step has; what else hides them is in the walk."""
    a, b = own.setting, best.setting
    found: list[Reason] = []
    before, after = _microbatches(own), _microbatches(best)
    if before != after:
        verb = "is" if after == 1 else "are"
        launched = f"{number(after, 'microbatch', 'microbatches')} {verb} launched instead of {before}"
        found.append((launched, _less(after < before)))
    if a["pipeline"] != b["pipeline"]:
        fewer = b["pipeline"] > a["pipeline"]
        cut = f"a rank launches 1/{b['pipeline']} of the layers instead of 1/{a['pipeline']}"
        found.append((cut, _less(fewer)))
    if (again := _again(a)) != (now := _again(b)):
        found.append((f"recomputation, which launches again, is {now} instead of {again}", _more_again(a, b)))
    return _that_moved("host", found, own, best)


def _data(own: Candidate, best: Candidate) -> str:
    a, b = own.setting, best.setting
    found: list[Reason] = []
    if a["zero"] != b["zero"]:
        found.append((f"zero {b['zero']} instead of {a['zero']}", _sharding(a["zero"], b["zero"])))
    if a["shard"] != b["shard"]:
        groups = f"copies shared by {_ranks(b['shard'])} instead of {_ranks(a['shard'])}"
        found.append((groups, 0))
    if a["reshard"] != b["reshard"]:
        again = b["reshard"]
        kept = "dropped and gathered again" if again else "kept for the backward pass"
        found.append((f"parameters are {kept}", _less(not again)))
    if a["overlap_dp"] != b["overlap_dp"]:
        beside = b["overlap_dp"]
        found.append((f"buckets {'run beside compute' if beside else 'wait for compute'}", _less(beside)))
    before, after = (s["tensor"] * s["pipeline"] for s in (a, b))
    if before != after:
        found.append((f"parameters of a GPU are cut {after} instead of {before} ways", _less(after > before)))
    return _that_moved("dp", found, own, best)


def _ranks(shard: int | None) -> str:
    return "all ranks" if shard is None else f"{shard} ranks"


def _sharding(before: int, after: int) -> int:
    """Which way `zero` moves what is sent: 2 sends gradients, and 3 parameters, more often than once a step;
    0 and 1 send as much in other collectives."""
    return 0 if max(before, after) < 2 else _less(after < before)


def _expert(own: Candidate, best: Candidate) -> str:
    a, b = own.setting, best.setting
    found: list[Reason] = []
    if a["expert"] != b["expert"]:
        groups = f"expert groups of {b['expert']} instead of {a['expert']}"
        found.append((groups, _less(b["expert"] < a["expert"])))
    (before, cut), (after, finer) = ((s["expert"], s["expert_tensor"] or s["tensor"]) for s in (a, b))
    if (over := before * cut) != (now := after * finer) and (cut > 1 or finer > 1):
        found.append((f"all experts lie on {now} GPUs instead of {over}", _less(now < over)))
    if a["recompute"] != b["recompute"] and "full" in (a["recompute"], b["recompute"]):
        again = b["recompute"] == "full"
        found.append((f"recomputation {'repeats' if again else 'no longer repeats'} them", _less(not again)))
    if a["overlap_ep"] != b["overlap_ep"] and min(a["expert"], b["expert"]) > 1:
        turns = b["overlap_ep"]
        found.append((f"passes {'take turns' if turns else 'no longer take turns'}", _less(turns)))
    if a["placement"] != b["placement"]:
        found.append((f"placed {b['placement']} instead of {a['placement']}", 0))
    return _that_moved("ep", found, own, best)


def _less(yes: bool) -> int:
    """The sign of a reason that shortens where `yes`, and lengthens where not."""
    return -1 if yes else 1


def _no_reason(own: Candidate, best: Candidate) -> str:
    return ""


REASONS: dict[str, Callable[[Candidate, Candidate], str]] = {
    "bubble": _bubble,
    "compute": _compute,
    "tp": _tensor,
    "dp": _data,
    "ep": _expert,
    "host": _host,
}


def _time(seconds: float) -> str:
    return show_time(seconds) if seconds > 0 else "none"


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
