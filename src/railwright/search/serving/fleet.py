"""Plans of a serving search priced and run: step tables, bounds and transfers, each made once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.search.serving.bounds import Bounds, Load, bounds
from railwright.search.serving.space import Plan, Setting
from railwright.serving.clients.client import Workload, workload
from railwright.serving.engine.memory import engine_memory
from railwright.serving.engine.profiles import Engine, engine_of
from railwright.serving.engine.step import tabulate
from railwright.serving.engine.table import StepTable
from railwright.serving.predict import check_lengths, scheduler_of
from railwright.serving.simulator.cluster import transfers
from railwright.serving.simulator.compiled import is_kept
from railwright.serving.simulator.fleet import Fleet, Pool, Role, Scheduler, Speculation
from railwright.serving.simulator.metrics import counted, end_to_end, tpot, ttft
from railwright.serving.simulator.simulate import LoopEngine, Run, simulate
from railwright.spec.serving import ServingJob, Slo

QUARTER = 4
"""A plan is sent the first quarter of the requests before all of them."""
LEAST = 200
"""Requests below which it is sent all at once."""


@dataclass(frozen=True)
class Verdict:
    """What a run says of a plan.

    strain  the largest of the SLO's latencies over what is promised: kept up to 1
    failed  'TTFT', 'TPOT', 'end to end' or 'rate' (it falls behind): the worst; None where all is kept
    values  latency -> its percentile [s]
    user    tokens a second that one user sees: 1 over the mean TPOT
    tokens  output tokens a second, of all replicas, at the rate of the client where it has one
    prompts_late  replicas that prefill alone miss the TTFT, whatever decodes
    """

    strain: float
    failed: str | None
    values: dict[str, float]
    user: float
    tokens: float
    prompts_late: bool = False


@dataclass(eq=False)
class Stable:
    """All plans of one job on one machine are made and run here; what they share is made once."""

    job: ServingJob
    arch: Transformer
    machine: Machine
    slo: Slo
    engine: Engine
    work: Workload
    load: Load
    tables: dict[tuple[object, ...], StepTable | PlanError] = field(default_factory=dict)
    limits: dict[tuple[Setting, Role], Bounds | PlanError] = field(default_factory=dict)
    runs: int = 0
    sent: int = 0

    @classmethod
    def of(
        cls, job: ServingJob, arch: Transformer, machine: Machine, slo: Slo, folder: Path | None
    ) -> Stable:
        """Raises PlanError, or RailwrightError for a trace that cannot be read."""
        engine = engine_of(job)
        work = workload(job.client, job.shared_prefix, folder)
        check_lengths(job, work)
        caches = engine.prefix_cache if job.prefix_cache is None else job.prefix_cache
        load = Load.of(work, job.client, slo, _speculation(job), caches)
        return cls(job, arch, machine, slo, engine, work, load)

    def own_job(self, setting: Setting, prefill: bool) -> ServingJob:
        """The job of one replica of a setting, as `fleet_of` makes it for either pool."""
        one = Plan(setting, 1).job(self.job)
        if not prefill:
            return one
        written = self.job.prefill.max_tokens if self.job.prefill else None
        most = setting.max_batched_tokens or written or self.job.max_batched_tokens
        return one.model_copy(update={"speculative": None, "max_batched_tokens": most})

    def fits(self, setting: Setting) -> PlanError | None:
        """Why the model does not fit, without its times; None where it does."""
        try:
            engine_memory(self.own_job(setting, False), self.arch, self.engine, self.machine.gpu)
        except PlanError as error:
            return error
        return None

    def table(self, setting: Setting, prefill: bool) -> StepTable:
        """Raises PlanError where it cannot run."""
        # Whether prompts are cut is the scheduler's and changes no time of a step; roles differ by drafts.
        job = self.own_job(setting, prefill)
        limits = self.engine.limits(job, self.machine.gpu)
        key = (setting.layout, *limits, setting.weights, setting.kv, job.speculative is None)
        found = self.tables.get(key)
        if found is None:
            try:
                found = tabulate(job, self.arch, self.machine)
            except PlanError as error:
                found = error
            self.tables[key] = found
        if isinstance(found, PlanError):
            raise found
        return found

    def scheduler(self, setting: Setting, prefill: bool) -> Scheduler:
        engine = self.engine
        if setting.chunked is not None:
            engine = replace(engine, whole_prompts=not setting.chunked)
        return scheduler_of(self.own_job(setting, prefill), engine, self.machine, setting.layout)

    def bounds(self, setting: Setting, role: Role) -> Bounds:
        """Of one replica. Raises PlanError where it cannot run."""
        found = self.limits.get((setting, role))
        if found is None:
            try:
                table = self.table(setting, role == "prefill")
                plan = self.scheduler(setting, role == "prefill")
                found = bounds(table, plan, role, self.load, self.slo)
            except PlanError as error:
                found = error
            self.limits[setting, role] = found
        if isinstance(found, PlanError):
            raise found
        return found

    def fleet(self, plan: Plan) -> Fleet:
        """As `serving.predict.fleet_of`, from tables made once. Raises PlanError."""
        pool = Pool(
            self.table(plan.setting, False),
            self.scheduler(plan.setting, False),
            plan.replicas,
            "decode" if plan.prefill else "both",
            _speculation(self.job),
        )
        if plan.prefill is None:
            return Fleet((pool,), self.job.router)
        ahead = Pool(
            self.table(plan.prefill, True),
            self.scheduler(plan.prefill, True),
            plan.prefill_replicas,
            "prefill",
        )
        moved = transfers(plan.job(self.job), self.arch, self.machine, self.engine)
        return Fleet((ahead, pool), self.job.router, moved)

    def run(self, plan: Plan, fleet: Fleet | None = None) -> Run:
        """All of the client's requests. Raises PlanError."""
        return self._simulate(self.work, fleet or self.fleet(plan))

    def judge(self, plan: Plan) -> Verdict:
        """Whether a plan keeps the SLO: a part of the requests first, all of them where that does not say.

        Requests that later ones do not disturb do no worse, so as many of the first ones late as may be late
        of all rule a plan out. Raises PlanError.
        """
        fleet = self.fleet(plan)
        num = max(len(self.work) // QUARTER, LEAST, 2 * self.work.concurrency, 2 * self.work.warmup)
        if 2 * num <= len(self.work) and not self.work.waves:
            begun = self._simulate(first(self.work, num), fleet)
            if (said := _lost(begun, self.slo, len(self.work) - self.work.warmup)) is not None:
                return said
        return verdict(self._simulate(self.work, fleet), self.slo, self.load.rate)

    def _simulate(self, work: Workload, fleet: Fleet) -> Run:
        self.runs += 1
        self.sent += len(work)
        return simulate(work, fleet, _loop(), self.job.client.seed)


def verdict(run: Run, slo: Slo, rate: float | None) -> Verdict:
    """Of a whole run; `rate`: at which requests come whether or not others are answered [1/s].

    At a rate all plans that keep up give the same tokens a second; how a finite run ends does not matter.
    """
    chosen = counted(run)
    values, ratios = {}, {}
    each = tpot(run)[chosen]
    each = each[~np.isnan(each)]
    for what, bound, seconds in (
        ("TTFT", slo.ttft, ttft(run)[chosen]),
        ("TPOT", slo.tpot, each),
        ("end to end", slo.end_to_end, end_to_end(run)[chosen]),
    ):
        if len(seconds):
            values[what] = float(np.percentile(seconds, slo.percentile))
            if bound is not None:
                ratios[what] = values[what] / bound
    user = 1.0 / float(each.mean()) if len(each) and each.mean() > 0 else float("inf")
    span = float(run.done[chosen].max() - run.sent[chosen].min())
    pace = rate or float(chosen.sum()) / span
    tokens = pace * float(run.work.output[chosen].mean())
    worst = max(ratios, key=lambda what: ratios[what]) if ratios else "TTFT"
    strain = ratios.get(worst, 0.0)
    if strain <= 1.0 and rate and falls_behind(run):
        return Verdict(float("inf"), "rate", values, user, tokens)
    may = int(chosen.sum()) - int((chosen.sum() - 1) * slo.percentile / 100.0)
    late = slo.ttft is not None and _prompts_late(run, slo.ttft, may)
    return Verdict(strain, worst if strain > 1.0 else None, values, user, tokens, late)


def falls_behind(run: Run) -> bool:
    """Whether the last quarter of the requests waits longer for the engine than they are then served."""
    last = slice(-max(len(run.work) // QUARTER, 1), None)
    waited = (run.admitted - run.queued)[last].mean()
    return bool(waited > (run.done - run.admitted)[last].mean())


def _prompts_late(run: Run, bound: float, may: int) -> bool:
    """Whether `may` prompts or more are computed too late to be sent on, and no decoder held them up.

    Keys and values that wait for a decoder keep the room of other prompts; where none waits a tenth of the
    promise, prompts late by more than that are late whatever decodes.
    """
    if run.handed.max() < 0 or (run.first - run.handed).max() > bound / 10:
        return False
    return int(((run.handed - run.sent)[counted(run)] > 1.1 * bound).sum()) >= may


def first(work: Workload, num: int) -> Workload:
    """The first `num` requests."""
    ptr = work.part_ptr[: num + 1]
    return replace(
        work,
        arrival=work.arrival[:num],
        prompt=work.prompt[:num],
        output=work.output[:num],
        part_ptr=ptr,
        parts=work.parts[: ptr[-1]],
    )


def _lost(run: Run, slo: Slo, total: int) -> Verdict | None:
    """The verdict where already more of the first requests are late than may be of all `total`."""
    chosen = counted(run)
    may = total - int((total - 1) * slo.percentile / 100.0)
    for what, bound, seconds in (
        ("TTFT", slo.ttft, ttft(run)),
        ("TPOT", slo.tpot, np.nan_to_num(tpot(run))),
        ("end to end", slo.end_to_end, end_to_end(run)),
    ):
        if bound is None:
            continue
        late = seconds[chosen] > bound
        if int(late.sum()) >= may:
            value = float(np.sort(seconds[chosen])[-may])
            prompts_late = what == "TTFT" and _prompts_late(run, bound, may)
            return Verdict(value / bound, what, {what: value}, 0.0, 0.0, prompts_late)
    return None


@cache
def _loop() -> LoopEngine:
    """The compiled event loop where it was compiled before: that takes a minute, a search less without it."""
    return "compiled" if is_kept() else "auto"


def _speculation(job: ServingJob) -> Speculation | None:
    drafts = job.speculative
    return Speculation(drafts.tokens, drafts.acceptance) if drafts else None
