"""What a serving search found, and how it is known that nothing cheaper was missed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from railwright.search.serving.fleet import Verdict
from railwright.search.serving.space import Plan
from railwright.serving.result import ServingResult
from railwright.spec.serving import ServingJob, Slo


@dataclass(frozen=True)
class Point:
    """A plan and what its users see under the whole client."""

    plan: Plan
    verdict: Verdict

    @property
    def per_gpu(self) -> float:
        """Output tokens a second and GPU."""
        return self.verdict.tokens / self.plan.gpus

    @property
    def per_user(self) -> float:
        """Tokens a second that one user sees."""
        return self.verdict.user


@dataclass(frozen=True)
class ServingEffort:
    """What the search did.

    settings   layouts with engine limits that the model can be cut into
    priced     step tables made;  simulated  runs;  requests  sent in them
    untried    plans as cheap as the best that its bounds did not rule out and that were not simulated
    seconds    of everything
    """

    settings: int
    priced: int
    simulated: int
    requests: int
    untried: int
    seconds: float


@dataclass(frozen=True)
class ServingSearchResult:
    """The cheapest plan that keeps the SLO.

    job      as the search took it, its client included;  slo  promised
    best     the plan;  result  its run, in full;  next  others on as many GPUs, in order of strain
    front    plans that keep the SLO of which none gives more tokens a second both per GPU and per user
    own      the job as written, None where it cannot run: own_refused says why
    ruled_out  why plans on fewer GPUs are not enough -> how many
    nearest  the plan on fewer GPUs that came closest to the SLO in a simulation
    limit    what bounds the rate of the best plan's replicas;  rate  that bound, all replicas [1/s]
    words    the answer in sentences
    """

    job: ServingJob
    slo: Slo
    best: Point
    result: ServingResult
    next: tuple[Point, ...]
    front: tuple[Point, ...]
    own: ServingResult | None
    own_refused: str | None
    ruled_out: Mapping[str, int]
    nearest: Point | None
    limit: str
    rate: float | None
    effort: ServingEffort
    words: tuple[str, ...]


def front_of(points: list[Point]) -> tuple[Point, ...]:
    """Points that no other beats per GPU and per user, most per GPU first."""
    found: list[Point] = []
    for one in sorted(points, key=lambda p: (-p.per_gpu, -p.per_user)):
        if not found or one.per_user > found[-1].per_user:
            found.append(one)
    return tuple(found)
