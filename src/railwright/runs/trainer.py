"""A run of Hugging Face's Trainer as a training job: its arguments, or YAML of LLaMA-Factory or Axolotl.

What is read follows the table "From Hugging Face's Trainer and DeepSpeed" of docs/training/eras.md.
Sources, read 2026-11-29 in copies of their code and in published configurations: transformers'
TrainingArguments (batches of 8), LLaMA-Factory's arguments (layers are computed again unless
disable_gradient_checkpointing; sequences of 2,048 in recent releases) and examples, Axolotl's (batches of 1).
Of DeepSpeed's configuration the section zero_optimization is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from railwright.model import load_model
from railwright.model.shape.architecture import Transformer
from railwright.runs.given import Given, Value, ranks_of
from railwright.runs.shapes import behind

AXOLOTL = {
    "base_model": "model_name_or_path",
    "micro_batch_size": "per_device_train_batch_size",
    "sequence_len": "cutoff_len",
    "sample_packing": "packing",
    "lora_r": "lora_rank",
    "adapter": "finetuning_type",
    "num_epochs": "num_train_epochs",
    "optimizer": "optim",
}
"""Keys of Axolotl and what the Trainer or LLaMA-Factory call them."""

KINDS = ("model_name_or_path", "base_model")
"""Keys by one of which a file is known for a fine-tuning run: the Trainer's or LLaMA-Factory's, Axolotl's."""

LENGTHS = ("cutoff_len", "max_seq_length", "max_length", "model_max_length")
MODULES = {
    "q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "qkv_proj": "qkv", "query_key_value": "qkv",
    "o_proj": "attention output", "out_proj": "attention output", "dense": "attention output",
    "gate_proj": "mlp up", "up_proj": "mlp up", "gate_up_proj": "mlp up",
    "down_proj": "mlp down",
}  # fmt: skip
ALL = ("qkv", "attention output", "mlp up", "mlp down")
EAGER = ("rotary", "norm", "activation")
"""What Hugging Face's models run one kernel per operation."""

Beside = Callable[[str], str | None]
"""The text of a file that the run names, looked for beside its own; None where it is not there."""


def is_trainers(given: Given) -> bool:
    """Whether the arguments are those of a fine-tuning run."""
    return any(name in given.values for name in KINDS)


def of_mapping(read: Mapping[str, Any], file: str, lines: Mapping[str, int]) -> Given:
    """YAML of LLaMA-Factory or Axolotl as arguments; those of inner mappings are 'outer.inner'."""
    values: dict[str, Value] = {}
    for key, value in read.items():
        if isinstance(value, Mapping):
            inner = of_mapping(value, file, lines)
            values |= {f"{key}.{name}": one for name, one in inner.values.items()}
        elif value is not None:
            words = value if isinstance(value, list) else [value]
            values[str(key)] = Value(tuple(map(str, words)), lines.get(str(key), 0), str(key))
    return Given(file, values)


def trainer_fields(
    given: Given, model: str, gpus: int | None, beside: Beside
) -> tuple[dict[str, Any], Transformer]:
    """Fields of a TrainingJob but for its name, and the model; the rest goes to `given.doubts`.

    Raises RailwrightError, naming file, line and key, for what a prediction needs and nobody says.
    """
    axolotl = "base_model" in given.values
    if axolotl:
        renamed = {AXOLOTL.get(key, key): value for key, value in given.values.items()}
        given.values = renamed
    named = model or _model(given)
    arch = load_model(named)
    stage = given.told("stage")
    if stage not in ("", "sft", "pt") or given.has("rl"):
        given.doubts.append(f"stage {stage or given.told('rl')} is not modelled; training on its samples is")
    if gpus is None:
        raise given.refuse("model_name_or_path", "how many GPUs it runs on is not told; give --gpus")
    layout, software = _sharding(given, gpus, beside)
    layout |= _parallel(given)
    ranks = ranks_of(layout)
    micro = given.count("per_device_train_batch_size") or (1 if axolotl else 8)
    sequence = given.count(*LENGTHS) or (2048 if given.has("stage") else None)
    if sequence is None:
        raise given.refuse(
            "model_name_or_path", f"the tokens of a sequence are not given ({', '.join(LENGTHS)})"
        )
    if not given.yes("packing"):
        given.doubts.append(
            f"without packing a sequence is as long as its samples; {sequence} tokens, the most, predicted"
        )
    batch = micro * (given.count("gradient_accumulation_steps") or 1) * max(gpus // ranks, 1)
    found: dict[str, Any] = {
        "model": named,
        "gpus": gpus,
        "sequence": sequence,
        "micro_batch": micro,
        "global_batch": batch,
        "tokens": float(_steps(given) * batch * sequence),
        "layout": layout | _again(given),
        "software": software,
    }
    found |= (
        _kernels(given) | _precision(given) | _adapters(given, software, layout["zero"]) | _moments(given)
    )
    if arch.is_moe and not given.yes("torch_compile"):
        given.doubts.append(
            "experts are predicted as grouped products, as transformers 5 runs them; under a release before "
            "it write 'experts' into unfused too, for they run one after the other"
        )
    if "lora" in found and layout["zero"] and software.startswith("fsdp") and not _has_fsdp2(given):
        given.doubts.append(
            "without fsdp_version: 2 FSDP gathers every adapter apart, which is not counted: published steps "
            "on two A100 are predicted up to 17 % too short"
        )
    return found, arch


def _has_fsdp2(given: Given) -> bool:
    """Whether it asks for FSDP2, which Accelerate does not by default (utils/dataclasses.py,
    FullyShardedDataParallelPlugin: version 1), and which shards adapters with their layer."""
    names = ("fsdp_version", "fsdp_config.fsdp_version", "fsdp_config.version")
    return any(given.told(name) == "2" for name in names)


def _model(given: Given) -> str:
    """The bundled model of that name."""
    name = given.text("model_name_or_path") or ""
    found = behind(name)
    if found is None:
        raise given.refuse(
            "model_name_or_path", f"'{name}' is no bundled model; give it with --model, or its config.json"
        )
    return found.name


def _sharding(given: Given, gpus: int, beside: Beside) -> tuple[dict[str, Any], str]:
    """What ranks share, and the software that does: DeepSpeed, FSDP, or copies of the model."""
    compiled = given.yes("torch_compile")
    eager = "fsdp-2024" if compiled else "fsdp-2024-eager"
    if given.told("deepspeed") not in ("", "null", "None"):
        return _deepspeed(given, beside), "deepspeed-2024"
    told = " ".join((*given.words("fsdp"), given.told("fsdp_config.fsdp_sharding_strategy"))).lower()
    if not told.strip() and not given.has("fsdp_version"):
        if gpus > 1:
            given.doubts.append(
                "neither DeepSpeed nor FSDP is named here: every GPU holds a copy of the model"
            )
        return {"zero": 0}, eager
    found: dict[str, Any] = {"zero": 2 if "shard_grad_op" in told else 0 if "no_shard" in told else 3}
    names = ("offload_params", "fsdp_offload_params")
    if "offload" in told or any(given.yes(f"fsdp_config.{name}") for name in names):
        found["offload"] = ("weights",)
    if found["zero"] == 3 and not given.yes("fsdp_config.reshard_after_forward", True):
        found["reshard"] = False
    if "hybrid" in told:
        given.doubts.append("hybrid shards: how many GPUs share one copy is yours to say (layout.shard)")
    return found, eager


def _deepspeed(given: Given, beside: Beside) -> dict[str, Any]:
    """ZeRO's stage and what lies on the host, by DeepSpeed's configuration or, where that is not at hand, by
    its name."""
    named = given.text("deepspeed") or ""
    text = beside(named)
    if text is None:
        found = re.search(r"z(?:ero)?_?-?([0-3])", named.lower())
        if not found:
            raise given.refuse(
                "deepspeed", f"'{named}' is not beside it, and its name does not say ZeRO's stage"
            )
        given.doubts.append(f"'{named}' is not beside it: ZeRO-{found[1]} is read from its name")
        offload = "offload" in named.lower()
        stage = int(found[1])
        return {"zero": stage} | ({"offload": ("weights" if stage == 3 else "optimizer",)} if offload else {})
    try:
        read = json.loads(text)
    except ValueError as error:
        raise given.refuse("deepspeed", f"'{named}' is no configuration of DeepSpeed's: {error}") from None
    zero = _section(given, named, read, "zero_optimization")
    stage = zero.get("stage", 0)
    if type(stage) is not int or stage not in range(4):
        raise given.refuse("deepspeed", f"'{named}': stage: {stage!r} is given, 0, 1, 2 or 3 is expected")
    layout: dict[str, Any] = {"zero": stage}
    parts = ("optimizer", "param")
    held = {part: _section(given, named, zero, f"offload_{part}").get("device", "none") for part in parts}
    if "nvme" in held.values():
        given.doubts.append("what goes to NVMe is predicted in host memory")
    if held["param"] != "none":
        layout["offload"] = ("weights",)
    elif held["optimizer"] != "none":
        layout["offload"] = ("optimizer",)
    return layout


def _section(given: Given, named: str, read: Any, key: str) -> Mapping[str, Any]:
    """A section of DeepSpeed's configuration, {} where it is left out or null."""
    found = read.get(key) or {} if isinstance(read, Mapping) else None
    if not isinstance(found, Mapping):
        raise given.refuse(
            "deepspeed", f"'{named}' is no configuration of DeepSpeed's: {key}: a section is expected"
        )
    return found


def _parallel(given: Given) -> dict[str, Any]:
    """Tensor and context parallelism, which Axolotl has."""
    sizes = {
        "tensor": given.count("tensor_parallel_size") or 1,
        "context": given.count("context_parallel_size", "sequence_parallel_degree") or 1,
    }
    return {name: size for name, size in sizes.items() if size > 1}


def _again(given: Given) -> dict[str, Any]:
    """LLaMA-Factory computes layers again unless it is told not to, the others where they are told to."""
    if given.has("stage") or given.has("template"):
        return {} if given.yes("disable_gradient_checkpointing") else {"recompute": "full"}
    return {"recompute": "full"} if given.yes("gradient_checkpointing") else {}


def _kernels(given: Given) -> dict[str, Any]:
    """Liger's kernels, or Hugging Face's own."""
    whole = given.yes("enable_liger_kernel") or given.yes("use_liger_kernel") or given.yes("use_liger")
    parts = {"rotary": "liger_rope", "norm": "liger_rms_norm", "activation": "liger_glu_activation"}
    fused = {part for part, key in parts.items() if whole or given.yes(key)}
    if given.yes("torch_compile"):
        fused |= set(EAGER)
    unfused = tuple(part for part in EAGER if part not in fused)
    found: dict[str, Any] = {"unfused": unfused} if unfused else {}
    if whole or given.yes("liger_fused_linear_cross_entropy"):
        found["chunked_loss"] = "liger"
    elif given.yes("cut_cross_entropy"):
        given.doubts.append("Cut Cross-Entropy is predicted as Liger's loss in chunks")
        found["chunked_loss"] = "liger"
    return found


def _precision(given: Given) -> dict[str, Any]:
    if given.told("fp16").lower() in ("true", "1"):
        return {"dtype": "fp16"}
    if given.told("bf16").lower() not in ("true", "1", "auto", "full", "") and not given.yes("pure_bf16"):
        given.doubts.append("neither bf16 nor fp16 is asked for, which is fp32; bf16 is predicted")
    return {}


def _adapters(given: Given, software: str, zero: int) -> dict[str, Any]:
    """LoRA and QLoRA."""
    kind = given.told("finetuning_type").lower()
    bits = 4 if given.yes("load_in_4bit") or kind == "qlora" else given.whole("quantization_bit")
    ranks = given.count("lora_rank", "lora_r")
    if kind not in ("lora", "qlora") and ranks is None and not given.yes("use_peft"):
        if kind == "freeze":
            given.doubts.append("training of some layers alone is not modelled; all weights train")
        return {}
    modules = given.words("lora_target") or given.words("lora_target_modules") or ("all",)
    every = given.yes("lora_target_linear") or {"all", "all-linear"} & set(modules)
    targets = ALL if every else tuple(t for t in ALL if t in {MODULES.get(one) for one in modules})
    if unknown := [] if every else [one for one in modules if one not in MODULES]:
        given.doubts.append(f"adapters beside {', '.join(unknown)} are not modelled")
    if not targets:
        raise given.refuse(
            "lora_target", f"none of {', '.join(modules)} is a product that can have an adapter"
        )
    parts = {"q_proj", "k_proj", "v_proj"}
    if not every and parts & set(modules) and not parts <= set(modules):
        given.doubts.append("of queries, keys and values some have adapters; those of all are predicted")
    lora: dict[str, Any] = {"rank": ranks or 8}
    if targets != ALL:
        lora["targets"] = targets
    if dropout := given.number("lora_dropout"):
        lora["dropout"] = dropout
    if bits == 4:
        lora["frozen_dtype"] = "nf4"
    elif bits == 8 or given.yes("load_in_8bit"):
        given.doubts.append("frozen weights in 8 bits are not modelled; 16 bits are predicted")
    if "frozen_dtype" not in lora and zero == 3 and software.startswith("fsdp"):
        lora["frozen_dtype"] = "bf16"
    return {"lora": lora}


def _moments(given: Given) -> dict[str, Any]:
    named = given.told("optim").lower()
    if "8bit" in named:
        given.doubts.append(f"the moments of {named} are predicted as 1 byte each, its kernels as Adam's")
        return {"moment_dtype": "fp8"}
    if named and not named.startswith("adam"):
        given.doubts.append(f"optimizer {named} is not modelled; Adam is predicted")
    return {}


def _steps(given: Given) -> int:
    steps = given.whole("max_steps") or 0
    if steps > 0:
        return steps
    given.doubts.append("how many samples its data has is not told; one step is predicted (tokens says more)")
    return 1
