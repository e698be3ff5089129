"""Published serving measurements as they were carried, and our names for their models and machines."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from railwright.collectives.machine import Machine
from railwright.measure.machines import Unsupported, published_machine
from railwright.model.configs.hf_config import load_model
from railwright.model.shape.architecture import Transformer
from railwright.shipped import read_data

Case = Mapping[str, str]


@lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    """The 200 carried cases (tools/carry_serving.py), as text."""
    return tuple(csv.DictReader(_data("serving.csv").splitlines()))


@lru_cache(maxsize=1)
def measured_requests() -> Mapping[str, tuple[Case, ...]]:
    """Run -> its requests, each with arrival, lengths and times [s from the first arrival]."""
    rows = list(csv.DictReader(_data("serving_requests.csv").splitlines()))
    return {run: tuple(r for r in rows if r["run"] == run) for run in dict.fromkeys(r["run"] for r in rows)}


@lru_cache(maxsize=1)
def measured_prefixes() -> Mapping[str, tuple[tuple[int, int, int], ...]]:
    """Run -> (request, earlier request, tokens both begin with), by place in the run."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    for row in csv.DictReader(_data("serving_prefixes.csv").splitlines()):
        found.setdefault(row["run"], []).append(
            (int(row["request"]), int(row["earlier"]), int(row["tokens"]))
        )
    return {run: tuple(rows) for run, rows in found.items()}


RUN_GROUPS = {"RTXPRO6000_Qwen3-30B-A3B-Instruct-2507": 2}
"""Recorded run -> data-parallel engines that share its experts (config.json and meta.json of the run)."""


@lru_cache(maxsize=1)
def mlperf() -> Mapping[str, Any]:
    """What MLPerf's results do not say of their load and engines (serving_mlperf.yaml)."""
    found: Mapping[str, Any] = read_data("measure", "serving_mlperf.yaml")
    return found


def _data(name: str) -> str:
    return resources.files("railwright.measure").joinpath(f"data/{name}").read_text(encoding="utf-8")


def number(case: Case, column: str, default: int = 1) -> int:
    """A whole number of a case, `default` where it is not stated."""
    return int(float(case[column])) if case[column] else default


def figure(case: Case, column: str) -> float | None:
    """A measured figure of a case, None where it is not stated."""
    return float(case[column]) if case[column] else None


MODELS = {
    "meta-llama3-70b-instruct": "llama-3-70b",
    "meta-llama3-8b-instruct": "llama-3-8b",
    "LLaMA v2 70B": "llama-2-70b",
    "LLaMA v2 13B": "llama-2-13b",
    "LLaMA v2 7B": "llama-2-7b",
    "Falcon 180B": "falcon-180b",
    "Mistral 7B": "mistral-7b",
    "Llama 3.3 70B": "llama-3.1-70b",
    "Llama 3.1 405B": "llama-3.1-405b",
    "Llama 3.1 8B": "llama-3.1-8b",
    "llama2-70b-99": "llama-2-70b",
    "llama2-70b": "llama-2-70b",
    "deepseek-r1": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1": "deepseek-v3",
    "Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
    "Qwen3-30B-A3B-BF16": "qwen3-30b-a3b",
    "Qwen3-8B-FP8": "qwen3-8b",
}
"""A case's model -> the bundled architecture, where the name does not say it itself.  Llama 3.3 70B has Llama
3.1's shapes, DeepSeek-R1 those of V3."""

GPUS = {
    "h100_sxm": "H100", "h200_sxm": "H200", "b200_sxm": "B200", "gb200": "GB200",
    "H100_80GB_HBM3": "H100", "A100-SXM4-80GB": "A100", "H100 80GB HBM3": "H100", "H100 NVL": "H100-NVL",
    "H200 141GB HBM3": "H200", "GH200 120GB": "GH200", "L40S": "L40S", "L40": "L40",
    "B200 SXM": "B200", "H100 SXM": "H100", "H200 SXM": "H200", "h100-80gb": "H100",
    "RTX4090": "RTX-4090", "RTXPRO6000": "RTX-PRO-6000", "H20": "H20",
}  # fmt: skip
"""A case's system -> the GPU as `measure.machines` calls it."""


def model_of(case: Case) -> str:
    """Bundled name of a case's architecture."""
    return MODELS.get(case["model"], case["model"])


def architecture_of(case: Case) -> Transformer:
    """The architecture of a case."""
    return load_model(model_of(case))


def gpu_of(case: Case) -> str:
    """The GPU of a case as `measure.machines` calls it. Raises Unsupported."""
    system = case["system"]
    if case["set"] == "mlperf":
        # '2x8 NVIDIA H100-SXM-80GB': nodes x GPUs, name
        return system.split(" NVIDIA ")[1].split("-")[0]
    if system not in GPUS:
        raise Unsupported(f"no catalogued GPU for '{system}'")
    return GPUS[system]


def nodes_of(case: Case) -> tuple[int, int]:
    """(nodes, GPUs of each) of an MLPerf system."""
    nodes, each = case["system"].split(" ")[0].split("x")
    return int(nodes), int(each)


RACK = 64
"""GPUs used of each NVL72 domain where a job takes several: whole trays, as in training records."""


def machine_for(case: Case, gpus: int) -> Machine:
    """The machine of a case that takes `gpus` GPUs in all. Raises Unsupported for a GPU without a server."""
    return published_machine(gpu_of(case), gpus, None)


def slice_of(case: Case) -> str:
    """The set of cases that one bar speaks of."""
    name = case["set"]
    if name == "silicon":
        kind = "MoE" if architecture_of(case).is_moe else "dense"
        return kind if case["mode"] == "agg" else f"{kind} P/D"
    return SLICES[name]


SLICES = {
    "nim": "dense",
    "dli": "static",
    "splitwise": "static",
    "trtllm": "offline",
    "mlperf": "MLPerf",
    "llmservingsim": "replay",
    "infersim": "phase",
}
"""Slice of each set; InferenceX and AIConfigurator's own runs ('silicon') are dense or MoE, 'P/D' with
prefill apart.  'static': one batch; 'offline': every request queued at once; 'replay': recorded requests;
'phase': full
batches of one phase."""


def engine_group(case: Case) -> str:
    """'H100 | vLLM': GPU and engine, the slices on which AIConfigurator is compared."""
    engine = case["engine"].lower()
    name = next((n for key, n in ENGINE_NAMES.items() if key in engine), case["engine"])
    return f"{gpu_of(case)} | {name}"


ENGINE_NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trt": "TensorRT-LLM",
    "tensorrt": "TensorRT-LLM",
}
"""Word in a case's engine -> engine."""
