"""A study's money in one value: every way, and what its runs and tokens cost in each."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.cost.comparing import Comparison
from railwright.cost.options import Cost


@dataclass(frozen=True)
class TrainingRun:
    """One training job to its end.

    gpu_hours  on its GPUs; where failures are reckoned, with what they take and with the spares (mean)
    goodput    share of the time it trains; 1 where failures are not reckoned
    spares     servers kept for it whose hours are in `gpu_hours`
    """

    job: str
    gpu_hours: float
    goodput: float
    spares: int = 0

    def cost(self, way: Cost) -> float:
        """In one way of having the GPUs [USD]."""
        return self.gpu_hours * float(way.per_gpu_hour)


@dataclass(frozen=True)
class Served:
    """One serving job.

    tokens  output tokens of one GPU in an hour
    """

    job: str
    tokens: float

    def cost(self, way: Cost) -> float:
        """Of a million output tokens at the predicted load, GPUs paid while they are wanted [USD]."""
        return float(way.per_gpu_hour) / self.tokens * 1e6


@dataclass(frozen=True)
class Priced:
    """The comparison with the study's training runs and serving jobs.

    unused  the user's own prices that are of nothing in the catalogue
    """

    comparison: Comparison
    runs: tuple[TrainingRun, ...]
    served: tuple[Served, ...]
    unused: tuple[str, ...] = ()

    @property
    def best(self) -> Cost:
        """The cheapest way, first guess."""
        return self.comparison.costs[0]

    @property
    def best_owned(self) -> Cost:
        """The cheaper of a room of one's own and colocation."""
        return next(c for c in self.comparison.costs if c.kind in ("own", "colo"))
