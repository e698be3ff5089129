"""What a load generator says of one run, whichever tool wrote it; times in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PERCENTILES = (50.0, 90.0, 95.0, 99.0)
"""What is taken from requests where a tool saved each."""


@dataclass(frozen=True)
class Summary:
    """Statistics of one quantity [s], as far as the tool states them: the mean, and percentile -> value."""

    mean: float | None = None
    percentiles: Mapping[float, float] = field(default_factory=dict)

    @property
    def stated(self) -> bool:
        """Whether the tool said anything of it."""
        return self.mean is not None or bool(self.percentiles)


@dataclass(frozen=True, eq=False)
class Requests:
    """Each request of a run, where the tool saved them.

    start    (N,) when it was sent, seconds from the first; NaN where the tool does not say
    prompt   (N,) tokens; `output` likewise
    ttft     (N,) seconds to the first token; `end_to_end` to the last
    """

    start: Floats
    prompt: Floats
    output: Floats
    ttft: Floats
    end_to_end: Floats

    def __len__(self) -> int:
        return len(self.prompt)


@dataclass(frozen=True, eq=False)
class BenchResult:
    """One run of a load generator.

    file, tool   where it was read, and which tool wrote it
    label        which run of several in one file, '' for the only one
    model        as the tool names it, '' where it does not
    requests     that were answered; `failed` were not
    duration     of the run [s]
    concurrency  requests in flight at most, None: no bound
    rate         requests offered a second, None: as fast as `concurrency` allows
    prompt, output   mean tokens of a prompt and of an answer
    ttft, tpot, end_to_end   [s]; tpot is per request: time after the first token over further tokens
    tokens_rate  output tokens a second over the run
    each         every request, None where only summaries were saved
    """

    file: str
    tool: str
    label: str
    model: str
    requests: int | None
    failed: int
    duration: float | None
    concurrency: int | None
    rate: float | None
    prompt: float | None
    output: float | None
    ttft: Summary
    tpot: Summary
    end_to_end: Summary
    tokens_rate: float | None
    each: Requests | None = None


def summary_of(values: Floats) -> Summary:
    """Mean and percentiles of values; of none where there are none."""
    found = values[np.isfinite(values)]
    if not len(found):
        return Summary()
    return Summary(float(found.mean()), {p: float(np.percentile(found, p)) for p in PERCENTILES})


def from_first(start: Floats) -> Floats:
    """Seconds since the first of these starts; NaN for requests that state none."""
    return np.asarray(start - np.nanmin(start)) if np.isfinite(start).any() else start


def tpot_of(each: Requests) -> Floats:
    """(N,) seconds per further token of each request; NaN for answers of one token."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            np.where(each.output > 1, (each.end_to_end - each.ttft) / (each.output - 1.0), np.nan)
        )
