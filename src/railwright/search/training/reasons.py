"""Which settings of two layouts lengthen or shorten a share of the step, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from railwright.search.space.changes import schedule_of
from railwright.search.training.result import Candidate
from railwright.training.lanes.result import ADAM
from railwright.training.layout.schedule import in_pairs
from railwright.units import number

ONE_FORM = ("1f1b", "interleaved", "gpipe")
"""Schedules whose bubble is (p - 1) / (v m) of the passes; others fill theirs with weight gradients."""

NEAR = 0.1
"""How far a bubble may be off that form, of itself, to be explained by it; sends move it less."""

RECOMPUTED = ("none", "selective", "full")
"""From nothing to all."""


Reason = tuple[str, int]
"""Words, and whether what they say lengthens a share (1) or shortens it (-1); 0 for either."""


def reason(kind: str, own: Candidate, best: Candidate) -> str:
    """Why a share of the best layout's step is another than of the own one's; '' where no setting says so."""
    return REASONS[kind](own, best) if kind in REASONS else ""


def _bubble(own: Candidate, best: Candidate) -> str:
    a, b = own.setting, best.setting
    before, after = schedule_of(a), schedule_of(b)
    if all(map(_as_formed, (own, best))):
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
    if (paired := in_pairs(best.job)) != in_pairs(own.job):
        found.append(f"passes {'run' if paired else 'no longer run'} in pairs")
    return ", ".join(found)


def _as_formed(one: Candidate) -> bool:
    """Whether a bubble is the form's, of a schedule that has it: not where passes run in pairs, or where
    stages that take longer than others make these wait."""
    if one.setting["pipeline"] == 1:
        return True
    if schedule_of(one.setting) not in ONE_FORM or in_pairs(one.job):
        return False
    bubble, others = (sum(map(one.step.exposed, kinds)) for kinds in (("bubble",), ("dp", ADAM)))
    passes = one.step.step_time - bubble - others
    return abs(bubble / passes / _form(one) - 1) < NEAR


def _form(one: Candidate) -> float:
    """(p - 1) / (v m): the bubble over the passes of a stage, where all stages are alike."""
    s = one.setting
    return float((s["pipeline"] - 1) / (s["virtual_pipeline"] * _microbatches(one)))


def _idle(one: Candidate) -> str:
    s = one.setting
    count = _microbatches(one)
    if s["pipeline"] == 1:
        return "0 (one stage)"
    return f"{s['pipeline'] - 1} / ({s['virtual_pipeline']} x {count}) = {_form(one):.1%}"


def _microbatches(one: Candidate) -> int:
    return int(one.job.global_batch // (_data_ranks(one) * one.setting["micro_batch"]))


def _data_ranks(one: Candidate) -> int:
    # gpus follow from what the step reports per GPU
    gpus = round(one.step.tokens_per_second / one.step.tokens_per_second_per_gpu)
    s = one.setting
    return int(gpus // (s["tensor"] * s["context"] * s["pipeline"]))


def _that_moved(kind: str, found: list[Reason], own: Candidate, best: Candidate) -> str:
    """The reasons that move a share as it was moved."""
    moved = 1 if best.step.exposed(kind) > own.step.exposed(kind) else -1
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
    before, after = _beside(own), _beside(best)
    found += [(f"it is slowed by {words} beside it", 1) for words in after if words not in before]
    found += [(f"it is no longer slowed by {words}", -1) for words in before if words not in after]
    return _that_moved("compute", found, own, best)


def _beside(one: Candidate) -> list[str]:
    """What is sent beside the compute of every pass, which takes longer meanwhile (`contention`).

    What goes once a step, gradients under zero 0 and 1 and parameters under 1 and 2, is beside few passes.
    """
    s, job = one.setting, one.job
    copies, many = _data_ranks(one) * s["context"] > 1, _microbatches(one) > 1
    sent = {
        "tensor-parallel communication": s["tensor"] > 1 and s["overlap_tp"],
        "expert all-to-alls": s["expert"] > 1 and s["overlap_ep"],
        "keys and values on their ring": s["context"] > 1 and s["context_kind"] == "ring" and s["overlap_cp"],
        "gathers of parameters": copies and s["zero"] == 3 and s["overlap_dp"],
        "reductions of every microbatch's gradients": copies
        and s["zero"] >= 2
        and job.layout.reduce_each
        and s["overlap_dp"]
        and many,
    }
    return [words for words, runs in sent.items() if runs]


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


REASONS: dict[str, Callable[[Candidate, Candidate], str]] = {
    "bubble": _bubble,
    "compute": _compute,
    "tp": _tensor,
    "dp": _data,
    "ep": _expert,
    "host": _host,
}
