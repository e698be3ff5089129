"""Files that are no result of a load generator: one sentence with file and field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from railwright.errors import RailwrightError
from railwright.measure.loadgen import read_results

DATA = Path(__file__).parents[1] / "data" / "loadgen"


def _changed(tmp_path: Path, **changes: object) -> Path:
    value = json.loads((DATA / "vllm_detailed.json").read_text(encoding="utf-8"))
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**value, **changes}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("hello\n", "is no result of a load generator; known are vllm bench serve"),
        ("{}", "is no result of a load generator"),
        ("[1, 2]", "is no result of a load generator"),
        ('{"mean_ttft_ms": 1.0, ', ":1:23: is no JSON"),
        ('{"benchmarks": []}', "benchmarks: a list of at least one benchmark"),
        ("Metric,avg\nRequest Count,4\n", "has no row of a latency"),
        ("Metric,avg\nTime To First Token (ms),fast\n", ":2: 'fast' is no row of numbers"),
        ('{"load_summary": {}, "successes": {"count": 0}}', "successes.count: 0"),
        ('{"time_to_first_token": {"unit": "weeks", "avg": 1}}', "'weeks' is no unit of time"),
        ("[" * 100000, "too deeply"),
    ],
)
def test_a_bad_file_is_named_with_its_fault(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RailwrightError) as raised:
        read_results(path)
    assert str(path) in str(raised.value)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mean_ttft_ms": "fast"}, "mean_ttft_ms: 'fast' is no number"),
        ({"mean_ttft_ms": -1.0}, "mean_ttft_ms: -1.0 is negative"),
        ({"completed": 0}, "completed: 0; no request was answered"),
        ({"ttfts": [0.1]}, "differ in length"),
        ({"input_lens": [100, 100, "x", 100]}, "other things than numbers"),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(RailwrightError, match=said):
        read_results(_changed(tmp_path, **changes))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RailwrightError, match="cannot read"):
        read_results(tmp_path / "nothing.json")
