"""What one GPU makes of its peak, as a range: that of our predicted step, or of published runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from railwright.catalog.parts import Gpu
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.ranges import Range
from railwright.shipped import read_data
from railwright.training.demand.borrowed import kernel_share, kernels_over
from railwright.training.demand.mixtures import kept
from railwright.training.lanes.result import StepResult
from railwright.training.software.constants import MEASURED, error_band, family_of, model_of, width_of
from railwright.training.software.formats import job_peak
from railwright.units import number

SEQUENCE = 4096
"""Of kernels where no sequence is told [token]."""


@dataclass(frozen=True)
class Throughput:
    """What one GPU does: model FLOPs a second, and where that comes from; 80 % of comparable runs lie in the
    range. [flop/s]"""

    flops: Range
    source: str


def predicted_pace(step: StepResult, gpus: int) -> Throughput:
    """What our predicted step makes of each of `gpus`, within the error band of its family.

    The middle is the prediction itself, or the geometric middle of a band that does not hold it.
    """
    flops = step.model_flops / step.step_time / gpus
    low, high = step.error_low, step.error_high
    band = Range.of_rate(flops, low, high)
    if not low <= 1.0 <= high:
        band = replace(band, middle=flops / math.sqrt(low * high))
    return Throughput(
        band,
        f"our predicted step of {step.step_time:.4g} s on {number(gpus, 'GPU')}, and measured steps "
        f"at {low:.2f} to {high:.2f} times the predicted ones",
    )


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
    reached = (_of_mixtures if arch.is_moe else _of_dense)(arch, gpu, dtype, sequence)
    if reached is None:
        raise PlanError(
            f"No published runs of {family.split()[0]} models in {width_of(dtype)} to take a utilisation "
            "from; give a study with a layout instead, whose step is predicted."
        )
    peak = job_peak(gpu, dtype)
    if reached.own:
        return Throughput(reached.share.times(peak), reached.source)
    low, middle, high = reached.share.ends
    if model_of(gpu.name) not in MEASURED:
        band = error_band(family, "")
        low, high = low / band.high, high / band.low
    most = kernel_share(arch, sequence, gpu, dtype)
    share = Range(*(min(one, most) for one in (low, middle, high)))
    return Throughput(share.times(peak), _borrowed(family, gpu, reached.source))


class _Reached(NamedTuple):
    """Share of a GPU's dense peak that published steps reach, or would reach there.

    own  whether they ran on that GPU
    """

    share: Range
    own: bool
    source: str


def _of_mixtures(arch: Transformer, gpu: Gpu, dtype: str, sequence: int) -> _Reached | None:
    steps = kept(gpu.name, dtype)
    if steps is None:
        return None
    over = kernel_share(arch, sequence, gpu, dtype)
    source = f"{steps.source}, of which {arch.name} reaches {over:.0%} of the dense peak here"
    return _Reached(Range(steps.low, steps.middle, steps.high).times(over), steps.own, source)


def _of_dense(arch: Transformer, gpu: Gpu, dtype: str, sequence: int) -> _Reached | None:
    own = _mfu().get(family_of("dense", gpu.name, dtype))
    row = own or _mfu().get(f"dense {width_of(dtype)}")
    if row is None:
        return None
    share, source = Range(float(row["low"]), float(row["middle"]), float(row["high"])), str(row["source"])
    if own:
        return _Reached(share, True, source)
    over = kernels_over(arch, sequence, gpu, dtype, row["series"])
    return _Reached(share.times(over), False, _scaled(over, source))


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


@cache
def _mfu() -> dict[str, Any]:
    data: dict[str, Any] = read_data("training", "mfu.yaml")
    return data
