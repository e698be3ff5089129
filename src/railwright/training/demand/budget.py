"""What a training run takes before anybody lays it out: FLOPs, GPU-hours, fleet for a deadline, energy.

Every figure that hangs on the pace of a GPU is a range, as that is (`throughput`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from railwright.catalog.parts import Catalog, Gpu, Server
from railwright.errors import PlanError
from railwright.model import flops_per_token
from railwright.model.shape.architecture import Transformer
from railwright.ranges import Range
from railwright.training.demand.throughput import Throughput, published_pace
from railwright.training.software.formats import job_peak
from railwright.units import DAY, HOUR

SENSIBLE = {
    "tokens": (1.0, 1e18),
    "sequence": (1, 2**30),
    "days": (0.001, 36500.0),
    "gpus": (1, 10**8),
    "pue": (1.0, 3.0),
    "availability": (0.001, 1.0),
}
"""What may be asked for: beyond lie slips of the pen, and figures that no number holds."""


@dataclass(frozen=True)
class TokenBudget:
    """So many tokens that a model is to be trained on.

    tokens      of the whole run [token]
    sequence    length of its sequences [token]
    dtype       of its products
    flops_each  model FLOPs of one token; None: those of training all weights (`flops_per_token`)
    """

    arch: Transformer
    tokens: float
    sequence: int
    dtype: str
    flops_each: float | None = None

    @property
    def per_token(self) -> float:
        """Of one token, with full attention scores. [flop]"""
        if self.flops_each is not None:
            return self.flops_each
        return flops_per_token(self.arch, self.sequence).total


@dataclass(frozen=True)
class Equipment:
    """What a run is to stand on.

    per_server     GPUs of each server that the run uses; None: all
    network_power  of the fabric's switches, per GPU [W]
    idle_share     of its part of a server's power that a GPU of the run's servers draws which the run leaves
                   idle; 0: other work has those GPUs and pays for them
    """

    gpu: Gpu
    server: Server
    per_server: int | None = None
    network_power: float = 0.0
    idle_share: float = 0.0

    @property
    def used(self) -> int:
        """GPUs of each server that the run uses."""
        return self.per_server or self.server.gpus

    def idle(self, gpus: float) -> float:
        """GPUs that a run on so many leaves idle in its servers."""
        return max(_servers(gpus, self.used) * self.server.gpus - gpus, 0.0)

    def power(self, gpus: float, idle: float) -> float:
        """What the machines draw at most while so many GPUs work and so many are idle beside them. [W]"""
        each = self.server.power_max / self.server.gpus
        return each * (gpus + idle * self.idle_share) + gpus * self.network_power


@dataclass(frozen=True)
class Demand:
    """What a token budget takes on one kind of GPU.

    flops         model FLOPs in all, full attention scores [flop]
    pace          model FLOPs a second of one GPU [flop/s]
    mfu           pace over the dense peak of `dtype`
    gpu_hours     at work, over `availability`
    gpus          for `days`, or as given; whole servers, or what the run uses of each [GPUs]
    days          with `gpus`, or as given
    sustained     model FLOPs a second the deadline asks of the whole fleet [flop/s]
    fleet_peak    dense peak of the fleet [flop/s]
    idle          GPUs of its servers that the run leaves idle [GPUs]
    power         what the fleet and those draw, with cooling and losses [W]
    energy        of the whole run, likewise [J]
    warnings      of the predicted step whose pace it is
    runs          published runs on that GPU, with their GPU-hours over the middle that would be said of them;
                  of a pace that is theirs (`whole_runs.over_middle`)
    """

    model: str
    gpu: str
    server: str
    dtype: str
    tokens: float
    flops_per_token: float
    flops: float
    pace: Throughput
    mfu: Range
    gpu_hours: Range
    gpus: Range
    days: Range
    sustained: Range
    idle: Range
    power: Range
    energy: Range
    fleet_peak: Range
    pue: float
    availability: float
    idle_share: float
    warnings: tuple[str, ...] = ()
    runs: tuple[tuple[str, float], ...] = ()


def demand(
    budget: TokenBudget,
    on: Equipment,
    *,
    days: float | None = None,
    gpus: int | None = None,
    pace: Throughput | None = None,
    pue: float = 1.0,
    availability: float = 1.0,
) -> Demand:
    """What a training run takes; with `days` the fleet for it, with `gpus` its time.

    pace          default: that of published runs, `published_pace`
    pue           power of the site over power of the machines; 1: machines alone
    availability  time at work over wall-clock time, 0..1; what failures, restarts and checkpoints cost is not
                  predicted here, so 1 is the run in which nothing happens

    Power is the server's catalogued maximum, an equal part of it each GPU: an upper bound, since training
    rarely draws it.
    Raises PlanError for a deadline and a fleet at once, and for figures that make no sense.
    """
    _check(budget, days, gpus, pue, availability)
    arch, gpu = budget.arch, on.gpu
    per_token = budget.per_token
    flops = per_token * budget.tokens
    known = pace or published_pace(arch, gpu, budget.dtype, budget.sequence)
    peak = job_peak(gpu, budget.dtype)
    hours = known.flops.under(flops).times(1.0 / (HOUR * availability))
    fleet, time = _fleet(hours, on.used, days, gpus)
    idle = Range(*map(on.idle, fleet.ends))
    power = Range(*(on.power(n, still) * pue for n, still in zip(fleet.ends, idle.ends, strict=True)))
    return Demand(
        model=arch.name,
        gpu=gpu.name,
        server=on.server.name,
        dtype=budget.dtype,
        tokens=budget.tokens,
        flops_per_token=per_token,
        flops=flops,
        pace=known,
        mfu=known.flops.times(1.0 / peak),
        gpu_hours=hours,
        gpus=fleet,
        days=time,
        sustained=time.under(flops / DAY),
        idle=idle,
        power=power,
        energy=Range(*(HOUR * h * p / n for h, p, n in zip(hours.ends, power.ends, fleet.ends, strict=True))),
        fleet_peak=fleet.times(peak),
        pue=pue,
        availability=availability,
        idle_share=on.idle_share,
    )


def _fleet(hours: Range, used: int, days: float | None, gpus: int | None) -> tuple[Range, Range]:
    """GPUs, and days: the fleet for a deadline, or the time of a fleet; of one server where neither is given.

    hours  GPU-hours of the run
    used   GPUs of each server that it uses
    """
    if days is not None:
        needed = hours.times(1.0 / (days * 24.0))
        return Range(*(used * _servers(n, used) for n in needed.ends)), Range(days, days, days)
    given = used if gpus is None else gpus
    return Range(given, given, given), hours.times(1.0 / (given * 24.0))


def usual_server(catalog: Catalog, gpu: Gpu) -> Server:
    """The server that a GPU is most often sold in: NVIDIA's own, else the first of the catalogue.

    Raises PlanError for a GPU that no catalogued server holds.
    """
    holding = [s for s in catalog.servers.values() if s.gpu == gpu.name]
    if not holding:
        raise PlanError(f"No server of the catalogue holds {gpu.name}; name one with its power and GPUs.")
    return next((s for s in holding if s.name.startswith("dgx")), holding[0])


def _servers(gpus: float, used: int) -> int:
    """Servers for this many GPUs, `used` of each."""
    return math.ceil(gpus / used * (1 - 1e-12))


def _check(
    budget: TokenBudget, days: float | None, gpus: int | None, pue: float, availability: float
) -> None:
    if days is not None and gpus is not None:
        raise PlanError(
            "A deadline and a fleet were both given; give the days to learn the GPUs, or the GPUs to learn "
            "the days."
        )
    counts = (("tokens", budget.tokens), ("sequence", budget.sequence), ("days", days), ("gpus", gpus))
    for what, value in counts:
        if value is None:
            continue
        if not (value > 0 and math.isfinite(value)):
            raise PlanError(f"The {what} must be above 0, not {value:g}.")
        least, most = SENSIBLE[what]
        if not least <= value <= most:
            raise PlanError(f"The {what} must be between {least:g} and {most:g}, not {value:g}.")
    least, most = SENSIBLE["pue"]
    if not least <= pue <= most:
        raise PlanError(
            f"The PUE is {pue:g}; a site draws what its machines draw and at most a few times that, "
            f"so give {least:g} to {most:g}."
        )
    least, most = SENSIBLE["availability"]
    if not least <= availability <= most:
        raise PlanError(
            f"The availability is {availability:g}; it is a share of the time, from {least:g} to {most:g}."
        )
