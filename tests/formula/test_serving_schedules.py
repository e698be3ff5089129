"""Small schedules worked out by hand, one for each policy, and closed forms.

In all of them a step takes 10 ms unless said otherwise.
"""

from __future__ import annotations

import numpy as np
import pytest

from railwright.serving.simulator.fleet import Fleet, Outage, Pool, Scheduler, Speculation, Transfers
from railwright.serving.simulator.simulate import decode_steps, simulate
from serving_cases import flat_table, one_replica, requests


def test_mixed_steps_cut_a_prompt_to_what_decoders_leave():
    # Prompts of 100 and 150 tokens, 4 tokens out each, 128 tokens a step.
    # Step 1 (to 10 ms): all of A's 100, 28 of B.  Step 2 (20 ms): A decodes (1), 122 of B: that is all of B.
    # So A has tokens at 10, 20, 30, 40 ms and B at 20, 30, 40, 50 ms.
    fleet = one_replica(flat_table(), token_budget=128)
    run = simulate(requests([0, 0], [100, 150], 4), fleet)
    np.testing.assert_allclose(run.first, [0.010, 0.020])
    np.testing.assert_allclose(run.done, [0.040, 0.050])


def test_prefill_first_stops_decoders_for_prompts():
    # The same: step 1 A and 28 of B, step 2 the other 122 of B alone, then both decode from 20 ms on.
    fleet = one_replica(flat_table(), policy="prefill-first", token_budget=128)
    run = simulate(requests([0, 0], [100, 150], 4), fleet)
    np.testing.assert_allclose(run.first, [0.010, 0.020])
    np.testing.assert_allclose(run.done, [0.050, 0.050])


def test_whole_prompts_are_not_cut():
    # 100 + 150 tokens exceed 128, so B has a step to itself though that is more than the budget.
    fleet = one_replica(flat_table(token=1e-4), policy="prefill-first", token_budget=128, whole_prompts=True)
    run = simulate(requests([0, 0], [100, 150], 1), fleet)
    np.testing.assert_allclose(run.first, [0.010 + 0.0100, 0.020 + 0.0100 + 0.0150])


@pytest.mark.parametrize(("tokens", "first"), [(1000, 0.090), (11, 0.040), (12, 0.090)])
def test_held_prompts_wait_for_steps_or_for_tokens(tokens, first):
    # A decodes when B comes at 25 ms.  Held 5 steps from 30 ms on, B is computed from 80 to 90 ms; but one
    # decoder and B's 10 tokens are 11, so where that is enough B waits for the step under way alone.
    fleet = one_replica(flat_table(), hold_steps=5, hold_tokens=tokens)
    run = simulate(requests([0, 0.025], 10, [40, 3]), fleet)
    np.testing.assert_allclose(run.first, [0.010, first])


def test_prompts_are_not_held_for_nobody():
    run = simulate(requests([0.0], 10, 3), one_replica(flat_table(), hold_steps=5, hold_tokens=1000))
    np.testing.assert_allclose(run.first, [0.010])


def test_a_static_batch_ends_with_its_longest_answer():
    # A and B (3 and 5 tokens out) start together; C, there from 5 ms on, starts when B has ended at 50 ms.
    fleet = one_replica(flat_table(), policy="static", max_requests=2)
    run = simulate(requests([0, 0, 0.005], 100, [3, 5, 2]), fleet)
    np.testing.assert_allclose(run.first, [0.010, 0.010, 0.060])
    np.testing.assert_allclose(run.done, [0.030, 0.050, 0.070])


def test_more_requests_than_fit_wait_in_their_order():
    # One at a time, 3 tokens each: they end at 30, 60 and 90 ms.
    run = simulate(requests([0, 0, 0], 10, 3), one_replica(flat_table(), max_requests=1))
    np.testing.assert_allclose(run.done, [0.03, 0.06, 0.09])
    np.testing.assert_allclose(run.admitted, [0.0, 0.03, 0.06])


def test_the_youngest_is_preempted_and_computed_anew():
    # 4 blocks of 4 tokens. A and B (prompt 4, 8 out) hold 2 blocks after one decode step each, all 4 blocks;
    # at token 9 A needs a third: B gives its two up.
    # A: 10 ms first token, 80 ms last. B has had 1 + 4 tokens by 50 ms; it waits, is computed anew (9 tokens,
    # 3 blocks) once A has freed its own, at 80 ms: its 6th token at 90 ms, the 8th at 110 ms.
    table = flat_table(kv_tokens=16, block=4)
    run = simulate(requests([0, 0], 4, 8), one_replica(table, token_budget=64))
    assert run.losses.tolist() == [0, 1]
    np.testing.assert_allclose(run.done, [0.080, 0.110])


def test_reserved_answers_are_never_preempted():
    table = flat_table(kv_tokens=16, block=4)
    run = simulate(requests([0, 0], 4, 8), one_replica(table, token_budget=64, reserves=True))
    assert run.losses.tolist() == [0, 0]
    np.testing.assert_allclose(run.done, [0.080, 0.160])


def test_time_of_a_request_alone_is_the_sum_of_its_steps():
    # Attention of 1 us for every token of context: step j of the decode sees prompt + j tokens.
    # 200 in, 50 out, 10 ms a step: 10 ms + sum over j = 1 .. 49 of (10 ms + (200 + j) us).
    run = simulate(requests([0.0], 200, 50), one_replica(flat_table(context=1e-6)))
    expected = 0.01 + 49 * 0.01 + 1e-6 * (49 * 200 + 49 * 50 / 2)
    np.testing.assert_allclose(run.done, [expected], rtol=1e-12)


def test_the_host_hides_behind_the_gpu_or_adds_to_it():
    # 12 ms of host beside 10 ms of GPU: 12 ms a step where they overlap, 22 ms where they do not.
    for overlaps, step in ((True, 0.012), (False, 0.022)):
        table = flat_table(host_step=0.012, overlaps=overlaps)
        run = simulate(requests([0.0], 10, 5), one_replica(table))
        np.testing.assert_allclose(run.done, [5 * step])


def test_pipeline_stages_hold_one_batch_each():
    # Two stages of 10 ms, 1 ms between. A alone: 21 ms a step. B and C, 64-token prompts with 64 tokens a
    # step: the first goes in at 0, the second follows a stage behind it at 10 ms and is out at 31 ms.
    table = flat_table(stages=2, hop=0.001)
    run = simulate(requests([0.0], 64, 3), one_replica(table, token_budget=64))
    np.testing.assert_allclose(run.done, [0.063])
    run = simulate(requests([0.0, 0.0], 64, 1), one_replica(table, token_budget=64))
    np.testing.assert_allclose(run.done, [0.021, 0.031])


def test_a_shared_prefix_is_computed_once():
    # 1 ms for every 10 tokens. B, a second later, finds A's first 64 of 100 tokens: a step of 3.6 ms, not 10.
    table = flat_table(step=0.0, token=1e-4)
    fleet = one_replica(table, prefix_cache=True)
    run = simulate(requests([0, 1], 100, 1, parts=([[0], [0]], 64)), fleet)
    np.testing.assert_allclose(run.done - run.sent, [0.010, 0.0036])
    assert run.hit.tolist() == [0, 64]
    cold = simulate(requests([0, 1], 100, 1, parts=([[0], [0]], 64)), one_replica(table))
    assert cold.hit.tolist() == [0, 0]


def test_the_coldest_prefix_is_evicted():
    # Room for 8 blocks of 16; prefixes of 64 tokens (4 blocks), requests of 65 (5). After 0, 1 the cache has
    # room for one: 0 is gone when it is asked for again, 1 was just used.
    table = flat_table(kv_tokens=128, block=16)
    fleet = one_replica(table, prefix_cache=True, token_budget=128)
    run = simulate(requests([0, 1, 2, 3], 65, 1, parts=([[0], [1], [1], [0]], 64)), fleet)
    assert run.hit.tolist() == [0, 0, 64, 0]


def test_round_robin_and_least_loaded_routers():
    # Two replicas, one long answer first. Round robin sends every second request behind it.
    pool = Pool(flat_table(), Scheduler(max_requests=1), 2)
    work = requests([0, 0.001, 0.002, 0.2], 10, [100, 2, 2, 2])
    assert simulate(work, Fleet((pool,))).replica.tolist() == [0, 1, 0, 1]
    # Least loaded: the third sees one request on each and takes the first, the fourth the idle one.
    assert simulate(work, Fleet((pool,), "least-loaded")).replica.tolist() == [0, 1, 0, 1]
    work = requests([0, 0.001, 0.1, 0.2], 10, [100, 2, 2, 2])
    assert simulate(work, Fleet((pool,), "least-loaded")).replica.tolist() == [0, 1, 1, 1]


def test_a_prefix_aware_router_goes_where_the_prefix_is():
    pool = Pool(flat_table(), Scheduler(prefix_cache=True), 2)
    work = requests([0, 1, 2, 3], 100, 2, parts=([[0], [1], [0], [1]], 64))
    run = simulate(work, Fleet((pool,), "prefix-aware"))
    assert run.replica[2] == run.replica[0]
    assert run.hit.tolist() == [0, 0, 64, 64]


def _link(capacity: float) -> Transfers:
    """One pair of replicas with one link between; 1,000 bytes a token."""
    one = np.array([0], np.int64)
    return Transfers(np.array([0, 1]), one, np.ones(1), np.array([capacity]), 0.002, 1000.0)


def test_keys_and_values_cross_the_link_between_replicas():
    # 100 tokens of 1,000 bytes at 5 MB/s: 20 ms, and 2 ms of latency, after the 10 ms prompt step.
    # Two at once share the link: 40 ms. Then 3 decode steps of 10 ms.
    table = flat_table()
    pools = (Pool(table, Scheduler(), 1, "prefill"), Pool(table, Scheduler(), 1, "decode"))
    run = simulate(requests([0.0], 100, 4), Fleet(pools, transfers=_link(5e6)))
    np.testing.assert_allclose(run.first, [0.032])
    np.testing.assert_allclose(run.done, [0.062])
    run = simulate(requests([0.0, 0.0], 100, 4), Fleet(pools, transfers=_link(5e6)))
    np.testing.assert_allclose(run.first, [0.052, 0.052])


def test_a_lost_replica_gives_its_requests_to_the_other():
    # Lost at 35 ms after 3 tokens: the other computes 10 + 3 tokens anew, giving the 4th at 45 ms; the last
    # of 6 comes at 65 ms.
    pool = Pool(flat_table(), Scheduler(), 2)
    fleet = Fleet((pool,), outages=(Outage(0, 0.035, 1.0),))
    run = simulate(requests([0.0], 10, 6), fleet)
    np.testing.assert_allclose(run.done, [0.065])
    assert (run.replica[0], run.losses[0]) == (1, 1)


def test_waves_are_sent_when_the_wave_before_has_ended():
    run = simulate(requests([0] * 4, 10, [2, 5, 2, 2], 2, waves=True), one_replica(flat_table()))
    np.testing.assert_allclose(run.sent, [0, 0, 0.05, 0.05])


def test_mean_tokens_of_a_speculative_step():
    # Leviathan et al. (2023), equation 1: (1 - a^(k + 1)) / (1 - a); 0.8 and 3 drafts: 2.952.
    speculation = Speculation(3, 0.8)
    assert speculation.tokens_per_step == pytest.approx((1 - 0.8**4) / (1 - 0.8))
    output = np.full(200, 5001)
    steps = decode_steps(output, speculation)
    assert 5000 / steps.mean() == pytest.approx(speculation.tokens_per_step, rel=0.005)
    assert (decode_steps(output, Speculation(4, 1.0)) == 1000).all()
    assert (decode_steps(output, Speculation(4, 0.0)) == 5000).all()


def test_mean_wait_of_a_queue_with_one_server_and_even_service():
    # Requests of one token through an engine that takes one at a time: M/D/1.  Each wait follows from the one
    # before (Lindley), and their mean is rho / (2 (1 - rho)) services (Pollaczek-Khinchine).
    # The gaps are the quantiles of an exponential in random order, which leaves less to chance than draws.
    quantiles = -np.log((np.arange(15_000) + 0.5) / 15_000)
    for rho, tolerance in ((0.5, 0.03), (0.7, 0.05)):
        gaps = np.random.default_rng(3).permutation(quantiles) * 0.01 / rho
        run = simulate(requests(np.cumsum(gaps), 10, 1), one_replica(flat_table(), max_requests=1))
        wait = run.admitted - run.queued
        np.testing.assert_allclose(wait[1:], np.maximum(wait[:-1] + 0.01 - gaps[1:], 0.0), atol=1e-9)
        assert wait.mean() == pytest.approx(0.01 * rho / (2 * (1 - rho)), rel=tolerance)
