"""The plan found, as arguments of vLLM, SGLang and TensorRT-LLM, or as a study's serving job.

Every name is one the engine's own source defines (tests/formula/serving_arguments.yaml says where).  What an
engine has no argument for is a comment.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from railwright.errors import RailwrightError, nearest
from railwright.export.yamltext import scalar
from railwright.search.serving.result import ServingSearchResult
from railwright.search.serving.space import Setting
from railwright.spec.serving import ServingJob, ServingLayout

FP8 = ("fp8",)
"""Weights that engines quantise themselves from a bf16 checkpoint; others are a checkpoint's own."""


def export(found: ServingSearchResult, form: str) -> str:
    """The best plan as 'vllm', 'sglang', 'trtllm' or 'study'. Raises RailwrightError for another form."""
    if form not in FORMS:
        hint = nearest(form, FORMS) or f"; choose one of {', '.join(FORMS)}"
        raise RailwrightError(f"there is no export '{form}'{hint}")
    return FORMS[form](found)


def vllm(found: ServingSearchResult) -> str:
    """`vllm serve` for each pool."""
    lines = _head(found, "vLLM (vllm/engine/arg_utils.py)")
    for role, setting, copies in _pools(found):
        job, layout = found.job, setting.layout
        options: dict[str, Any] = {
            "tensor-parallel-size": layout.tensor,
            "pipeline-parallel-size": layout.pipeline if layout.pipeline > 1 else None,
            "data-parallel-size": layout.attention_data if layout.attention_data > 1 else None,
            "enable-expert-parallel": layout.expert > 1,
            "prefill-context-parallel-size": layout.context if layout.context > 1 else None,
            "max-num-batched-tokens": setting.max_batched_tokens or job.max_batched_tokens,
            "max-num-seqs": setting.max_requests or job.max_requests,
            "max-model-len": job.max_length,
            "gpu-memory-utilization": job.memory_fraction,
            "quantization": "fp8" if setting.weights in FP8 else None,
            "kv-cache-dtype": "fp8" if setting.kv == "fp8" else None,
        }
        if setting.chunked is not None:
            options["enable-chunked-prefill" if setting.chunked else "no-enable-chunked-prefill"] = True
        if job.prefix_cache is not None:
            options["enable-prefix-caching" if job.prefix_cache else "no-enable-prefix-caching"] = True
        if job.speculative is not None:
            drafts = '"draft_model", "model": "DRAFT"' if job.speculative.draft else '"mtp"'
            tokens = job.speculative.tokens
            options["speculative-config"] = f'\'{{"method": {drafts}, "num_speculative_tokens": {tokens}}}\''
        if role:
            kind = "kv_producer" if role == "prefill" else "kv_consumer"
            options["kv-transfer-config"] = f'\'{{"kv_connector": "NixlConnector", "kv_role": "{kind}"}}\''
        lines += _unsaid_vllm(layout)
        lines += [_each(role, copies), _command("vllm serve MODEL", options)]
    return _end(lines, found)


def sglang(found: ServingSearchResult) -> str:
    """`sglang.launch_server` for each pool; its tensor-parallel size counts attention-data ranks too."""
    lines = _head(found, "SGLang (python/sglang/srt/server_args.py)")
    for role, setting, copies in _pools(found):
        job, layout = found.job, setting.layout
        chunk = -1 if setting.chunked is False else setting.max_batched_tokens or job.max_batched_tokens
        group = layout.tensor * layout.attention_data
        options: dict[str, Any] = {
            "tp-size": group,
            "pp-size": layout.pipeline if layout.pipeline > 1 else None,
            "dp-size": layout.attention_data if layout.attention_data > 1 else None,
            "enable-dp-attention": layout.attention_data > 1,
            "ep-size": layout.expert if layout.expert > 1 else None,
            "moe-a2a-backend": "deepep" if layout.expert == group > 1 < layout.attention_data else None,
            "chunked-prefill-size": chunk,
            "max-running-requests": _all_ranks(setting.max_requests or job.max_requests, layout),
            "context-length": job.max_length,
            "mem-fraction-static": job.memory_fraction,
            "quantization": "fp8" if setting.weights in FP8 else None,
            "kv-cache-dtype": "fp8_e4m3" if setting.kv == "fp8" else None,
            "disable-radix-cache": job.prefix_cache is False,
            "disaggregation-mode": role or None,
        }
        if job.speculative is not None:
            named = job.speculative.draft is not None
            options["speculative-algorithm"] = "STANDALONE" if named else "EAGLE"
            options["speculative-draft-model-path"] = "DRAFT" if named else None
            options["speculative-num-steps"] = job.speculative.tokens
            options["speculative-eagle-topk"] = 1
            options["speculative-num-draft-tokens"] = job.speculative.tokens + 1
        if layout.context > 1:
            lines.append(f"# context parallelism of {layout.context}: SGLang has it for some models only")
        lines += [
            _each(role, copies),
            _command("python -m sglang.launch_server --model-path MODEL", options),
        ]
    return _end(lines, found)


def trtllm(found: ServingSearchResult) -> str:
    """`trtllm-serve` for each pool, and the YAML file of what it has no option for."""
    lines = _head(found, "TensorRT-LLM (tensorrt_llm/commands/serve.py, llmapi/llm_args.py)")
    for role, setting, copies in _pools(found):
        job, layout = found.job, setting.layout
        file = f"{role or 'serve'}.yaml"
        options: dict[str, Any] = {
            "tp_size": layout.tensor * layout.attention_data,
            "pp_size": layout.pipeline if layout.pipeline > 1 else None,
            "cp_size": layout.context if layout.context > 1 else None,
            "ep_size": layout.expert if layout.expert > 1 else None,
            "max_num_tokens": setting.max_batched_tokens or job.max_batched_tokens,
            "max_batch_size": setting.max_requests or job.max_requests,
            "max_seq_len": job.max_length,
            "kv_cache_free_gpu_memory_fraction": job.memory_fraction,
            "config": file,
        }
        extra = [f"enable_attention_dp: {str(layout.attention_data > 1).lower()}"]
        if setting.chunked is not None:
            extra.append(f"enable_chunked_prefill: {str(setting.chunked).lower()}")
        cache = {"dtype": "fp8" if setting.kv == "fp8" else None, "enable_block_reuse": job.prefix_cache}
        said = [f"  {key}: {str(value).lower()}" for key, value in cache.items() if value is not None]
        extra += ["kv_cache_config:", *said] if said else []
        if job.speculative is not None and job.speculative.draft is None:
            extra += ["speculative_config:", "  decoding_type: MTP"]
            extra.append(f"  num_nextn_predict_layers: {job.speculative.tokens}")
        elif job.speculative is not None:
            lines.append("# speculative decoding with a draft model: see speculative_config")
        if role:
            extra += ["cache_transceiver_config:", "  backend: DEFAULT"]
        lines += [_each(role, copies), f"cat > {file} <<'EOF'", *extra, "EOF"]
        lines.append(_command("trtllm-serve MODEL", options))
    return _end(lines, found)


def study(found: ServingSearchResult) -> str:
    """The serving job of a study, on the plan found."""
    job: ServingJob = found.best.plan.job(found.job)
    lines = _head(found, "railwright")
    if found.best.plan.setting.chunked is not None:
        lines.append("# whether prompts are cut is a matter of the engine's profile (whole_prompts)")
    lines.append("serving:")
    text = _yaml(job.model_dump(mode="json", exclude_defaults=True), 2)
    return "\n".join([*lines, "  - " + text[0].strip(), *(f"  {line}" for line in text[1:])]) + "\n"


FORMS: dict[str, Callable[[ServingSearchResult], str]] = {
    "vllm": vllm,
    "sglang": sglang,
    "trtllm": trtllm,
    "study": study,
}


def _pools(found: ServingSearchResult) -> list[tuple[str, Setting, int]]:
    """(role, setting, replicas): '' for replicas that do both."""
    plan = found.best.plan
    if plan.prefill is None:
        return [("", plan.setting, plan.replicas)]
    return [("prefill", plan.prefill, plan.prefill_replicas), ("decode", plan.setting, plan.replicas)]


def _all_ranks(requests: int | None, layout: ServingLayout) -> int | None:
    """SGLang counts requests over all attention-data ranks (scheduler.py divides by dp_size)."""
    return None if requests is None else requests * layout.attention_data


def _unsaid_vllm(layout: ServingLayout) -> list[str]:
    if layout.expert not in (1, layout.tensor * layout.attention_data):
        return [f"# experts over {layout.expert} parts: vLLM deals them to all GPUs of a stage or to none"]
    return []


def _head(found: ServingSearchResult, what: str) -> list[str]:
    values = found.best.verdict.values
    said = ", ".join(f"{name} {1e3 * value:.4g} ms" for name, value in values.items())
    return [
        f"# {what}; written by railwright search; MODEL: a checkpoint of {found.result.model} in "
        f"{found.best.plan.setting.weights}{_draft(found)}",
        f"# predicted on {found.best.plan.gpus} {found.result.gpu}, p{found.slo.percentile:g}: {said}",
    ]


def _draft(found: ServingSearchResult) -> str:
    speculative = found.job.speculative
    return f"; DRAFT: one of {speculative.draft}" if speculative and speculative.draft else ""


def _each(role: str, copies: int) -> str:
    what = {"": "each replica", "prefill": "each that prefills", "decode": "each that decodes"}[role]
    return f"# {what}, {copies} in all"


def _command(start: str, options: dict[str, Any]) -> str:
    """One option a line; True: a flag; None and False: left out."""
    parts = [start]
    for name, value in options.items():
        if value is None or value is False:
            continue
        parts.append(f"--{name}" if value is True else f"--{name} {value}")
    return " \\\n  ".join(parts)


def _end(lines: list[str], found: ServingSearchResult) -> str:
    router = found.job.router
    lines.append(f"# requests to replicas: {router}")
    return "\n".join(lines) + "\n"


def _yaml(values: dict[str, Any], depth: int) -> list[str]:
    lines = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            lines += [f"{' ' * depth}{key}:", *_yaml(value, depth + 2)]
        elif value is not None:
            said = scalar(value) if isinstance(value, str) else json.dumps(value)  # JSON is YAML
            lines.append(f"{' ' * depth}{key}: {said}")
    return lines
