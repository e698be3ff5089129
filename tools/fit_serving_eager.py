"""Identify what prompts cost in eager PyTorch of 2023 beside kernels, on a model that no scored case has.

Data: Mutinifni/splitwise-sim@8f99e7d, data/perf_model.csv: vLLM of 2023, batches of prompts of BLOOM-176B on
eight H100 and eight A100, medians of repeats.
Run: PYTHONPATH=src python tools/fit_serving_eager.py PERF_MODEL.csv; prints what data/eager.yaml and the
profile vllm-2023 (serving/data) hold, by batch, and below them the errors of rows that tell none of it and
are not scored: Llama 2 70B on two, four and eight A100.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import mean, median

import numpy as np

from railwright.measure.serving.cases import Case, architecture_of, cases, machine_for
from railwright.measure.serving.jobs import pose
from railwright.model.shape.architecture import Transformer
from railwright.serving.engine import profiles
from railwright.serving.engine.held import held_bytes
from railwright.serving.engine.operators import Stage
from railwright.serving.engine.pace import eager_row
from railwright.serving.engine.step import StepParts, stage_of, step_parts

BLOOM = Transformer(
    name="bloom-176b",
    layers=70,
    hidden=14336,
    vocab=250880,
    heads=112,
    kv_heads=112,
    head_dim=128,
    ffn=57344,
    gated=False,
    source="bigscience/bloom config.json",
)
SYSTEMS = {"h100-80gb": "h100-80gb", "a100-80gb": "A100-SXM4-80GB"}
"""System of the table -> that of a case."""
PACED = (512, 2048)
"""Tokens of a step whose kernels outlast their launches, and whose buffers still have room."""


def rows(file: Path) -> list[Case]:
    """Batches of prompts as cases, the median of each."""
    like = next(c for c in cases() if c["set"] == "splitwise")
    seen: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for r in csv.DictReader(file.open()):
        if r["hardware"] in SYSTEMS and r["token_size"] == "128":
            load = (r["model"], r["hardware"], r["tensor_parallel"], r["prompt_size"], r["batch_size"])
            seen[load].append(float(r["prompt_time"]))
    found = []
    for (model, hardware, tensor, prompt, batch), times in seen.items():
        asked = {"model": model, "tp_size": tensor, "isl": prompt, "batch": batch}
        said = {"system": SYSTEMS[hardware], "ttft_ms": str(median(times)), "id": "splitwise"}
        found.append({**like, **asked, **said})
    return sorted(found, key=lambda c: (c["tp_size"], tokens(c), c["batch"]))


def tokens(case: Case) -> int:
    """Of its prompts together."""
    return int(case["isl"]) * int(case["batch"])


def arch_of(case: Case) -> Transformer:
    """The architecture of a case; BLOOM's is not a bundled one."""
    return BLOOM if case["model"] == "bloom-176b" else architecture_of(case)


def step(case: Case, **changed: float) -> StepParts:
    """The step of a case's prompts, the profile changed."""
    known = profiles.engines()
    posed = pose({**case, "model": "llama2-70b"})
    engine = known[posed.job.engine]
    known[posed.job.engine] = replace(engine, **changed)  # type: ignore[arg-type]
    prompts = ((int(case["isl"]), 0),) * int(case["batch"])
    machine = machine_for(case, posed.gpus)
    try:
        return step_parts(posed.job, arch_of(case), machine, decoding=0, context=0, prefill=prompts)
    finally:
        known[posed.job.engine] = engine


def beside(case: Case) -> float:
    """First token of a case less its frontend and host [s]: what the launches and kernels took."""
    request = profiles.engines()["vllm-2023"].request
    return float(case["ttft_ms"]) * 1e-3 - request - step(case).host


def kernels(case: Case) -> float:
    """The step's kernels, as those of 2026. [s]"""
    parts = step(case).parts
    here = eager_row(_stage(case).kernels.gpu)["prompts"]
    paced = sum(v for k, v in parts.items() if k not in ("launches", "memory", "prefill attention"))
    return (paced + parts["prefill attention"]) / here


def paces(bloom: list[Case]) -> Iterator[str]:
    """Time of prompts over that of the kernels."""
    for system in SYSTEMS.values():
        chosen = [c for c in bloom if c["system"] == system and PACED[0] <= tokens(c) <= PACED[1]]
        ratios = [beside(c) / kernels(c) for c in chosen]
        each = ", ".join(f"{tokens(c)} {r:.2f}" for c, r in zip(chosen, ratios, strict=True))
        yield f"{system} prompts {exp(mean(map(log, ratios))):.2f} ({each})"


def launches(bloom: list[Case]) -> Iterator[str]:
    """Host time of a layer's attention of prompts: the shortest prompt on the fastest GPUs."""
    short = next(c for c in bloom if c["system"] == "h100-80gb" and tokens(c) == 128)
    much = 1e-3  # so that launches outlast the kernels
    over = sum(step(short, prompt_launch=much).parts.values()) - beside(short)
    yield f"prompt_launch {(much - over / BLOOM.layers) * 1e6:.0f} us a layer"


def emptying(bloom: list[Case]) -> Iterator[str]:
    """What a byte that collectives hold takes, for each rank; of short prompts, ALiBi's attention is slow."""
    for system in SYSTEMS.values():
        chosen = [c for c in bloom if c["system"] == system and tokens(c) > PACED[1] and c["isl"] == "512"]
        rates = []
        for case in chosen:
            parts = step(case).parts
            busy = sum(v for k, v in parts.items() if k != "memory")
            inside = np.array([busy - parts["launches"]])
            held = float(held_bytes(_stage(case), np.array([float(tokens(case))]), inside)[0])
            rates.append((beside(case) - busy) / held / int(case["tp_size"]))
        each = ", ".join(f"{tokens(c)} {r * 1e12:.2f}" for c, r in zip(chosen, rates, strict=True))
        yield f"{system} emptying {mean(rates) * 1e12:.2f} ps a byte and rank ({each})"


def unscored(file_rows: list[Case]) -> Iterator[str]:
    """Errors on Llama 2 70B on A100, which tells nothing above."""
    for case in file_rows:
        crowded = case["tp_size"] == "2" and case["batch"] == "64"  # ran in several steps
        if case["model"] == "llama2-70b" and case["system"] == SYSTEMS["a100-80gb"] and not crowded:
            ours = step(case).total + profiles.engines()["vllm-2023"].request
            error = 100 * (ours / (float(case["ttft_ms"]) * 1e-3) - 1)
            yield f"TP{case['tp_size']} {case['batch']} x {case['isl']}: {error:+.0f} %"


def _stage(case: Case) -> Stage:
    posed = pose({**case, "model": "llama2-70b"})
    return stage_of(posed.job, arch_of(case), machine_for(case, posed.gpus), None)


if __name__ == "__main__":
    table = rows(Path(sys.argv[1]))
    of_bloom = [c for c in table if c["model"] == "bloom-176b"]
    for part in (paces, launches, emptying):
        for line in part(of_bloom):
            print(line)
    for line in unscored(table):
        print("# " + line)
