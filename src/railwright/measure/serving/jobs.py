"""A published serving measurement as our job: its engine, cut and settings as its documents say them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from railwright.measure.machines import Unsupported
from railwright.measure.serving.cases import (
    RUN_GROUPS,
    Case,
    architecture_of,
    gpu_of,
    mlperf,
    model_of,
    nodes_of,
    number,
)
from railwright.measure.serving.clients import Load, load_of
from railwright.spec.serving import PrefillPool, ServingJob, ServingLayout


@dataclass(frozen=True)
class Posed:
    """A case as a question: the job, how many GPUs its machine has, and the load with its source."""

    job: ServingJob
    gpus: int
    load: Load


def pose(case: Case) -> Posed:
    """The question that a case answers. Raises Unsupported for what no document says or nothing models."""
    load = load_of(case)
    layout, replicas, pool = _cut(case)
    job = ServingJob(
        name=case["id"],
        model=model_of(case),
        engine=engine_of(case),
        weights=weights_of(case),  # type: ignore[arg-type]
        kv=kv_of(case),  # type: ignore[arg-type]
        layout=layout,
        replicas=replicas,
        router="least-loaded",
        prefill=pool,
        client=load.client,
        **_settings(case),
    )
    gpus = layout.gpus * replicas + (pool.layout.gpus * pool.replicas if pool else 0)
    if case["set"] == "mlperf":
        nodes, each = nodes_of(case)
        gpus = nodes * each
    return Posed(job, gpus, load)


ASYNCHRONOUS = ("0.15", "0.18", "0.19")
"""Releases of vLLM that prepare a step while the last one runs without being told to."""


PREFILL_TOKENS = 16384
"""Of InferSim's prefill measurements (alibaba/InferSim@f2293da, example/qwen3-*/*.sh)."""


def prefill_alone(case: Case) -> ServingJob:
    """InferSim's prefill measurement: prompts of 4,096 tokens on one GPU, and nothing else."""
    job = pose(case).job
    prompts = PREFILL_TOKENS // job.client.input
    client = job.client.model_copy(update={"output": 1, "concurrency": prompts, "requests": 10 * prompts})
    settings = {"client": client, "layout": ServingLayout(), "max_batched_tokens": PREFILL_TOKENS}
    return job.model_copy(update=settings)


def engine_of(case: Case) -> str:
    """The engine profile of a case, by engine and release. Raises Unsupported.

    vLLM on Llama 70B was 0.10.2 with --async-scheduling, on B200 compiled with fused all-reduces
    (InferenceX@9596d23, .github/workflows/70b-tmpl.yml, benchmarks/70b_*.sh).  AIConfigurator's own runs of
    TensorRT-LLM went through a server that streams every token; InferenceX sends every tenth or twentieth.
    """
    engine = case["engine"].lower()
    if "sglang" in engine:
        return "sglang-2025"
    if "2023" in engine:
        return "vllm-2023"
    if "vllm" in engine:
        said = case["set"] == "silicon" and "Llama-3.1-70B" in case["model"]
        if said:
            return "vllm-2025-fused" if gpu_of(case) == "B200" else "vllm-2025-async"
        return "vllm-2026" if any(v in engine for v in ASYNCHRONOUS) else "vllm-2025"
    if "0.9.0 static" in engine:
        return "trtllm-2024-static"
    if "2024" in engine:
        return "trtllm-2024"
    if "trt" in engine or "tensorrt" in engine:
        streamed = case["set"] == "silicon" and "aic-auto-gap-analysis" in case["source"]
        if streamed:
            return "trtllm-2025-serve"
        if case["set"] == "silicon" and case["mode"] == "agg" and number(case, "attention_dp_size") > 1:
            return "trtllm-2025-balanced"  # InferenceX's scripts wherever they set enable_attention_dp
        return "trtllm-2025-waits" if _waits(case) else "trtllm-2025"
    raise Unsupported(f"no engine profile for '{case['engine']}'")


def _waits(case: Case) -> bool:
    """Whether the script lets prompts wait for others: Llama 70B, 1,024 tokens in and out, below TP8."""
    alike = case["set"] == "silicon" and "Llama-3.1-70B" in case["model"]
    return alike and (case["isl"], case["osl"]) == ("1024", "1024") and number(case, "tp_size") < 8


BLOCK_FP8 = ("deepseek-v3", "minimax-m2.5", "qwen3-8b")
"""Models published in fp8 with a scale per 128 x 128 block (Hugging Face model pages)."""


def weights_of(case: Case) -> str:
    """Type of the weights; what a benchmark calls fp4 is mxfp4 in gpt-oss and nvfp4 elsewhere."""
    model = case["model"]
    if case["set"] == "infersim":
        return "fp8_block" if "FP8" in model else "bf16"
    precision = case["precision"] or "bf16"  # AIConfigurator's runs of Llama-3.1-8B-Instruct name none
    if precision == "fp4":
        return "mxfp4" if "gpt-oss" in model else "nvfp4"
    if precision == "fp8" and model_of(case).split("/")[-1].lower() in BLOCK_FP8:
        return "fp8_block"
    return precision


def kv_of(case: Case) -> str:
    """Type of keys and values in the cache.

    InferenceX's scripts say fp8 but for gpt-oss on H200 (left to the engine); fp8 and nvfp4 checkpoints of
    NVIDIA (NIM, trtllm-bench, MLPerf) hold scales of an fp8 cache; DLI's fp8 engines take 0.32 MB of memory a
    token of Llama 2 7B, which only an fp8 cache does.  SGLang on Hopper keeps MLA's cache in bf16.
    """
    if weights_of(case) in ("bf16", "fp16") or case["set"] in ("infersim", "llmservingsim", "splitwise"):
        return "bf16"
    if "gpt-oss" in case["model"] and gpu_of(case) == "H200":
        return "bf16"
    if "sglang" in case["engine"] and gpu_of(case) in ("H100", "H200"):
        return "bf16"
    return "fp8"


def _cut(case: Case) -> tuple[ServingLayout, int, PrefillPool | None]:
    """Layout of a replica, replicas, and the pool of prefill replicas where there is one."""
    if case["set"] == "mlperf":
        return _mlperf_cut(case)
    if case["mode"] == "disagg":
        pool = PrefillPool(
            replicas=number(case, "prefill_num_workers"), layout=_layout(case, "prefill_"), max_tokens=None
        )
        return _layout(case, "decode_"), number(case, "decode_num_workers"), pool
    if case["set"] == "infersim":
        four = case["model"] == "Qwen3-30B-A3B-BF16"
        return ServingLayout(attention_data=4, expert=4) if four else ServingLayout(), 1, None
    engines = RUN_GROUPS.get(case["id"].removeprefix("llmservingsim_"), 1)
    if engines > 1:
        return ServingLayout(attention_data=engines, expert=engines), 1, None
    return _layout(case, ""), 1, None


def _layout(case: Case, pool: str) -> ServingLayout:
    """The layout that a case's columns say.

    Rows of InferenceX's that name both `tp` and `ep` above 1 list tp x ep as their tensor or attention-data
    size; its search spaces ({ tp: 4, ep: 4 }, one server; SemiAnalysisAI/InferenceX@f6a9d0b,
    .github/configs/nvidia-master.yaml) say that both are of the same GPUs, so the smaller is right.
    """
    tensor, data = number(case, f"{pool}tp_size"), number(case, f"{pool}attention_dp_size")
    cut, experts = number(case, f"{pool}moe_tp_size"), number(case, f"{pool}moe_ep_size")
    if not pool and cut > 1 and experts > 1 and tensor * data == cut * experts:
        tensor, data = (cut, 1) if tensor > 1 else (1, cut)
    pipeline = number(case, f"{pool}pp_size")
    expert = experts if architecture_of(case).is_moe else 1
    return ServingLayout(tensor=tensor, attention_data=data, pipeline=pipeline, expert=expert)


def _mlperf_cut(case: Case) -> tuple[ServingLayout, int, PrefillPool | None]:
    engine = _mlperf_engine(case)
    keys = ("tensor", "pipeline", "attention_data", "expert")
    layout = ServingLayout(**{k: engine[k] for k in keys if k in engine})
    nodes, each = nodes_of(case)
    return layout, nodes * each // layout.gpus, None


def _mlperf_engine(case: Case) -> dict[str, Any]:
    key = f"{case['model']} {gpu_of(case)}"
    scenario = case["mode"].removeprefix("mlperf_").capitalize()
    engine = mlperf()["engines"].get(key, {}).get(scenario)
    if engine is None:
        raise Unsupported(f"no configuration of {key}, {scenario}, among the submissions")
    found: dict[str, Any] = engine
    return found


def _settings(case: Case) -> dict[str, Any]:
    """Scheduler settings that a case's documents state; everything else is the engine profile's."""
    if case["set"] == "mlperf":
        engine = _mlperf_engine(case)
        requests, tokens = engine.get("requests"), engine.get("tokens")
        # a step decodes no more requests than it has tokens for, whatever batch the engine is built for
        named = {"max_requests": requests and min(requests, tokens), "max_batched_tokens": tokens}
        if "vLLM" in case["engine"]:
            return {"prefix_cache": False, **REDHAT[gpu_of(case), case["mode"]]}
        return {k: v for k, v in named.items() if v} | {"prefix_cache": False}
    if case["set"] == "llmservingsim":
        requests = 256 if case["system"] == "RTX4090" else 128
        return {"max_batched_tokens": 2048, "max_requests": requests, "memory_fraction": 0.9}
    if case["set"] in ("dli", "splitwise"):
        batch, prompt = number(case, "batch"), number(case, "isl")
        return {"max_batched_tokens": batch * prompt, "max_requests": batch, "prefix_cache": False}
    if case["set"] == "infersim":
        return {"max_batched_tokens": 16384, "max_requests": 512, "prefix_cache": False}
    if case["set"] == "silicon" and "aic-auto-gap-analysis" not in case["source"]:
        return _inferencex_settings(case)
    if case["set"] == "silicon" and "trtllm" in case["engine"] and case["mode"] == "agg":
        # ai-dynamo/aiconfigurator@9610283, cli/backends/trtllm.py and its templates; the batch is built for
        # the most that its evaluation then sends (eval/pipeline.py, _auto_concurrency_values)
        batch = number(case, "concurrency")
        tokens = batch + number(case, "isl") + 1500
        return {"max_batched_tokens": tokens, "max_requests": batch, "memory_fraction": 0.8}
    return {}


REDHAT: dict[tuple[str, str], dict[str, Any]] = {
    ("H100", "mlperf_server"): {"max_batched_tokens": 1024, "max_requests": 512, "memory_fraction": 0.91},
    ("H100", "mlperf_offline"): {"max_batched_tokens": 4096, "max_requests": 1024},
    ("L40S", "mlperf_server"): {"memory_fraction": 0.96},
    ("L40S", "mlperf_offline"): {"max_batched_tokens": 16384, "max_requests": 512, "memory_fraction": 0.95},
}
"""vLLM's arguments.
Source: mlcommons/inference_results_v5.1@965182b, closed/RedHat/code/llama3.1-8b/README.md."""


def _inferencex_settings(case: Case) -> dict[str, Any]:
    """Arguments of InferenceX's launch scripts, single node (the multi-node recipes are not carried)."""
    prompt, concurrency = number(case, "isl"), number(case, "concurrency")
    engine, model = case["engine"], model_of(case).split("/")[-1].lower()
    memory: dict[str, Any] = {}
    if case["mode"] == "disagg":
        return {"prefix_cache": False}
    if "sglang" in engine:
        wide = number(case, "tp_size") == 8
        tokens, requests = (32768, 128) if wide else (8192, 32)
        memory = {"memory_fraction": 0.82 if wide else 0.95}
    elif "vllm" in engine:
        tokens = 2 * prompt if model == "minimax-m2.5" else 8192
        requests = concurrency if gpu_of(case) in ("H100", "H200") else 512
    elif model == "gpt-oss-120b":
        tokens, requests = 20000, concurrency
    elif model == "llama-3.1-70b":
        tokens, requests = 16384, 2048
    else:
        need = -(-(concurrency + prompt + 64) // 64) * 64
        tokens, requests = max(need, 8192), max(concurrency, 1)
    return {"max_batched_tokens": tokens, "max_requests": requests, "prefix_cache": False, **memory}
