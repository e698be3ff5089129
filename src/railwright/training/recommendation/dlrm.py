"""One training step of a recommendation model: lookups, exchanges of embeddings, MLPs, updates.

The classical contrast to transformers: little arithmetic, memory-bound lookups, and an all-to-all of
everybody's embeddings between the tables and the MLPs, forward and backward.
Source of the order: Naumov et al., arXiv 1906.00091; Mudigere et al., ISCA'22 (arXiv 2104.05158), sections 3
and 4.
"""

from __future__ import annotations

from itertools import product
from typing import get_args

import numpy as np

from railwright.collectives import predict as network_predict
from railwright.collectives.machine import Machine
from railwright.compute.limited import of_power
from railwright.errors import PlanError
from railwright.fabric.faults import check_joins
from railwright.fabric.graph import Fabric
from railwright.model.operators.kernels import ELEMENT
from railwright.model.recommendation.dlrm import Recommender
from railwright.spec.recommendation import RecommendationJob
from railwright.training.checks.feed import fed, feed_of_samples
from railwright.training.lanes.result import Memory, StepResult
from railwright.training.lanes.tasks import LANES, Pass, run
from railwright.training.lanes.timeline import Event, Share, Timeline
from railwright.training.layers.communication import Predict
from railwright.training.layers.costs import KernelTime
from railwright.training.recommendation.sharding import (
    Sharding,
    domain_sizes,
    shard,
)
from railwright.training.recommendation.work import Step
from railwright.training.software.constants import constant
from railwright.training.software.formats import job_peak
from railwright.units import GIB, HOUR

DTYPES: tuple[str, ...] = get_args(RecommendationJob.model_fields["dtype"].annotation)
"""Number formats that a recommendation job may ask for."""

CONTEXT_BYTES = 3e9
"""What the CUDA context and NCCL's buffers take of a GPU: an estimate; `cuda_context_bytes` and three
communicators of `communicator_bytes` (constants.yaml) are 3.1e9."""

DENSE_STATE_BYTES = {"bf16": 16.0, "fp16": 14.0}
"""Bytes per parameter of the MLPs on every GPU: weights (fp32, and fp16 beside), gradient, one accumulator of
Adagrad, and the buffer of the all-reduce."""

BAND_LOW, BAND_HIGH = 0.89, 1.32
"""80 % band of measured over predicted step time: of 75 published systems, each kind of GPU, number of them
and placement of small tables once (tests/validation/test_training_dlrm_published.py)."""


def simulate_recommendation(
    job: RecommendationJob,
    model: Recommender,
    machine: Machine,
    *,
    predict: Predict | None = None,
    kernel: KernelTime | None = None,
) -> StepResult:
    """Predict one training step.

    predict, kernel   as in `training.simulate`
    Every GPU does the same, but for the tables: the GPU of the busiest domain stands for all.
    Raises PlanError where batch, GPUs or tables do not go together.
    """
    gpus, per_server = gpus_of(job, machine.network.fabric)
    step, done = _fastest(job, model, machine, predict or network_predict, kernel)
    tables, rest = step.tables, _others(job, model, job.global_batch // gpus)
    memory = {"embedding tables": tables.memory, "indices and sums exchanged": tables.buffers, **rest}
    span = done.duration
    flops = model.flops_per_sample() * job.global_batch
    alone = StepResult(
        step_time=span,
        tokens=job.global_batch,
        tokens_per_second=job.global_batch / span,
        tokens_per_second_per_gpu=job.global_batch / span / gpus,
        model_flops=flops,
        mfu=flops / (span * gpus * machine.gpu.peak_flops[job.dtype]),
        shares=_shares(done),
        memory=Memory(memory, sum(memory.values()), machine.gpu.hbm_bytes),
        collectives=tuple(step.used),
        timeline=Timeline(_events(done), span),
        tokens_total=job.samples,
        time_to_train=job.samples / job.global_batch * span,
        gpu_hours=job.samples / job.global_batch * span * gpus / HOUR,
        error_low=BAND_LOW,
        error_high=BAND_HIGH,
        warnings=_warnings(job, tables, machine),
        unit="samples",
    )
    return fed(alone, feed_of_samples(job, model, gpus, per_server))


def tables_of(job: RecommendationJob, model: Recommender, machine: Machine) -> Sharding:
    """The job's tables over its GPUs. Raises PlanError where batch, GPUs, memory or tables do not fit."""
    found = _shardings(job, model, machine)
    return found[0] if len(found) == 1 else _fastest(job, model, machine, network_predict, None)[0].tables


def _fastest(
    job: RecommendationJob, model: Recommender, machine: Machine, predict: Predict, kernel: KernelTime | None
) -> tuple[Step, Pass]:
    """The step with the tables where it takes least, of all that the job's sharding can be."""
    gpus, per_server = gpus_of(job, machine.network.fabric)
    slowdown = constant("compute_slowdown_in_overlap") if job.overlap else 1.0
    steps = [
        Step(job, model, machine, tables, gpus, per_server, predict, kernel)
        for tables in _shardings(job, model, machine)
    ]
    return min(((step, run(step.tasks(), slowdown)) for step in steps), key=lambda one: one[1].duration)


def _shardings(job: RecommendationJob, model: Recommender, machine: Machine) -> list[Sharding]:
    """Those that fit, each once; raises what the first lacks where none does.

    'auto' has tables with many lookups in pieces, or whole: pieces share the lookups out evenly, but each
    sends sums of all its columns, so that pieces of tables with few lookups cost more than they save.
    """
    fabric = machine.network.fabric
    gpus, per_server = gpus_of(job, fabric)
    _check(job, gpus, fabric.num_gpus, per_server)
    check_joins(fabric, np.arange(gpus, dtype=np.int32), job.name, "mend it, or end before it with `gpus`")
    job_peak(machine.gpu, job.dtype, DTYPES)
    room = _room(job, model, gpus, machine.gpu.hbm_bytes)
    found, refused = [], []
    cuts = (True, False) if job.sharding == "auto" else (False,)
    for within, cut in product(domain_sizes(job, gpus, per_server), cuts):
        try:
            tables = shard(job, model, gpus, within, room, cut=cut)
        except PlanError as no:
            refused.append(no)
            continue
        if tables not in found:
            found.append(tables)
    if not found:
        raise refused[0]
    return found


def _room(job: RecommendationJob, model: Recommender, gpus: int, have: float) -> float:
    """What MLPs, activations and context leave of a GPU's memory for tables. Raises where that is none."""
    samples = job.global_batch // gpus
    parts = _others(job, model, samples)
    room = have - sum(parts.values())
    if room >= 0.0:
        return room
    told = ", ".join(f"{size / GIB:.1f} GiB of {name}" for name, size in parts.items())
    fewer = samples > 1 and room + parts["activations"] > 0.0
    raise PlanError(
        f"{job.name}: without any table a GPU of {have / GIB:.1f} GiB is full, with {samples} of the "
        f"{job.global_batch} samples: {told}; take "
        + (f"a global_batch below {job.global_batch} or more GPUs." if fewer else "smaller MLPs.")
    )


def recommendation_warnings(job: RecommendationJob, model: Recommender, machine: Machine) -> tuple[str, ...]:
    """The warnings of a job's step, that it waits for its data among them. Raises as the step does."""
    return simulate_recommendation(job, model, machine).warnings


def gpus_of(job: RecommendationJob, fabric: Fabric) -> tuple[int, int]:
    """GPUs of the job, and those of one server that it uses."""
    gpus = job.gpus or fabric.num_gpus
    return gpus, min(fabric.gpus_per_server, gpus)


def _shares(done: Pass) -> tuple[Share, ...]:
    """Busy and exposed time of every lane that runs; the exposed ones add up to the step."""
    busy = dict.fromkeys(LANES, 0.0)
    for span in done.spans:
        busy[span.task.lane] += span.end - span.start
    kinds = [k for k in LANES if busy[k] or k == "compute"]
    return tuple(Share(k, busy[k], done.exposed.get(k, 0.0)) for k in kinds)


def _events(done: Pass) -> tuple[Event, ...]:
    return tuple(
        Event(0, s.task.lane, s.task.name, s.task.kind, s.start, s.end, s.task.size)
        for s in done.spans
        if s.end > s.start
    )


def _others(job: RecommendationJob, model: Recommender, samples: int) -> dict[str, float]:
    """Memory beside the tables [byte]: MLPs, activations kept for the backward pass, context."""
    widths = sum(p.outputs for p in model.products()) + 2 * model.vectors * model.width
    return {
        "MLPs and their states": DENSE_STATE_BYTES[job.dtype] * model.dense_parameters(),
        "activations": 2.0 * ELEMENT * samples * widths,
        "context and communicators": CONTEXT_BYTES,
    }


def _check(job: RecommendationJob, gpus: int, have: int, per_server: int) -> None:
    if gpus > have:
        raise PlanError(f"{job.name}: gpus is {gpus}, but the cluster has {have}; ask for at most that many.")
    if gpus % per_server:
        raise PlanError(
            f"{job.name}: {gpus} GPUs are not whole servers of {per_server}; take "
            f"{gpus // per_server * per_server} or {-(-gpus // per_server) * per_server}."
        )
    if job.global_batch % gpus:
        below = job.global_batch // gpus * gpus
        near = (
            f"the nearest that work: {below} or {below + gpus}" if below else f"the least that works: {gpus}"
        )
        raise PlanError(
            f"{job.name}: global_batch {job.global_batch} is not a multiple of the {gpus} GPUs; {near}."
        )


def _warnings(job: RecommendationJob, tables: Sharding, machine: Machine) -> tuple[str, ...]:
    found = [
        "Recommendation models were held against runs of one model only, DLRM-DCNv2 in MLPerf, and their "
        "error band is that of those runs (docs/training/dlrm.md)."
    ]
    if tables.balance > 1.2:
        better = (
            "`railwright search` tries every sharding"
            if job.sharding == "auto"
            else "sharding 'row-wise' balances them, and 'auto' does where that is faster"
        )
        found.append(f"the busiest GPUs move {tables.balance:.1f} times the mean bytes of tables; {better}.")
    pieces = RecommendationJob.model_fields["column_shards"].default
    if job.column_shards != pieces and job.sharding != "column-wise":
        found.append(f"column_shards does nothing while sharding is {job.sharding}.")
    return (*found, *of_power(machine.gpu, machine.server))
