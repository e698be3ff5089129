"""The physics of one replica, tabulated for the simulator; and where a step's time goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.serving.engine.attention import (
    beside_prompts,
    decode_attention,
    empty_blocks,
    prefill_attention,
    prefill_launches,
    uneven_attention,
)
from railwright.serving.engine.draft import draft_of
from railwright.serving.engine.exchange import Place, gathers, hop_seconds
from railwright.serving.engine.held import emptying_seconds
from railwright.serving.engine.memory import engine_memory
from railwright.serving.engine.operators import Stage, draft_stage, rank_seconds, row_parts
from railwright.serving.engine.profiles import Engine, engine_of
from railwright.serving.engine.spread import Spread
from railwright.serving.engine.table import StepTable
from railwright.serving.kernels.constants import kernels_of
from railwright.serving.kernels.flash2 import ROWS
from railwright.serving.kernels.times import Floats
from railwright.spec.serving import ServingJob, ServingLayout

HOP_TOKENS = 256.0
"""Tokens whose activations a typical step sends to the next pipeline stage."""


@dataclass(frozen=True)
class StepParts:
    """Where one step's time goes. [s]

    parts  name -> seconds on the GPU, in the order they are computed; 'launches' is the host's time that no
           kernel hides, 'memory' an eager engine's of making room (serving/engine/held.py)
    host   of schedule, inputs and outputs; beside the GPU's time where the engine overlaps it
    total  of the step
    """

    parts: dict[str, float]
    host: float
    total: float


def tabulate(
    job: ServingJob,
    arch: Transformer,
    machine: Machine,
    layout: ServingLayout | None = None,
    spread: Spread | None = None,
) -> StepTable:
    """Times of one replica's engine steps, by what is in the batch.

    layout  of the replica; default: the job's (its prefill pool has its own)
    spread  how unequal the contexts of a batch are; default: all alike
    With speculative decoding a decode step's tokens are those checked, and drafting them is in `decode_rows`
    and `decode`; prefill of the draft is left out.
    Raises PlanError for an unknown engine, GPUs no kernel was measured on, layouts the model cannot be cut
    into, a model that does not fit, and a replica larger than the cluster; RailwrightError for a file of
    measured kernels that cannot be read.
    """
    stage = stage_of(job, arch, machine, layout)
    engine, cut = stage.place.engine, stage.layout
    memory = engine_memory(job, arch, engine, machine.gpu, cut)
    most_tokens, most_requests = (cut.attention_data * most for most in engine.limits(job, machine.gpu))
    longest = float(job.max_length or arch.max_positions or 131072)
    requests = min(float(most_requests), max(1.0, memory.kv_tokens))
    tokens = _grid(1.0, max(min(float(most_tokens), 65536.0), requests, 512.0), 6)
    batches, contexts = _grid(1.0, requests, 3), np.concatenate([[0.0], _grid(16.0, max(longest, 64.0), 3)])
    chunks = _grid(1.0, max(min(float(most_tokens), 65536.0, longest), 64.0), 4)
    # some engines compute a prompt longer than a step's tokens whole
    tokens, chunks = _up_to(tokens, longest), _up_to(chunks, longest)
    decode = decode_attention(stage, batches[:, None], contexts[None, :])
    drafted = np.zeros_like(tokens)
    if job.speculative is not None:
        drafts, count = _drafts(job, stage), job.speculative.tokens
        drafted = count * sum_of(row_parts(drafts, tokens / (count + 1), mixed=False))
        decode = decode + count * decode_attention(drafts, batches[:, None], contexts[None, :])
    prefill = prefill_attention(stage, chunks[:, None], contexts[None, :])
    rows = row_parts(stage, tokens, mixed=True)
    emptying = emptying_seconds(stage, memory, tokens, sum_of(rows) - rows["launches"])
    groups = 1 if engine.balances else cut.attention_data
    prefill = prefill * groups / cut.attention_data
    beside = _beside_prompts(stage, decode, batches, contexts) if stage.tiles else None
    if beside is not None and spread is not None:
        # of all attention-data groups: they end every layer together
        at = batches[:, None], contexts[None, :], contexts[None, :] * spread.longest(batches)[:, None]
        beside = beside + uneven_attention(stage, *at, mixed=True)
        decode = decode + uneven_attention(stage, *at, mixed=False)
    return StepTable(
        tokens=tokens,
        decode_rows=(sum_of(row_parts(stage, tokens, mixed=False)) + drafted) * engine.decode_time,
        mixed_rows=sum_of(rows) + emptying + prefill_launches(stage) * engine.prefill_time,
        requests=batches,
        contexts=contexts,
        decode=decode * engine.decode_time,
        chunks=chunks,
        prefill=prefill * engine.prefill_time,
        stages=cut.pipeline,
        hop=hop_seconds(stage.place, cut, HOP_TOKENS * arch.hidden * 2.0),
        kv_tokens=memory.kv_tokens,
        block=engine.block,
        host_step=engine.host_step,
        host_request=engine.host_request,
        overlaps=engine.overlaps,
        request=engine.request,
        intake=engine.intake,
        mixed_decode=None if beside is None else beside * engine.decode_time,
        beside=empty_blocks(stage) * engine.prefill_time,
        groups=groups,
        group_rows=rank_seconds(stage, tokens) if groups > 1 else None,
        padded=engine.mixed_graphs if gathers(stage.place, cut) else 0,
    )


def step_parts(
    job: ServingJob,
    arch: Transformer,
    machine: Machine,
    *,
    decoding: int,
    context: int,
    prefill: tuple[tuple[int, int], ...] = (),
    layout: ServingLayout | None = None,
) -> StepParts:
    """Where a step's time goes that decodes `decoding` requests of `context` tokens beside prefill chunks.

    prefill  (new tokens, tokens already cached) of each chunk
    Raises PlanError as `tabulate` does, and for an empty step.
    """
    if decoding < 0 or decoding + sum(new for new, _ in prefill) < 1:
        raise PlanError(f"{job.name}: an engine step needs a request that decodes or tokens to prefill.")
    stage = stage_of(job, arch, machine, layout)
    engine = stage.place.engine
    tokens = np.array([float(decoding + sum(new for new, _ in prefill))])
    parts = {k: float(v[0]) for k, v in row_parts(stage, tokens, mixed=bool(prefill)).items()}
    kernels = np.array([sum(parts.values()) - parts["launches"]])
    if decoding:
        seen = decode_attention(stage, np.array([float(decoding)]), np.array([float(context)]))
        if prefill:
            seen = _beside_prompts(stage, seen[:, None], np.array([decoding]), np.array([context]))[:, 0]
            seen = seen + decoding * empty_blocks(stage) * max(max(new for new, _ in prefill) - ROWS, 0.0)
        parts["decode attention"] = float(seen[0])
    if prefill:
        new, cached = (np.array(column, float) for column in zip(*prefill, strict=True))
        each = prefill_attention(stage, new, cached)
        if engine.eager:
            memory = engine_memory(job, arch, engine, machine.gpu, stage.layout)
            parts["memory"] = float(emptying_seconds(stage, memory, tokens, kernels)[0])
        parts["prefill attention"] = (float(each.sum()) + prefill_launches(stage)) * engine.prefill_time
        if decoding:
            parts["decode attention"] *= engine.decode_time
    else:
        parts = {name: value * engine.decode_time for name, value in parts.items()}
    host = engine.host_step + engine.host_request * (decoding + len(prefill))
    busy = sum(parts.values())
    return StepParts(parts, host, max(busy, host) if engine.overlaps else busy + host)


def _beside_prompts(stage: Stage, decode: Floats, batches: Floats, contexts: Floats) -> Floats:
    """Decode attention in a step with prefill, from that without. [s]"""
    return np.maximum(decode, beside_prompts(stage, batches[:, None], contexts[None, :]))


def check_layout(job: ServingJob, arch: Transformer, layout: ServingLayout) -> None:
    """Whether the model can be served, and cut so. Raises PlanError with the number that does not divide."""
    if arch.window_heads:
        raise PlanError(
            f"{job.name}: the windowed layers of {arch.name} have other heads than the rest, and how engines "
            "serve them is not modelled; its training is."
        )
    if arch.attention == "gqa" and arch.v_head_dim:
        raise PlanError(
            f"{job.name}: values of {arch.name} are {arch.v_head_dim} wide and its keys {arch.head_dim}, and "
            "how engines serve them (padded, or by kernels of their own) is not modelled; its training is."
        )
    if arch.pattern:
        raise PlanError(
            f"{job.name}: {arch.name} has layers without attention, or of one block, and how engines serve "
            "them (states in place of keys and values) is not modelled; its training is."
        )
    if arch.index_topk:
        raise PlanError(
            f"{job.name}: {arch.name} attends to keys that an indexer chooses, and no engine's kernels for "
            "that were measured; it can be trained here, not served."
        )
    cuts = (
        ("tensor", layout.tensor, "attention heads", arch.heads),
        ("expert", layout.expert, "experts", arch.experts),
    )
    for field, parts, what, number in cuts:
        if parts > 1 and not number:
            raise PlanError(f"{job.name}: layout.{field} is {parts}, but {arch.name} has no {what}; write 1.")
        if number and number % parts:
            raise PlanError(
                f"{job.name}: layout.{field} is {parts}, but {arch.name} has {number} {what}; "
                "choose a divisor of that."
            )
    if layout.pipeline > arch.layers:
        raise PlanError(
            f"{job.name}: layout.pipeline is {layout.pipeline}, but {arch.name} has {arch.layers} layers."
        )
    load = job.expert_imbalance or 1.0
    if arch.is_moe and load > (most := arch.experts / arch.experts_per_token):
        raise PlanError(
            f"{job.name}: expert_imbalance is {load:g}, but the experts of {arch.name} on a GPU get at most "
            f"every token once, {arch.experts} / {arch.experts_per_token} = {most:g} times the mean; "
            f"give 1 to {most:g}."
        )


def _drafts(job: ServingJob, stage: Stage) -> Stage:
    draft = draft_of(job, stage.arch)
    assert draft is not None
    check_layout(job, draft, stage.layout.model_copy(update={"pipeline": 1, "expert": 1}))
    return draft_stage(stage, draft)


def sum_of(parts: dict[str, Floats]) -> Floats:
    """All parts together. [s]"""
    return np.asarray(sum(parts.values()))


def stage_of(job: ServingJob, arch: Transformer, machine: Machine, layout: ServingLayout | None) -> Stage:
    """The fullest stage of one replica. Raises PlanError as `tabulate` does."""
    engine: Engine = engine_of(job)
    cut = layout or job.layout
    check_layout(job, arch, cut)
    first = job.servers[0] * machine.server.gpus if job.servers else 0
    kernels = kernels_of(machine.gpu, engine.kernels, job.kernels, job.name)
    place = Place(machine, engine, kernels, first)
    place.group(cut.gpus)
    return Stage(place, job, arch, cut)


def _up_to(grid: Floats, last: float) -> Floats:
    """A grid with more points, two for each doubling, up to `last`."""
    if grid[-1] >= last:
        return grid
    return np.concatenate([grid, _grid(grid[-1], last, 2)[1:]])


def _grid(first: float, last: float, per_octave: int) -> Floats:
    """Whole numbers from first to last: all small ones, then so many for each doubling."""
    octaves = max(np.log2(last / first), 1.0)
    points = first * 2.0 ** np.linspace(0.0, octaves, int(np.ceil(octaves * per_octave)) + 1)
    whole = np.unique(np.round(points))
    return np.asarray(whole if whole[-1] > whole[0] else np.array([whole[0], whole[0] + 1.0]))
