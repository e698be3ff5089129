"""Identify what TensorRT plans of 2024 and NIM cost beside kernels, on models that no scored case has.

Data: wbing520/ai-performance-engineering@0e25b2e, code/ch10_inference/inference_gpu_cluster_sizing/dataset:
nim.csv (genai-perf against NIM 1.0) and trt_llm_0_9_0_dli.csv (static batches of TensorRT-LLM 0.9).
Run: PYTHONPATH=src python tools/fit_serving_plans.py NIM.csv DLI.csv; prints what masked.yaml and plans.yaml
(serving/data) and the profiles trtllm-2024 and trtllm-2024-static hold, by model where there are several.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import mean

import numpy as np

from railwright.measure.serving.cases import (
    GPUS,
    MODELS,
    Case,
    architecture_of,
    cases,
    gpu_of,
    machine_for,
)
from railwright.measure.serving.jobs import pose
from railwright.measure.serving.replay import answer
from railwright.serving.engine import profiles
from railwright.serving.engine.exchange import nccl_seconds
from railwright.serving.engine.step import stage_of, step_parts
from railwright.serving.result import ServingResult

SMS = {"H100": 132, "A100": 108}
LAYERS, HEADS = {"8b": 32, "70b": 80}, {"8b": 32, "70b": 64}
"""Of Llama 3."""
ALONE = ("LLaMA v2 7B", "LLaMA v2 13B", "Mistral 7B")
"""Models whose static batches run on one GPU."""


def nim(file: Path) -> list[Case]:
    """Rows of NIM as cases, one for each load."""
    like = next(c for c in cases() if c["set"] == "nim")
    found = {}
    for r in csv.DictReader(file.open()):
        load = {
            "model": r["task_inputs-model"],
            "system": r["task_inputs-GPU"],
            "precision": r["task_inputs-precision"],
            "tp_size": r["task_inputs-n_gpus"],
            "isl": r["input_config-synthetic_input_tokens_mean"],
            "osl": r["input_config-output_tokens_mean"],
            "concurrency": r["input_config-concurrency"],
        }
        times = {
            "ttft_ms": str(float(r["time_to_first_token-avg"]) / 1e6),
            "tpot_ms": str(float(r["inter_token_latency-avg"]) / 1e6),
            "ttft_p95_ms": str(float(r["time_to_first_token-p95"]) / 1e6),
        }
        found[tuple(load.values())] = {**like, **load, **times, "id": "nim " + " ".join(load.values())}
    return list(found.values())


def dli(file: Path) -> list[Case]:
    """Static batches as cases; 'Mixed' engines are fp16 with fp16 caches."""
    like = next(c for c in cases() if c["set"] == "dli")
    kinds = {"FP8": "fp8", "Mixed": "fp16"}
    found: list[Mapping[str, str]] = []
    for r in csv.DictReader(file.open()):
        first, each = r["1st Token Latency (ms)"], r["Token-to-token Latency (ms)"]
        if r["Precision"] not in kinds or not first or not each or r["GPU"] not in GPUS:
            continue
        if r["Pipeline Model Parallel Size"] == "1" and r["Model"] in MODELS:
            load = {
                "model": r["Model"],
                "system": r["GPU"],
                "precision": kinds[r["Precision"]],
                "tp_size": r["Tensor Model Parallel Size"],
                "isl": str(int(float(r["Input Token Length"]))),
                "osl": str(int(float(r["Output Token Length"]))),
                "batch": r["Batch Size"],
            }
            found.append({**like, **load, "ttft_ms": first, "tpot_ms": each, "id": "dli"})
    return found


def unscored(rows: list[Case]) -> list[Case]:
    """Those whose model no scored case of the same set has on the same GPU."""
    scored = {(c["set"], c["model"], c["system"]) for c in cases()}
    return [c for c in rows if (c["set"], c["model"], c["system"]) not in scored]


def other_loads(rows: list[Case]) -> list[Case]:
    """Those that are not themselves scored."""
    load = ("model", "system", "precision", "tp_size", "isl", "osl", "concurrency")
    scored = {tuple(c[k] for k in load) for c in cases() if c["set"] == "nim"}
    return [c for c in rows if tuple(c[k] for k in load) not in scored]


def predicted(case: Case, **changed: float) -> ServingResult:
    """What `serve` says of a case, its engine profile changed."""
    posed, known = pose(case), profiles.engines()
    engine = replace(known[posed.job.engine], **changed)  # type: ignore[arg-type]
    known[posed.job.engine], before = engine, known[posed.job.engine]
    try:
        return answer(case, posed)
    finally:
        known[posed.job.engine] = before


def masked(rows: list[Case]) -> Iterator[str]:
    """Time of one token in a block, by GPU and cache, and bytes of all blocks: slopes over the context."""
    by: dict[tuple[str, str, str, int, int], list[tuple[float, float, float]]] = defaultdict(list)
    for c in rows:
        model = "8b" if "8b" in c["model"] else "70b"
        # in a batch of short answers the stalls by others' prompts grow with the context, too
        if c["concurrency"] == "1" or (model == "8b" and int(c["osl"]) >= 1000 and c["isl"] != "7000"):
            context = int(c["isl"]) + int(c["osl"]) / 2
            key = (gpu_of(c), model, c["precision"], int(c["tp_size"]), int(c["concurrency"]))
            by[key].append((context, float(c["tpot_ms"]) * 1e-3, float(c["ttft_ms"])))
    alone, drawn = defaultdict(list), defaultdict(list)
    for (gpu, model, kind, tensor, load), seen in by.items():
        if max(s[2] for s in seen) > 5e3 or len(seen) < 3:
            continue  # requests queue: their contexts are not what was asked
        slope = np.polyfit([s[0] for s in seen], [s[1] for s in seen], 1)[0] / LAYERS[model]
        blocks = load * HEADS[model] / tensor
        if load == 1:
            alone[gpu, model, kind].append(slope)
        elif blocks / SMS[gpu] > 6 and kind == "fp16":
            drawn[gpu].append(blocks * 512 / slope)
    for (gpu, model, kind), slopes in alone.items():
        each = ", ".join(f"{s * 1e9:.1f}" for s in slopes)
        yield f"{gpu} Llama 3 {model} {kind}: {mean(slopes) * 1e9:.1f} ns a token ({each})"
    for gpu, rates in drawn.items():
        yield f"{gpu}: {mean(rates) / 1e12:.1f} TB/s, {min(rates) / 1e12:.1f} to {max(rates) / 1e12:.1f}"


def budget(rows: list[Case]) -> Iterator[str]:
    """Mean first token over the 95th percentile of five, ten and 25 prompts, by the tokens that share a step.

    The first prompt is computed alone, the others in as few steps as the budget allows, each as long as its
    tokens; the last ends near the 95th percentile, whatever a token takes.
    """
    chosen = ((7000, 5), (7000, 10), (2000, 10), (2000, 25))
    seen: dict[tuple[int, int], list[float]] = defaultdict(list)
    for c in rows:
        if (load := (int(c["isl"]), int(c["concurrency"]))) in chosen:
            seen[load].append(float(c["ttft_ms"]) / float(c["ttft_p95_ms"]))
    yield "measured " + ", ".join(f"{n} x {isl}: {mean(seen[isl, n]):.2f}" for isl, n in chosen)
    for tokens in (8192, 16384, 32768, 65536):
        shares = [_ends(n, tokens // isl) / n for isl, n in chosen]
        off = mean(abs(s - mean(seen[load])) for s, load in zip(shares, chosen, strict=True))
        yield f"{tokens}: {', '.join(f'{s:.2f}' for s in shares)}; {off:.2f} off"


def _ends(prompts: int, together: int) -> float:
    """Mean end of prompts, the first alone and then so many together, in lone prompts' times."""
    ends, done = [1], 1
    while done < prompts:
        group = min(max(together, 1), prompts - done)
        ends += [done + group] * group
        done += group
    return mean(ends)


def frontend(rows: list[Case]) -> Iterator[str]:
    """Request and intake of NIM, its prompts' pace and what its collectives wait."""
    lone = [c for c in rows if c["concurrency"] == "1"]
    wait = {"collective_wait": _wait(lone)}
    yield f"collective_wait {wait['collective_wait'] * 1e6:.0f} us"
    long = [c for c in lone if int(c["isl"]) >= 2000]
    pace = {"prefill_time": 1.0, **wait}
    ratios = [float(c["ttft_ms"]) / (predicted(c, **pace).ttft.mean * 1e3) for c in long]
    pace["prefill_time"] = _mean(ratios)
    yield f"prefill_time {_mean(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f} of {len(ratios)}"
    short = [c for c in lone if c["isl"] == "200" and c["precision"] == "fp16"]
    over = [float(c["ttft_ms"]) - (predicted(c, request=0.0, **pace).ttft.mean * 1e3) for c in short]
    yield f"request {mean(over):.1f} ms, {min(over):.1f} to {max(over):.1f}"
    many = [c for c in rows if c["isl"] == "200" and c["concurrency"] in ("25", "50", "100")]
    many = [c for c in many if c["precision"] == "fp8"]
    for each in (0.0, 1e-3, 1.5e-3, 2e-3, 3e-3):
        off = [predicted(c, intake=each).ttft.mean * 1e3 / float(c["ttft_ms"]) - 1 for c in many]
        far = 100 * mean(map(abs, off))
        yield f"intake {each * 1e3:.1f} ms: {100 * mean(off):+.0f} %, mean absolute {far:.0f} %"


def _wait(lone: list[Case]) -> float:
    """What one collective waits [s]: least squares of measured over predicted, one pace for each type."""
    kinds = sorted({c["precision"] for c in lone})
    table, paces = [], len(kinds)
    for c in lone:
        ranks, measured = int(c["tp_size"]), float(c["tpot_ms"]) * 1e-3
        late = sum(1.0 / n for n in range(2, ranks + 1)) * (2 * LAYERS["8b"] + 1 if ranks > 1 else 0)
        row = [0.0] * (paces + 1)
        row[kinds.index(c["precision"])] = predicted(c, collective_wait=0.0).tpot.mean / measured
        row[paces] = late / measured
        table.append(row)
    return float(np.linalg.lstsq(np.array(table), np.ones(len(table)), rcond=None)[0][paces])


def plans(rows: list[Case]) -> Iterator[str]:
    """Prefill of TensorRT plans over the kernels measured, by GPU and type, and without each model."""
    by: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for c in rows:
        alone = c["model"] in ALONE and c["tp_size"] == "1" and c["osl"] == "128"
        if alone and int(c["batch"]) * int(c["isl"]) >= 1024:
            try:
                ours = predicted(c, plans=False).ttft.mean
            except Exception as no:  # a batch that our memory model refuses
                print(f"# {c['system']} {c['model']} x {c['batch']}: {str(no)[:60]}", file=sys.stderr)
                continue
            by[c["system"], c["precision"]][c["model"]].append(float(c["ttft_ms"]) * 1e-3 / ours)
    for (system, kind), models in sorted(by.items()):
        every = [r for ratios in models.values() for r in ratios if r > 0.5]
        each = ", ".join(f"{m} {_mean(r):.2f}" for m, r in models.items())
        yield f"{system} {kind}: {_mean(every):.2f} of {len(every)} ({each})"


def setup(rows: list[Case]) -> Iterator[str]:
    """What the first token of a static batch takes beyond its step: small batches on H100."""
    over = []
    for c in rows:
        tokens = int(c["batch"]) * int(c["isl"])
        few = tokens <= 512 and c["osl"] == "128" and gpu_of(c) == "H100"
        if few and c["model"] in ALONE and c["tp_size"] == "1":
            over.append(float(c["ttft_ms"]) - predicted(c, request=0.0).ttft.mean * 1e3)
    yield f"request {mean(over):.1f} ms, {min(over):.1f} to {max(over):.1f} of {len(over)}"


def over_pcie(rows: list[Case]) -> Iterator[str]:
    """Bus bandwidth of all-reduces of Falcon 180B's prompts over 8 L40S."""
    found = []
    for c in rows:
        if c["system"] != "L40S" or c["model"] != "Falcon 180B" or c["osl"] != "128":
            continue
        posed, prompts = pose(c), ((int(c["isl"]), 0),) * int(c["batch"])
        machine, arch = machine_for(c, posed.gpus), architecture_of(c)
        ours = predicted(c).ttft.mean
        step = step_parts(posed.job, arch, machine, decoding=0, context=0, prefill=prompts)
        place = stage_of(posed.job, arch, machine, None).place
        ranks, size = posed.job.layout.tensor, 2.0 * arch.hidden * len(prompts) * prompts[0][0]
        fixed = float(nccl_seconds(place, "all_reduce", ranks, np.zeros(1))[0])
        # one a layer (parallel blocks), and one for the embedding
        each = (float(c["ttft_ms"]) * 1e-3 - (ours - step.parts["collectives"])) / (arch.layers + 1)
        found.append(size * 2 * (ranks - 1) / ranks / (each - fixed) / 1e9)
    yield f"L40S bus {np.median(found):.1f} GB/s, {min(found):.1f} to {max(found):.1f} of {len(found)}"


def _mean(ratios: list[float]) -> float:
    return exp(mean(map(log, ratios)))


PARTS: tuple[tuple[str, Callable[[list[Case]], Iterator[str]], bool], ...] = (
    ("masked attention", masked, True),
    ("token budget", budget, True),
    ("NIM beside its steps", frontend, True),
    ("plans' pace", plans, False),
    ("set-up of a batch", setup, False),
    ("PCIe", over_pcie, False),
)

if __name__ == "__main__":
    served, batches = nim(Path(sys.argv[1])), unscored(dli(Path(sys.argv[2])))
    small = [c for c in unscored(served) if "8b" in c["model"] and gpu_of(c) == "H100"]
    for name, part, of_nim in PARTS:
        print(f"{name}:")
        for line in part(other_loads(served) if part is masked else small if of_nim else batches):
            print("  " + line)
