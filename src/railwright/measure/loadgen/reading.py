"""Which load generator wrote a file: told by its content, never by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from railwright.errors import RailwrightError
from railwright.measure.loadgen.aiperf import read_aiperf, read_aiperf_csv, read_aiperf_records
from railwright.measure.loadgen.guidellm import read_guidellm
from railwright.measure.loadgen.inference_perf import read_inference_perf
from railwright.measure.loadgen.result import BenchResult
from railwright.measure.loadgen.vllm import read_vllm

KNOWN = (
    "vllm bench serve and sglang bench_serving (--save-result, --output-file), aiperf and genai-perf "
    "(profile_export*.json, .jsonl, .csv), guidellm (JSON), inference-perf (*_lifecycle_metrics.json)"
)


def is_result(path: Path) -> bool:
    """Whether a file looks like a load generator's result, by its first lines; logs of collectives do not."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            head = file.read(65536)
    except OSError:
        return False
    if head.startswith("Metric,"):
        return True
    return head.lstrip()[:1] in ("{", "[") and any(f'"{word}"' in head for word in TELLING)


TELLING = (
    "mean_ttft_ms",
    "time_to_first_token",
    "time_to_first_token_ms",
    "benchmarks",
    "load_summary",
    "ttfts",
)
"""Words that only results of load generators hold."""


def read_results(path: Path) -> tuple[BenchResult, ...]:
    """Every run in a load generator's result file, in file order.

    Raises RailwrightError naming the file where it cannot be read, is cut off, or is no tool's that is known.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RailwrightError(f"cannot read '{path}': {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RailwrightError(f"{path}: is not text; results of {KNOWN} are known") from None
    if not text.strip():
        raise RailwrightError(f"{path}: is empty; did the benchmark end before it wrote its result?")
    if text.lstrip()[0] not in "{[":
        if text.startswith("Metric,"):
            return (read_aiperf_csv(text, str(path)),)
        raise RailwrightError(f"{path}: is no result of a load generator; known are {KNOWN}")
    found = tuple(run for value in _values(text, path) for run in _runs(value, str(path)))
    if not found:
        raise RailwrightError(f"{path}: is no result of a load generator; known are {KNOWN}")
    return found


READERS: tuple[tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any], str], Any]], ...] = (
    (lambda v: "mean_ttft_ms" in v or ("output_throughput" in v and "completed" in v), read_vllm),
    (lambda v: "benchmarks" in v, read_guidellm),
    (lambda v: "successes" in v and "load_summary" in v, read_inference_perf),
    (lambda v: "time_to_first_token" in v or "request_throughput" in v, read_aiperf),
)
"""(whether a JSON object is this tool's, its reader); the first that fits reads it."""


def _runs(value: Any, file: str) -> tuple[BenchResult, ...]:
    if isinstance(value, list) and value and all(isinstance(v, dict) and "metadata" in v for v in value):
        return (read_aiperf_records(value, file),)
    if not isinstance(value, dict):
        return ()
    for is_its, read in READERS:
        if is_its(value):
            found = read(value, file)
            return found if isinstance(found, tuple) else (found,)
    return ()


def _values(text: str, path: Path) -> list[Any]:
    """The file's JSON value, or one for every line; records of single requests come as one list."""
    try:
        return [json.loads(text)]
    except RecursionError:
        raise RailwrightError(f"{path}: brackets are nested too deeply for a result") from None
    except json.JSONDecodeError as error:
        first = error
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    values: list[Any] = []
    for number, line in lines:
        try:
            values.append(json.loads(line))
        except (json.JSONDecodeError, RecursionError):
            place = f"{number}" if values else f"{first.lineno}:{first.colno}"
            raise RailwrightError(f"{path}:{place}: is no JSON ({first.msg}); is the file cut off?") from None
    if values and all(isinstance(v, dict) and "metadata" in v and "metrics" in v for v in values):
        return [values]
    return values
