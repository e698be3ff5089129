"""The steps of a training job's log beside the step that is predicted for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.measure.compare.step_flops import LoggedFlops, logged_flops
from railwright.measure.steplog.formats import HALF, ZERO
from railwright.measure.steplog.log import LoggedStep, StepLog
from railwright.measure.table import quantile
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Software, TrainingJob
from railwright.training.demand.model_flops import job_flops_per_token
from railwright.training.lanes.result import StepResult
from railwright.training.layout.sizes import job_gpus
from railwright.training.memory.cached import reserved
from railwright.training.software.eras import era_of, eras
from railwright.training.software.formats import job_peak
from railwright.training.step.simulating import simulate
from railwright.training.whatif.changes import FREE_LAUNCHES, QUESTIONS, what_ifs
from railwright.training.whatif.slips import SLIPS
from railwright.units import number

WARM_UP = 0.1
"""Share of a log's steps that are left out at its start, one at least: compilation, first allocations,
clocks that fall as GPUs warm."""
NOT_JUDGED = "not judged"
"""The verdict on a log of which nothing is left behind its warm-up."""
SLOW = 1.5
"""Times the median from which a step is called slow: it waited for something that others did not."""
STEADY = 1.03
"""The 95 % quantile of healthy jobs' steps is below this many medians (1.001 to 1.011 in MLPerf's logs of 512
to 8,192 H100: training/software/stragglers.py)."""
DRIFT = 0.02
"""Change from the first to the last quarter of a log that is told."""
EXPLAINS = 0.03
"""A change explains a measured step where it is predicted so close to it."""
PRINTED_BY: dict[str, Software] = {
    "Megatron-LM": "megatron-2025",
    "NeMo": "megatron-2025",
    "torchtitan": "fsdp-2026",
    "MaxText": "xla-2025",
    "llm-foundry": "fsdp-2023",
    "torchtune": "fsdp-2026-eager",
    "OLMo-core": "fsdp-2025",
    ZERO: "deepspeed-2026",
}
"""Whose log a format is, by the newest software era in common use of the framework that prints it."""
LEAST = 0.02
"""A change of the step below this share explains nothing."""
TOLD = 3
"""Explanations that are told."""
WORSE = ("Network ÷2", "No PXN", "One GPU 10 % slower")
"""Of QUESTIONS, what may be behind a slower step, beside all SLIPS."""
BETTER = (
    "PXN",
    "Gradients overlapped",
    "Tensor-parallel overlapped",
    "Expert all-to-all overlapped",
    "Context-parallel overlapped",
    "Pipeline sends overlapped",
    "All of it overlapped",
    "Experts perfectly balanced",
    "Tokens once per server",
    "GPUs all alike",
    FREE_LAUNCHES,
)
"""Of QUESTIONS, what may be behind a faster one."""


@dataclass(frozen=True)
class Explanation:
    """A change under which the predicted step comes nearer to the measured one.

    seconds  of the step then; fits  whether that is the measured one, within EXPLAINS
    """

    name: str
    why: str
    seconds: float
    fits: bool


@dataclass(frozen=True)
class Spread:
    """How the steps of a log differ. Shares of all their time, steps' numbers and ratios to the median.

    lost   share of the time that slow steps take beyond the median
    slow   how many; every  steps from one to the next where that is always the same, else 0
    each   steps that a line tells the mean of
    p95    95 % quantile over the median; drift  last quarter over the first, less one
    """

    lost: float
    slow: int
    every: int
    each: int
    p95: float
    drift: float


@dataclass(frozen=True)
class ComparedSteps:
    """A job's log beside its prediction. [s, byte]

    first, last   numbers of the steps that were compared, `count` lines of the log
    warm_up       the log has one line alone, which is of the warm-up that is left out of others
    measured      median of them
    predicted     the step, with the range that 80 % of measurements are expected in
    peak, needed  dense peak of a GPU in the job's format, and what the measured step takes of each GPU, with
                  causal attention scores, which none does without [flop/s]
    held          (reserved by the log's GPUs at most, by prediction), None where either does not say
    flops         what its own rate of FLOPs says; None where it prints none
    explanations  of a step outside the range, the nearest first
    notes         what was assumed or left out
    """

    log: StepLog
    job: str
    first: int
    last: int
    count: int
    warm_up: bool
    measured: float
    predicted: StepResult
    peak: float
    needed: float
    spread: Spread
    held: tuple[float, float] | None
    flops: LoggedFlops | None
    explanations: tuple[Explanation, ...]
    notes: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted.step_time

    @property
    def impossible(self) -> bool:
        """Whether the log's GPUs would be faster than they can be: it is not of the study's job."""
        return self.needed > self.peak

    @property
    def verdict(self) -> str:
        """'as expected', or on which side of the range; 'not judged' of a warm-up alone."""
        if self.warm_up:
            return NOT_JUDGED
        if self.ratio > self.predicted.error_high:
            return "slower"
        return "faster" if self.ratio < self.predicted.error_low else "as expected"


def compare_steps(log: StepLog, job: TrainingJob, arch: Transformer, machine: Machine) -> ComparedSteps:
    """A log beside what is predicted for a job.

    Raises PlanError, naming the file, where the log is of another job than the study's.
    """
    fabric = machine.network.fabric
    gpus = job_gpus(job, fabric)
    _same_job(log, job, gpus)
    steps, ramp = _of_batch(log, job, gpus)
    tokens = job.global_batch * job.sequence
    times = [step.lasted(job.global_batch, tokens / gpus) for step in steps]
    warm = min(max(1, round(WARM_UP * len(steps))), len(steps) - 1)
    settled, kept = times[warm:], steps[warm:]
    predicted = simulate(job, arch, machine, must_fit=False, most_events=0)
    notes = [ramp] if ramp else []
    if other := _another_framework(log, job):
        notes.append(other)
    if all(step.sample_rate is not None for step in steps):
        notes.append(
            f"{log.framework} tells samples a second and no batch: a step is that of the study's "
            f"global_batch ({job.global_batch}), from forward to optimizer, without what is between steps"
        )
    if log.before:
        notes.append(
            f"{number(log.before, 'step')} left out that ran on other GPUs or in another layout, before the "
            "job was started again"
        )
    if log.again:
        notes.append(
            f"{number(log.again, 'step')} ran again later in the log, behind a restart or in another run: "
            "the later ones count; give each run's log alone to compare the earlier"
        )
    if predicted.memory.total > predicted.memory.capacity:
        notes.append(
            "by our model this job does not fit its GPUs; it ran, so its memory is predicted too large"
        )
    held = reserved(job, arch, fabric, predicted.memory)
    measured = median(settled)
    compared = ComparedSteps(
        log=log,
        job=job.name,
        first=min(step.number for step in kept),
        last=max(step.number for step in kept),
        count=len(kept),
        warm_up=len(steps) == 1,
        measured=measured,
        predicted=predicted,
        peak=job_peak(machine.gpu, job.dtype),
        needed=job_flops_per_token(job, arch, "causal") * tokens / gpus / measured,
        spread=_spread([step.number for step in kept], settled),
        held=None if log.reserved is None or held is None else (log.reserved, float(held.reserved)),
        flops=logged_flops(log, kept, settled, job, arch, gpus),
        explanations=(),
        notes=tuple(notes),
    )
    if compared.verdict in ("as expected", NOT_JUDGED) or compared.impossible:
        return compared
    return replace(compared, explanations=_explained(compared, job, arch, machine))


def _another_framework(log: StepLog, job: TrainingJob) -> str:
    """What to predict with where the log is of a framework that the job's software is not; '' where it is."""
    theirs = PRINTED_BY.get(log.framework)
    if theirs is None:
        return (
            f"none of our software is fitted to steps of {log.framework}: the step is predicted as "
            f"{job.software} runs it, and may differ by more than its range"
        )
    if era_of(job).framework == eras()[theirs].framework:
        return ""
    return (
        f"the log is of {log.framework}, and the step is predicted as {job.software} runs it: before you "
        f"look for a cause, give the job its software, such as {theirs} (railwright catalog list software)"
    )


def _same_job(log: StepLog, job: TrainingJob, gpus: int) -> None:
    """Raise PlanError where the log says another number of GPUs or another layout."""
    ours = {
        "gpus": gpus,
        "global_batch": job.global_batch,
        "layout.tensor": job.layout.tensor,
        "layout.pipeline": job.layout.pipeline,
        "layout.context": job.layout.context,
    }
    other = [
        f"{field} {value} ('{job.name}': {ours[field]})" for field, value in log.said if value != ours[field]
    ]
    if other:
        raise PlanError(
            f"{log.file}: ran another job than the study's: {', '.join(other)}; change the study to what "
            "ran, or name another job with --job"
        )


def _of_batch(log: StepLog, job: TrainingJob, gpus: int) -> tuple[list[LoggedStep], str]:
    """(the steps of the job's batch, a note where others were left out). Raises PlanError where none is."""
    tokens = job.global_batch * job.sequence

    def ours(step: LoggedStep) -> bool:
        """Printed token counts have three digits."""
        if step.between is not None:
            return step.between[0] <= job.global_batch <= step.between[1]
        if step.samples is not None:
            return step.samples == job.global_batch
        if step.seconds is not None and step.rate is not None:
            return abs(step.seconds * step.rate * gpus / tokens - 1) < 0.005 + HALF / step.seconds
        return step.tokens is None or abs(step.tokens / tokens - 1) < 0.005

    steps = [step for step in log.steps if ours(step)]
    others = [step for step in log.steps if not ours(step)]
    if not steps:
        ran = _batch(others[-1])
        wants = f"{job.global_batch} sequences of {job.sequence} tokens, {tokens / gpus:.0f} on each GPU"
        raise PlanError(
            f"{log.file}:{others[-1].line}: a step of {ran}, while '{job.name}' has global_batch: {wants}; "
            "change the study to what ran"
        )
    note = f"{number(len(others), 'step')} of another batch left out (a ramp)" if others else ""
    return steps, note


def _batch(step: LoggedStep) -> str:
    """What a step had, in words."""
    if step.samples is not None:
        return f"{step.samples:.0f} sequences"
    if step.between is not None:
        return f"{step.between[0]:.0f} to {step.between[1]:.0f} sequences"
    if step.seconds is not None and step.rate is not None:
        return f"{step.seconds * step.rate:.0f} tokens on each GPU"
    return f"{step.tokens:.0f} tokens"


def _spread(numbers: Sequence[int], times: Sequence[float]) -> Spread:
    middle = median(times)
    slow = [number for number, seconds in zip(numbers, times, strict=True) if seconds > SLOW * middle]
    gaps = {b - a for a, b in pairwise(slow)}
    lost = sum(max(seconds - middle, 0.0) for seconds in times if seconds > SLOW * middle)
    quarter = len(times) // 4
    drift = median(times[-quarter:]) / median(times[:quarter]) - 1 if quarter else 0.0
    every = gaps.pop() if len(gaps) == 1 and len(slow) > 2 else 0
    each = round(median(max(b - a, 1) for a, b in pairwise(numbers))) if len(numbers) > 1 else 1
    return Spread(lost / sum(times), len(slow), every, each, quantile(times, 0.95) / middle, drift)


def _explained(
    compared: ComparedSteps, job: TrainingJob, arch: Transformer, machine: Machine
) -> tuple[Explanation, ...]:
    """Changes that bring the prediction nearer to the measured step, the nearest first."""
    measured, plain = compared.measured, compared.predicted.step_time
    slower = compared.verdict == "slower"
    asked_of = [one for one in QUESTIONS if one[0] in (WORSE if slower else BETTER)]
    questions = (*SLIPS, *asked_of) if slower else asked_of
    found = []
    for asked in what_ifs(job, arch, machine, questions=questions, must_fit=False):
        if asked.step is None:
            continue
        seconds = asked.step.step_time
        away = abs(seconds / measured - 1)
        if abs(seconds / plain - 1) >= LEAST and away < abs(plain / measured - 1):
            found.append((away, Explanation(asked.name, asked.why, seconds, away <= EXPLAINS)))
    return tuple(one for _, one in sorted(found, key=lambda pair: pair[0])[:TOLD])
