"""What a training run takes before anybody lays it out: FLOPs, GPU-hours, fleet for a deadline, energy.

The pace is our predicted step where a study gives a layout, else the utilisation that published runs of that
kind of model reached on that GPU.  Every figure that hangs on it is a range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from railwright.catalog.parts import Catalog, Gpu, Server
from railwright.errors import PlanError
from railwright.model import flops_per_token
from railwright.model.architecture import Transformer
from railwright.shipped import read_data
from railwright.training.borrowed import kernel_share, kernels_over
from railwright.training.constants import MEASURED, error_band, family_of, model_of, width_of
from railwright.training.formats import job_peak
from railwright.training.mixtures import kept
from railwright.training.result import StepResult
from railwright.units import number

HOUR, DAY = 3600.0, 86400.0

SENSIBLE = {
    "tokens": (1.0, 1e18),
    "sequence": (1, 2**30),
    "days": (0.001, 36500.0),
    "gpus": (1, 10**8),
    "pue": (1.0, 3.0),
    "availability": (0.001, 1.0),
}
"""What may be asked for: beyond lie slips of the pen, and figures that no number holds."""

SEQUENCE = 4096
"""Of kernels where no sequence is told [token]."""


@dataclass(frozen=True)
class Range:
    """A figure with the band it is expected in: 80 % of comparable runs lie between low and high."""

    low: float
    middle: float
    high: float

    @property
    def ends(self) -> tuple[float, float, float]:
        """Low, middle, high."""
        return self.low, self.middle, self.high

    def times(self, factor: float) -> Range:
        """The range times a positive factor."""
        return Range(self.low * factor, self.middle * factor, self.high * factor)

    def under(self, numerator: float) -> Range:
        """numerator / range: the slowest pace gives the largest need."""
        return Range(numerator / self.high, numerator / self.middle, numerator / self.low)


@dataclass(frozen=True)
class Throughput:
    """What one GPU does: model FLOPs a second, and where that comes from. [flop/s]"""

    flops: Range
    source: str


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
    arch: Transformer,
    tokens: float,
    sequence: int,
    gpu: Gpu,
    server: Server,
    dtype: str,
    *,
    days: float | None = None,
    gpus: int | None = None,
    pace: Throughput | None = None,
    pue: float = 1.0,
    availability: float = 1.0,
    network_power: float = 0.0,
    per_server: int | None = None,
    idle_share: float = 0.0,
    flops_each: float | None = None,
) -> Demand:
    """What training `arch` on `tokens` tokens takes; with `days` the fleet for it, with `gpus` its time.

    pace          default: that of published runs, `published_pace`
    pue           power of the site over power of the machines; 1: machines alone
    availability  time at work over wall-clock time, 0..1; what failures, restarts and checkpoints cost is not
                  predicted here, so 1 is the run in which nothing happens
    network_power of the fabric's switches, per GPU [W]
    per_server    GPUs of each server that the run uses; None: all
    flops_each    model FLOPs of one token; default: those of training all weights (`flops_per_token`)
    idle_share    of its part of a server's power that a GPU of the run's servers draws which the run leaves
                  idle; 0: other work has those GPUs and pays for them

    Power is the server's catalogued maximum, an equal part of it each GPU: an upper bound, since training
    rarely draws it.
    Raises PlanError for a deadline and a fleet at once, and for figures that make no sense.
    """
    _check(tokens, sequence, days, gpus, pue, availability)
    used = per_server or server.gpus
    per_token = flops_per_token(arch, sequence).total if flops_each is None else flops_each
    flops = per_token * tokens
    known = pace or published_pace(arch, gpu, dtype, sequence)
    hours = known.flops.under(flops).times(1.0 / (HOUR * availability))
    fleet, time = _fleet(hours, used, days, gpus)
    idle = Range(*(max(_servers(n, used) * server.gpus - n, 0.0) for n in fleet.ends))
    power = Range(
        *(
            (server.power_max / server.gpus * (n + still * idle_share) + n * network_power) * pue
            for n, still in zip(fleet.ends, idle.ends, strict=True)
        )
    )
    return Demand(
        model=arch.name,
        gpu=gpu.name,
        server=server.name,
        dtype=dtype,
        tokens=tokens,
        flops_per_token=per_token,
        flops=flops,
        pace=known,
        mfu=known.flops.times(1.0 / job_peak(gpu, dtype)),
        gpu_hours=hours,
        gpus=fleet,
        days=time,
        sustained=time.under(flops / DAY),
        idle=idle,
        power=power,
        energy=Range(*(HOUR * h * p / n for h, p, n in zip(hours.ends, power.ends, fleet.ends, strict=True))),
        fleet_peak=fleet.times(job_peak(gpu, dtype)),
        pue=pue,
        availability=availability,
        idle_share=idle_share,
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


def published_pace(arch: Transformer, gpu: Gpu, dtype: str, sequence: int = SEQUENCE) -> Throughput:
    """What published runs of this kind of model reach on this GPU; where it has too few, what they reach on
    all GPUs, times what this one's isolated kernels reach of its peak over theirs.  Of a mixture of experts:
    what its isolated kernels reach, times what published mixtures keep of theirs (`mixtures`).

    sequence  of the kernels [token]

    The source says which of these.  A GPU that no published step ran on has the error band of our steps on
    top of the range, and none is faster than its kernels alone.
    Source: training/data/mfu.yaml (tools/fit_mfu.py), 10th, 50th and 90th percentile of the fastest layouts.
    Raises PlanError for a width of products that no published run has.
    """
    family = family_of("moe" if arch.is_moe else "dense", gpu.name, dtype)
    kind, width, peak = family.split()[0], width_of(dtype), job_peak(gpu, dtype)
    steps = kept(gpu.name, dtype) if arch.is_moe else None
    own = steps.own if steps else family in _mfu()
    row = None if arch.is_moe else _mfu().get(family) or _mfu().get(f"{kind} {width}")
    if steps:
        over, share, source = kernel_share(arch, sequence, gpu, dtype), Range(*steps[:3]), steps.source
        source += f", of which {arch.name} reaches {over:.0%} of the dense peak here"
    elif row:
        over = 1.0 if own else kernels_over(arch, sequence, gpu, dtype, row["series"])
        share, source = Range(float(row["low"]), float(row["middle"]), float(row["high"])), str(row["source"])
        source = source if own else _scaled(over, source)
    else:
        raise PlanError(
            f"No published runs of {kind} models in {width} to take a utilisation from; "
            "give a study with a layout instead, whose step is predicted."
        )
    if own:
        return Throughput(share.times(over * peak), source)
    low, middle, high = share.times(over).ends
    if model_of(gpu.name) not in MEASURED:
        band = error_band(family, "")
        low, high = low / band.high, high / band.low
    most = kernel_share(arch, sequence, gpu, dtype)
    reached = Range(*(min(one, most) for one in (low, middle, high)))
    return Throughput(reached.times(peak), _borrowed(family, gpu, source))


def above_published(arch: Transformer, gpu: Gpu, dtype: str, mfu: float, sequence: int = SEQUENCE) -> str:
    """What is to be said of a step that no record of its software stands behind, where it reaches more of the
    dense peak than nine of ten published steps on that GPU; '' where it does not or too few are known.

    A mixture of experts is held against what published ones keep of the pace of their kernels, on all GPUs
    where this one has too few.
    """
    family = family_of("moe" if arch.is_moe else "dense", gpu.name, dtype)
    kind, name, width = family.split()
    if arch.is_moe:
        steps = kept(gpu.name, dtype)
        if steps is None:
            return ""
        share = kernel_share(arch, sequence, gpu, dtype)
        high, middle = steps.high * share, steps.middle * share
        where = f"on {name}" if steps.own else "on any GPU"
        those = f"published mixtures of experts {where} in {width} keep of the pace of their kernels alone"
        others = f"which here is {high:.0%}; half of {number(len(steps.models), 'model')} {middle:.0%}"
    elif row := _mfu().get(family):
        high, middle, series = float(row["high"]), float(row["middle"]), sum(row["series"].values())
        those = f"published series of {kind} models on {name} in {width} reach"
        others = f"{high:.0%}; half of {series} reach {middle:.0%}"
    else:
        return ""
    if mfu <= high:
        return ""
    return (
        f"its {mfu:.0%} of the dense peak is more than nine of ten {those} ({others}), and no record of this "
        f"software on {gpu.name} stands behind it: measure a step before you plan with it."
    )


def _scaled(over: float, source: str) -> str:
    """The source of a share of the peak that other GPUs reached.

    over  what this one's kernels reach of its peak over theirs
    """
    return (
        f"the share of its dense peak is what other GPUs ({MEASURED[0]} to {MEASURED[-1]}) reached, times "
        f"{over:.2f}, what its kernels alone reach of it over theirs; {source}"
    )


def _borrowed(family: str, gpu: Gpu, source: str) -> str:
    """The source of a pace, for a GPU with too few published steps of its own."""
    kind, name, width = family.split()
    known = name in MEASURED
    lacks = "too few published steps" if known else "no published step"
    error = "" if known else "; the error of our steps widens the range"
    links = "" if gpu.scale_up_bandwidth else "; without links between its GPUs its own may be lower still"
    return f"{lacks} of its own ({kind}, {width}); {source}{error}{links}"


def predicted_pace(step: StepResult, gpus: int) -> Throughput:
    """What our predicted step makes of each of `gpus`, within the error band of its family.

    The middle is the prediction itself, or the geometric middle of a band that does not hold it.
    """
    flops = step.model_flops / step.step_time / gpus
    low, high = step.error_low, step.error_high
    band = Range(flops / high, flops, flops / low) if low <= 1.0 <= high else _around(flops, low, high)
    return Throughput(
        band,
        f"our predicted step of {step.step_time:.4g} s on {number(gpus, 'GPU')}, and measured steps "
        f"at {low:.2f} to {high:.2f} times the predicted ones",
    )


def usual_server(catalog: Catalog, gpu: Gpu) -> Server:
    """The server that a GPU is most often sold in: NVIDIA's own, else the first of the catalogue.

    Raises PlanError for a GPU that no catalogued server holds.
    """
    holding = [s for s in catalog.servers.values() if s.gpu == gpu.name]
    if not holding:
        raise PlanError(f"No server of the catalogue holds {gpu.name}; name one with its power and GPUs.")
    return next((s for s in holding if s.name.startswith("dgx")), holding[0])


def _around(flops: float, low: float, high: float) -> Range:
    """A band beside the prediction, with its geometric middle as what to expect."""
    return Range(flops / high, flops / math.sqrt(low * high), flops / low)


def _servers(gpus: float, used: int) -> int:
    """Servers for this many GPUs, `used` of each."""
    return math.ceil(gpus / used * (1 - 1e-12))


def _check(
    tokens: float, sequence: int, days: float | None, gpus: int | None, pue: float, availability: float
) -> None:
    if days is not None and gpus is not None:
        raise PlanError(
            "A deadline and a fleet were both given; give the days to learn the GPUs, or the GPUs to learn "
            "the days."
        )
    for what, value in (("tokens", tokens), ("sequence", sequence), ("days", days), ("gpus", gpus)):
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


@cache
def _mfu() -> dict[str, Any]:
    data: dict[str, Any] = read_data("training", "mfu.yaml")
    return data
