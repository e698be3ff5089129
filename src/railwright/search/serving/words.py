"""A serving search's answer in sentences: how many GPUs, as what, what binds, why no fewer."""

from __future__ import annotations

from collections.abc import Mapping

from railwright.errors import PlanError
from railwright.search.serving.fleet import Stable
from railwright.search.serving.result import Point, ServingSearchResult
from railwright.search.serving.space import Plan, Setting
from railwright.spec.serving import ServingLayout
from railwright.units import show_time

BINDING = 0.8
"""Share of a promise, or of the rate that replicas keep up with, from which it is said to bind."""


def answer(found: ServingSearchResult, stable: Stable) -> tuple[str, ...]:
    """The result's words."""
    lines = [_headline(found, stable), _binds(found, stable), *_one_fewer(found, stable), _fewer(found)]
    return tuple(line for line in (*lines, _own(found)) if line)


def plan_words(plan: Plan) -> str:
    """'2 x tensor 4', '1 x tensor 8 prefilling for 2 x tensor 4'."""
    served = f"{plan.replicas} x {layout_words(plan.setting.layout)}"
    if plan.prefill is None:
        return served + _limits(plan.setting)
    ahead = f"{plan.prefill_replicas} x {layout_words(plan.prefill.layout)}"
    return f"{ahead} prefilling for {served}{_limits(plan.setting)}"


def layout_words(layout: ServingLayout) -> str:
    """'tensor 4, pipeline 2': sizes above 1."""
    names = {
        "tensor": "tensor",
        "attention_data": "attention data",
        "expert": "expert",
        "context": "context",
        "pipeline": "pipeline",
    }
    sizes = [f"{name} {getattr(layout, key)}" for key, name in names.items() if getattr(layout, key) > 1]
    return ", ".join(sizes) or "1 GPU"


def nothing(stable: Stable, reasons: Mapping[str, int], nearest: Point | None, gpus: int) -> str:
    """Why no plan keeps the SLO."""
    said = f"{stable.job.name}: no plan of the space on up to {gpus} GPUs keeps the SLO: {_counted(reasons)}."
    if nearest is not None and nearest.verdict.values:
        said += f" The closest is {plan_words(nearest.plan)} on {nearest.plan.gpus} GPUs: {_missed(nearest)}."
    return said + " More GPUs (cluster.servers), a looser SLO, a lower rate or narrower weights would help."


def _headline(found: ServingSearchResult, stable: Stable) -> str:
    load = stable.load
    asked = f"{load.rate:.3g} requests/s" if load.rate is not None else f"{load.users} requests in flight"
    return (
        f"{found.best.plan.gpus} {found.result.gpu} serve {asked} of {found.result.model} within the SLO: "
        f"{plan_words(found.best.plan)}."
    )


def _binds(found: ServingSearchResult, stable: Stable) -> str:
    values = found.best.verdict.values
    promised = {"TTFT": found.slo.ttft, "TPOT": found.slo.tpot, "end to end": found.slo.end_to_end}
    tight = {what: values[what] / bound for what, bound in promised.items() if bound and what in values}
    what = max(tight, key=lambda name: tight[name])
    said = (
        f"{what[0].upper()}{what[1:]} is the tightest promise: {show_time(values[what])} at "
        f"p{found.slo.percentile:g} of {show_time(promised[what] or 0.0)}"
    )
    if found.rate is not None and stable.load.rate is not None:
        share = stable.load.rate / found.rate
        of = {
            "TPOT": "as the TPOT allows",
            "memory": "as memory for keys and values allows",
            "throughput": "as its GPUs can compute",
        }
        if share >= BINDING:
            said += f"; at {100 * share:.0f} % of as many requests {of[found.limit]}, {found.limit} binds too"
        else:
            said += f"; the rate is {100 * share:.0f} % of as many requests {of[found.limit]}"
    if found.result.cache.peak >= BINDING:
        said += f"; keys and values fill {100 * found.result.cache.peak:.0f} % of their memory"
    return f"{said}."


def _one_fewer(found: ServingSearchResult, stable: Stable) -> list[str]:
    """What happens to the same layout with a replica less."""
    plan = found.best.plan
    said = []
    for prefill in (True, False) if plan.prefill else (False,):
        copies = (plan.replicas - (not prefill), plan.prefill_replicas - prefill)
        if min(copies[0], copies[1] if plan.prefill else 1) < 1:
            continue
        less = Plan(plan.setting, copies[0], plan.prefill, copies[1])
        what = "With one prefill replica fewer" if prefill else "With one replica fewer"
        try:
            verdict = stable.judge(less)
        except PlanError:
            continue
        if verdict.failed == "rate":
            said.append(f"{what} it falls behind.")
        elif verdict.failed:
            said.append(f"{what}, {_missed(Point(less, verdict))}.")
        else:
            said.append(
                f"{what} the simulated requests would keep it, but it cannot keep up in the long run."
            )
    return said


def _fewer(found: ServingSearchResult) -> str:
    if not found.ruled_out:
        return ""
    said = f"No plan on fewer GPUs is left: {_counted(found.ruled_out)}"
    if found.nearest is not None and found.nearest.plan.gpus < found.best.plan.gpus:
        near = found.nearest
        said += f"; the closest was {plan_words(near.plan)} on {near.plan.gpus}, {_missed(near)}"
    return f"{said}."


def _own(found: ServingSearchResult) -> str:
    if found.own is None:
        return f"The job as written cannot run: {found.own_refused}"
    own, best = found.own, found.result
    kept = "keeps" if own.kept else "misses"
    missed = [p for p in own.promises if not p.kept]
    how = f" ({', '.join(f'{p.what} {show_time(p.value)}' for p in missed)})" if missed else ""
    compared = f"As written the job {kept} the SLO{how} on {own.gpus} GPU{'s' if own.gpus > 1 else ''}"
    if own.kept and own.gpus > best.gpus:
        return f"{compared}: {own.gpus - best.gpus} more than needed."
    if own.kept:
        return f"{compared}; the plan found takes as many."
    return f"{compared}; the plan found takes {best.gpus}."


def _missed(point: Point) -> str:
    failed = point.verdict.failed
    if failed is None or failed not in point.verdict.values:
        return "it falls behind"
    return f"{failed} is {show_time(point.verdict.values[failed])}"


def _counted(reasons: Mapping[str, int]) -> str:
    ranked = sorted(reasons.items(), key=lambda pair: -pair[1])[:4]
    return ", ".join(f"{why} ({many})" for why, many in ranked)


def _limits(setting: Setting) -> str:
    said = []
    if setting.max_batched_tokens:
        said.append(f"steps of {setting.max_batched_tokens} tokens")
    if setting.max_requests:
        said.append(f"{setting.max_requests} requests at most")
    if setting.chunked is not None:
        said.append("prompts cut" if setting.chunked else "prompts whole")
    if not said:
        return ""
    return f" ({', '.join(said)})"
