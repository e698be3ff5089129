"""Whether a job can be cut over GPUs the way its layout says; every refusal says what would work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.checks.experts import check_experts
from railwright.training.checks.gpus import check_gpus
from railwright.training.checks.layout_doubts import layout_doubts
from railwright.training.checks.tensor_sizes import check_tensor
from railwright.training.layers.blockwise import check_dispatch
from railwright.training.layers.recompute import check_again
from railwright.training.layers.sparse_attention import check_chosen
from railwright.training.layout.divisors import divisors, working
from railwright.training.layout.schedule import SHARED, SPLIT, route_of, schedule_name
from railwright.training.layout.sizes import Sizes, data_parallel, domain_of, job_gpus, microbatches
from railwright.training.optimizer.apex import check_apex
from railwright.training.optimizer.muon import check_optimizer
from railwright.training.software.chunked_loss import check_loss
from railwright.training.software.dropout import check_dropout
from railwright.training.software.formats import check_formats
from railwright.training.software.hosted import check_offload
from railwright.training.software.lora_checks import check_adapters
from railwright.training.software.mixers import check_mixers
from railwright.training.software.narrow import check_attention, check_stored
from railwright.training.software.zero_engine import check_engine
from railwright.units import number

MOST_MICROBATCHES = 100_000
"""Passes of a step grow with them, and with them the time to simulate it (10 s); no run has as many."""


def check(job: TrainingJob, arch: Transformer, fabric: Fabric) -> tuple[str, ...]:
    """Refuse a layout that cannot work (PlanError); return warnings about a doubtful one, unnamed."""
    refuse(job, arch, fabric)
    return layout_doubts(job, arch, fabric)


def refuse(
    job: TrainingJob, arch: Transformer, fabric: Fabric, checks: Iterable[Check] | None = None
) -> None:
    """Refuse a layout that cannot work. Raises PlanError.

    checks  of CHECKS those to ask; None for all
    """
    for one in CHECKS if checks is None else checks:
        one.refuse(job, arch, fabric)


def refusals(job: TrainingJob, arch: Transformer, fabric: Fabric) -> tuple[str, ...]:
    """All that `check` would refuse, one after the other; what rests on something refused is not asked."""
    failed: set[str] = set()
    found = []
    for one in CHECKS:
        if failed & one.rests_on:
            continue
        try:
            one.refuse(job, arch, fabric)
        except PlanError as no:
            failed.add(one.name)
            found.append(str(no))
    return tuple(found)


READ = ("micro_batch", "sequence_parallel", "recompute", "zero", "offload", "overlap")
"""Fields of which checks say that they read them."""


@dataclass(frozen=True)
class Check:
    """One thing that can be wrong with a layout.

    rests_on  checks that it says nothing, or nonsense, after: sizes of groups come from how many GPUs there
              are, pieces of the model from how it is cut
    reads     fields, of READ, that what it says depends on
    """

    name: str
    refuse: Callable[[TrainingJob, Transformer, Fabric], object]
    rests_on: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()


def _check(
    name: str, refuse: Callable[..., object], rests_on: str = "", reads: tuple[str, ...] = ()
) -> Check:
    return Check(name, refuse, frozenset(rests_on.split()), frozenset(reads))


CHECKS = (
    _check("gpus", check_gpus),
    _check(
        "experts",
        lambda job, arch, fabric: check_experts(
            job, arch, job_gpus(job, fabric) // job.layout.pipeline, domain_of(job, fabric)
        ),
        "gpus",
    ),
    _check("tensor", check_tensor),
    _check("mixers", lambda job, arch, _: check_mixers(job, arch)),
    _check("adapters", lambda job, arch, _: check_adapters(job, arch)),
    _check("dropout", lambda job, arch, _: check_dropout(job, arch)),
    _check("context", lambda job, arch, _: _check_context(job, arch)),
    _check("layers", lambda job, arch, _: check_layers(job, arch)),
    _check("chosen", lambda job, arch, _: check_chosen(job, arch), "layers"),
    _check(
        "batch",
        lambda job, _, fabric: _check_batch(job, data_parallel(job, fabric)),
        "gpus",
        ("micro_batch",),
    ),
    _check(
        "engine",
        lambda job, _, fabric: check_engine(job, Sizes.of(job, fabric).replicas),
        "gpus",
        ("zero",),
    ),
    _check(
        "sharding",
        lambda job, _, fabric: check_sharding(job, data_parallel(job, fabric)),
        "gpus",
        ("zero",),
    ),
    _check(
        "blocking",
        lambda job, _, fabric: _check_blocking(job, data_parallel(job, fabric)),
        "gpus",
        ("overlap",),
    ),
    _check("formats", lambda job, *_: check_formats(job)),
    _check("loss", lambda job, *_: check_loss(job), reads=("micro_batch",)),
    _check("attention", lambda job, arch, fabric: check_attention(job, arch, fabric.generation), "formats"),
    _check("stored", lambda job, arch, _: check_stored(job, arch)),
    _check("optimizer", lambda job, *_: check_optimizer(job), reads=("zero", "offload")),
    _check("apex", lambda job, arch, _: check_apex(job, arch), reads=("zero", "offload")),
    _check("offload", lambda job, *_: check_offload(job), reads=("zero", "offload", "recompute")),
    _check("dispatch", lambda job, *_: check_dispatch(job)),
    _check("again", lambda job, arch, _: check_again(job, arch), "layers", ("recompute", "offload")),
)
"""What is checked of a layout, in the order in which it is told."""

FIXED = tuple(one for one in CHECKS if not one.reads)
"""Checks that no field of READ changes."""

READING = {field: tuple(one for one in CHECKS if field in one.reads) for field in READ}
"""Field -> checks that it changes: all there is to ask of a layout that differs in it from one that works."""

VARYING = tuple(one for one in CHECKS if one.reads)
"""Checks that some field of READ changes."""


def _check_blocking(job: TrainingJob, data: int) -> None:
    """Where the host waits for every kernel, messages are kernels too: none runs beside compute."""
    if not job.launch_blocking:
        return
    cut = Sizes.under(job.layout, data).degrees()
    hidden = [f"overlap.{kind}" for kind, size in cut.items() if size > 1 and getattr(job.overlap, kind)]
    if hidden:
        raise PlanError(
            f"{job.name}: with launch_blocking the host waits for every kernel, so nothing hides behind "
            f"compute; set {', '.join(hidden)} to false."
        )
    if (name := schedule_name(job.layout)) in SHARED:
        raise PlanError(
            f"{job.name}: {name} runs two passes beside each other, which launch_blocking does not allow; "
            "choose another layout.schedule."
        )


def _check_context(job: TrainingJob, arch: Transformer) -> None:
    context, tensor = job.layout.context, job.layout.tensor
    if context == 1:
        return
    if arch.window_heads:
        raise PlanError(
            f"{job.name}: context parallelism of {arch.name} is not modelled, whose windowed layers have "
            "other heads; set layout.context to 1."
        )
    if job.sequence < context:
        raise PlanError(
            f"{job.name}: a sequence of {job.sequence} tokens cannot be shared by layout.context = {context} "
            f"ranks; use at most {job.sequence}."
        )
    if job.layout.context_kind != "all-to-all":
        return
    heads = arch.heads if arch.attention == "mla" else min(arch.heads, arch.kv_heads)
    here = max(heads // tensor, 1)
    if here % context:
        raise PlanError(
            f"{job.name}: context_kind all-to-all gives each rank whole heads, and the {here} (key-value) "
            f"heads per GPU of {arch.name} are not a multiple of layout.context = {context}; "
            f"{working(divisors(here))}, or use context_kind ring."
        )


def check_layers(job: TrainingJob, arch: Transformer) -> None:
    """Refuse a cut into stages, and a schedule, that cannot be."""
    layout = job.layout
    pipeline, chunks, name = layout.pipeline, layout.virtual_pipeline, schedule_name(layout)
    if chunks > 1 and pipeline == 1:
        raise PlanError(
            f"{job.name}: layout.virtual_pipeline is {chunks}, but there is only one pipeline stage to "
            "interleave; leave it at 1 or set layout.pipeline above 1."
        )
    if (chunks > 1) != (name == "interleaved") and (chunks == 1 or name != "zb-h1"):
        want = "virtual_pipeline above 1" if name == "interleaved" else "virtual_pipeline 1"
        raise PlanError(
            f"{job.name}: layout.schedule {name} needs {want}, but it is {chunks}; "
            "change one of them, or leave schedule at auto."
        )
    if name == "dualpipe" and pipeline % 2:
        raise PlanError(
            f"{job.name}: layout.schedule dualpipe runs pairs of stages, and layout.pipeline is {pipeline}; "
            "choose an even number."
        )
    pieces = route_of(layout).model_pieces
    cut = "2 x pipeline" if pieces > pipeline * chunks else "pipeline x virtual_pipeline"
    if layout.layers_per_stage is not None:
        given = layout.layers_per_stage
        if len(given) != pieces or sum(given) != arch.layers:
            raise PlanError(
                f"{job.name}: layers_per_stage must be {pieces} numbers ({cut}) that "
                f"add up to the {number(arch.layers, 'layer')} of {arch.name}, but it has "
                f"{len(given)} that add up to {sum(given)}."
            )
        inner = given[1:-1]
        if 0 in inner:
            raise PlanError(
                f"{job.name}: layers_per_stage leaves piece {inner.index(0) + 1} without a layer; only the "
                "first and the last, which hold the embedding and the head, can do without."
            )
        return
    if arch.layers + 2 < pieces or (pieces == 1 and not arch.layers):
        raise PlanError(
            f"{job.name}: the {number(arch.layers, 'layer')} of {arch.name} cannot be cut into "
            f"{pieces} pieces ({cut}), of which all but the first and the last need a layer; "
            f"use at most {arch.layers + 2}."
        )


def _check_batch(job: TrainingJob, data: int) -> None:
    unit = data * job.micro_batch
    if job.global_batch % unit:
        raise PlanError(
            f"{job.name}: global_batch {job.global_batch} is not a multiple of data-parallel ranks x "
            f"micro_batch = {data} x {job.micro_batch} = {unit}; the nearest that work: "
            f"{_near_batches(job, unit)}."
        )
    count, pipeline, name = microbatches(job, data), job.layout.pipeline, schedule_name(job.layout)
    if count > MOST_MICROBATCHES:
        raise PlanError(
            f"{job.name}: global_batch {job.global_batch} is {count:,} microbatches on each of {data} "
            f"data-parallel ranks, and at most {MOST_MICROBATCHES:,} are simulated; it counts sequences, not "
            f"tokens: use at most {MOST_MICROBATCHES * unit}."
        )
    odd = count % 2 if name == "dualpipe" else 0
    if odd or (name in SHARED and count < 2 * pipeline):
        wanted = "an even number of" if name == "dualpipe" else "more"
        raise PlanError(
            f"{job.name}: {name} needs {wanted} microbatches per step, at least 2 x {pipeline} = "
            f"{2 * pipeline}, but there are {count}; set global_batch to "
            f"{max(count + odd, 2 * pipeline) * unit}."
        )
    fewer = max(count // pipeline * pipeline, pipeline)
    if job.layout.virtual_pipeline > 1 and count % pipeline:
        raise PlanError(
            f"{job.name}: {name} with virtual stages needs a multiple of {pipeline} microbatches per step, "
            f"but there are {count}; set global_batch to {fewer * unit} or {(fewer + pipeline) * unit}, or "
            "virtual_pipeline to 1."
        )


def _near_batches(job: TrainingJob, unit: int) -> str:
    """The batches nearest to a job's of which its schedule can run all microbatches, in words.

    unit  sequences of one microbatch of every replica
    """
    layout, name = job.layout, schedule_name(job.layout)
    rounds = layout.pipeline if layout.virtual_pipeline > 1 else 2 if name == "dualpipe" else 1
    least = 2 * layout.pipeline if name in SHARED else rounds
    below = job.global_batch // (rounds * unit) * rounds * unit
    if below < least * unit:
        return f"{least * unit}"
    return f"{below} or {below + rounds * unit}"


def check_sharding(job: TrainingJob, data: int) -> None:
    """Refuse sharding that cannot be, over `data` data-parallel ranks."""
    layout, name = job.layout, schedule_name(job.layout)
    if layout.zero == 3 and name in (*SPLIT, *SHARED):
        raise PlanError(
            f"{job.name}: layout.schedule {name} computes weight gradients apart from a layer's pass, and "
            "zero: 3 drops its parameters with that pass; use zero: 1, or schedule 1f1b."
        )
    if layout.shard is None:
        return
    if layout.zero == 0:
        raise PlanError(
            f"{job.name}: layout.shard says how many ranks share what zero shards, and zero: 0 shards "
            "nothing; set zero to 1, 2 or 3, or leave shard out."
        )
    sizes = Sizes.under(layout, data)
    replicas, which = sizes.replicas, working(sizes.shardings())
    if job.optimizer == "muon" and layout.shard != replicas:
        raise PlanError(
            f"{job.name}: optimizer muon updates whole matrices, which all ranks share out, and layout.shard "
            "makes groups with copies of their own (Megatron refuses it too); leave shard out."
        )
    if replicas % layout.shard:
        raise PlanError(
            f"{job.name}: layout.shard {layout.shard} does not divide the number of ranks that hold the same "
            f"parameters, {replicas}; {which}."
        )
    if layout.shard not in sizes.shardings():
        raise PlanError(
            f"{job.name}: layout.shard {layout.shard} makes {sizes.instances} groups of the {replicas} ranks "
            "that hold the same parameters, and those that hold the same experts cannot be divided among "
            f"them ({sizes.expert_replicas}); {which}."
        )
