"""Whether a job fits into the GPUs of a step, on how many of them, and laid out how."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.catalog.parts import Gpu, Server
from railwright.collectives import Machine
from railwright.errors import PlanError
from railwright.growth.asking import Ask
from railwright.growth.parts import batch_of, constant
from railwright.growth.result import Fit
from railwright.model.shape.architecture import Transformer
from railwright.serving.engine.memory import engine_memory
from railwright.serving.engine.profiles import engine_of
from railwright.serving.engine.step import check_layout
from railwright.spec.lora import Lora
from railwright.spec.serving import Client, ServingJob, ServingLayout
from railwright.spec.training import Layout, TrainingJob
from railwright.training import peak_memory
from railwright.training.checks.plan import check
from railwright.units import GIB

PIPELINES = (1, 2, 4, 8, 16)
MICRO_TOKENS = 4096
"""Tokens of one microbatch, as near as powers of two of sequences come from below."""


def sizes(job_gpus: int, each: int, most: int) -> Iterator[int]:
    """GPUs a job may take, from those asked for up: inside one machine any number, then doublings, then whole
    machines."""
    size = job_gpus if job_gpus <= each else -(-job_gpus // each) * each
    while size <= most:
        yield size
        size = min(1 << size.bit_length(), each) if size < each else 2 * size


def training_jobs(ask: Ask, arch: Transformer, gpus: int, each: int) -> Iterator[tuple[TrainingJob, ...]]:
    """Structures to try; of each the variants from the fastest to the leanest in memory."""
    micro = 1 << max(0, (MICRO_TOKENS // ask.sequence).bit_length() - 1)
    unit = gpus * micro
    batch = -(-batch_of(ask.task, ask.sequence) // unit) * unit
    lora = Lora(rank=int(constant("lora_rank"))) if ask.task == "lora" else None
    inside = min(gpus, each)
    for tensor in (t for t in (1, 2, 4, 8) if inside % t == 0 and gpus % t == 0):
        for expert in _experts(arch, gpus, inside // tensor):
            for pipeline in (p for p in PIPELINES if gpus % (tensor * p * expert) == 0):
                for zero in (1, 3) if pipeline == tensor == expert == 1 and gpus > 1 else (1,):
                    yield tuple(
                        TrainingJob(
                            name=ask.task,
                            model=ask.model,
                            gpus=gpus,
                            gpus_per_server=min(gpus, each),
                            sequence=ask.sequence,
                            global_batch=batch,
                            micro_batch=micro,
                            tokens=ask.tokens or 1e9,
                            lora=lora,
                            layout=Layout(
                                tensor=tensor,
                                pipeline=pipeline,
                                expert=expert,
                                zero=zero,
                                sequence_parallel=tensor > 1,
                                recompute=recompute,
                            ),
                        )
                        for recompute in ("none", "selective", "full")
                    )


def fitting_jobs(ask: Ask, arch: Transformer, machine: Machine, gpus: int) -> list[TrainingJob]:
    """Of every structure that can work the fastest variant that fits into memory."""
    fabric, capacity = machine.network.fabric, machine.gpu.hbm_bytes
    found = []
    for variants in training_jobs(ask, arch, gpus, machine.server.gpus):
        for job in variants:
            try:
                check(job, arch, fabric)
            except PlanError:
                break
            if peak_memory(job, arch, fabric, capacity).total <= capacity:
                found.append(job)
                break
    return found


def answer_tokens(ask: Ask) -> int:
    """Tokens of an answer, of a request's."""
    return max(1, int(ask.sequence * constant("answer_share")))


def serving_fits(ask: Ask, arch: Transformer, server: Server, gpu: Gpu, most: int) -> Iterator[Fit]:
    """Replicas of every size inside a server that holds the weights and one whole request, the smallest
    first; where none does, of the smallest over several and twice that.  As many as fill the GPUs asked for.
    """
    beyond = 0
    for each in sizes(1, server.gpus, most):
        if beyond and each > beyond:
            return
        fit = _serving_fit(ask, arch, server, gpu, each, most)
        if fit is not None:
            beyond = beyond or max(server.gpus, 2 * each if each > server.gpus else 0)
            yield fit


def _serving_fit(ask: Ask, arch: Transformer, server: Server, gpu: Gpu, each: int, most: int) -> Fit | None:
    answer, replicas = answer_tokens(ask), max(1, -(-ask.job_gpus // each))
    layout = ServingLayout(tensor=min(each, server.gpus), pipeline=max(1, each // server.gpus))
    batch = int(constant("serving_batch"))
    job = ServingJob(
        name=ask.task,
        model=ask.model,
        layout=layout,
        replicas=replicas,
        client=Client(input=max(1, ask.sequence - answer), output=answer, concurrency=batch),
    )
    try:
        check_layout(job, arch, layout)
        memory = engine_memory(job, arch, engine_of(job), gpu)
    except PlanError:
        return None
    if memory.kv_tokens < ask.sequence or replicas * each > most:
        return None
    held = memory.weights + memory.working + memory.reserve
    return Fit(replicas * each, layout_words(job), held, gpu.hbm_bytes, job)


def layout_words(job: TrainingJob | ServingJob) -> str:
    """'tensor 2, recompute full' or 'one GPU each'."""
    layout = job.layout
    said = [f"{name} {n}" for name in ("tensor", "pipeline", "expert") if (n := getattr(layout, name)) > 1]
    if isinstance(job, ServingJob):
        said += [f"{job.replicas} replicas"] if job.replicas > 1 else []
        return ", ".join(said) or "one GPU"
    if job.layout.zero == 3:
        said.append("ZeRO-3")
    if job.layout.recompute != "none":
        said.append(f"recompute {job.layout.recompute}")
    return ", ".join(said) or ("one GPU" if job.gpus == 1 else "data-parallel")


def short_of_memory(ask: Ask, server: Server, gpu: Gpu, gpus: int) -> str:
    """Why a step is refused."""
    room = f"{gpus} x {gpu.hbm_bytes / GIB:.0f} GiB" if gpus > 1 else f"{gpu.hbm_bytes / GIB:.0f} GiB"
    if ask.job_gpus > gpus:
        return f"a job asks for {ask.job_gpus:,} GPUs, it has {gpus}"
    return f"{ask.model} does not fit {room} of {server.name} for {ask.task}, in any layout tried"


def _experts(arch: Transformer, gpus: int, inside: int) -> tuple[int, ...]:
    """Expert-parallel sizes: none, and as many as one machine and the experts allow."""
    if not arch.is_moe:
        return (1,)
    widest = max(
        (n for n in range(1, inside + 1) if inside % n == 0 and arch.experts % n == 0 and gpus % n == 0),
        default=1,
    )
    return (1, widest) if widest > 1 else (1,)
