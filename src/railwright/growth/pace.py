"""Tokens a second of one GPU: as published where somebody has measured this model on it, else our model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from railwright.collectives import Machine
from railwright.errors import PlanError
from railwright.growth.asking import Ask, Task
from railwright.growth.parts import constant
from railwright.growth.result import Pace
from railwright.model.shape.architecture import Transformer
from railwright.ranges import Range
from railwright.serving.engine.bands import error_bands
from railwright.serving.engine.memory import engine_memory
from railwright.serving.engine.profiles import engine_of
from railwright.serving.engine.step import step_parts
from railwright.spec.serving import ServingJob
from railwright.spec.training import TrainingJob
from railwright.training import StepResult, simulate

KINDS: dict[Task, tuple[str, ...]] = {
    "lora": ("lora",),
    "finetune": ("sft", "pretrain"),
    "pretrain": ("pretrain",),
}
"""Kinds of published records that a task is compared with: full fine-tuning does pre-training's work."""
COMPUTED = {"none": "nothing", "selective": "parts of layers", "full": "layers"}
"""What a layout's `recompute` repeats, in words."""


def steps_of(
    jobs: Sequence[TrainingJob], arch: Transformer, machine: Machine
) -> list[tuple[TrainingJob, StepResult]]:
    """The jobs that can run, each with its step; most tokens a second first."""
    found = []
    for job in jobs:
        try:
            found.append((job, simulate(job, arch, machine, most_events=0)))
        except PlanError:
            continue
    return sorted(found, key=lambda one: -one[1].tokens_per_second)


def predicted(job: TrainingJob, step: StepResult) -> Pace:
    """Our step of a job within the band of measured over predicted step times of its family."""
    rate = step.tokens_per_second_per_gpu
    low, high = step.error_low, step.error_high
    return Pace(
        Range.of_rate(rate, low, high),
        "model",
        f"steps of software {job.software}, computing {COMPUTED[job.layout.recompute]} again; measured ones "
        f"take {low:.2f} to {high:.2f} times ours",
    )


def predicted_serving(job: ServingJob, arch: Transformer, machine: Machine) -> Pace:
    """Answers' tokens of a decode step, as many requests as keys and values leave room for.

    Raises PlanError for GPUs no serving kernel was measured on.
    """
    memory = engine_memory(job, arch, engine_of(job), machine.gpu)
    length = job.client.input + job.client.output
    batch = max(1, min(int(constant("serving_batch")), memory.kv_tokens // length))
    # one step: every request gets a token, and the prompts that come in for those that end are computed
    decode = step_parts(job, arch, machine, decoding=batch, context=length).total
    prompt = step_parts(job, arch, machine, decoding=0, context=0, prefill=((job.client.input, 0),)).total
    rate = batch / (decode + batch * prompt / job.client.output) / job.layout.gpus
    band = error_bands(job.engine, arch.is_moe).get("TPOT")
    low, high = band or (1.0, 1.0)
    note = f"{batch} requests of {length:,} tokens; " + (
        f"measured TPOT is {low:.2f} to {high:.2f} times ours" if band else "no band is known for it"
    )
    return Pace(Range.of_rate(rate, low, high), "model", note)


def published(ask: Ask, arch: Transformer, gpu: str, gpus: int, dtype: str = "bf16") -> Pace | None:
    """What published runs of the same architecture on the same GPU did; None without any.

    gpu   catalogue name;  gpus  of the job, the nearest sizes count
    Runs of sequences from half to twice as long, on up to four times fewer or more GPUs.
    """
    if ask.task == "inference":
        return _published_serving(ask, arch, gpu)
    near = [
        (rate, runs_on, source)
        for kind, label, shape, its_dtype, sequence, runs_on, rate, source in _training()
        if kind in KINDS[ask.task] and label == label_of(gpu) and its_dtype == dtype and shape == _shape(arch)
        and ask.sequence / 2 <= sequence <= 2 * ask.sequence and gpus / 4 <= runs_on <= 4 * gpus
    ]  # fmt: skip
    if not near:
        return None
    rates = sorted(rate for rate, _, _ in near)
    counts = sorted({runs_on for _, runs_on, _ in near})
    on = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    runs = f"{len(near)} published run{'s' if len(near) > 1 else ''} on {on} GPUs"
    return Pace(Range(rates[0], rates[len(rates) // 2], rates[-1]), "published", f"{runs}: {near[0][2]}")


def label_of(gpu: str) -> str:
    """'h100-sxm' -> 'H100', 'l40s' -> 'L40S', as measure.machines names GPUs."""
    return gpu.removesuffix("-80").removesuffix("-sxm").upper()


def _shape(arch: Transformer) -> tuple[int, ...]:
    return (arch.layers, arch.hidden, arch.heads, arch.kv_heads, arch.ffn, arch.experts)


@lru_cache(maxsize=1)
def _training() -> tuple[tuple[str, str, tuple[int, ...], str, int, int, float, str], ...]:
    """(kind, GPU, shape, dtype, sequence, GPUs, tokens/s per GPU, source) of every usable record."""
    from railwright.measure.machines import Unsupported
    from railwright.measure.training.models import architecture_of
    from railwright.measure.training.replay import records

    rows = []
    for row in records():
        try:
            shape = _shape(architecture_of(row))
        except (Unsupported, KeyError):
            continue
        sequence, gpus = int(float(row["seq"])), int(row["gpus"])
        if row["tokens_s_gpu"]:
            rate = float(row["tokens_s_gpu"])
        elif row["step_time_s"]:
            rate = float(row["gbs"]) * sequence / float(row["step_time_s"]) / gpus
        else:
            continue
        rows.append((row["kind"], row["gpu"], shape, row["dtype"], sequence, gpus, rate, row["source"]))
    return tuple(rows)


def _published_serving(ask: Ask, arch: Transformer, gpu: str) -> Pace | None:
    """Output rates of 16-bit runs, any engine: requests from half to twice as long, at least half as many at
    once as our model computes."""
    from railwright.measure.machines import Unsupported
    from railwright.measure.serving.cases import cases, gpu_of, model_of

    rates: list[tuple[float, str]] = []
    for case in cases():
        if case["precision"] not in ("bf16", "fp16") or not case["tokens_s_gpu"] or case["mode"] != "agg":
            continue
        length = float(case["isl"]) + float(case["osl"])
        if float(case["concurrency"] or 0) < constant("serving_batch") / 2:
            continue
        if not ask.sequence / 2 <= length <= 2 * ask.sequence:
            continue
        try:
            same = model_of(case) == arch.name and gpu_of(case) == label_of(gpu)
        except Unsupported:
            continue
        if same:
            rates.append((float(case["tokens_s_gpu"]), case["source"].split(" | ")[0]))
    if not rates:
        return None
    rates.sort()
    middle, source = rates[len(rates) // 2]
    note = f"{len(rates)} published case{'s' if len(rates) > 1 else ''} under load: {source}"
    return Pace(Range(rates[0][0], middle, rates[-1][0]), "published", note)
