"""The event loop, which jumps over runs of like steps, against one that takes every step of every request.

And the interpreted loop against the compiled one, which run one source: bit for bit.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.serving.simulator.fleet import Fleet, Outage, Pool, Scheduler, Speculation, Transfers
from railwright.serving.simulator.simulate import Run, simulate
from serving_cases import flat_table, one_replica, requests, step_by_step


@st.composite
def problems(draw):
    num = draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    arrival = np.cumsum(rng.exponential(draw(st.sampled_from([0.0, 0.02, 0.5])), num)) if num else []
    block = draw(st.sampled_from([1, 4, 16]))
    prompt, output = rng.integers(1, 200, num), rng.integers(1, 80, num)
    longest = int((prompt + output).max()) + block
    table = flat_table(
        step=draw(st.sampled_from([0.005, 0.01])),
        token=draw(st.sampled_from([0.0, 1e-4])),
        context=draw(st.sampled_from([0.0, 1e-5])),
        prefill=draw(st.sampled_from([0.0, 1e-5])),
        kv_tokens=draw(st.sampled_from([longest, 2 * longest, 100_000])),
        block=block,
        host_step=draw(st.sampled_from([0.0, 0.001, 0.02])),
        host_request=draw(st.sampled_from([0.0, 1e-4])),
        overlaps=draw(st.booleans()),
        request=draw(st.sampled_from([0.0, 0.003])),
    )
    fleet = one_replica(
        table,
        policy=draw(st.sampled_from(["mixed", "prefill-first"])),
        token_budget=draw(st.sampled_from([32, 128, 4096])),
        max_requests=draw(st.sampled_from([1, 4, 30])),
        whole_prompts=False,
        reserves=draw(st.booleans()),
        ahead=draw(st.booleans()),
    )
    work = requests(arrival, prompt, output, draw(st.sampled_from([0, 1, 5])))
    return work, fleet


@settings(max_examples=120)
@given(problems())
def test_jumping_over_runs_of_steps_changes_nothing(problem):
    work, fleet = problem
    if fleet.pools[0].scheduler.token_budget < min(fleet.pools[0].scheduler.max_requests, len(work)):
        return
    run = simulate(work, fleet, "interpreted")
    first, done, losses = step_by_step(work, fleet)
    np.testing.assert_allclose(run.first, first, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(run.done, done, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(run.losses, losses)


def _same(a: Run, b: Run) -> None:
    assert (a.engine, b.engine) == ("interpreted", "compiled")
    for name in ("sent", "queued", "admitted", "first", "done", "handed", "replica", "hit", "losses", "log"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def _fleets():
    table = flat_table(context=1e-6, token=1e-5, prefill=1e-6, kv_tokens=9_000, request=0.002)
    plan = Scheduler(token_budget=512, max_requests=40, prefix_cache=True)
    yield "preempting", Fleet((Pool(table, plan, 2),), "least-loaded")
    yield "prefix-aware", Fleet((Pool(table, plan, 3),), "prefix-aware")
    yield (
        "losing a replica",
        Fleet((Pool(table, plan, 2),), outages=(Outage(0, 1.0, 3.0), Outage(1, 4.0, 4.5))),
    )
    first = Scheduler("prefill-first", 512, 40)
    yield "speculating", Fleet((Pool(table, first, 2, "both", Speculation(3, 0.7)),))
    staged = flat_table(context=1e-6, token=1e-5, kv_tokens=30_000, stages=3, hop=1e-4)
    yield "in three stages", Fleet((Pool(staged, plan, 2),))
    static = Scheduler("static", 512, 8)
    yield "in static batches", Fleet((Pool(flat_table(token=1e-5, kv_tokens=9_000), static, 2),))
    links = Transfers(
        np.array([0, 2, 4, 6]), np.array([0, 1, 0, 2, 1, 3]), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        np.array([5e6, 4e6, 4e6, 1e6]), 1e-4, 100.0,
    )  # fmt: skip
    pools = (Pool(table, plan, 1, "prefill"), Pool(table, plan, 2, "decode"))
    yield "disaggregated", Fleet(pools, "least-loaded", links)
    yield (
        "disaggregated, losing both",
        Fleet(pools, "round-robin", links, (Outage(0, 0.5, 1.0), Outage(1, 2.0, 3.0))),
    )


@pytest.mark.parametrize(("name", "fleet"), list(_fleets()))
def test_interpreted_and_compiled_give_the_same_bits(name, fleet):
    pytest.importorskip("numba")
    rng = np.random.default_rng(7)
    num = 300
    prompt, output = rng.integers(64, 700, num), rng.integers(1, 120, num)
    parts = [
        [int(g), 10 + int(i % 40)] if prompt[i] > 128 else [] for i, g in enumerate(rng.integers(0, 5, num))
    ]
    work = requests(np.cumsum(rng.exponential(0.03, num)), prompt, output, 60, parts=(parts, 64))
    run = simulate(work, fleet, "interpreted")
    _same(run, simulate(work, fleet, "compiled"))
    # The case is what its name says.
    assert run.losses.any() or not ("preempting" in name or "losing" in name)
    assert (run.handed >= 0).any() == ("disaggregated" in name)
