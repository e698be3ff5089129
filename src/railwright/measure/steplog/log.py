"""A training job's log as values: its steps, and what it says of the job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoggedStep:
    """What one line tells of a step, or of the mean of those since the line before; None where it does not.

    line      in the file, 1-based
    number    of the step, as the framework counts
    seconds   it took
    rate      tokens of each GPU [token/s]; beside `seconds` it tells the batch
    sample_rate  sequences of all GPUs, where nothing else times the step [1/s]
    samples   sequences of the step; or its `tokens`
    between   (least, most) samples that they may be, where they are the quotient of rounded figures
    reserved  by PyTorch's allocator, at most so far, on the GPU that logs [byte]
    flop_rate of each GPU, by the framework's own count [flop/s]
    """

    line: int
    number: int
    seconds: float | None = None
    rate: float | None = None
    sample_rate: float | None = None
    samples: float | None = None
    tokens: float | None = None
    reserved: float | None = None
    flop_rate: float | None = None
    between: tuple[float, float] | None = None

    def lasted(self, batch: int, tokens_each: float) -> float:
        """Time of a step of so many sequences, and of so many tokens on each GPU. [s]

        Of rounded figures that of samples has more digits than that of steps.
        """
        if self.seconds is None and self.sample_rate is not None:
            return batch / self.sample_rate
        if self.seconds is None:
            assert self.rate is not None, "a step with neither its time nor its rate"
            return tokens_each / self.rate
        return self.seconds * batch / self.samples if self.between and self.samples else self.seconds


@dataclass(frozen=True)
class StepLog:
    """One job's log.

    framework  that wrote it, in words
    steps      in file order
    said       what it says of the job, by names of the study's fields: 'gpus', 'global_batch',
               'layout.tensor', 'layout.pipeline', 'layout.context'
    reserved   by PyTorch's allocator at most, on any GPU that reports [byte]
    before     steps that ran on other GPUs or in another layout, before the job was started again
    again      steps that ran a second time, behind a restart or in a second run; the later ones are kept
    blurred    its times are worked out of rounded moving averages, so that single ones say little
    """

    file: str
    framework: str
    steps: tuple[LoggedStep, ...]
    said: tuple[tuple[str, int], ...] = ()
    reserved: float | None = None
    before: int = 0
    again: int = 0
    blurred: bool = False
