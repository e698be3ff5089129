"""What `goodput` answers, as plain frozen values. Times in seconds, shares of 1."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.reliability.replay import Spares


@dataclass(frozen=True)
class Component:
    """One kind of part of the job's cluster and what it contributes.

    units    of them that the job touches, each a `unit`
    rate, low, high  failures of one unit in a year
    stops    whether it interrupts the job; otherwise it is drained, or the fabric carries on slower
    per_1000_node_days  of all units together
    mtti     of the job by this component alone; inf with rate 0 [s]
    share    of the job's interruptions; 0 where it does not stop it
    servers  servers of the job that one failure takes away
    """

    name: str
    what: str
    unit: str
    units: float
    rate: float
    low: float
    high: float
    stops: bool
    per_1000_node_days: float
    mtti: float
    share: float
    servers: int
    source: str


@dataclass(frozen=True)
class RecoveryTimes:
    """From an interruption to the next useful step. [s]  `mean` is over what interrupts the job."""

    detect: float
    diagnose: float
    reschedule: float
    restart: float
    load: float
    warmup: float
    mean: float

    @property
    def hardware(self) -> float:
        """All stages: a server is swapped for a spare."""
        return self.detect + self.diagnose + self.reschedule + self.restart + self.load + self.warmup

    @property
    def software(self) -> float:
        """No server to look for and none to swap."""
        return self.detect + self.restart + self.load + self.warmup


@dataclass(frozen=True)
class CheckpointTimes:
    """One checkpoint and when it is taken.

    size        [byte]
    bandwidth   to storage, all servers of the job together [byte/s]; 0 where none is needed
    limit       what sets the bandwidth, in words
    block       what it keeps the job from training [s]
    lag         until it is whole [s]
    load        reading the newest back [s]
    storage_load   reading the one in storage back [s]
    interval    training between two [s]
    best        the interval with the highest training-time ratio [s]
    young, daly the published estimates of it [s]
    storage_every  intervals between two that reach storage
    """

    kind: str
    size: float
    bandwidth: float
    limit: str
    block: float
    lag: float
    load: float
    storage_load: float
    interval: float
    best: float
    young: float
    daly: float
    storage_every: int


@dataclass(frozen=True)
class Definition:
    """One published meaning of 'effective training time', and its value here."""

    name: str
    value: float
    formula: str
    source: str


@dataclass(frozen=True)
class Forecast:
    """The run to its end, over the Monte Carlo samples.

    ideal         without any failure or checkpoint [s]
    finished      share of the samples that reach the end
    wall          (p10, p50, p90, p99, mean) wall time, of steps as long as predicted [s]
    wall_measured the same of steps as long as measured ones may be [s]
    band          the range that 80 % of measured over predicted steps are expected in
    gpu_hours     of `wall`, spares included
    ettr          (p10, p50, p90, mean) useful over wall time
    interruptions mean number
    waiting       share of the wall time waiting for a server
    """

    samples: int
    ideal: float
    finished: float
    wall: tuple[float, float, float, float, float]
    wall_measured: tuple[float, float, float, float, float]
    band: tuple[float, float]
    gpu_hours: tuple[float, float, float, float, float]
    ettr: tuple[float, float, float, float]
    interruptions: float
    waiting: float


@dataclass(frozen=True)
class NetworkFault:
    """One failed network element and the training step under it.

    slowdown  of the step; None where the job cannot run on all its servers
    lost_servers  that can no longer join
    expected  share of the job's time it costs, at its rate and repair time
    """

    what: str
    element: str
    slowdown: float | None
    lost_servers: int
    expected: float
    why: str


@dataclass(frozen=True)
class SpareSwitch:
    """What spare spines are worth to the job.

    spares     per pod and plane
    loss       share of the job's time lost to dead spines, for its own step
    bound_loss the same for a job that needs every spine link: the most it can be
    gpu_hours  that `loss` is, in a year
    """

    spares: int
    spines: int
    loss: float
    bound_loss: float
    gpu_hours: float


@dataclass(frozen=True)
class NetworkFaults:
    """The job's step under failed network elements, and the worth of spare spines.

    healthy    step time on the sound fabric [s]
    live       (live spines above a leaf, step slowdown) that were simulated
    """

    healthy: float
    faults: tuple[NetworkFault, ...]
    live: tuple[tuple[int, float], ...]
    spares: tuple[SpareSwitch, ...]
    degraded: float
    words: tuple[str, ...]


@dataclass(frozen=True)
class Swing:
    """Goodput with one assumption at either end of its range."""

    name: str
    low: str
    high: str
    at_low: float
    at_high: float
    source: str


@dataclass(frozen=True)
class Contradiction:
    """Published figures that disagree: what, why, and what Railwright does about it."""

    name: str
    text: str
    explanation: str


@dataclass(frozen=True)
class Goodput:
    """The whole answer for one job.

    nodes       of eight GPUs, the unit of all rates
    mtti, mtti_low, mtti_high  of the job, with every rate at its own, its highest, its lowest value [s]
    ettr        training-time ratio, closed form
    goodput     ettr less what a degraded fabric and link flaps take
    losses      (what, share of the wall time), adding up to 1 - goodput
    target      (wanted ratio, longest recovery that reaches it at this checkpoint [s]; negative: none does)
    lemons      share of the interruptions that the worst tenth of the servers causes
    spares      hot spares assumed; `wanted` says how many 99 % and 99.9 % of the time take
    enough      (spare servers for 99 % of the time, goodput with them)
    """

    job: str
    gpus: int
    servers: int
    nodes: float
    rates: str
    answer: tuple[str, ...]
    per_1000_node_days: float
    mtti: float
    mtti_low: float
    mtti_high: float
    components: tuple[Component, ...]
    recovery: RecoveryTimes
    checkpoint: CheckpointTimes
    definitions: tuple[Definition, ...]
    ettr: float
    goodput: float
    losses: tuple[tuple[str, float], ...]
    forecast: Forecast
    spares: int
    wanted: tuple[Spares, ...]
    enough: tuple[int, float]
    target: tuple[float, float]
    network: NetworkFaults | None
    tornado: tuple[Swing, ...]
    lemons: float
    contradictions: tuple[Contradiction, ...]
    notes: tuple[str, ...]
