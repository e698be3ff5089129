"""What the growth path is: rungs, networks, and what is carried over."""

from __future__ import annotations

from dataclasses import dataclass, field

from railwright.growth.asking import Ask
from railwright.growth.parts import Reuse
from railwright.ranges import Range
from railwright.spec.serving import ServingJob
from railwright.spec.training import TrainingJob


@dataclass(frozen=True)
class Fit:
    """One job on one kind of machine: the fewest GPUs, from those asked for, in whose memory it fits.

    gpus      it takes;  layout  in words
    group     of these, GPUs that talk to each other: all in training, one replica in inference
    memory    of its fullest GPU [byte], of capacity [byte]
    """

    gpus: int
    layout: str
    memory: float
    capacity: float
    job: TrainingJob | ServingJob

    @property
    def group(self) -> int:
        return self.job.layout.gpus if isinstance(self.job, ServingJob) else self.gpus


@dataclass(frozen=True)
class Pace:
    """Tokens a second of one GPU, and whether somebody measured it.

    rate  training: tokens trained on; inference: tokens of answers [1/s]
    kind  'published' or 'model'; note: whose measurement, or the error band of the model
    """

    rate: Range
    kind: str
    note: str


@dataclass(frozen=True)
class Rent:
    """A step's GPU by the hour, at list prices on demand.

    cloud  the cheapest;  price, dearest  of a GPU-hour there, and where it is dearest [USD]
    pays   GPUs in use on average above which owning the step is cheaper than that cloud; inf: never
    """

    cloud: str
    price: float
    dearest: float
    pays: float


@dataclass(frozen=True)
class Rung:
    """One step of the ladder under this load.

    fit, refused   how a job lies on it, or why it does not; one of them is set
    places         jobs, or replicas, that run at once
    load, used     GPUs busy on average today, and those that must be had for it: the same, of a rate of
                   requests whole replicas; infinite where the job does not fit
    wait           mean wait over mean job length at today's load; infinite where the line never ends.  Of a
                   rate of requests: 0, or infinite where it is more than the step should carry
    most           GPUs busy on average at which the wait passes its bound, or a rate of requests its own
    outgrown       years from now at which the load does; 0: it has; infinite: it never does
    data_network   slowest network that carries what is saved or loaded; network: with the jobs' traffic too,
                   '' where not even the fastest does
    power          of all its machines and switches [W]; outlet: where one machine is plugged in
    office         whether that is an outlet of an office
    price          of machines, switches and cables [USD]; unread: whether a price nobody read is in it
    hourly         of a GPU-hour, owned, with as many in use as may be [USD]; run_cost: of one run [USD]
    monthly        of the step, owned, at today's load [USD a month]; None where it cannot carry it
    rent           the same GPU rented; None where no cloud of the price book has it
    run_time       of one run of the tokens asked for [s]
    """

    name: str
    title: str
    server: str
    machines: int
    gpus: int
    gpu: str
    fit: Fit | None
    refused: str
    places: int
    load: float
    used: float
    wait: float
    most: float
    outgrown: float
    data_network: str
    network: str
    power: float
    outlet: str
    office: bool
    pace: Pace | None
    price: Range | None
    unread: bool
    hourly: Range | None
    monthly: float | None
    rent: Rent | None
    run_cost: Range | None
    run_time: Range | None

    @property
    def works(self) -> bool:
        """Whether jobs fit and nobody waits too long today."""
        return self.fit is not None and self.outgrown > 0


@dataclass(frozen=True)
class NetworkRow:
    """The job over several servers on one network.

    rate     what a server sends in all [byte/s]
    exposed  communication between servers during which GPUs wait, and what it adds to the pipeline's bubble,
             over the step
    relative tokens per second over those of the fastest network
    layout   in words, the fastest of the short list there
    enough   neither waits nor the layout it forces cost more than their bound
    saving   time for one checkpoint, or one load of the weights [s]
    """

    name: str
    rate: float
    exposed: float
    relative: float
    layout: str
    saving: float
    enough: bool


@dataclass(frozen=True)
class Growth:
    """The answer.

    now         index of the step that fits today
    spans       whether a job spans servers on the step that fits (else the network table is a what-if)
    across      GPUs and servers of the job of the network table; no_network: why there is none
    positions   longest sequence the model was made for; 0: not said
    words       the answer in sentences, most important first
    notes       what is assumed or doubtful
    """

    ask: Ask
    rungs: tuple[Rung, ...]
    now: int
    spans: bool
    across: tuple[int, int]
    networks: tuple[NetworkRow, ...]
    no_network: str
    reused: tuple[tuple[str, Reuse, bool], ...]
    positions: int = 0
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
