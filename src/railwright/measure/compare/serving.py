"""A load generator's result beside what `serve` says of the same load on the study's machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from railwright.collectives.machine import Machine
from railwright.errors import PlanError, RailwrightError, nearest
from railwright.measure.loadgen.result import BenchResult, Summary
from railwright.measure.study_machine import study_machine
from railwright.model.configs.hf_config import load_model
from railwright.model.shape.architecture import Transformer
from railwright.serving.clients.client import Workload, no_parts
from railwright.serving.engine.bands import error_bands
from railwright.serving.predict import serve
from railwright.serving.result import ServingResult
from railwright.serving.simulator.metrics import Distribution
from railwright.spec.serving import ServingJob
from railwright.spec.study import Study

CLOSE = 0.10
"""Relative difference that is called agreement where no band of published measurements is known."""


WHOLE = 0.9
"""Share of the answered requests that a file must hold to be replayed; some tools save a sample."""


@dataclass(frozen=True)
class Compared:
    """One statistic of one latency. [s]

    what       'TTFT', 'TPOT' or 'end to end';  statistic  'mean', 'p50', …
    verdict    'as expected', 'slower' or 'faster' than predicted by more than the band
    """

    what: str
    statistic: str
    measured: float
    predicted: float
    verdict: str

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted


@dataclass(frozen=True)
class ComparedRun:
    """One run of a load generator beside its prediction.

    load    what was sent, in words; `assumed` what the file does not say and was taken
    points  statistics of latencies
    tokens  (measured, predicted) output tokens a second, None where the file has none
    words   findings in sentences
    """

    run: BenchResult
    job: str
    load: str
    assumed: tuple[str, ...]
    points: tuple[Compared, ...]
    tokens: tuple[float, float] | None
    words: tuple[str, ...]


def compare_serving(
    runs: Sequence[BenchResult], study: Study, job: str | None = None
) -> tuple[ComparedRun, ...]:
    """Each run beside what the study's serving job does under the same load.

    job  name of the serving job; default: the study's first

    Raises RailwrightError for a study without that job, PlanError for a load that the file does not tell.
    """
    chosen = serving_job(study, job)
    machine, arch = study_machine(study), load_model(chosen.model)
    return tuple(compare_run(run, chosen, arch, machine) for run in runs)


def serving_job(study: Study, name: str | None) -> ServingJob:
    """The serving job of that name, or the first. Raises RailwrightError."""
    if not study.serving:
        raise RailwrightError(
            "the study has no serving job; write one under `serving:` (docs/serving/engine.md)"
        )
    if name is None:
        return study.serving[0]
    known = {one.name: one for one in study.serving}
    if name not in known:
        hint = nearest(name, known) or f"; known are {', '.join(known)}"
        raise RailwrightError(f"--job: there is no serving job '{name}'{hint}")
    return known[name]


def compare_run(run: BenchResult, job: ServingJob, arch: Transformer, machine: Machine) -> ComparedRun:
    """One run beside its prediction. Raises PlanError."""
    asked, load, assumed = load_of(run, job)
    work = workload_of(run)
    result = serve(asked, arch, machine, work=work)
    known = error_bands(result.engine, arch.is_moe)
    points = tuple(_points(run, result, known))
    if not points:
        raise PlanError(f"{run.file}: states no TTFT, TPOT or latency, so there is nothing to compare")
    tokens = (run.tokens_rate, result.tokens_per_second) if run.tokens_rate else None
    return ComparedRun(
        run=run,
        job=job.name,
        load=load,
        assumed=assumed,
        points=points,
        tokens=tokens,
        words=tuple(_words(run, points, result)),
    )


def load_of(run: BenchResult, job: ServingJob) -> tuple[ServingJob, str, tuple[str, ...]]:
    """(the job under the run's load, the load in words, what was assumed).

    The file's concurrency or rate and mean lengths replace the job's client; what it does not say is the
    job's. Raises PlanError where neither says how many requests are in flight.
    """
    client, assumed = job.client, []
    if run.concurrency is not None and run.rate is None:
        client = client.model_copy(
            update={"kind": "closed-loop", "concurrency": run.concurrency, "rate": None}
        )
        load = f"{run.concurrency} in flight"
    elif run.rate is not None:
        client = client.model_copy(
            update={"kind": "poisson", "rate": run.rate, "concurrency": run.concurrency}
        )
        load = f"{run.rate:g} requests/s (Poisson)"
    else:
        if client.kind == "trace" and run.each is None:
            raise PlanError(
                f"{run.file}: says neither concurrency nor rate; give the serving job a client with one"
            )
        load = f"the study's client ({client.kind})"
        assumed.append("how many requests are in flight")
    update: dict[str, object] = {"trace": None, "warmup": 0} if client.kind != "trace" else {}
    if client.kind != "trace":
        for field, value in (("input", run.prompt), ("output", run.output)):
            if value is None:
                assumed.append(f"tokens of {'prompts' if field == 'input' else 'answers'}")
            else:
                update[field] = max(round(value), 1)
                update["spread"] = 0.0
        if run.requests:
            update["requests"] = run.requests
    client = client.model_copy(update=update)
    load += f", {client.input} in, {client.output} out"
    return job.model_copy(update={"client": client}), load, tuple(assumed)


def workload_of(run: BenchResult) -> Workload | None:
    """The run's own requests, where the file has each of them; None where it has only summaries.

    An open loop is replayed at its recorded moments; a closed one keeps the recorded lengths and its own
    pace.
    """
    each = run.each
    if each is None or (run.requests is not None and len(each) < WHOLE * run.requests):
        return None
    order = np.argsort(each.start, kind="stable") if np.isfinite(each.start).all() else np.arange(len(each))
    closed = run.rate is None and run.concurrency is not None
    if not closed and not np.isfinite(each.start).all():
        return None
    arrival = np.zeros(len(each)) if closed else each.start[order]
    return Workload(
        arrival,
        np.maximum(each.prompt[order], 1).astype(np.int64),
        np.maximum(each.output[order], 1).astype(np.int64),
        run.concurrency or 0,
        False,
        0,
        *no_parts(len(each)),
        0,
    )


def _points(run: BenchResult, result: ServingResult, known: dict[str, tuple[float, float]]) -> list[Compared]:
    found = []
    for what, theirs, ours in (
        ("TTFT", run.ttft, result.ttft),
        ("TPOT", run.tpot, result.tpot),
        ("end to end", run.end_to_end, result.end_to_end),
    ):
        low, high = known.get(what, (1.0 - CLOSE, 1.0 + CLOSE))
        for statistic, measured, predicted in _pairs(theirs, ours):
            if not predicted > 0.0:
                continue
            ratio = measured / predicted
            verdict = "slower" if ratio > high else "faster" if ratio < low else "as expected"
            found.append(Compared(what, statistic, measured, predicted, verdict))
    return found


def _pairs(theirs: Summary, ours: Distribution) -> list[tuple[str, float, float]]:
    found = [] if theirs.mean is None else [("mean", theirs.mean, ours.mean)]
    for percentile, value in ((50.0, ours.p50), (90.0, ours.p90), (99.0, ours.p99)):
        if percentile in theirs.percentiles:
            found.append((f"p{percentile:g}", theirs.percentiles[percentile], value))
    return found


def _words(run: BenchResult, points: Sequence[Compared], result: ServingResult) -> list[str]:
    """What the differences say together, and the next test."""
    means = {p.what: p for p in points if p.statistic == "mean"} or {p.what: p for p in points}
    first, each = means.get("TTFT"), means.get("TPOT")
    words = []
    if first and each:
        if first.verdict == each.verdict == "as expected":
            words.append("TTFT and TPOT lie where published measurements lie beside our predictions.")
        elif each.verdict == "slower" and first.verdict == "slower":
            words.append(
                "Both are slower: look at clocks and power caps, at other jobs on the machine, and at the "
                "engine's settings before the network; then fit the engine (`railwright calibrate`)."
            )
        elif each.verdict == "slower":
            words.append(
                "Only TPOT is slower: decode steps take longer than kernels and launches account for. Try "
                "one request at a time: what stays slow there is overhead of a step, the rest is load."
            )
        elif first.verdict == "slower":
            words.append(
                "Only TTFT is slower: prompts wait. Compare with one request at a time, and look at the "
                "engine's tokens per step and at what holds prompts back (batch waiting, intervals)."
            )
        else:
            words.append("It is faster than predicted: the study may name an older engine or slower format.")
    tails = [p for p in points if p.statistic == "p99" and p.what in means]
    for tail in tails:
        if tail.verdict == "slower" and means[tail.what].verdict == "as expected":
            words.append(
                f"The p99 of {tail.what} is {tail.ratio:.1f} x the predicted, the mean is not: a few "
                "requests meet something the model does not know (a burst, a preemption, another tenant)."
            )
    if run.failed:
        words.append(f"{run.failed} requests failed and are in no figure; find out why first.")
    words.append(result.bottleneck)
    return words
