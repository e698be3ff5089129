"""What `serve` answers: latencies, throughput, whether promises are kept, and where the time goes."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.serving.engine.sources import KernelSources
from railwright.serving.simulator.metrics import Distribution, Throughput
from railwright.serving.simulator.simulate import Run
from railwright.spec.serving import Slo


@dataclass(frozen=True)
class Promise:
    """One part of an SLO.

    what    'TTFT', 'TPOT' or 'end to end'
    bound   promised [s];  percentile  share of requests it is promised to [%]
    value   that percentile of the latency [s]
    """

    what: str
    bound: float
    percentile: float
    value: float

    @property
    def kept(self) -> bool:
        return self.value <= self.bound


@dataclass(frozen=True)
class Parts:
    """Where a mean latency goes: name -> seconds, adding up to it; `network` of it is on links."""

    parts: dict[str, float]
    network: float

    @property
    def total(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Cache:
    """Keys and values.

    tokens       that fit in one replica that decodes
    peak         largest share of its blocks in use
    hits         share of prompt tokens found computed
    preemptions  of running requests, for want of room
    """

    tokens: int
    peak: float
    hits: float
    preemptions: int


@dataclass(frozen=True, eq=False)
class ServingResult:
    """A serving job, answered.

    gpus         of all replicas;  replicas  that decode;  prefill_replicas  beside them
    requests     that count
    ttft, tpot, itl, end_to_end  latencies as users see them; tpot over requests, itl over tokens
    good         share of requests that meet the whole SLO, None without one;  goodput  those per second
    ttft_parts, tpot_parts  where the means go
    bottleneck   one sentence: what holds the job back, and whether that is the network
    power        of the replicas' servers at their catalogued maximum, by the GPUs they take [W]
    words        the answer in sentences
    run          every request and step
    kernels      which measured kernels it stands on
    """

    name: str
    model: str
    engine: str
    gpu: str
    gpus: int
    replicas: int
    prefill_replicas: int
    requests: int
    ttft: Distribution
    tpot: Distribution
    itl: Distribution
    end_to_end: Distribution
    throughput: Throughput
    slo: Slo | None
    promises: tuple[Promise, ...]
    good: float | None
    goodput: float | None
    cache: Cache
    ttft_parts: Parts
    tpot_parts: Parts
    bottleneck: str
    power: float
    words: tuple[str, ...]
    run: Run
    kernels: KernelSources

    @property
    def tokens_per_second(self) -> float:
        """Output tokens a second, of all replicas."""
        return self.throughput.output_tokens

    @property
    def tokens_per_second_per_gpu(self) -> float:
        return self.throughput.output_tokens / self.gpus

    @property
    def tokens_per_second_per_user(self) -> float:
        """What one user sees after the first token: 1 / mean TPOT."""
        return 1.0 / self.tpot.mean if self.tpot.mean > 0 else float("inf")

    @property
    def kept(self) -> bool | None:
        """Whether every promise is kept; None without an SLO."""
        return all(p.kept for p in self.promises) if self.promises else None

    @property
    def joules_per_token(self) -> float:
        """Energy of an output token at that power while the load lasts [J]."""
        return self.power / self.throughput.lasting
