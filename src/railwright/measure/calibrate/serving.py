"""An engine profile from a user's own benchmark: overheads and GPU time, and how surely they are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.measure.compare.serving import load_of, serving_job, workload_of
from railwright.measure.loadgen.result import BenchResult
from railwright.measure.study_machine import study_machine
from railwright.model.configs.hf_config import load_model
from railwright.model.shape.architecture import Transformer
from railwright.serving.clients.client import workload
from railwright.serving.engine.profiles import engine_of, engines
from railwright.serving.predict import fleet_of
from railwright.serving.simulator.metrics import counted, tpot, ttft
from railwright.serving.simulator.simulate import simulate
from railwright.spec.serving import ServingJob
from railwright.spec.study import Study

Floats = NDArray[np.float64]

PRIOR = {"decode_time": 0.25, "prefill_time": 0.25, "host_step": 1.0, "request": 1.0}
"""Field of a profile -> how far it may be from the base before the runs speak: standard deviation of its
logarithm. GPU times are within a quarter of the measured kernels, the spread of public cases; overheads of
the host are known to a factor of e."""
NOISE = 0.04
"""Standard deviation of a stated mean around the model of its own engine: run to run and what no field stands
for. vLLM bench runs repeat within 2 to 5 per cent."""
TOLD = 0.7
"""A field whose uncertainty stays above this share of the prior's is not told, and stays the base's."""
STEPS = 6
"""Gauss-Newton steps: the fit of four logarithms is nearly linear and has converged by then."""
NUDGE = 0.05
"""Of a logarithm, over which a slope is taken: most of a simulation's times are of discrete steps."""


@dataclass(frozen=True)
class Fitted:
    """One field of the profile.

    base, value   before and after;  sigma  standard deviation of the value's logarithm
    told          whether the runs tell it; otherwise `value` is the base
    """

    field: str
    base: float
    value: float
    sigma: float
    told: bool


@dataclass(frozen=True)
class Calibrated:
    """A profile fitted to runs.

    engine   the base profile's name;  fields  what was asked of the runs
    before, after   mean absolute relative error of the runs' TTFT and TPOT
    residuals       (run, what, measured, fitted) [s]
    """

    engine: str
    fields: tuple[Fitted, ...]
    before: float
    after: float
    residuals: tuple[tuple[str, str, float, float], ...]
    files: tuple[str, ...]

    def yaml(self) -> str:
        """The profile, usable as `engine: path.yaml` of a serving job."""
        told = [f for f in self.fields if f.told]
        lines = [
            "# Engine profile fitted by `railwright calibrate` to: " + ", ".join(self.files),
            f"# mean absolute error of TTFT and TPOT: {self.before:.1%} before, {self.after:.1%} after",
            f"base: {self.engine}",
            *(f"{f.field}: {f.value:.6g}" for f in told),
        ]
        if told:
            lines.append("sources:")
            lines += [
                f'  {f.field}: "calibrated, {f.base:.4g} before, standard deviation {100 * f.sigma:.0f} %"'
                for f in told
            ]
        untold = [f.field for f in self.fields if not f.told]
        if untold:
            lines.append(f"# not told by these runs, so as in {self.engine}: {', '.join(untold)}")
        return "\n".join(lines) + "\n"

    def lines(self) -> list[str]:
        """In words, for the terminal."""
        out = [f"{self.engine}, fitted to {len({r[0] for r in self.residuals})} runs:"]
        for f in self.fields:
            said = (
                f"{f.base:.4g} -> {f.value:.4g}, +- {100 * f.sigma:.0f} %"
                if f.told
                else "not told by these runs"
            )
            out.append(f"  {f.field:<14}{said}")
        out.append(f"mean absolute error of TTFT and TPOT: {self.before:.1%} -> {self.after:.1%}")
        missing = [f.field for f in self.fields if not f.told]
        if "host_step" in missing or "decode_time" in missing:
            out.append(
                "next: a run with 1 request in flight and one with many, same lengths, tell steps from work."
            )
        if "prefill_time" in missing:
            out.append("next: a run with long prompts and short answers tells the time of prompts.")
        return out


def calibrate_engine(runs: Sequence[BenchResult], study: Study, job: str | None = None) -> Calibrated:
    """The serving job's engine profile with overheads and GPU time fitted to the runs.

    Each field's logarithm has a normal prior around the base profile's; the answer is the most probable value
    and its standard deviation (Gauss-Newton on the simulated TTFT and TPOT, Laplace's approximation).

    Raises RailwrightError for a study without that job; PlanError where no run states TTFT or TPOT, or a load
    cannot run.
    """
    chosen = serving_job(study, job)
    if chosen.engine not in engines():
        known = ", ".join(engines())
        raise PlanError(
            f"{chosen.name}: engine '{chosen.engine}' is no shipped profile to start from; name one: {known}"
        )
    machine, arch = study_machine(study), load_model(chosen.model)
    asked = [(run, load_of(run, chosen)[0]) for run in runs]
    goals = [(k, what, value) for k, (run, _) in enumerate(asked) for what, value in _means(run)]
    if not goals:
        raise PlanError("no run states a mean TTFT or TPOT; save the benchmark's result with these metrics")
    base = engine_of(chosen)
    names = [f for f in PRIOR if getattr(base, f) > 0.0]
    sigma = np.array([PRIOR[f] for f in names])
    measured = np.log([value for _, _, value in goals])

    with TemporaryDirectory(prefix="railwright-engine-") as folder:

        def predicted(shift: Floats) -> Floats:
            changed = {n: getattr(base, n) * exp(s) for n, s in zip(names, shift, strict=True)}
            path = _written(Path(folder), chosen.engine, changed)
            means = [
                _simulated(job.model_copy(update={"engine": path}), run, arch, machine) for run, job in asked
            ]
            return np.asarray(np.log([means[k][what] for k, what, _ in goals]))

        start = predicted(np.zeros(len(names)))
        shift, spread = most_probable(predicted, start, measured, sigma)
        told = spread < TOLD * sigma
        kept = np.where(told, shift, 0.0)
        final = predicted(kept)
    fields = tuple(
        Fitted(name, getattr(base, name), getattr(base, name) * exp(moved), float(s), bool(is_told))
        for name, moved, s, is_told in zip(names, kept, spread, told, strict=True)
    )
    residuals = tuple(
        (asked[k][0].file + (f" {asked[k][0].label}" if asked[k][0].label else ""), what, value, exp(fit))
        for (k, what, value), fit in zip(goals, final, strict=True)
    )
    return Calibrated(
        engine=chosen.engine,
        fields=fields,
        before=float(np.abs(np.expm1(start - measured)).mean()),
        after=float(np.abs(np.expm1(final - measured)).mean()),
        residuals=residuals,
        files=tuple(dict.fromkeys(run.file for run in runs)),
    )


def most_probable(
    model: Callable[[Floats], Floats], start: Floats, measured: Floats, prior: Floats, noise: float = NOISE
) -> tuple[Floats, Floats]:
    """(P,) most probable parameters of a model, and (P,) their standard deviations.

    start     (M,) what the model says at 0, where the parameters' normal prior has its mean
    measured  (M,) with normal errors of `noise` around the model's
    prior     (P,) standard deviations
    Gauss-Newton steps with slopes by differences; the deviations are Laplace's approximation, exact where the
    model is linear.
    """
    found, at = np.zeros(len(prior)), start
    nudges = NUDGE * np.eye(len(prior))
    for _ in range(STEPS):
        slope = np.stack([(model(found + nudge) - at) / NUDGE for nudge in nudges], axis=1)
        information = slope.T @ slope / noise**2 + np.diag(prior**-2)
        pull = slope.T @ (measured - at) / noise**2 - found / prior**2
        step = np.clip(np.linalg.solve(information, pull), -1.0, 1.0)
        found = found + step
        at = model(found)
        if np.abs(step).max() < 1e-3:
            break
    return found, np.sqrt(np.diag(np.linalg.inv(information)))


def _means(run: BenchResult) -> list[tuple[str, float]]:
    """What a run states: the mean, or the median where it has no mean."""
    found = []
    for what, said in (("TTFT", run.ttft), ("TPOT", run.tpot)):
        value = said.mean if said.mean is not None else said.percentiles.get(50.0)
        if value is not None and value > 0.0:
            found.append((what, value))
    return found


def _simulated(job: ServingJob, run: BenchResult, arch: Transformer, machine: Machine) -> dict[str, float]:
    """Our mean TTFT and TPOT of a run; medians where the run states only these."""
    fleet = fleet_of(job, arch, machine, engine_of(job))
    done = simulate(workload_of(run) or workload(job.client, job.shared_prefix), fleet, seed=job.client.seed)
    chosen = counted(done)
    first, each = ttft(done)[chosen], tpot(done)[chosen]
    each = each[np.isfinite(each)]
    middle = {"TTFT": run.ttft.mean is None, "TPOT": run.tpot.mean is None}
    values = {"TTFT": first, "TPOT": each if len(each) else np.array([np.nan])}
    return {k: float(np.median(v) if middle[k] else v.mean()) for k, v in values.items()}


def _written(folder: Path, base: str, values: dict[str, float]) -> str:
    """A profile file with these fields; its path."""
    path = folder / "engine.yaml"
    lines = [f"base: {base}", *(f"{name}: {value:.9g}" for name, value in values.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)
