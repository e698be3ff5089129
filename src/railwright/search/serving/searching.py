"""`search_serving`: the fewest GPUs that keep a serving job's SLO, and the plan that does it best.

Plans are taken in order of their GPUs. What closed forms rule out (`bounds`) is not simulated; all
others on fewer GPUs than the answer are, so nothing cheaper in the space keeps the SLO.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.search.serving.fleet import Stable, Verdict
from railwright.search.serving.result import Point, ServingEffort, ServingSearchResult, front_of
from railwright.search.serving.space import Plan, ServingSpace, Setting, settings
from railwright.search.serving.words import answer, nothing
from railwright.serving.predict import serve, summarise
from railwright.serving.result import ServingResult
from railwright.serving.simulator.fleet import Role
from railwright.spec.serving import ServingJob, ServingLayout

Progress = Callable[[str, float], None]

TIES = 12
"""Plans on the fewest GPUs that are simulated beside the first that keeps the SLO, most promising first."""
STEPS = (1.5, 2.0, 3.0, 1.25, 4.0, 6.0, 8.0)
"""Times the fewest GPUs at which points of the front are looked for."""
TRIED = 3
"""Plans simulated for each of them: those with the shortest expected time per token."""


@dataclass(eq=False)
class _Hunt:
    """A search under way."""

    stable: Stable
    per_server: int
    available: int
    plain: list[Setting]
    others: list[Setting]
    apart: list[Setting]
    reasons: Counter[str] = field(default_factory=Counter)
    points: list[Point] = field(default_factory=list)
    nearest: Point | None = None
    untried: int = 0
    late: set[tuple[Setting | None, int]] = field(default_factory=set)
    pools: dict[tuple[Role, int], list[tuple[Setting, int]]] = field(default_factory=dict)


def search_serving(
    job: ServingJob,
    arch: Transformer,
    machine: Machine,
    space: ServingSpace | None = None,
    *,
    gpus: int | None = None,
    front: int = 3,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> ServingSearchResult:
    """The plan on the fewest GPUs that keeps the job's SLO under its client; among those, the least strained.

    gpus    at most so many; default: those of the job's servers, or of the cluster
    front   numbers of GPUs above the answer at which faster plans are looked for
    folder  where a relative path of a trace starts

    Raises PlanError where the job has no SLO, or no plan of the space keeps it, saying what is in the way.
    """
    began = time.perf_counter()
    tell = progress or (lambda what, done: None)
    if job.slo is None:
        raise PlanError(
            f"{job.name}: there is no SLO to search for; write one under `slo:`, e.g. ttft: '1 s' and "
            "tpot: '50 ms'."
        )
    stable = Stable.of(job, arch, machine, job.slo, folder)
    hunt, count = _begin(stable, space or ServingSpace(), gpus)
    fewest = _fewest(hunt, tell)
    if fewest is None:
        raise PlanError(nothing(stable, hunt.reasons, hunt.nearest, hunt.available))
    best, *others = sorted((p for p in hunt.points if p.plan.gpus == fewest), key=lambda p: p.verdict.strain)
    tell("more GPUs for faster tokens", 0.85)
    _widen(hunt, best, front)
    result = _confirm(stable, best.plan)
    own, refused = _own(stable, folder)
    bound = stable.bounds(best.plan.setting, "decode" if best.plan.prefill else "both")
    effort = _effort(hunt, count, time.perf_counter() - began)
    found = ServingSearchResult(
        job=job,
        slo=job.slo,
        best=best,
        result=result,
        next=tuple(others),
        front=front_of(hunt.points),
        own=own,
        own_refused=refused,
        ruled_out=dict(hunt.reasons),
        nearest=hunt.nearest,
        limit=bound.limit,
        rate=bound.rate * best.plan.replicas if stable.load.rate else None,
        effort=effort,
        words=(),
    )
    return replace(found, words=answer(found, stable))


def _effort(hunt: _Hunt, count: int, seconds: float) -> ServingEffort:
    """What the search took, of `count` settings."""
    stable = hunt.stable
    return ServingEffort(
        settings=count,
        priced=sum(1 for t in stable.tables.values() if not isinstance(t, PlanError)),
        simulated=stable.runs,
        requests=stable.sent,
        untried=hunt.untried,
        seconds=seconds,
    )


def _fewest(hunt: _Hunt, tell: Progress) -> int | None:
    """The fewest GPUs on which a plan keeps the SLO."""
    for total in range(1, hunt.available + 1):
        tell(f"plans on {total} GPUs", 0.8 * total / hunt.available)
        fewer = hunt.reasons.copy()
        if (found := _cheapest(hunt, total)) is not None:
            # Why plans as large as the answer failed says nothing of fewer GPUs.
            hunt.reasons = fewer
            return found.plan.gpus
    return None


def _begin(stable: Stable, space: ServingSpace, gpus: int | None) -> tuple[_Hunt, int]:
    """Settings that the model fits into; how many there are in all."""
    job, machine = stable.job, stable.machine
    servers = len(job.servers) if job.servers is not None else machine.network.fabric.num_servers
    per_server = machine.server.gpus
    available = min(gpus or servers * per_server, servers * per_server)
    found = settings(job, stable.arch, stable.engine, per_server, available, space)
    hunt = _Hunt(stable, per_server, available, [], [], [])
    budget = found.shared[0].max_batched_tokens if found.shared else None
    plain = [s for s in found.shared if s.max_batched_tokens == budget]
    others = [s for s in found.shared if s.max_batched_tokens != budget]
    for kept, asked in ((hunt.plain, plain), (hunt.others, others), (hunt.apart, found.apart)):
        for setting in asked:
            if stable.fits(setting) is None:
                kept.append(setting)
            else:
                hunt.reasons["the model does not fit"] += 1
    if not hunt.plain and not hunt.others and not hunt.apart:
        some = next(iter((*found.shared, *found.apart)), None)
        why = stable.fits(some) if some else None
        first = str(why) if why else next(iter(found.refused), "the space has no layout of so few GPUs.")
        raise PlanError(f"{job.name}: no layout of the space can run on {available} GPUs; e.g. {first}")
    return hunt, len(found.shared) + len(found.apart)


def _cheapest(hunt: _Hunt, total: int) -> Point | None:
    """The least strained plan of so many GPUs that keeps the SLO.

    Where one does at the job's token budget, other budgets are tried for its layout alone: none is cheaper.
    """
    best = _least_strained(hunt, _plans(hunt, total, True), None)
    if best is None:
        return _least_strained(hunt, _plans(hunt, total, False), None)
    if best.plan.prefill is None:
        layout = best.plan.setting.layout
        best = _least_strained(hunt, _shared(hunt, total, False, layout), best)
    return best


def _least_strained(
    hunt: _Hunt, plans: Iterable[tuple[tuple[float, float], Plan]], best: Point | None
) -> Point | None:
    """The best of the plans that keep the SLO and of `best`, the most promising simulated first."""
    tried = 0
    for (_, least), plan in sorted(plans, key=lambda pair: pair[0]):
        if best is not None:
            if least >= best.verdict.strain:
                continue
            if tried >= TIES:
                hunt.untried += 1
                continue
            tried += 1
        found = _judge(hunt, plan)
        if found is not None and (best is None or found.verdict.strain < best.verdict.strain):
            best = found
    return best


def _judge(hunt: _Hunt, plan: Plan) -> Point | None:
    """The plan's point where it keeps the SLO."""
    ahead = (plan.prefill, plan.prefill_replicas)
    if ahead in hunt.late:
        hunt.reasons["prefill replicas too slow for any decoders"] += 1
        return None
    try:
        said: Verdict = hunt.stable.judge(plan)
    except PlanError as error:
        hunt.reasons[_short(error)] += 1
        return None
    point = Point(plan, said)
    if said.failed is None:
        hunt.points.append(point)
        return point
    missed = f"{said.failed} missed" if said.failed != "rate" else "falls behind"
    hunt.reasons[f"simulated: {missed}"] += 1
    if said.prompts_late and hunt.stable.load.rate is not None and not hunt.stable.load.users:
        # Requests come as they come: what decodes has no say in when a prompt is computed.
        hunt.late.add(ahead)
    # Only on the way to the answer: later ones have as many GPUs or more.
    if not hunt.points and (hunt.nearest is None or said.strain < hunt.nearest.verdict.strain):
        hunt.nearest = point
    return None


def _plans(hunt: _Hunt, total: int, plain: bool) -> Iterator[tuple[tuple[float, float], Plan]]:
    """Plans of so many GPUs that no bound rules out: ((expected strain, least strain), plan).

    plain  those at the first token budget of the space, disaggregated ones among them; else all others
    """
    yield from _shared(hunt, total, plain)
    if not plain:
        return
    for ahead in range(1, total):
        decoders = _pool(hunt, "decode", total - ahead)
        if not decoders:
            continue
        for prefill, copies in _pool(hunt, "prefill", ahead):
            for setting, replicas in decoders:
                if _alike(prefill) != _alike(setting):
                    continue
                plan = Plan(setting, replicas, prefill, copies)
                if plan.fits(hunt.per_server, hunt.available):
                    yield _strains(hunt, plan), plan


def _shared(
    hunt: _Hunt, total: int, plain: bool, layout: ServingLayout | None = None
) -> Iterator[tuple[tuple[float, float], Plan]]:
    """Those whose replicas do both; `layout`: of no other."""
    asked = hunt.plain if plain else hunt.others
    if layout is not None:
        asked = [setting for setting in asked if setting.layout == layout]
    for setting, replicas in _within(hunt, "both", total, asked):
        plan = Plan(setting, replicas)
        if plan.fits(hunt.per_server, hunt.available):
            yield _strains(hunt, plan), plan


def _alike(setting: Setting) -> tuple[object, ...]:
    """What both pools of a plan have in common."""
    return (setting.max_requests, setting.weights, setting.kv)


def _pool(hunt: _Hunt, role: Role, total: int) -> list[tuple[Setting, int]]:
    """Settings of disaggregation and their replicas, on exactly so many GPUs, that no bound rules out."""
    key = (role, total)
    if key not in hunt.pools:
        hunt.pools[key] = _within(hunt, role, total, hunt.apart)
    return hunt.pools[key]


def _within(hunt: _Hunt, role: Role, total: int, asked: list[Setting]) -> list[tuple[Setting, int]]:
    """Settings of those asked, and replicas on exactly so many GPUs, that no bound rules out."""
    found: list[tuple[Setting, int]] = []
    load, slo = hunt.stable.load, hunt.stable.slo
    for setting in asked:
        if total % setting.gpus:
            continue
        try:
            bound = hunt.stable.bounds(setting, role)
        except PlanError as error:
            hunt.reasons[_short(error)] += 1
            continue
        replicas = total // setting.gpus
        if slo.ttft is not None and bound.ttft > slo.ttft:
            hunt.reasons["TTFT too long for any load"] += 1
        elif slo.tpot is not None and bound.tpot > slo.tpot:
            hunt.reasons["TPOT too long for any load"] += 1
        elif slo.end_to_end is not None and bound.end_to_end > slo.end_to_end:
            hunt.reasons["end to end too long for any load"] += 1
        elif bound.prompts * replicas < load.burst:
            hunt.reasons["TTFT too long for the requests sent at once"] += 1
        elif load.rate is not None and bound.rate * replicas < load.rate:
            hunt.reasons[f"too slow for the rate: {bound.limit}"] += 1
        else:
            found.append((setting, replicas))
    return found


def _strains(hunt: _Hunt, plan: Plan) -> tuple[float, float]:
    """Expected and least strain."""
    stable, slo, load = hunt.stable, hunt.stable.slo, hunt.stable.load
    serving = stable.bounds(plan.setting, "decode" if plan.prefill else "both")
    ahead = stable.bounds(plan.prefill, "prefill") if plan.prefill else serving
    least = max(
        ahead.ttft / slo.ttft if slo.ttft else 0.0,
        serving.tpot / slo.tpot if slo.tpot else 0.0,
        max(serving.end_to_end, ahead.end_to_end) / slo.end_to_end if slo.end_to_end else 0.0,
    )
    expected = least
    if load.rate is not None:
        each = serving.expected(load.rate / plan.replicas * float(load.passes.mean()))
        waits = load.rate / (ahead.rate * (plan.prefill_replicas or plan.replicas))
        expected = max(least, each / slo.tpot if slo.tpot else 0.0, waits)
    return expected, least


def _widen(hunt: _Hunt, best: Point, steps: int) -> None:
    """Plans on more GPUs with the shortest expected time per token; why others fail there is not counted."""
    before = hunt.reasons.copy()
    for times in STEPS[:steps]:
        total = _reachable(hunt.plain, best.plan, round(best.plan.gpus * times), hunt.available)
        if total is None or total <= best.plan.gpus:
            continue
        plans = [Plan(s, n) for s, n in _within(hunt, "both", total, hunt.plain)]
        if best.plan.prefill is not None and total % best.plan.gpus == 0:
            more = total // best.plan.gpus
            copies = (best.plan.replicas * more, best.plan.prefill_replicas * more)
            plans.append(replace(best.plan, replicas=copies[0], prefill_replicas=copies[1]))
        plans = [p for p in plans if p.fits(hunt.per_server, hunt.available)]
        ranked = sorted(((_token(hunt, p), i) for i, p in enumerate(plans)))
        for _, i in ranked[:TRIED]:
            _judge(hunt, plans[i])
    hunt.reasons = before


def _reachable(plain: list[Setting], plan: Plan, wanted: int, available: int) -> int | None:
    """The least number of GPUs from `wanted` on that some plan takes."""
    sizes = {s.gpus for s in plain} | {plan.gpus}
    found = [-(-wanted // size) * size for size in sizes]
    return min((n for n in found if n <= available), default=None)


def _token(hunt: _Hunt, plan: Plan) -> float:
    """Expected time per token [s]."""
    bound = hunt.stable.bounds(plan.setting, "decode" if plan.prefill else "both")
    load = hunt.stable.load
    if load.rate is None:
        return float((bound.a + bound.c * load.users / plan.replicas / bound.stages).max()) * bound.stages
    return bound.expected(load.rate / plan.replicas * float(load.passes.mean()))


def _confirm(stable: Stable, plan: Plan) -> ServingResult:
    job = plan.job(stable.job)
    return summarise(job, stable.arch, stable.machine, stable.engine, stable.run(plan))


def _own(stable: Stable, folder: Path | None) -> tuple[ServingResult | None, str | None]:
    try:
        return serve(stable.job, stable.arch, stable.machine, folder=folder, work=stable.work), None
    except PlanError as error:
        return None, str(error)


def _short(error: PlanError) -> str:
    """The first clause of why a plan cannot run."""
    text = str(error).split("\n")[0]
    return f"cannot run: {text.split(';')[0].rstrip('.')}"
