"""Load generators' results: every tool's file is told by its content and read in seconds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from railwright.measure.loadgen import read_results

DATA = Path(__file__).parents[1] / "data" / "loadgen"


def test_vllm_with_single_requests() -> None:
    (run,) = read_results(DATA / "vllm_detailed.json")
    assert (run.tool, run.model) == ("vllm bench serve", "meta-llama/Llama-3.1-8B-Instruct")
    assert (run.requests, run.concurrency, run.rate) == (4, 2, None)
    assert (run.prompt, run.output, run.tokens_rate) == (100.0, 11.0, 22.0)
    # what the file states: 250 ms to the first token, 45 ms a token, p99 of 397 and 50 ms
    assert run.ttft.mean == pytest.approx(0.25)
    assert run.ttft.percentiles[99.0] == pytest.approx(0.397)
    assert run.tpot.mean == pytest.approx(0.045)
    # what it does not state comes from its requests: ends at 0.6, 0.7, 0.7 and 0.8 s
    assert run.end_to_end.mean == pytest.approx(0.7)
    assert run.each is not None
    assert run.each.start.tolist() == [0.0, 0.0, 1.0, 1.0]
    assert np.allclose(run.each.end_to_end, [0.6, 0.7, 0.7, 0.8])


def test_sglang_has_a_run_a_line() -> None:
    slow, fast = read_results(DATA / "sglang.jsonl")
    assert (slow.tool, slow.rate, fast.rate) == ("sglang bench_serving", 4.0, 8.0)
    assert (slow.prompt, slow.output) == (1024.0, 256.0)
    assert slow.end_to_end.mean == pytest.approx(3.1)
    assert fast.tpot.percentiles == {50.0: pytest.approx(0.0148), 99.0: pytest.approx(0.019)}


def test_genai_perf_as_json_and_as_csv() -> None:
    (run,) = read_results(DATA / "profile_export_genai_perf.json")
    assert (run.tool, run.model, run.concurrency) == ("genai-perf", "meta/llama3-8b-instruct", 10)
    assert run.ttft.mean == pytest.approx(0.1359)
    assert run.tpot.percentiles[99.0] == pytest.approx(0.0158)
    assert (run.prompt, run.output) == (200.0, 58.7)
    (table,) = read_results(DATA / "profile_export_genai_perf.csv")
    assert table.ttft.mean == pytest.approx(0.07816)
    assert table.tpot.percentiles[50.0] == pytest.approx(0.01188)
    assert (table.prompt, table.output, table.tokens_rate) == (200.03, 58.38, 385.61)


def test_aiperf_summary_and_records() -> None:
    (run,) = read_results(DATA / "profile_export_aiperf.json")
    assert (run.tool, run.model, run.concurrency, run.requests) == ("aiperf", "Qwen/Qwen3-32B", 64, 640)
    assert (run.ttft.mean, run.duration) == (pytest.approx(0.21), 320.0)
    (records,) = read_results(DATA / "profile_export.jsonl")
    assert (records.requests, records.failed, records.prompt) == (2, 1, 500.0)
    # (1 - 0.1) s over 90 further tokens, and (1.1 - 0.2) s over 90: 10 ms each
    assert records.tpot.mean == pytest.approx(0.010)
    # the second begins half a second later and takes 1.1 s; 182 tokens in 1.6 s
    assert records.duration == pytest.approx(1.6)
    assert records.tokens_rate == pytest.approx(182 / 1.6)


def test_guidellm_has_a_run_for_every_load() -> None:
    many, open_loop = read_results(DATA / "guidellm.json")
    assert (many.label, many.concurrency, many.rate, many.failed) == ("concurrent 16", 16, None, 2)
    assert (open_loop.label, open_loop.concurrency, open_loop.rate) == ("poisson 5.0", None, 5.0)
    # its inter-token latency is without the first token, as TPOT is; its latency in seconds
    assert many.tpot.mean == pytest.approx(0.0118)
    assert many.end_to_end.percentiles[90.0] == pytest.approx(3.4)
    assert many.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert many.each is not None
    assert len(many.each) == 2


def test_inference_perf_states_seconds() -> None:
    (run,) = read_results(DATA / "stage_0_lifecycle_metrics.json")
    assert (run.tool, run.rate, run.requests) == ("inference-perf", pytest.approx(8.0025), 480)
    assert run.ttft.percentiles == {50.0: 0.2035, 90.0: 2.2696}
    assert (run.tpot.mean, run.tokens_rate) == (0.0837, 314.8)


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    for n, path in enumerate(sorted(DATA.glob("*.json*")) + sorted(DATA.glob("*.csv"))):
        copy = tmp_path / f"result-{n}.txt"
        copy.write_bytes(path.read_bytes())
        assert [r.tool for r in read_results(copy)] == [r.tool for r in read_results(path)]


def test_requests_agree_with_their_summary() -> None:
    value = json.loads((DATA / "vllm_detailed.json").read_text(encoding="utf-8"))
    (whole,) = read_results(DATA / "vllm_detailed.json")
    assert whole.each is not None
    assert whole.each.ttft.mean() == pytest.approx(value["mean_ttft_ms"] / 1e3)
    assert whole.each.output.sum() == value["total_output_tokens"]
