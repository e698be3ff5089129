"""How training frameworks print a step: one row of FORMATS each.

A reader takes a line's text and returns what it tells of a step (fields of `LoggedStep` without its line), or
None.  Sources, read at these commits: NVIDIA/Megatron-LM d98e8a64 (training/training.py, training_log; utils/
common_utils.py, report_memory; arguments.py), EleutherAI/gpt-neox (the same words); NVIDIA/NeMo (lightning/
pytorch/callbacks/progress_printer.py; its progress bars until 24.12); pytorch/torchtitan (components/
metrics.py, log); huggingface/nanotron (trainer.py, train_step_logs; logging/base.py, human_format);
microsoft/DeepSpeed (runtime/pipe/engine.py, train_batch; utils/timer.py, ThroughputTimer); mosaicml/composer
(loggers/console_logger.py, callbacks/speed_monitor.py); huggingface/transformers 5.24 (trainer.py;
trainer_utils.py, speed_metrics; trainer_callback.py, ProgressCallback, which since version 5 prints four
digits, as strings), whose bar is in `bars`; AI-Hypercomputer/maxtext e591f30c (common/metric_logger.py);
InternLM/InternEvo c628a8c8 (train/pipeline.py, its record of metrics); allenai/OLMo-core fa6c5014 (train/
callbacks/console_logger.py, speed_monitor.py, gpu_memory_monitor.py); allenai/OLMo 59a53e3f (olmo/train.py,
SpeedMonitor, log_metrics_to_console).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MIB, GIB = 2.0**20, 2.0**30
HALF = 0.0005
"""What a figure that is printed with three decimals may be off."""
DIGITS = 0.0005
"""The share that one printed with four digits may be off."""
NUMBER = r"([-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?)(?!,?\d)"
"""A number as Python prints it, thousands parted by commas; one with a comma for its point is none, or it
would be read as ten times as much."""

TRAINER = "Hugging Face's Trainer"
TUNED = "torchtune"

Told = Mapping[str, Any]
"""Fields of a `LoggedStep`."""
Reader = Callable[[str], Told | None]


def megatron(text: str) -> Told | None:
    """Megatron-LM, Megatron-Bridge, Megatron-DeepSpeed, GPT-NeoX: fields between bars."""
    found = re.search(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|", text)
    if not found:
        return None
    seconds = _after(text, r"elapsed time per iteration \(ms\):", 1e-3)
    seconds = seconds or _after(text, r"elapsed time per iteration \(s\):")
    if seconds is None:
        return None
    tera = _after(text, r"throughput per GPU \(TFLOP/s/GPU\):") or _after(text, r"\bTFLOPs:")
    return {
        "number": int(found[1]),
        "seconds": seconds,
        "samples": _after(text, r"global batch size:"),
        "flop_rate": tera and tera * 1e12,
    }


def nemo(text: str) -> Told | None:
    """NeMo 2 (bars) and 1 (a progress bar): 'train_step_timing in s' with a colon or an equals sign."""
    seconds = _after(text, r"train_step_timing in s[:=]")
    number = _after(text, r"global_step[:=]")
    if seconds is None or number is None:
        return None
    tera = _after(text, r"TFLOPS_per_GPU[:=]")
    return {
        "number": int(number),
        "seconds": seconds,
        "samples": _after(text, r"global_batch_size[:=]"),
        "reserved": _after(text, r"max_memory_reserved[:=]") or _after(text, r"peak_memory_usage[:=]"),
        "flop_rate": tera and tera * 1e12,
    }


def torchtitan(text: str) -> Told | None:
    """torchtitan: tokens a second of each GPU ('wps' in its first versions)."""
    found = re.search(r"(?<!validate )\bstep:\s*(\d+)\s+loss:", text)
    rate = _after(text, r"\b(?:tps|wps):")
    if not found or rate is None:
        return None
    tera, held = _after(text, r"\btflops:"), _after(text, r"\bmemory:")
    return {
        "number": int(found[1]),
        "rate": rate,
        "reserved": held and held * GIB,
        "flop_rate": tera and tera * 1e12,
    }


def nanotron(text: str) -> Told | None:
    """nanotron: three digits and a letter ('1.05K')."""
    found = re.search(r"\biteration: (\d+) / \d+ \|", text)
    seconds = _short(text, "time_per_iteration_ms")
    if not found or seconds is None:
        return None
    tera = _short(text, "model_tflops_per_gpu")
    return {
        "number": int(found[1]),
        "seconds": seconds * 1e-3,
        "tokens": _short(text, "global_batch_size"),
        "flop_rate": tera and tera * 1e12,
    }


def deepspeed(text: str) -> Told | None:
    """DeepSpeed's pipeline engine."""
    found = re.search(r"\bsteps: (\d+) loss: .*iter time \(s\): ([\d.]+) samples/sec: ([\d.]+)", text)
    if not found:
        return None
    seconds, rate = float(found[2]), float(found[3])
    most = (seconds + HALF) * (rate + HALF)
    return {
        "number": int(found[1]),
        "seconds": seconds,
        "samples": seconds * rate,
        "between": (max(seconds - HALF, 0.0) * max(rate - HALF, 0.0), most),
    }


ZERO = "DeepSpeed"


def zero(text: str) -> Told | None:
    """DeepSpeed's engine: the samples a second of its last step from forward to the optimizer's, without a
    batch, every `steps_per_print` steps; Trainer's and Megatron-DeepSpeed's logs have it beside their own."""
    rate = _after(text, r"\bCurrSamplesPerSec=")
    number = None if rate is None else _after(text, r"/global_step=")
    return None if number is None or not rate else {"number": int(number), "sample_rate": rate}


def maxtext(text: str) -> Told | None:
    """MaxText: the step's time, and the tokens a second that its batch makes of it; steps of a batch that
    grows have their time alone and do not count."""
    found = re.search(r"\bcompleted step: (\d+), seconds: ([\d.]+),", text)
    if not found:
        return None
    rate, tera = _after(text, r"Tokens/s/device:"), _after(text, r"TFLOP/s/device:")
    if rate is None and tera is None:
        return None
    return {
        "number": int(found[1]),
        "seconds": float(found[2]),
        "rate": rate,
        "flop_rate": tera and tera * 1e12,
    }


def internevo(text: str) -> Told | None:
    """InternEvo: tokens a second of each GPU.  Its TFLOP/s have a formula of their own."""
    rate = _after(text, r"\btgs \(tokens/gpu/second\)=")
    number = None if rate is None else _after(text, r"\bstep=")
    return None if number is None or rate is None else {"number": int(number), "rate": rate}


def transformers(text: str) -> Told | None:
    """Hugging Face's Trainer tells the mean of a whole run, once.

    Its samples are those of the data set, while the last batch of an epoch may not be full or (of accumulated
    gradients, once) is left out: the mean of a step's samples is the batch but for one step of an epoch.
    """
    named = r"['\"]?train_{}['\"]?\s*[:=]\s*['\"]?"
    told = [
        _after(text, named.format(name)) for name in ("steps_per_second", "samples_per_second", "runtime")
    ]
    steps, samples, runtime = told
    if not steps or not samples:
        return None
    epochs = max(_after(text, r"['\"]?epoch['\"]?\s*[:=]\s*['\"]?") or 1.0, 1.0)
    each = (runtime or 0.0) * steps / epochs
    last = 1 / each if each >= 2 else 0.0
    least = max(samples * (1 - DIGITS) - HALF, 0.0) / (steps * (1 + DIGITS) + HALF) / (1 + last)
    slowest = steps * (1 - DIGITS) - HALF
    most = (samples * (1 + DIGITS) + HALF) / slowest / (1 - last) if slowest > 0 else math.inf
    return {"number": 0, "seconds": 1 / steps, "samples": samples / steps, "between": (least, most)}


FORMATS: tuple[tuple[str, str, Reader], ...] = (
    ("Megatron-LM", "iteration", megatron),
    ("NeMo", "train_step_timing in s", nemo),
    ("torchtitan", "step:", torchtitan),
    ("nanotron", "iteration: ", nanotron),
    ("DeepSpeed's pipeline engine", "steps: ", deepspeed),
    ("MaxText", "completed step: ", maxtext),
    ("InternEvo", "tgs (tokens/gpu/second)=", internevo),
    (TRAINER, "train_", transformers),
)
"""(name, words without which a line tells its reader nothing, reader): of millions of lines few have them."""


def generates(text: str) -> bool:
    """Whether a step of reinforcement learning is told of, which generates its samples before it trains.

    TRL's (trainer/grpo_trainer.py: 'completions/mean_length', once 'completion_length') or verl's.
    """
    if "timing_s/gen:" in text:
        return True
    return "'completion" in text and re.search(r"'completions?[/_](?:mean_)?length'", text) is not None


def steps_in_all(text: str) -> int | None:
    """The steps that Trainer announces."""
    found = _after(text, "Total optimization steps =") if "optimization" in text else None
    return None if found is None else int(found)


@dataclass(frozen=True)
class Headed:
    """A framework that tells of a step over many lines: one that numbers it, then a metric a line.

    name     of the framework
    opens    words without which a line numbers no step; number: that in it
    metric   words before the tokens a second of each GPU
    window   the rate is of many steps up to this one
    """

    name: str
    opens: str
    number: re.Pattern[str]
    metric: str
    window: bool = False

    def rate(self, text: str) -> float | None:
        """Tokens a second of each GPU. [token/s]"""
        return _after(text, r"\b" + re.escape(self.metric)) if self.metric in text else None


_BATCH = re.compile(r"\[batch=(\d+)(?:/\d+)?\]:")
_STEP = re.compile(r"\[step=(\d+)/(?:\d+|\?\?\?)[,\]]")
HEADED = (
    Headed("llm-foundry", "[batch=", _BATCH, "throughput/device/tokens_per_sec:"),
    Headed("OLMo-core", "[step=", _STEP, "throughput/device/TPS="),
    Headed("OLMo", "[step=", _STEP, "throughput/device/tokens_per_second=", window=True),
)


def said(text: str) -> dict[str, int]:
    """What a line says of the job: Megatron's first words, or the batch that Trainer announces."""
    if "Total train batch size" in text:
        whole = _after(text, r"Total train batch size \(w\. parallel, distributed & accumulation\) =")
        return {} if whole is None else {"global_batch": int(whole)}
    if "using world size" not in text:
        return {}
    told = {
        "gpus": r"using world size:",
        "layout.tensor": r"\btensor-model-parallel size:",
        "layout.pipeline": r"\bpipeline-model-parallel size:",
        "layout.context": r"(?<!hierarchical )context-parallel size:",
    }
    found = {field: _after(text, words) for field, words in told.items()}
    return {field: int(value) for field, value in found.items() if value is not None}


def reported(text: str) -> float | None:
    """Bytes that Megatron's memory report, or OLMo-core's metric, calls reserved at most."""
    if "max reserved:" in text:
        return _after(text, r"memory \(MB\) \|.*max reserved:", MIB)
    return _after(text, r"GPU reserved mem \(GiB\)=", GIB) if "GPU reserved mem (GiB)=" in text else None


def _after(text: str, words: str, unit: float = 1.0) -> float | None:
    """The number behind some words, in a unit; None where there is none."""
    found = re.search(words + r"\s*" + NUMBER, text)
    return None if found is None else float(found[1].replace(",", "")) * unit


LETTERS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def _short(text: str, name: str) -> float | None:
    """A number as nanotron shortens it."""
    found = re.search(rf"\b(?:elapsed_)?{name}: ([\d.]+)([KMBT]?)\b", text)
    return None if found is None else float(found[1]) * LETTERS[found[2]]
