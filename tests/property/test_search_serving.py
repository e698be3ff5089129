"""A serving search never loses the cheapest plan: floors are below what is simulated, ceilings above, and it
finds what trying every plan finds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.search.serving.bounds import Load, bounds
from railwright.search.serving.fleet import Stable, verdict
from railwright.search.serving.searching import search_serving
from railwright.search.serving.space import Plan, ServingSpace
from railwright.search.serving.space import settings as every_setting
from railwright.serving.clients.client import workload
from railwright.serving.simulator.fleet import Fleet, Pool, Scheduler, Speculation
from railwright.serving.simulator.metrics import end_to_end, tpot, ttft
from railwright.serving.simulator.simulate import simulate
from railwright.spec.serving import Client, Slo
from serving_cases import flat_table
from serving_jobs import arch, job, machine

SLO = Slo.model_validate({"ttft": "1 s", "tpot": "50 ms", "percentile": 90.0})
TABLES = st.fixed_dictionaries(
    {
        "step": st.sampled_from([0.002, 0.01, 0.03]),
        "token": st.sampled_from([0.0, 2e-6, 5e-5]),
        "context": st.sampled_from([0.0, 1e-8, 1e-7]),
        "prefill": st.sampled_from([0.0, 1e-5]),
        "stages": st.sampled_from([1, 2]),
        "hop": st.sampled_from([0.0, 1e-3]),
        "host_step": st.sampled_from([0.0, 0.004]),
        "host_request": st.sampled_from([0.0, 1e-5]),
        "overlaps": st.booleans(),
        "request": st.sampled_from([0.0, 0.01]),
        "kv_tokens": st.sampled_from([4_000, 1_000_000]),
    }
)
PLANS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(["mixed", "prefill-first"]),
        "token_budget": st.sampled_from([128, 2048]),
        "max_requests": st.sampled_from([4, 64]),
        "whole_prompts": st.booleans(),
        "reserves": st.booleans(),
    }
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    table=TABLES,
    plan=PLANS,
    drafts=st.sampled_from([None, Speculation(2, 0.7)]),
    spread=st.sampled_from([0.0, 0.6]),
    percentile=st.sampled_from([50.0, 99.0]),
)
def test_no_floor_is_above_a_simulation(
    table: dict, plan: dict, drafts: Speculation | None, spread: float, percentile: float
) -> None:
    """Alone or in a crowd, no request is faster than the floors say."""
    priced = flat_table(**table)
    queries = drafts.drafted + 1 if drafts else 1
    plan = {**plan, "token_budget": max(plan["token_budget"], plan["max_requests"] * queries)}
    slo = SLO.model_copy(update={"percentile": percentile})
    client = Client(concurrency=6, requests=24, input=900, output=40, spread=spread)
    work = workload(client)
    load = Load.of(work, client, slo, drafts, False)
    found = bounds(priced, Scheduler(**plan), "both", load, slo)
    run = simulate(work, Fleet((Pool(priced, Scheduler(**plan), 1, "both", drafts),)), "interpreted")
    for floor, values in (
        (found.ttft, ttft(run)),
        (found.tpot, tpot(run)),
        (found.end_to_end, end_to_end(run)),
    ):
        assert floor <= np.percentile(values, percentile) * (1 + 1e-9)
    on_time = np.sort(work.prompt[:6][ttft(run)[:6] <= 1.0]).sum()
    assert found.prompts >= on_time * (1 - 1e-9)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(table=TABLES, plan=PLANS, output=st.sampled_from([1, 2, 60]), prompt=st.sampled_from([16, 700]))
def test_no_replica_outruns_its_ceiling(table: dict, plan: dict, output: int, prompt: int) -> None:
    """All requests at once, and no promise kept: still no more a second than the ceiling."""
    priced = flat_table(**table)
    plan = {**plan, "token_budget": max(plan["token_budget"], plan["max_requests"])}
    client = Client(concurrency=200, requests=200, input=prompt, output=output)
    work = workload(client)
    slo = Slo.model_validate({"ttft": "1 s"})
    found = bounds(priced, Scheduler(**plan), "both", Load.of(work, client, slo, None, False), slo)
    run = simulate(work, Fleet((Pool(priced, Scheduler(**plan)),)), "interpreted")
    busy = run.end - priced.request
    assert len(work) / busy <= found.rate * (1 + 1e-9)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    table=TABLES,
    plan=PLANS,
    rate=st.sampled_from([2.0, 10.0, 40.0]),
    tpot_bound=st.sampled_from([15, 40, 80]),
)
def test_beyond_the_ceiling_the_promise_is_broken(
    table: dict, plan: dict, rate: float, tpot_bound: int
) -> None:
    """Where requests come faster than the ceiling, a run misses the SLO or falls behind."""
    priced = flat_table(**table)
    plan = {**plan, "token_budget": max(plan["token_budget"], plan["max_requests"])}
    client = Client(kind="poisson", rate=rate, requests=600, input=200, output=60, spread=0.2)
    slo = Slo.model_validate({"tpot": f"{tpot_bound} ms", "ttft": "500 ms", "percentile": 95.0})
    work = workload(client)
    found = bounds(priced, Scheduler(**plan), "both", Load.of(work, client, slo, None, False), slo)
    if rate < 1.1 * found.rate:
        return
    run = simulate(work, Fleet((Pool(priced, Scheduler(**plan)),)), "compiled")
    assert verdict(run, slo, rate).failed is not None


SMALL = {"tensor": (1, 2), "pipeline": (1, 2), "max_batched_tokens": (None, 1024)}
LOADS = [
    (Client(kind="poisson", rate=20.0, requests=300, input=1500, output=120, spread=0.2), "250 ms", "10 ms"),
    (Client(kind="poisson", rate=70.0, requests=600, input=700, output=150), "200 ms", "20 ms"),
    (Client(kind="constant", rate=8.0, requests=300, input=3000, output=60), "350 ms", "11 ms"),
    (Client(concurrency=100, requests=400, input=1000, output=100), "900 ms", "14 ms"),
    (Client(kind="poisson", rate=20.0, requests=300, input=1500, output=120), "250 ms", "4 ms"),
]


@pytest.mark.parametrize(("client", "first", "each"), LOADS)
def test_the_search_finds_what_brute_force_finds(client: Client, first: str, each: str) -> None:
    """Every plan of a small space, under the whole client and without any bound."""
    slo = Slo.model_validate({"ttft": first, "tpot": each, "percentile": 95.0})
    asked = job("llama-3-8b", 1, client=client, slo=slo)
    space = ServingSpace(SMALL)
    stable = Stable.of(asked, arch("llama-3-8b"), machine(), slo, None)
    found = every_setting(asked, stable.arch, stable.engine, 8, 5, space)
    cheapest = 99
    for total in range(1, 6):
        plans = [Plan(s, total // s.gpus) for s in found.shared if total % s.gpus == 0]
        plans += [
            Plan(s, n, p, m)
            for (s, p), n, m in product(product(found.apart, found.apart), range(1, 5), range(1, 5))
            if s.gpus * n + p.gpus * m == total
        ]
        if any(_kept(stable, plan) for plan in plans):
            cheapest = total
            break
    if cheapest == 99:
        with pytest.raises(PlanError, match="keeps the SLO"):
            search_serving(asked, stable.arch, machine(), space, gpus=5)
    else:
        assert search_serving(asked, stable.arch, machine(), space, gpus=5).best.plan.gpus == cheapest


def _kept(stable: Stable, plan: Plan) -> bool:
    try:
        return verdict(stable.run(plan), stable.slo, stable.load.rate).failed is None
    except PlanError:
        return False
