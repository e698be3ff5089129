"""`serve`: a serving job on a machine, answered with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.serving.clients.client import Workload, workload
from railwright.serving.engine.memory import engine_memory
from railwright.serving.engine.profiles import Engine, engine_of
from railwright.serving.engine.sources import kernel_sources
from railwright.serving.engine.spread import Spread, spread_of
from railwright.serving.engine.step import StepParts, stage_of, step_parts, tabulate
from railwright.serving.engine.table import StepTable
from railwright.serving.result import Cache, Parts, Promise, ServingResult
from railwright.serving.simulator import kernel_rows as r
from railwright.serving.simulator.cluster import places, transfers
from railwright.serving.simulator.fleet import Fleet, Outage, Pool, Scheduler, Speculation
from railwright.serving.simulator.metrics import (
    Distribution,
    counted,
    end_to_end,
    inter_token,
    throughput,
    tpot,
    ttft,
    within,
)
from railwright.serving.simulator.simulate import LoopEngine, Run, simulate
from railwright.serving.simulator.state import read
from railwright.serving.words import answer, bottleneck
from railwright.spec.serving import ServingJob, ServingLayout, Slo
from railwright.traffic import Traffic
from railwright.units import number

Floats = NDArray[np.float64]

ACROSS = "collectives"
"""The part of a step that GPUs spend telling each other."""


def serve(
    job: ServingJob,
    arch: Transformer,
    machine: Machine,
    *,
    outages: Sequence[Outage] = (),
    others: Sequence[Traffic] = (),
    folder: Path | None = None,
    work: Workload | None = None,
    engine: LoopEngine = "auto",
) -> ServingResult:
    """What the job's users see, how much gets done on how many GPUs, and why.

    outages  replicas lost for a while, numbered prefill replicas first
    others   standing traffic of other jobs, which transfers of keys and values meet (`cluster.transfers`)
    folder   where a relative path of a trace starts
    work     requests to send; default: those of the job's client

    Raises PlanError, naming the job, for one that cannot run, RailwrightError for an unreadable trace.
    """
    profile = engine_of(job)
    try:
        asked = work or workload(job.client, job.shared_prefix, folder)
        check_lengths(job, asked)
        fleet = fleet_of(job, arch, machine, profile, outages, others, spread_of(asked))
        run = simulate(asked, fleet, engine, job.client.seed)
    except PlanError as refusal:
        if str(refusal).startswith(f"{job.name}: "):
            raise
        raise PlanError(f"{job.name}: {refusal}", refusal.field) from None
    return summarise(job, arch, machine, profile, run)


def fleet_of(
    job: ServingJob,
    arch: Transformer,
    machine: Machine,
    engine: Engine,
    outages: Sequence[Outage] = (),
    others: Sequence[Traffic] = (),
    spread: Spread | None = None,
) -> Fleet:
    """The job's replicas with their step tables and schedulers. Raises PlanError.

    spread  how unequal the contexts of requests that decode together are; default: all alike
    """
    places(job, machine)
    drafts = job.speculative
    speculation = Speculation(drafts.tokens, drafts.acceptance) if drafts else None
    serving = Pool(
        tabulate(job, arch, machine, spread=spread),
        scheduler_of(job, engine, machine, job.layout),
        job.replicas,
        "decode" if job.prefill else "both",
        speculation,
    )
    if job.prefill is None:
        return Fleet((serving,), job.router, None, tuple(outages))
    alone = job.model_copy(
        update={
            "speculative": None,
            "max_batched_tokens": job.prefill.max_tokens or job.max_batched_tokens,
        }
    )
    prefill = Pool(
        tabulate(alone, arch, machine, job.prefill.layout),
        scheduler_of(alone, engine, machine, job.prefill.layout),
        job.prefill.replicas,
        "prefill",
    )
    moved = transfers(job, arch, machine, engine, others)
    return Fleet((prefill, serving), job.router, moved, tuple(outages))


def check_lengths(job: ServingJob, work: Workload) -> None:
    """Raise PlanError for requests beyond the job's own max_length, which engines refuse."""
    told = _longer(work, job.max_length)
    if told:
        raise PlanError(
            f"{told} max_length of {job.max_length:,} tokens, and the engine refuses them; send shorter ones "
            "(client.input and client.output), or raise max_length."
        )


def _longer(work: Workload, most: int | None) -> str:
    """'3 of 40 requests are longer, up to 1,200 tokens of prompt and answer, than', or '' where none is."""
    whole = work.prompt + work.output
    if most is None or int(whole.max()) <= most:
        return ""
    num = int((whole > most).sum())
    return (
        f"{num:,} of {number(len(work), 'request')} {'is' if num == 1 else 'are'} longer, up to "
        f"{int(whole.max()):,} tokens of prompt and answer, than the"
    )


def _beyond_positions(job: ServingJob, arch: Transformer, work: Workload) -> tuple[str, ...]:
    """Of requests beyond the model's positions; a max_length says that these are extended."""
    told = "" if job.max_length else _longer(work, arch.max_positions or None)
    if not told:
        return ()
    return (
        f"{told} {arch.max_positions:,} positions of {arch.name}: engines refuse them unless positions are "
        "extended; give the max_length that yours is started with.",
    )


def _idle_imbalance(job: ServingJob) -> tuple[str, ...]:
    """Of an imbalance between GPUs that all work on all experts, as training says it."""
    layouts = (job.layout, *([job.prefill.layout] if job.prefill else []))
    if (job.expert_imbalance or 1.0) == 1.0 or any(one.expert > 1 for one in layouts):
        return ()
    return ("expert_imbalance does nothing while layout.expert is 1: every GPU works on all experts.",)


def check_replicas(job: ServingJob, arch: Transformer, machine: Machine) -> None:
    """Raise PlanError, as `serve` does, for replicas that do not fit the cluster, layouts the model cannot be
    cut into, and a model that does not fit into memory."""
    places(job, machine)
    for cut in (job.layout, *([job.prefill.layout] if job.prefill else [])):
        stage = stage_of(job, arch, machine, cut)
        engine_memory(job, arch, stage.place.engine, machine.gpu, cut)


def scheduler_of(job: ServingJob, engine: Engine, machine: Machine, layout: ServingLayout) -> Scheduler:
    """The engine's scheduler under the job's settings; attention-data ranks have one each, taken together."""
    tokens, requests = engine.limits(job, machine.gpu)
    return Scheduler(
        engine.scheduler,
        tokens * layout.attention_data,
        requests * layout.attention_data,
        engine.whole_prompts,
        engine.reserves,
        engine.prefix_cache if job.prefix_cache is None else job.prefix_cache,
        engine.hold_steps,
        int(engine.hold_share * tokens * layout.attention_data),
        engine.schedules_ahead,
    )


def summarise(
    job: ServingJob, arch: Transformer, machine: Machine, engine: Engine, run: Run
) -> ServingResult:
    """A run in figures and sentences."""
    chosen = counted(run)
    first, each, whole = ttft(run)[chosen], tpot(run)[chosen], end_to_end(run)[chosen]
    each = each[~np.isnan(each)]
    done = throughput(run, job.client.open_rate)
    good = float(within(run, job.slo)[chosen].mean()) if job.slo else None
    gpus = job.layout.gpus * job.replicas
    gpus += job.prefill.layout.gpus * job.prefill.replicas if job.prefill else 0
    typical = typical_step(job, arch, machine, run)
    into_first, into_each = _first_parts(run, chosen), _token_parts(run, typical, each)
    promises = _promises(job.slo, first, each, whole)
    across = _crosses(job.layout, machine)
    hinders = bottleneck(job, into_first, into_each, run, across)
    result = ServingResult(
        job.name,
        arch.name,
        engine.name,
        machine.gpu.name,
        gpus,
        job.replicas,
        job.prefill.replicas if job.prefill else 0,
        int(chosen.sum()),
        Distribution.of(first),
        Distribution.of(each),
        Distribution.weighted(*inter_token(run)),
        Distribution.of(whole),
        done,
        job.slo,
        promises,
        good,
        None if good is None else good * done.requests,
        _cache(run, chosen),
        into_first,
        into_each,
        hinders,
        machine.server.power_max * gpus / machine.server.gpus,
        (),
        run,
        kernel_sources(job, arch, machine.gpu, engine),
    )
    return answer(result, (*_beyond_positions(job, arch, run.work), *_idle_imbalance(job), *arch.notes))


def typical_step(job: ServingJob, arch: Transformer, machine: Machine, run: Run) -> StepParts | None:
    """Where the time of the mean decode step goes; None where no answer has a second token."""
    log = run.log[run.log[:, r.LOG_DECODERS] > 0]
    if not len(log):
        return None
    steps, decoders = log[:, r.LOG_STEPS], log[:, r.LOG_DECODERS]
    mean = float((steps * decoders).sum() / steps.sum())
    context = float((log[:, r.LOG_CONTEXT] * steps).sum() / (steps * decoders).sum())
    return step_parts(job, arch, machine, decoding=max(round(mean), 1), context=max(round(context), 1))


def _promises(slo: Slo | None, first: Floats, each: Floats, whole: Floats) -> tuple[Promise, ...]:
    if slo is None:
        return ()
    asked = (("TTFT", slo.ttft, first), ("TPOT", slo.tpot, each), ("end to end", slo.end_to_end, whole))
    return tuple(
        Promise(
            what, bound, slo.percentile, float(np.percentile(values, slo.percentile)) if len(values) else 0.0
        )
        for what, bound, values in asked
        if bound is not None
    )


def _first_parts(run: Run, chosen: NDArray[np.bool_]) -> Parts:
    """The mean TTFT: before the engine, in its queue, computing the prompt, keys and values on their way."""
    moved = run.handed[chosen] >= 0
    ready = np.where(moved, np.minimum(run.handed, run.first)[chosen], run.first[chosen])
    parts = {
        "tokenizer and HTTP": run.queued[chosen] - run.sent[chosen],
        "queue": run.admitted[chosen] - run.queued[chosen],
        "prefill": ready - run.admitted[chosen],
    }
    network = 0.0
    if moved.any():
        parts["keys and values to the decoder"] = run.first[chosen] - ready
        network = float(parts["keys and values to the decoder"].mean())
    return Parts({name: float(values.mean()) for name, values in parts.items()}, network)


def _token_parts(run: Run, typical: StepParts | None, each: Floats) -> Parts:
    """The mean TPOT: parts of a decode step in proportion, and what prompts in between take."""
    if typical is None or not len(each):
        return Parts({}, 0.0)
    pool = run.fleet.pools[-1]
    log = run.log[run.log[:, r.LOG_DECODERS] > 0]
    decoders, steps = log[:, r.LOG_DECODERS], log[:, r.LOG_STEPS]
    alone = decode_step(pool, decoders, log[:, r.LOG_CONTEXT] / decoders)
    gaps, weights = inter_token(run)
    share = min(float((alone * decoders * steps).sum() / (gaps * weights).sum()), 1.0)
    mean = float(each.mean())
    busy = sum(typical.parts.values())
    host = max(typical.total - busy, 0.0)
    scale = mean * share / (busy + host)
    parts = {name: seconds * scale for name, seconds in typical.parts.items() if seconds > 0}
    parts["host"] = host * scale
    if share < 1.0:
        parts["prompts in between"] = mean * (1.0 - share)
    return Parts(parts, parts.get(ACROSS, 0.0))


def decode_step(pool: Pool, decoders: Floats, context: Floats) -> Floats:
    """Seconds of steps that only decode (E,), by requests in them and their mean context, over all stages."""
    table: StepTable = pool.table
    queries = pool.speculation.drafted + 1 if pool.speculation else 1
    rows = read(decoders * queries, table.tokens, table.decode_rows)
    by_context = np.stack([read(context, table.contexts, row) for row in table.decode])
    at = np.clip(np.searchsorted(table.requests, decoders, side="right") - 1, 0, len(table.requests) - 2)
    each = np.arange(len(decoders))
    weight = (decoders - table.requests[at]) / (table.requests[at + 1] - table.requests[at])
    low, high = by_context[at, each], by_context[at + 1, each]
    gpu = rows + low + (high - low) * weight
    host = table.host_step + table.host_request * decoders
    step = np.maximum(gpu, host) if table.overlaps else gpu + host
    seconds: Floats = step * table.stages + table.hop * (table.stages - 1)
    return seconds


def _cache(run: Run, chosen: NDArray[np.bool_]) -> Cache:
    pool = run.fleet.pools[-1]
    blocks = pool.table.kv_tokens // pool.table.block
    last = run.fleet.num_replicas - pool.replicas
    on = run.home[run.log[:, r.LOG_LANE].astype(int)] >= last
    held = run.log[on, r.LOG_USED]
    return Cache(
        pool.table.kv_tokens,
        float(held.max(initial=0.0)) / blocks,
        float(run.hit[chosen].sum() / run.work.prompt[chosen].sum()),
        int(run.losses[chosen].sum()),
    )


def _crosses(layout: ServingLayout, machine: Machine) -> bool:
    """Whether the ranks that meet in every layer are on several servers."""
    return layout.gpus // layout.pipeline > machine.server.gpus
