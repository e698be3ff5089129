"""Laws that hold for every fleet and workload: order, conservation, Little, monotony."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.serving.simulator import kernel_rows as r
from railwright.serving.simulator.fleet import Fleet, Outage, Pool, Scheduler, Speculation
from railwright.serving.simulator.metrics import inter_token, throughput, timelines
from railwright.serving.simulator.simulate import Run, simulate
from railwright.serving.simulator.state import build
from serving_cases import flat_table, one_replica, requests


@st.composite
def runs(draw) -> Run:
    num = draw(st.integers(2, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    arrival = np.cumsum(rng.exponential(draw(st.sampled_from([0.0, 0.01, 0.1])), num))
    prompt, output = rng.integers(1, 300, num), rng.integers(1, 60, num)
    parts = [[int(rng.integers(0, 3))] if p >= 64 else [] for p in prompt]
    work = requests(arrival, prompt, output, draw(st.sampled_from([0, 8])), parts=(parts, 64))
    table = flat_table(
        token=1e-5, context=1e-6, kv_tokens=draw(st.sampled_from([400, 2_000, 100_000])), request=0.001,
        stages=draw(st.sampled_from([1, 1, 3])), hop=1e-4,
    )  # fmt: skip
    plan = Scheduler(
        draw(st.sampled_from(["mixed", "prefill-first"])), 128, draw(st.sampled_from([2, 30])),
        prefix_cache=draw(st.booleans()),
    )  # fmt: skip
    speculation = draw(st.sampled_from([None, None, Speculation(2, 0.6)]))
    if speculation is not None and plan.max_requests == 30:
        plan = Scheduler(plan.policy, 128, 20)
    replicas = draw(st.sampled_from([1, 3]))
    outages = (Outage(replicas - 1, 0.05, 0.4),) if draw(st.booleans()) else ()
    fleet = Fleet(
        (Pool(table, plan, replicas, "both", speculation),),
        draw(st.sampled_from(["round-robin", "least-loaded", "prefix-aware"])),
        outages=outages,
    )
    return simulate(work, fleet, "interpreted")


@settings(max_examples=80)
@given(runs())
def test_every_request_is_answered_in_order_of_its_moments(run):
    assert (run.work.arrival <= run.sent).all()
    assert (run.sent <= run.queued).all()
    assert (run.queued <= run.admitted).all()
    assert (run.admitted < run.first).all()
    assert (run.first <= run.done).all()
    assert (run.first == run.done)[run.work.output == 1].all()


@settings(max_examples=80)
@given(runs())
def test_keys_and_values_never_exceed_their_memory_and_all_come_back(run):
    blocks = run.fleet.pools[0].table.kv_tokens // run.fleet.pools[0].table.block
    assert (run.log[:, r.LOG_USED] >= 0).all()
    assert (run.log[:, r.LOG_USED] <= blocks).all()


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.sampled_from(["mixed", "prefill-first", "static"]), st.booleans())
def test_an_empty_replica_holds_nothing(seed, policy, caches):
    from railwright.serving.simulator.kernel_loop import advance

    rng = np.random.default_rng(seed)
    num = 30
    work = requests(
        np.cumsum(rng.exponential(0.02, num)), rng.integers(64, 200, num), rng.integers(1, 40, num), 0,
        parts=([[int(g)] for g in rng.integers(0, 4, num)], 64),
    )  # fmt: skip
    fleet = one_replica(
        flat_table(kv_tokens=1_000), policy=policy, token_budget=256, max_requests=10, prefix_cache=caches
    )
    state = build(work, fleet, work.output - 1, as_lists=True)
    assert advance(state) == 0
    replica = [row[0] for row in state.replica]
    assert (replica[r.USED], replica[r.RUNNING_NOW], replica[r.LOAD], replica[r.QUEUE]) == (0, 0, 0, 0)
    assert sum(state.prefix[r.REFERRED]) == 0
    resident = sum(state.prefix[r.RESIDENT])
    assert replica[r.CACHED] == resident * 4
    assert (resident > 0) == caches
    assert sum(state.growth) == 0


@settings(max_examples=60)
@given(runs())
def test_every_token_is_made_in_some_step(run):
    # Without losses each request has one decode pass for every one it needs, and its prompt is computed once.
    if run.losses.any():
        return
    decoded = (run.log[:, r.LOG_DECODERS] * run.log[:, r.LOG_STEPS]).sum()
    assert decoded == run.passes.sum()
    assert run.log[:, r.LOG_TOKENS].sum() == run.work.prompt.sum() - run.hit.sum()
    assert inter_token(run)[1].sum() == run.passes.sum()


@settings(max_examples=60)
@given(runs())
def test_a_replica_rests_only_when_it_has_nothing_to_do(run):
    # Work conservation: whoever waits while a replica rests waits for room of its own.
    if run.fleet.num_replicas > 1 or run.fleet.outages or run.fleet.pools[0].table.stages > 1:
        return
    (line,) = timelines(run)
    for k in range(len(line.start) - 1):
        rest = (line.end[k], line.start[k + 1])
        if rest[1] > rest[0]:
            there = (run.queued <= rest[0]) & (run.done > rest[0])
            assert not there.any()


def test_little_law():
    # Requests in the system = rate x time in it, exactly, over a run that begins and ends empty.
    rng = np.random.default_rng(1)
    work = requests(np.cumsum(rng.exponential(0.02, 2000)), rng.integers(50, 300, 2000), 20)
    run = simulate(work, one_replica(flat_table(token=1e-5), token_budget=512))
    moments = np.sort(np.concatenate([run.sent, run.done]))
    inside = np.array([(run.sent <= t).sum() - (run.done <= t).sum() for t in moments[:-1]])
    held = (inside * np.diff(moments)).sum()
    assert held == pytest.approx((run.done - run.sent).sum())
    # In a closed loop concurrency = throughput x mean time.
    closed = simulate(requests(np.zeros(2000), 100, 50, 16), one_replica(flat_table()))
    seconds = closed.done - closed.sent
    assert pytest.approx(throughput(closed).requests * seconds.mean(), rel=0.01) == 16


def test_waits_grow_with_the_rate():
    rng = np.random.default_rng(5)
    gaps, prompt = rng.exponential(1.0, 800), rng.integers(100, 900, 800)
    before = 0.0
    for rate in (5, 10, 20, 40, 80):
        run = simulate(requests(np.cumsum(gaps) / rate, prompt, 30), one_replica(flat_table(token=1e-5)))
        mean = (run.first - run.sent).mean()
        assert mean > before
        before = mean


def test_percentile_gaps_between_tokens_average_to_the_time_per_token():
    run = simulate(requests(np.zeros(100), 200, 50, 10), one_replica(flat_table(token=1e-5, context=1e-6)))
    gaps, weights = inter_token(run)
    assert (gaps * weights).sum() == pytest.approx((run.done - run.first).sum())
