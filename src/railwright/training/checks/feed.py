"""What a step reads of its data set, and what it waits for that.

Loading runs beside the step before (PyTorch's DataLoader with workers), so a step takes as long as the slower
of the two; without workers every microbatch is loaded before its first forward pass.
Who loads: one rank of every tensor-parallel group on the first and on the last pipeline stage, as Megatron-LM
does (get_batch of pretrain_gpt.py; the others get it by broadcast), and of every context-parallel rank the
whole sequence.  Ranks of one server that load the same sequences read storage once: the page cache has them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from railwright.errors import PlanError
from railwright.model.recommendation.dlrm import Recommender
from railwright.model.shape.architecture import Transformer
from railwright.spec.recommendation import RecommendationJob
from railwright.spec.training import TrainingJob
from railwright.training.demand.model_flops import job_flops_per_token
from railwright.training.lanes.result import Feed, StepResult
from railwright.training.lanes.timeline import Event, Share
from railwright.training.layout.placement import Groups
from railwright.training.layout.schedule import route_of
from railwright.units import DAY, show_amount, show_count, show_rate, show_size, show_time

NARROW_VOCABULARY, NARROW_TOKEN, TOKEN = 65_500, 2.0, 4.0
"""Vocabularies below this are stored in 2 bytes a token, others in 4.  Source: Megatron-LM, megatron/core/
datasets/indexed_dataset.py, DType.optimal_dtype (uint16, int32)."""

NUMBER = 4.0
"""Bytes of a recommendation sample's label, of each of its dense numbers and of each index: fp32 and int32,
as in the multi-hot Criteo data set of MLPerf's DLRM-DCNv2 (214 indices, so 912 bytes a sample)."""

LONGEST = 100 * 365 * DAY
"""A step that loads for longer stands for a unit that was mistaken. [s]"""

HIDEABLE = 10.0
"""Times as long as a step's model FLOPs at the peak of its GPUs that loading may take before it is told
without a predicted step: published steps reach more than a tenth of the peak (training/data/mfu.yaml; 10.8 %
the least there), and so would wait."""


def feed_of(job: TrainingJob, arch: Transformer, groups: Groups) -> Feed:
    """What a training job's step reads, and how long its loaders take."""
    token = NARROW_TOKEN if arch.vocab < NARROW_VOCABULARY else TOKEN
    size = job.data.size or token * job.sequence
    sizes = groups.sizes
    each = job.global_batch / sizes.data
    route = route_of(job.layout)
    ends = sorted({route.stage(q) for q in range(route.pieces) if route.first(q) or route.last(q)})
    loading = groups.server[groups.grid[ends, :, 0]]  # (ends, D C): context-parallel ranks are neighbours
    replica = np.broadcast_to(np.arange(loading.shape[1]) // sizes.context, loading.shape)
    pairs = np.unique(np.stack((loading.ravel(), replica.ravel()), axis=1), axis=0)
    held = np.bincount(pairs[:, 0])
    return _feed(job, size, float(held.sum()) * each, float(held.max()) * each, each)


def starving(job: TrainingJob, arch: Transformer, groups: Groups, peak: float) -> list[str]:
    """A sentence where no step at a usual pace hides how long loading takes; known before the step is.

    peak  of one GPU in the job's number format [flop/s]
    Raises PlanError where one step loads for longer than a hundred years.
    """
    feed = feed_of(job, arch, groups)
    tokens = job.global_batch * job.sequence
    least = job_flops_per_token(job, arch) * tokens / (peak * groups.grid.size)
    if feed.seconds <= HIDEABLE * least:
        return []
    steps = job.tokens / tokens
    slow, need = _why(feed, least)
    run = f"{show_count(math.ceil(steps))} step{'s' if steps > 1.0 else ''}"
    return [
        f"Every step loads its data for {show_time(feed.seconds)} at least, and the whole run ({run}) for "
        f"{show_time(steps * feed.seconds)}: {slow}, where the GPUs at their peak would take "
        f"{show_time(least)}; {need}."
    ]


def feed_of_samples(job: RecommendationJob, model: Recommender, gpus: int, per_server: int) -> Feed:
    """What a recommendation job's step reads: every GPU its own samples, with the indices of all tables."""
    size = job.data.size or NUMBER * (1 + model.dense_features + sum(model.lookups))
    each = job.global_batch / gpus
    return _feed(job, size, float(job.global_batch), each * per_server, each)


def fed(step: StepResult, feed: Feed) -> StepResult:
    """A step with what it reads, as long as it then takes, and a warning where it waits."""
    wait = feed.wait(step.step_time)
    if wait <= 0.0:
        return replace(step, feed=feed)
    span = step.step_time + wait
    slower = step.step_time / span
    ranks = dict.fromkeys(e.rank for e in step.timeline.events)
    waiting = [Event(rank, "host", "waiting for data", "data", step.step_time, span) for rank in ranks]
    events = sorted((*step.timeline.events, *waiting), key=lambda e: e.rank)  # stable: by start within a rank
    return replace(
        step,
        step_time=span,
        tokens_per_second=step.tokens_per_second * slower,
        tokens_per_second_per_gpu=step.tokens_per_second_per_gpu * slower,
        mfu=step.mfu * slower,
        shares=(*step.shares, Share("data", feed.seconds, wait)),
        timeline=replace(step.timeline, events=tuple(events), span=span),
        time_to_train=step.time_to_train / slower,
        gpu_hours=step.gpu_hours / slower,
        warnings=(*step.warnings, _told(feed, step.step_time, wait)),
        feed=feed,
    )


def _feed(job: TrainingJob | RecommendationJob, size: float, read: float, server: float, rank: float) -> Feed:
    """read, server, rank: sequences that all servers, the busiest one, and one loading rank take."""
    data = job.data
    feed = Feed(
        size=size,
        read=read * size,
        server=server * size,
        reading=server * size / data.storage if data.storage else 0.0,
        preparing=rank * data.prepare / max(data.workers, 1),
        ahead=data.workers > 0,
    )
    if feed.seconds > LONGEST:
        raise PlanError(
            f"{job.name}: loading the data of one step takes longer than a hundred years; "
            "give a smaller data.size or data.prepare, or a faster data.storage."
        )
    return feed


def _told(feed: Feed, alone: float, wait: float) -> str:
    """Why the step waits, and what would end that."""
    if not feed.ahead:
        return (
            f"{show_time(wait)} of every step go into loading its data, which no loader process does ahead: "
            "give data.workers."
        )
    slow, need = _why(feed, alone)
    why = f"{slow}, and the GPUs take {show_time(alone)}"
    return f"Every step waits {show_time(wait)} for its data: {why}; {need}."


def _why(feed: Feed, beside: float) -> tuple[str, str]:
    """What takes so long to load, and what would be loaded in a time. [s]"""
    if feed.reading >= feed.preparing:
        return (
            f"a server reads its {show_size(feed.server)} in {show_time(feed.reading)}",
            f"{show_rate(feed.server / beside)} a server would keep up",
        )
    return (
        f"a rank's loaders prepare its share in {show_time(feed.preparing)}",
        f"{show_amount(feed.preparing / beside)} times the workers would keep up",
    )
