"""Carry published serving measurements into the project as tables of our own making.

Reads the workplace's collection (path as first argument) and writes src/railwright/measure/data/serving.csv,
one row per case; with a second path, the folder of LLMServingSim's vLLM runs, also serving_requests.csv, one
row per request, and with a third, its workloads, serving_prefixes.csv.  Figures only, each with its source.
Run once per collection; the product never needs it.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "src" / "railwright" / "measure" / "data"
MEASURED = {
    "ttft_ms": "ttft_ms",
    "tpot_ms": "tpot_ms",
    "ttft_mean_ms": "ttft_ms",
    "tpot_mean_ms": "tpot_ms",
    "ttft_p99_ms": "ttft_p99_ms",
    "tpot_p99_ms": "tpot_p99_ms",
    "e2e_ms": "e2e_ms",
    "output_tok_s_gpu": "tokens_s_gpu",
    "prefill_tok_s_gpu": "prefill_tokens_s_gpu",
    "decode_tok_s_gpu": "tokens_s_gpu",
    "gpu_peak_mem_gb": "memory_gb",
}
"""Name in the collection -> column; derived throughputs are left out, as they follow from the others."""
LAYOUT = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
POOL = ("num_workers", "batch_size", *LAYOUT)
PREDICTED = {"aiconfigurator_0_12_0_ttft_ms": "aic_ttft_ms", "aiconfigurator_0_12_0_tpot_ms": "aic_tpot_ms"}
COLUMNS = (
    *("id", "set", "family", "model", "system", "engine", "precision", "mode"),
    *LAYOUT,
    *(f"{pool}_{name}" for pool in ("prefill", "decode") for name in POOL),
    *("isl", "osl", "concurrency", "batch", "measured_on"),
    *dict.fromkeys(MEASURED.values()),
    *PREDICTED.values(),
    "source",
)
REQUEST_COLUMNS = ("run", "arrival_s", "input", "output", "queued_s", "scheduled_s", "first_s", "last_s")


def main(collection: Path) -> None:
    """Write serving.csv."""
    from ruamel.yaml import YAML

    cases = YAML(typ="safe").load(collection.read_text(encoding="utf-8"))["cases"]
    with (DATA / "serving.csv").open("w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row_of(case) for case in cases)
    print(f"{len(cases)} cases")


def row_of(case: dict[str, Any]) -> dict[str, Any]:
    """One case under our columns."""
    source = re.sub(r"\s+", " ", case["source"])
    row = {k: case.get(k) for k in ("id", "family", "model", "system", "engine", "mode")}
    row |= {k: case.get(k) for k in ("isl", "osl", "concurrency", "batch")}
    row |= {k: v for k, v in case.get("parallel", {}).items() if k in COLUMNS}
    row |= {column: case["measured"][name] for name, column in MEASURED.items() if name in case["measured"]}
    row |= {column: case.get("reference_predictions", {}).get(name) for name, column in PREDICTED.items()}
    precision = case.get("precision")
    row["precision"] = precision if isinstance(precision, str) else None
    row["set"] = case["family"].split("|")[0]
    when = re.search(r"measured=(\d{4}-\d\d-\d\d)", source)
    row["measured_on"] = when.group(1) if when else None
    said = re.search(r"silicon_concurrency=(\d+)", source)
    if said:
        row["concurrency"] = said.group(1)
    row["source"] = source.removeprefix("read: ")
    return row


def requests(folder: Path) -> None:
    """Write serving_requests.csv: seconds from the first arrival on.

    Arrivals are on the wall clock, the rest on the engine's; the two are joined where the wait from arrival
    to the engine's queue is shortest.
    """
    rows = []
    for run in sorted(folder.glob("*/requests.jsonl.gz")):
        with gzip.open(run, "rt", encoding="utf-8") as f:
            found = [json.loads(line) for line in f]
        start = found[0]["arrival_time"]
        shift = min(r["queued_ts"] - (r["arrival_time"] - start) for r in found)
        for r in found:
            times = [r["arrival_time"] - start] + [
                r[k] - shift for k in ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
            ]
            at = [f"{t:.6f}" for t in times]
            rows.append((run.parent.name, at[0], r["input_toks"], r["output_toks"], *at[1:]))
    with (DATA / "serving_requests.csv").open("w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(REQUEST_COLUMNS)
        writer.writerows(rows)
    print(f"{len(rows)} requests")


BLOCK = 16
"""Tokens of a block of the runs' prefix caches (meta.json, cache_config.block_size)."""
WORKLOADS = {
    "RTX4090_Llama-3.1-8B": "sharegpt-llama-3.1-8b-300-sps10.jsonl",
    "RTXPRO6000_Llama-3.1-8B": "sharegpt-llama-3.1-8b-300-sps10.jsonl",
    "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507": "sharegpt-qwen3-30b-a3b-300-sps10.jsonl",
}
"""Run -> the requests it replayed (meta.json, dataset_path)."""


def prefixes(folder: Path) -> None:
    """Write serving_prefixes.csv: whole blocks with which a prompt begins as an earlier one of its run did.

    request, earlier  places among the run's requests;  tokens  that both begin with
    """
    rows = []
    for run, name in WORKLOADS.items():
        sent = [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        first: dict[tuple[int, ...], int] = {}
        for at, request in enumerate(sorted(sent, key=lambda r: r["arrival_time_ns"])):
            ids = request["input_tok_ids"]
            ends = range(BLOCK, len(ids) + 1, BLOCK)
            known = [end for end in ends if tuple(ids[:end]) in first]
            if known:
                rows.append((run, at, first[tuple(ids[: known[-1]])], known[-1]))
            for end in ends:
                first.setdefault(tuple(ids[:end]), at)
    with (DATA / "serving_prefixes.csv").open("w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(("run", "request", "earlier", "tokens"))
        writer.writerows(rows)
    print(f"{len(rows)} prompts that begin as earlier ones")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        requests(Path(sys.argv[2]))
    if len(sys.argv) > 3:
        prefixes(Path(sys.argv[3]))
