"""Pipeline schedules: in which order each stage runs the forward and backward passes of its chunks.

Legend: p stages, v model chunks per stage, m microbatches; F, B, W times of a stage's forward pass, of its
whole backward pass, and of the weight gradients in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache

from railwright.spec.training import Layout, TrainingJob
from railwright.training.layout.folded import dualpipe, dualpipe_v, zb_v
from railwright.training.layout.route import Kind, Orders, Route, Unit


def one_f_one_b(stages: int, chunks: int, microbatches: int) -> Orders:
    """1F1B: stage s runs p - s - 1 forwards, then alternates, then drains; bubble (p-1)(F+B).

    Source: Narayanan et al., SC'21 (arXiv 2104.04473), section 2.2.1 (PipeDream-Flush).
    """
    assert chunks == 1, "1F1B has one chunk per stage"
    forward, backward = _in_groups(stages, chunks, microbatches, "B")
    return tuple(_alternate(forward, backward, stages - s - 1) for s in range(stages))


def gpipe(stages: int, chunks: int, microbatches: int) -> Orders:
    """GPipe: all forwards, then all backwards in reverse; bubble (p-1)(F+B), m sets of activations.

    Source: Huang et al., NeurIPS 2019 (arXiv 1811.06965), section 2.3.
    """
    assert chunks == 1, "GPipe has one chunk per stage"
    order = [Unit("F", 0, i) for i in range(microbatches)]
    order += [Unit("B", 0, i) for i in reversed(range(microbatches))]
    return (tuple(order),) * stages


def interleaved(stages: int, chunks: int, microbatches: int) -> Orders:
    """Interleaved 1F1B: v chunks per stage, bubble (p-1)(F+B)/v; m must be a multiple of p.

    Source: Narayanan et al., SC'21, section 2.2.2; Megatron-LM, core/pipeline_parallel/schedules.py
    (warm-up of 2 (p - s - 1) + (v - 1) p passes).
    """
    forward, backward = _in_groups(stages, chunks, microbatches, "B")
    return tuple(
        _alternate(forward, backward, 2 * (stages - s - 1) + (chunks - 1) * stages) for s in range(stages)
    )


def paired(stages: int, chunks: int, microbatches: int) -> Orders:
    """1F1B or interleaved 1F1B whose steady passes are a forward of one microbatch run together with a
    backward of another: each computes while the other is in its expert all-to-all.

    One more forward pass than in the schedule without goes ahead, so that the two never need each other.  As
    many passes as that stand alone, at the beginning and at the end.
    Source: Megatron-LM core 0.14, core/pipeline_parallel/combined_1f1b.py, and schedules.py,
    get_pp_rank_microbatches (overlap_moe_expert_parallel_comm).
    """
    plain = interleaved if chunks > 1 else one_f_one_b
    return tuple(_together(order) for order in plain(stages, chunks, microbatches))


def zero_bubble(stages: int, chunks: int, microbatches: int) -> Orders:
    """ZB-H1: 1F1B whose weight gradients fill the drain; bubble (p-1)(F+B-2W)/v, memory of 1F1B's first
    stage.

    Stage s computes the weight gradients of a pass s passes after its input gradients, so every stage holds
    p v passes of a chunk, that is p sets of activations.  With several chunks microbatches advance as in
    interleaved 1F1B, with p - s - 1 passes fewer ahead, since what comes back is no longer than what goes.
    Source: Qi et al., ICLR 2024 (arXiv 2401.10241), section 2.3 and table 1; several chunks: PyTorch,
    torch.distributed.pipelining, ScheduleInterleavedZeroBubble.
    """
    forward, backward = _in_groups(stages, chunks, microbatches, "I")
    return tuple(
        _weights_behind(_alternate(forward, backward, stages - s - 1 + (chunks - 1) * stages), s)
        for s in range(stages)
    )


SCHEDULES: dict[str, Callable[[int, int, int], Orders]] = {
    "1f1b": one_f_one_b,
    "gpipe": gpipe,
    "interleaved": interleaved,
    "paired": paired,
    "zb-h1": zero_bubble,
    "zb-v": zb_v,
    "dualpipe": dualpipe,
    "dualpipe-v": dualpipe_v,
}

SHARED = ("dualpipe", "dualpipe-v")
"""Schedules of which every steady pass is a forward run together with a backward."""

TOGETHER = ("paired", *SHARED)
"""Orders in which a forward and a backward run together."""

SPLIT = ("zb-h1", "zb-v")
"""Schedules whose backward passes are all split in input and weight gradients."""

FOLDED = ("zb-v", *SHARED)
"""Schedules that give every stage two pieces of the model, whatever `virtual_pipeline` says."""


STAGED = ("gpipe", "zb-h1")
"""Schedules that are none on one stage, which frameworks run without a pipeline: a forward pass and its
backward pass, microbatch after microbatch (Megatron-LM, core/pipeline_parallel/schedules.py,
get_forward_backward_func: forward_backward_no_pipelining; torchtitan, train.py: without pp_enabled no
schedule is built)."""


def schedule_name(layout: Layout) -> str:
    """The schedule that stages of a layout run: the one it asks for, where there are several; by default
    interleaved when a stage has several chunks."""
    if layout.schedule in STAGED and layout.pipeline == layout.virtual_pipeline == 1:
        return "1f1b"
    if layout.schedule != "auto":
        return layout.schedule
    return "interleaved" if layout.virtual_pipeline > 1 else "1f1b"


def route_of(layout: Layout) -> Route:
    """Which stage holds which piece under a layout."""
    return route_under(schedule_name(layout), layout.pipeline, layout.virtual_pipeline)


def route_under(name: str, stages: int, virtual: int) -> Route:
    """The same under a schedule of SCHEDULES; `virtual` stages of each where that does not fold the model."""
    if name in FOLDED:
        return Route(stages, 2, "mirror" if name == "dualpipe" else "fold")
    return Route(stages, virtual)


def order_name(job: TrainingJob) -> str:
    """The schedule whose order a job's stages run passes in: its own, or `paired` where that hides expert
    all-to-alls.

    Megatron-LM pairs passes without a pipeline and in interleaved ones (TransformerConfig, __post_init__:
    overlap_moe_expert_parallel_comm).
    """
    layout, name = job.layout, schedule_name(job.layout)
    alternating = name == "interleaved" or (name == "1f1b" and layout.pipeline == 1)
    hidden = job.overlap.ep and layout.expert > 1 and layout.zero < 3
    return "paired" if hidden and alternating else name


def in_pairs(job: TrainingJob) -> bool:
    """Whether whole passes run in pairs (`paired`)."""
    return order_name(job) == "paired"


def orders_of(job: TrainingJob, microbatches: int) -> Orders:
    """Units of every stage in the order it runs them, of a job that passed `plan.check`."""
    return schedule(job.layout.pipeline, route_of(job.layout).chunks, microbatches, order_name(job))


@lru_cache(maxsize=64)
def schedule(stages: int, chunks: int, microbatches: int, name: str = "auto") -> Orders:
    """Units of every stage in the order it runs them: interleaved when a stage has several chunks."""
    if name == "auto":
        name = "interleaved" if chunks > 1 else "1f1b"
    return SCHEDULES[name](stages, chunks, microbatches)


def finishing(order: tuple[Unit, ...], chunks: int) -> frozenset[Unit]:
    """The last unit of each chunk that adds to its gradients."""
    last = {u.backward_chunk: u for u in order if u.kind in ("B", "W", "FB")}
    return frozenset(last[c] for c in range(chunks) if c in last)


def finishing_of(job: TrainingJob, microbatches: int) -> tuple[frozenset[Unit], ...]:
    """`finishing` of every stage of a job."""
    return _finishing(job.layout.pipeline, route_of(job.layout).chunks, microbatches, order_name(job))


@lru_cache(maxsize=64)
def _finishing(stages: int, chunks: int, microbatches: int, name: str) -> tuple[frozenset[Unit], ...]:
    return tuple(finishing(order, chunks) for order in schedule(stages, chunks, microbatches, name))


def _in_groups(stages: int, chunks: int, microbatches: int, kind: Kind) -> tuple[list[Unit], list[Unit]]:
    """Forward passes and backward ones of a kind in the order in which they run: microbatches advance in
    groups of p, all chunks of one group before the next group; with one chunk one after the other."""
    assert chunks == 1 or microbatches % stages == 0, "interleaving needs a multiple of the stages"
    steps = [
        (chunk, i)
        for group in range(0, microbatches, stages)
        for chunk in range(chunks)
        for i in range(group, min(group + stages, microbatches))
    ]
    forward = [Unit("F", chunk, i) for chunk, i in steps]
    return forward, [Unit(kind, chunks - 1 - chunk, i) for chunk, i in steps]


def _weights_behind(order: tuple[Unit, ...], delay: int) -> tuple[Unit, ...]:
    """The same order with the weight gradients of each pass so many passes after its input gradients."""
    found: list[Unit] = []
    waiting: deque[Unit] = deque()
    for unit in order:
        found.append(unit)
        if unit.kind == "I":
            waiting.append(unit._replace(kind="W"))
            if len(waiting) > delay:
                found.append(waiting.popleft())
    return (*found, *waiting)


def _alternate(forward: list[Unit], backward: list[Unit], warm_up: int) -> tuple[Unit, ...]:
    """Warm-up forwards, then one forward and one backward in turn, then the remaining backwards."""
    count = len(forward)
    warm_up = min(warm_up, count)
    order = forward[:warm_up]
    for i in range(count - warm_up):
        order += (forward[warm_up + i], backward[i])
    return tuple(order + backward[count - warm_up :])


def _together(order: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """An order of forwards and backwards with one more forward ahead, and then one of each at a time."""
    forward = [unit for unit in order if unit.kind == "F"]
    backward = [unit for unit in order if unit.kind == "B"]
    ahead = min(next(i for i, unit in enumerate(order) if unit.kind == "B"), len(forward))
    pairs = zip(forward[ahead:], backward, strict=False)
    merged = [Unit("FB", f.chunk, f.microbatch, b.microbatch, b.chunk) for f, b in pairs]
    return (*forward[:ahead], *merged, *backward[len(merged) :])
