"""What one predicted training step is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railwright.collectives.prediction import CollectivePrediction
from railwright.training.lanes.timeline import Share, Timeline

COMMUNICATION = ("tp", "cp", "ep", "emb", "pp", "dp")
"""Kinds of shares that are communication."""

ADAM = "adam"
"""Kind of the optimizer's update on the host, beside which the GPU waits (DeepSpeed's CPU Adam)."""


@dataclass(frozen=True)
class StageMemory:
    """Peak memory of one GPU of one pipeline stage [byte]; `parts` add up to `total`.

    moment  what the GPU does at its peak: 'a layer backward', 'head backward', 'optimizer step', …
    passes  forward passes whose activations it holds then
    """

    stage: int
    parts: dict[str, float]
    total: float
    moment: str
    passes: int


@dataclass(frozen=True)
class HostMemory:
    """What a job has in the memory of its fullest host [byte]; `parts` add up to `total`.

    capacity  nominal memory of the host; 0 where nothing is known of it
    ranks     of the job on that host
    """

    parts: dict[str, float]
    total: float
    capacity: float
    ranks: int


@dataclass(frozen=True)
class Memory:
    """Peak memory of the fullest GPU [byte]; `parts` add up to `total`.

    stages   the peak of every pipeline stage; `stage` is the fullest one
    why      in one sentence, where the peak is and what holds most of it
    host     what is offloaded; None where nothing is
    """

    parts: dict[str, float]
    total: float
    capacity: float
    stages: tuple[StageMemory, ...] = ()
    stage: int = 0
    why: str = ""
    host: HostMemory | None = None


@dataclass(frozen=True)
class UsedCollective:
    """One communication the step makes: what it is for, how often, and its prediction.

    purpose  'ep dispatch', 'tp all-gather', 'dp gradients', …
    count    times per step on one rank
    groups   kind of the groups that communicate (`placement.Groups`; of a recommendation job the lane)
    crosses  whether they have ranks on several servers
    """

    purpose: str
    kind: str
    count: float
    prediction: CollectivePrediction
    groups: str
    crosses: bool


def launch_share(shares: Sequence[Share], step_time: float) -> float:
    """Share of a step in which the GPU waits for launches, 0..1."""
    return sum(s.exposed for s in shares if s.kind == "host") / step_time


@dataclass(frozen=True)
class Feed:
    """What a step reads of its data set, and how long its loaders take.

    size       of one sequence (or sample) in storage [byte]
    read       by all servers [byte]; server: by the one that reads most
    reading    how long that server takes at `data.storage`, 0 where that is no limit [s]
    preparing  how long the loaders of one rank take with `data.prepare` [s]
    ahead      loaders work while the GPUs compute; False: ranks load themselves, before every microbatch
    """

    size: float
    read: float
    server: float
    reading: float = 0.0
    preparing: float = 0.0
    ahead: bool = True

    @property
    def seconds(self) -> float:
        """How long loading takes; processes beside each other read while others prepare. [s]"""
        return max(self.reading, self.preparing) if self.ahead else self.reading + self.preparing

    def wait(self, step_time: float) -> float:
        """How long a step that computes for `step_time` waits for its data. [s]"""
        return max(0.0, self.seconds - step_time) if self.ahead else self.seconds


@dataclass(frozen=True)
class StepResult:
    """One training step of one job on one network.

    step_time [s]; tokens per step; mfu against the dense peak of `dtype`, model FLOPs with full attention
    scores (Megatron SC'21 convention) and, of frozen weights, no gradients (`job_flops_per_token`);
    `tokens_total`, `time_to_train`, `gpu_hours` for the token budget
    error_low, error_high   80 % band of measured/predicted step time of this family
    error_source   the published records that band was made of
    unit   what `tokens` counts: 'tokens', or 'samples' of a recommendation model
    feed   what it reads; the step's time includes what it waits for that
    stage  the pipeline stage that shares and collectives are of
    """

    step_time: float
    tokens: int
    tokens_per_second: float
    tokens_per_second_per_gpu: float
    model_flops: float
    mfu: float
    shares: tuple[Share, ...]
    memory: Memory
    collectives: tuple[UsedCollective, ...]
    timeline: Timeline
    tokens_total: float
    time_to_train: float
    gpu_hours: float
    error_low: float
    error_high: float
    error_source: str = ""
    warnings: tuple[str, ...] = ()
    unit: str = "tokens"
    feed: Feed | None = None
    stage: int = 0

    def exposed(self, *kinds: str) -> float:
        """What the step waits for work of these kinds, which nothing hides. [s]"""
        return sum(s.exposed for s in self.shares if s.kind in kinds)

    @property
    def exposed_share(self) -> float:
        """Exposed communication, inside servers and between them, over step time, 0..1."""
        return self.exposed(*COMMUNICATION) / self.step_time

    @property
    def launch_share(self) -> float:
        """Share of the step in which the GPU waits for launches, 0..1."""
        return launch_share(self.shares, self.step_time)
