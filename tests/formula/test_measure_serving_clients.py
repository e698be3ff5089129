"""Clients of the public serving benchmarks: what their documents say, and lengths with the stated means."""

from __future__ import annotations

import numpy as np
import pytest

from railwright.measure.serving.cases import Case, architecture_of, cases, gpu_of, measured_requests, mlperf
from railwright.measure.serving.clients import QUERIES, entropic, load_of
from railwright.measure.serving.jobs import pose, prefill_alone


def _case(name: str) -> Case:
    (found,) = (case for case in cases() if name in case["id"])
    return found


def test_two_hundred_cases_and_nine_hundred_requests() -> None:
    assert len(cases()) == 200
    assert len({case["id"] for case in cases()}) == 200
    assert {run: len(rows) for run, rows in measured_requests().items()} == {
        "RTX4090_Llama-3.1-8B": 300,
        "RTXPRO6000_Llama-3.1-8B": 300,
        "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507": 300,
    }
    assert all(case["source"] for case in cases())


def test_every_case_is_a_question_on_gpus_it_has() -> None:
    for case in cases():
        posed = pose(case)
        assert posed.load.source
        assert posed.job.layout.gpus * posed.job.replicas <= posed.gpus
        assert architecture_of(case).layers > 0
        assert gpu_of(case)


def test_inferencex_sends_ten_times_its_concurrency_with_lengths_from_0_8_on() -> None:
    load = load_of(_case("vllm_fp8_agg_8192x1024_c32_tp8_ep1_814"))
    client = load.client
    assert (client.kind, client.concurrency, client.requests) == ("closed-loop", 32, 320)
    assert (client.input, client.output, client.spread) == (8192, 1024, 0.2)


def test_static_batches_prefill_all_prompts_in_one_step() -> None:
    job = pose(_case("dli_static_1806")).job
    assert (job.client.kind, job.client.concurrency, job.client.requests) == ("batch", 64, 64)
    assert (job.max_batched_tokens, job.max_requests) == (64 * 2048, 64)


def test_tp_and_ep_of_the_same_gpus_are_counted_once() -> None:
    # InferenceX: { tp: 4, ep: 4 } is four GPUs, and { tp: 8, ep: 8, dp-attn: true } eight
    four = pose(_case("tp4_ep4_950")).job.layout
    assert (four.gpus, four.tensor, four.attention_data, four.expert) == (4, 4, 1, 4)
    eight = pose(_case("c256_tp8_ep8_1582")).job.layout
    assert (eight.gpus, eight.tensor, eight.attention_data, eight.expert) == (8, 1, 8, 8)


def test_prefill_and_decode_workers_are_counted() -> None:
    # one prefill worker of 8 GPUs and seven decode workers of 8
    posed = pose(_case("dsr1_h200_trtllm_fp8_disagg_8192x1024_c28_cfg297"))
    assert posed.job.prefill is not None
    assert (posed.job.prefill.replicas, posed.job.replicas, posed.gpus) == (1, 7, 64)


def test_mlperf_arrives_at_the_logged_rate_with_the_logged_answers() -> None:
    case = _case("mlperf_5.1-0013_llama2-70b-99_Server")
    load = load_of(case)
    assert load.work is not None
    run = mlperf()["runs"][case["id"]]
    assert len(load.work) == QUERIES["llama2-70b-99"]
    assert load.work.output.mean() == pytest.approx(run["output"], rel=0.02)
    assert load.work.output.max() <= 1024
    assert load.work.rate == pytest.approx(run["rate"], rel=0.03)


def test_a_pass_of_the_data_set_arrives_at_once_offline() -> None:
    load = load_of(_case("mlperf_5.1-0013_llama2-70b-99_Offline"))
    assert load.work is not None
    assert set(load.work.arrival) == {0.0}


def test_infersims_prefill_is_four_prompts_of_4096_on_one_gpu() -> None:
    job = prefill_alone(_case("infersim_Qwen3-30B"))
    assert (job.client.concurrency, job.client.input, job.client.output) == (4, 4096, 1)
    assert (job.layout.gpus, job.max_batched_tokens) == (1, 16384)


@pytest.mark.parametrize(
    ("mean", "longest"), [(9428, 20000), (778, 2540), (294, 1024), (3744, 20000), (900, 1024)]
)
def test_lengths_of_highest_entropy_have_the_mean(mean: float, longest: float) -> None:
    drawn = entropic(np.random.default_rng(1), 100_000, mean, longest)
    assert drawn.mean() == pytest.approx(mean, rel=0.01)
    assert 1 <= drawn.min() <= drawn.max() <= longest


def test_half_the_longest_is_uniform_and_the_longest_is_constant() -> None:
    draw = np.random.default_rng(2)
    even = entropic(draw, 100_000, 501, 1001)
    assert even.std() == pytest.approx(1000 / np.sqrt(12), rel=0.01)
    assert set(entropic(draw, 100, 128, 128)) == {128.0}


def test_the_replayed_runs_are_the_published_means() -> None:
    # LLMServingSim's summary.txt: 65,456.6 ms, 7,097.2 ms and 1,086.0 ms to the first token
    for run, published in (
        ("RTX4090_Llama-3.1-8B", 65.4566),
        ("RTXPRO6000_Llama-3.1-8B", 7.0972),
        ("RTXPRO6000_Qwen3-30B-A3B-Instruct-2507", 1.0860),
    ):
        rows = measured_requests()[run]
        waited = np.mean([float(r["first_s"]) - float(r["queued_s"]) for r in rows])
        assert waited == pytest.approx(published, rel=1e-4)
        assert all(float(r["arrival_s"]) <= float(r["queued_s"]) + 1e-6 for r in rows)


def test_prompts_that_begin_as_earlier_ones_are_those_llmservingsim_counts() -> None:
    # bench/examples/RTXPRO6000/Llama-3.1-8B/outputs/sim.log: 19,520 of 257,239 prompt tokens found
    work = load_of(_case("llmservingsim_RTXPRO6000_Llama-3.1-8B")).work
    assert work is not None
    times = np.unique(work.parts, return_counts=True)[1]
    assert (int(work.prompt.sum()), int((times - 1).sum()) * work.part_tokens) == (257239, 19520)
    # two engines have a cache each: about half of what one would find
    two = load_of(_case("llmservingsim_RTXPRO6000_Qwen3")).work
    assert two is not None
    again = len(two.parts) - len(np.unique(two.parts))
    assert 0.3 < again * two.part_tokens / 20448 < 0.7
