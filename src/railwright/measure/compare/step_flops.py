"""What a training log's own TFLOP/s say of the job: FLOPs of a step beside the model FLOPs of the study's.

A framework divides FLOPs, which it counts by a formula from its model, batch and GPUs, by the time that it
measures; so its rate times its time is that count, however fast the job ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from railwright.measure.steplog.log import LoggedStep, StepLog
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import Scores, flops_per_token
from railwright.spec.training import TrainingJob

FITS = 0.03
"""A log's count is one of ours where it is so close: formulas differ in routers, padded words and norms."""
TELLS = 0.01
"""Counts of ours that are nearer to each other than this are not told apart."""
AGAIN = 4 / 3
"""Hardware FLOPs of a job that computes everything again over its model FLOPs: a second forward pass, a third
of the whole (Megatron-DeepSpeed and GPT-NeoX print these)."""
SCORES: tuple[Scores, ...] = ("full", "causal")


@dataclass(frozen=True)
class LoggedFlops:
    """FLOPs of one step on each GPU, as a log and as we count them. [flop]

    rate       the log's median [flop/s]
    logged     its rate times its step time, median
    counted    ours, by how attention scores are counted
    recompute  of the study's job
    another    what of the job the log does not tell, so that it may differ from the study's
    formulas   how else its framework may count
    """

    rate: float
    logged: float
    counted: Mapping[str, float]
    recompute: str
    another: tuple[str, ...]
    formulas: tuple[str, ...] = ()

    def off(self, name: str) -> float:
        """The log's count over one of ours, less one."""
        return self.logged / self.counted[name] - 1

    def fitting(self, times: float = 1.0) -> tuple[str, ...]:
        """Which of our counts the log's is so many times: the nearest, and those not to be told from it."""
        near = min(self.counted, key=lambda name: abs(self.off(name) + 1 - times))
        alike = (n for n, flops in self.counted.items() if abs(flops / self.counted[near] - 1) < TELLS)
        return tuple(alike) if abs((self.off(near) + 1) / times - 1) <= FITS else ()


def logged_flops(
    log: StepLog,
    steps: Sequence[LoggedStep],
    times: Sequence[float],
    job: TrainingJob,
    arch: Transformer,
    gpus: int,
) -> LoggedFlops | None:
    """What some steps of a log say; None where they print no rate, and of adapters, which every framework
    counts in its own way.

    times  of the steps [s]
    """
    rates = [(s.flop_rate, seconds) for s, seconds in zip(steps, times, strict=True) if s.flop_rate]
    if not rates or job.lora is not None:
        return None
    each = job.global_batch * job.sequence / gpus
    lengths = {"": job.sequence, " (within samples)": job.attended}
    counted = {
        scores + where: each * flops_per_token(arch, length, scores).total
        for where, length in lengths.items()
        for scores in SCORES
        if not where or length < job.sequence
    }
    return LoggedFlops(
        median(rate for rate, _ in rates),
        median(rate * seconds for rate, seconds in rates),
        counted,
        job.layout.recompute,
        _another(log, steps),
        _formulas(log, arch),
    )


def _another(log: StepLog, steps: Sequence[LoggedStep]) -> tuple[str, ...]:
    """What may be another job's.  Beside a rate in tokens the batch and the GPUs cancel out; where the log
    says them, they are the study's (`steps`)."""
    found = ["model", "sequence"]
    if all(step.seconds is not None and step.rate is None for step in steps):
        if all(step.samples is None and step.tokens is None for step in steps):
            found.append("batch")
        if "gpus" not in dict(log.said):
            found.append("number of GPUs")
    return tuple(found)


def _formulas(log: StepLog, arch: Transformer) -> tuple[str, ...]:
    """Megatron-DeepSpeed and GPT-NeoX, whose formula is older, print Megatron-LM's words."""
    found = []
    if arch.mtp_layers:
        found.append("counts layers that predict further tokens, which we do not")
    if log.framework == "Megatron-LM" and (arch.gated or arch.is_moe or arch.kv_heads < arch.heads):
        found.append("counts by the formula of SC'21, which knows no gated MLPs, shared keys or experts")
    return tuple(found)
