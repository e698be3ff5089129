"""A lower bound of step time for all layouts of a block at once, from what each mechanism takes at least.

Legend: X layouts of one block that differ in what decides a pass, p stages, v chunks of a stage, m
microbatches, G kinds of chunk; *_xp means shape (X, p).  `long` is a pass as it runs undisturbed, `short`
one that nothing slows.

Why it never exceeds `training.simulate` (docs/training/search.md has the argument in full):
- the first pass of stage s waits for a forward of every stage before it, and behind its last backward one of
  every stage before it follows;
- a stage runs all its passes one after the other, and none takes less than its tasks do alone;
- a pass within which data-parallel communication begins or ends counts as short, all others as they are;
- under 1F1B two neighbouring stages hand a microbatch to and fro, so every second one pays for two sends;
- every stage waits for the gradients of all before the optimizer begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from railwright.search.bounds.ends import Ends
from railwright.search.bounds.laws import (
    ALONE,
    BACKWARD,
    BARE,
    CHAIN,
    COMPUTE,
    FORWARD,
    HOST,
    INPUTS,
    LONE,
    SURE,
    WEIGHTS,
    Floats,
)
from railwright.training.layout.route import Kind, Route
from railwright.training.step.quick import KINDS, finish_times

Places = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""Which kind of chunk each stage has at each place."""


@dataclass(frozen=True)
class OneByOne:
    """Passes of schedules that are placed or counted unit by unit, since no form of them is known: those that
    fold the model, and ZB-H1 with virtual stages.

    route          which stage holds which piece
    seconds_dxpvk  undisturbed and with data-parallel communication beside them (d), by `Unit.kind` as
                   KINDS numbers it; 'FB' counts for the forward chunk [s]
    units_xpvk     how many of them, where they are only summed; without, the schedule places them
    known          when every stage ends, placed, by d and whether sends are hidden [s]
    """

    route: Route
    seconds_dxpvk: Floats
    units_xpvk: Floats | None = None
    known: dict[tuple[bool, bool], Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class Passes:
    """Passes of a block's stages [s].

    long_xbg, short_xbg  forward, backward and split weight gradients (b) of every kind of chunk
    last_xbg, compute_xbg  when its last compute ends at the earliest, and all of its compute
    kind_pv              which kind of chunk each stage has at each place
    send_x, count_x      one transfer between stages; microbatches
    schedule             as in the study
    each                 its passes one by one, where the schedule wants that
    paired_xp            what all passes of a stage take where forwards and backwards run together; elsewhere
                         NaN, or None if nowhere
    """

    long_xbg: Floats
    short_xbg: Floats
    last_xbg: Floats
    compute_xbg: Floats
    kind_pv: Places
    send_x: Floats
    count_x: Floats
    schedule: str
    each: OneByOne | None = None
    paired_xp: Floats | None = None


def chunk_laws(laws_xbkl: Floats, counts_gk: Floats) -> Floats:
    """(X, pass, kind of chunk, law) from what the parts of chunks take. [s]"""
    found: Floats = np.einsum("xbkl,gk->xbgl", laws_xbkl, counts_gk, optimize=True)
    return found


def chunk_times(laws_xbgl: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Long and short passes, last compute and compute of every kind of chunk. [s]"""
    short = laws_xbgl[..., (*SURE, LONE)].max(-1)
    return np.maximum(laws_xbgl[..., CHAIN], short), short, laws_xbgl[..., BARE], laws_xbgl[..., COMPUTE]


def split_times(long_xbg: Floats, short_xbg: Floats, kind_pv: Places) -> Floats:
    """`OneByOne.seconds_dxpvk` of schedules that split all backward passes. [s]"""
    found = np.zeros((2, len(long_xbg), *kind_pv.shape, len(KINDS)))
    kinds: tuple[Kind, ...] = ("F", "I", "W")
    for which, kind in zip((FORWARD, BACKWARD, WEIGHTS), kinds, strict=True):
        found[0, ..., KINDS[kind]] = long_xbg[:, which][:, kind_pv]
        found[1, ..., KINDS[kind]] = short_xbg[:, which][:, kind_pv]
    return found


def shared_times(laws_xbgl: Floats, kind_pv: Places) -> Floats:
    """`OneByOne.seconds_dxpvk` of schedules that run two passes side by side, from laws. [s]

    Of a forward and a backward pass that run side by side only the sum of each law is sure.  The launches of
    a backward pass are a task only where they are longer than the whole chunk's compute.
    """
    forward, back, inputs = (laws_xbgl[:, b][:, kind_pv] for b in (FORWARD, BACKWARD, INPUTS))
    sure: dict[Kind, Floats] = {
        "F": forward[..., (LONE, HOST)].max(-1),
        "B": back[..., (LONE, HOST)].max(-1),
        "I": inputs[..., (LONE, HOST)].max(-1),
        # The weight gradients of a split pass: what its input gradients leave of the compute.
        "W": np.maximum(back[..., COMPUTE] - inputs[..., COMPUTE], 0.0),
    }
    back[..., HOST] = np.where(back[..., HOST] > back[..., ALONE], back[..., HOST], 0.0)
    pair = forward + back[:, :, ::-1]
    disturbed = pair[..., SURE].max(-1)
    found = np.empty((2, *disturbed.shape, len(KINDS)))
    for kind, k in KINDS.items():
        found[..., k] = sure.get(kind, disturbed)
    found[0, ..., KINDS["FB"]] = np.maximum(pair[..., CHAIN], disturbed)
    return found


def step_time(
    passes: Passes, ends: Sequence[Ends], tied: float, mirror: float, overlap_dp: bool, overlap_pp: bool
) -> Floats:
    """(X,) seconds that a step takes at least, under one way of data parallelism.

    ends    of every stage
    tied, mirror  all-reduces between stages once gradients are there
    """
    if passes.each is not None:
        finish_xp = _one_by_one(passes, passes.each, ends, overlap_pp)
    else:
        finish_xp = _one_way(passes, ends, overlap_dp, overlap_pp)
    reduce = np.array([one.last if overlap_dp else one.reduce for one in ends])
    if overlap_dp:
        over_xg = (passes.long_xbg - np.minimum(passes.last_xbg, passes.long_xbg))[:, BACKWARD]
        over_xp = over_xg[:, passes.kind_pv[:, 0]]
        if not overlap_pp:
            # Behind its last pass every stage but the first waits until the gradients are sent on.
            over_xp[:, 1:] += passes.send_x[:, None]
        reduce = np.maximum(reduce - over_xp, 0.0)
    ready_xp = finish_xp + reduce
    barrier_x = ready_xp.max(1) + mirror
    if tied:
        barrier_x = np.maximum(barrier_x, np.maximum(ready_xp[:, 0], ready_xp[:, -1]) + tied)
    bound: Floats = barrier_x + _after(ends, overlap_dp)
    return bound


def launched_time(passes: Passes, ends: Sequence[Ends], mirror: float, overlap_dp: bool) -> Floats:
    """(X,) seconds that a step takes at least whose passes wait for a host that runs ahead.

    passes  `short_xbg` with what each waits for launches where nothing is exchanged beside it
    A pass that takes longer than that puts the host ahead by as much, and only by so much can later ones be
    shorter: all passes of a stage together are not.  Nor is the first, which finds no host ahead, so that the
    first forward pass on every stage before counts whole too; of what follows the last nothing is sure.
    """
    fill_xp = _before(passes.short_xbg[:, FORWARD][:, passes.kind_pv[:, 0]], passes.send_x)
    work_xp = passes.count_x[:, None] * passes.short_xbg.sum(1)[:, passes.kind_pv].sum(-1)
    bound: Floats = (fill_xp + work_xp).max(1) + mirror + _after(ends, overlap_dp)
    return bound


def _before(seconds_xp: Floats, send_x: Floats) -> Floats:
    """(X, p) seconds that one pass on every stage before each takes, with a send behind every one."""
    found: Floats = np.cumsum(seconds_xp, 1) - seconds_xp + np.arange(seconds_xp.shape[1]) * send_x[:, None]
    return found


def _after(ends: Sequence[Ends], overlap_dp: bool) -> float:
    """Behind the gradients: the longest optimizer, and parameters gathered where that is not hidden. [s]"""
    return max(one.optimizer + (0.0 if overlap_dp else one.gather) for one in ends)


def _one_way(passes: Passes, ends: Sequence[Ends], overlap_dp: bool, overlap_pp: bool) -> Floats:
    """(X, p) end of each stage's last pass, at least, if every microbatch enters at the first stage. [s]"""
    count = passes.count_x[:, None]
    disturbed = any(one.beside for one in ends)
    every = any(one.lane for one in ends)
    long, short = passes.long_xbg, passes.short_xbg
    used = short if every else long
    floor = passes.compute_xbg if ends[0].sharded else np.minimum(passes.last_xbg, used)
    extra_f = _added([one.forward for one in ends], floor, used, passes, FORWARD)
    extra_b = _added([one.backward for one in ends], floor, used, passes, BACKWARD)
    work_xp = count * (used.sum(1)[:, passes.kind_pv] + extra_f + extra_b).sum(-1)
    if disturbed and not every:
        work_xp = work_xp - _disturbance(passes)
    if passes.paired_xp is not None:
        work_xp = np.where(np.isnan(passes.paired_xp), work_xp, passes.paired_xp)
    work_xp = np.maximum(work_xp, count * np.array([one.waited for one in ends]))
    edge = short if disturbed else long
    first_xp = edge[:, FORWARD][:, passes.kind_pv[:, 0]] + extra_f[:, :, 0]
    last_xp = edge[:, BACKWARD][:, passes.kind_pv[:, 0]] + extra_b[:, :, 0]
    weights_xp = edge[:, WEIGHTS][:, passes.kind_pv[:, 0]]
    # The host launches the first pass while that waits for its parameters, and may end behind its compute.
    hidden_x = (used - floor)[:, FORWARD][:, passes.kind_pv[0, 0]]
    wait_x = np.maximum((ends[0].first if overlap_dp else 0.0) - hidden_x, 0.0)
    finish_xp, fill_xp = _pipeline(passes, first_xp, last_xp, weights_xp, work_xp, wait_x, overlap_pp)
    # What no pass waits for may go on behind the last one, while the stages before run theirs.
    found: Floats = np.maximum(finish_xp, fill_xp + count * np.array([one.lane for one in ends]))
    return found


def _added(
    seconds: Sequence[tuple[float, ...]], floor: Floats, used: Floats, passes: Passes, which: int
) -> Floats:
    """(X, p, v) seconds that waiting for data-parallel communication adds to passes, at least."""
    added: Floats = (floor - used)[:, which][:, passes.kind_pv] + np.array(seconds)
    return np.maximum(added, 0.0)


def _pipeline(
    passes: Passes,
    first_xp: Floats,
    last_xp: Floats,
    weights_xp: Floats,
    work_xp: Floats,
    wait_x: Floats,
    overlap_pp: bool,
) -> tuple[Floats, Floats]:
    """(X, p) end of each stage's last pass, and begin of its first, at least. [s]"""
    stages, chunks = passes.kind_pv.shape
    send, count = passes.send_x[:, None], passes.count_x[:, None]
    before = np.arange(stages)
    fill_xp = _before(first_xp, passes.send_x) + wait_x[:, None]
    drain_xp = _before(last_xp, passes.send_x)
    if not overlap_pp and stages > 1:
        # Every pass but the last forward of the model and the first backward sends, and the sender waits.
        sends = np.full(stages, 2.0 * chunks)
        sends[0] -= 1.0
        sends[-1] -= 1.0
        work_xp = work_xp + count * sends * send
        drain_xp = drain_xp - np.minimum(before, 1) * send
    finish_xp = fill_xp + work_xp
    if passes.schedule == "zb-h1":
        # Behind the last input gradients of stage s come s + 1 weight gradients there, and the input
        # gradients of the stages before it, of which the first computes one more weight gradient.
        behind_xp = np.minimum(before + 1, count) * weights_xp
        total_x = (finish_xp - behind_xp + drain_xp).max(1) + weights_xp[:, 0]
        finish_xp[:, 0] = np.maximum(finish_xp[:, 0], total_x)
        return finish_xp, fill_xp
    total_x = (finish_xp + drain_xp).max(1)
    if passes.schedule in ("auto", "1f1b") and chunks == 1 and stages > 1:
        total_x = np.maximum(total_x, _two_and_fro(passes, first_xp, last_xp, fill_xp, drain_xp, overlap_pp))
    finish_xp[:, 0] = np.maximum(finish_xp[:, 0], total_x)
    return finish_xp, fill_xp


def _one_by_one(passes: Passes, each: OneByOne, ends: Sequence[Ends], overlap_pp: bool) -> Floats:
    """The same where passes are placed or counted one by one. [s]"""
    disturbed, mirrored = any(one.beside for one in ends), each.route.shape == "mirror"
    seconds, send_x, count_x = each.seconds_dxpvk[int(disturbed)], passes.send_x, passes.count_x
    if each.units_xpvk is None:
        if (disturbed, overlap_pp) not in each.known:
            each.known[disturbed, overlap_pp] = np.array(
                [
                    finish_times(each.route, int(count), passes.schedule, one, send, not overlap_pp)
                    for one, count, send in zip(seconds, count_x.tolist(), send_x.tolist(), strict=True)
                ]
            )
        finish = each.known[disturbed, overlap_pp]
    else:
        step = seconds[:, :, 0, KINDS["F"]] + send_x[:, None]
        left = np.cumsum(step, 1) - step
        if mirrored:  # chunk 1 of a stage is chunk 0 of its mirror
            left = np.minimum(left, left[:, ::-1])
        finish = (each.units_xpvk * seconds).sum((-1, -2)) + left
    # A lane is of all chunks; of two copies half of the microbatches run through each.
    lane_p = np.array([one.lane for one in ends]) / (2 if mirrored else 1)
    found: Floats = np.maximum(finish, count_x[:, None] * lane_p)
    return found


def _two_and_fro(
    passes: Passes,
    first_xp: Floats,
    last_xp: Floats,
    fill_xp: Floats,
    drain_xp: Floats,
    overlap_pp: bool,
) -> Floats:
    """1F1B on the last two stages: backward i+1 of the last one needs its forward, sent by the stage before,
    which first runs backward i-1, sent to it: two microbatches of both stages and two sends in a row. [s]"""
    both_x = (first_xp + last_xp)[:, -2:]
    steps = np.floor((passes.count_x - 1) / 2)
    odd = (passes.count_x - 1) % 2
    more = 0.0 if overlap_pp or passes.kind_pv.shape[0] == 2 else passes.send_x
    period = both_x.sum(1) + 2 * passes.send_x + more
    back = 0.0 if overlap_pp else passes.send_x
    total: Floats = fill_xp[:, -1] + both_x[:, 1] * (1 + odd) + steps * period + drain_xp[:, -1] + back
    return total


def _disturbance(passes: Passes) -> Floats:
    """(X, p) seconds by which passes beside gradient and parameter buckets may be shorter than undisturbed.

    A pass beside which buckets run all the time computes at the slowed pace throughout, so it is no
    shorter than undisturbed.  Only where buckets begin or end within a pass may it be: once where the
    parameters are there, and for every chunk in its last backward pass and where the last of its buckets
    ends.  Those count as short.
    """
    gap_xp = (passes.long_xbg - passes.short_xbg).max(1)[:, passes.kind_pv].max(-1)
    chunks = passes.kind_pv.shape[1]
    found: Floats = np.maximum(gap_xp, 0.0) * np.minimum(2 * chunks + 2, 2 * chunks * passes.count_x[:, None])
    return found
