"""Traces that are cut off, are something else, or say the impossible: file, line and what to do."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from railwright.errors import PlanError, RailwrightError
from railwright.serving.clients.client import workload
from railwright.serving.clients.trace_files import read_trace
from railwright.serving.simulator.fleet import Outage
from railwright.serving.simulator.simulate import simulate
from railwright.spec.serving import Client
from serving_cases import flat_table, one_replica, requests

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
MOONCAKE = '{"timestamp": 500, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]}\n'
SHARED = Path("/work/shared/data/inference/traces")


def _file(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_three_formats(tmp_path):
    azure = AZURE + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    read = read_trace(_file(tmp_path, azure))
    np.testing.assert_allclose(read.arrival, [0, 4.314579], atol=1e-6)
    assert (read.prompt.tolist(), read.output.tolist()) == ([374, 396], [44, 109])
    burst = (
        BURST
        + "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,API log\n118,GPT-4,417,276,693,x\n"
    )
    read = read_trace(_file(tmp_path, burst))
    assert (read.arrival.tolist(), read.output.tolist(), read.skipped) == ([0, 113], [18, 276], 1)
    path = tmp_path / "m.jsonl.gz"
    path.write_bytes(gzip.compress((MOONCAKE + MOONCAKE.replace("9]", "1]")).encode()))
    read = read_trace(path)
    # 1,100 tokens fill two blocks of 512; the third id is of a part of one.
    assert (read.part_ptr.tolist(), read.parts.tolist(), read.part_tokens) == ([0, 2, 4], [0, 1, 0, 1], 512)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "trace.csv: is empty"),
        ("a,b,c\n1,2,3\n", "trace.csv:1: the columns a, b, c are no trace's"),
        (AZURE, "trace.csv: has no request"),
        (AZURE + "2023-11-16 18:15:46.68,374\n", "trace.csv:2: has 2 columns of 3"),
        (AZURE + "2023-11-16 18:15:46.68,374,44\nyesterday,1,2\n", "trace.csv:3: TIMESTAMP: 'yesterday'"),
        (AZURE + "2023-11-16 18:15:46.68,many,44\n", "trace.csv:2: ContextTokens: 'many'"),
        (BURST + "5,ChatGPT,-4,18,490,x\n", "trace.csv:2: Request tokens: '-4'"),
        (BURST + "nan,ChatGPT,4,18,490,x\n", "trace.csv:2: Timestamp: 'nan'"),
        (MOONCAKE + MOONCAKE[:40], "trace.csv:2: is no JSON"),
        (MOONCAKE.replace('"input_length": 1100, ', ""), "trace.csv:1: input_length is missing"),
        (MOONCAKE.replace("1100", '"long"'), "trace.csv:1: input_length 'long' is no number"),
        (MOONCAKE.replace("[7, 8, 9]", "7"), "trace.csv:1: hash_ids"),
    ],
)
def test_what_is_no_trace_is_refused_by_line(tmp_path, text, said):
    with pytest.raises(RailwrightError) as error:
        read_trace(_file(tmp_path, text))
    assert said in str(error.value)


def test_a_cut_off_archive_and_a_missing_file(tmp_path):
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress((AZURE + "2023-11-16 18:15:46.68,374,44\n" * 500).encode())[:-40])
    with pytest.raises(RailwrightError, match=r"trace\.csv\.gz: is cut off"):
        read_trace(path)
    with pytest.raises(RailwrightError, match="cannot read trace"):
        read_trace(tmp_path / "nowhere.csv")


@pytest.mark.skipif(not SHARED.exists(), reason="the shared folder with public traces is not here")
def test_public_traces_are_read_whole():
    # Lines of the files less their header.
    for name, number in (
        ("AzureLLMInferenceTrace2023_code.csv.gz", 8819),
        ("AzureLLMInferenceTrace2023_conv.csv.gz", 19366),
        ("mooncake_conversation_trace.jsonl.gz", 12031),
    ):
        assert len(read_trace(SHARED / name).arrival) == number


def test_inferencex_draws_its_lengths_as_numpy_0_does():
    # numpy.random.seed(0); randint(819, 1025, size=5) twice: benchmark_serving.py for 1024 / 1024, 0.8.
    client = Client(concurrency=1, requests=5, input=1024, output=1024, spread=0.2)
    made = workload(client)
    draw = np.random.RandomState(0)
    assert made.prompt.tolist() == draw.randint(819, 1025, 5).tolist()
    assert made.output.tolist() == draw.randint(819, 1025, 5).tolist()
    assert (made.concurrency, len(workload(Client(concurrency=7)))) == (1, 70)


def test_what_cannot_run_is_refused():
    with pytest.raises(PlanError, match="needs 1,100 tokens of keys and values"):
        simulate(requests([0.0], 1000, 100), one_replica(flat_table(kv_tokens=800)))
    with pytest.raises(PlanError, match="cannot hold one decode of each"):
        simulate(requests(np.zeros(99), 10, 10), one_replica(flat_table(), token_budget=50))
    fleet = one_replica(flat_table())
    lost = type(fleet)(fleet.pools, outages=(Outage(3, 0.0, 1.0),))
    with pytest.raises(PlanError, match="Replica 3 is lost, but they run from 0 to 0"):
        simulate(requests([0.0], 10, 10), lost)
    with pytest.raises(PlanError, match="none is left to count"):
        workload(Client(concurrency=1, requests=5, warmup=5))
