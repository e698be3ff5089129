"""A run of Hugging Face's Trainer as a training job: its arguments, or YAML of LLaMA-Factory or Axolotl.

What is read follows the table "From Hugging Face's Trainer and DeepSpeed" of docs/training/eras.md.
Sources, read 2026-11-29 in copies of their code and in published configurations: transformers'
TrainingArguments (batches of 8, fp32) and run_clm.py (texts are cut into blocks of block_size),
LLaMA-Factory's arguments (layers are computed again unless disable_gradient_checkpointing; sequences of 2,048
in recent releases) and examples, Axolotl's (batches of 1, bf16 where the GPU has it; of FSDP's keys those
with fsdp_ before them are the same, utils/schemas/validation.py, check_fsdp_config_kwargs_prefix).
Of DeepSpeed's configuration the section zero_optimization is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from railwright.model import load_model
from railwright.model.shape.architecture import Transformer
from railwright.runs.given import Given, Value, ranks_of
from railwright.runs.shapes import behind
from railwright.runs.trainer_kernels import attention, kernels
from railwright.spec.training import Software

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

LENGTHS = ("cutoff_len", "max_seq_length", "max_length", "model_max_length", "block_size")
TUNED = ("full", "lora", "qlora", "freeze")
"""Kinds of fine-tuning that are read."""
MODULES = {
    "q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "qkv_proj": "qkv", "query_key_value": "qkv",
    "o_proj": "attention output", "out_proj": "attention output", "dense": "attention output",
    "gate_proj": "mlp up", "up_proj": "mlp up", "gate_up_proj": "mlp up",
    "down_proj": "mlp down",
}  # fmt: skip
ALL = ("qkv", "attention output", "mlp up", "mlp down")
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
            values |= {
                f"{key}.{name}": replace(one, written=f"{key}.{one.written}")
                for name, one in inner.values.items()
            }
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
    names = AXOLOTL if axolotl else {}
    given.values = {_own(names.get(key, key)): value for key, value in given.values.items()}
    named = model or _model(given)
    arch = load_model(named)
    stage = given.told("stage")
    if stage not in ("", "sft", "pt") or given.has("rl"):
        given.doubts.append(f"stage {stage or given.told('rl')} is not modelled; training on its samples is")
    if gpus is None:
        raise given.refuse("model_name_or_path", "how many GPUs it runs on is not told; give --gpus")
    layout, software = _sharding(given, gpus, beside, axolotl)
    layout |= _parallel(given)
    ranks = ranks_of(layout)
    micro = given.count("per_device_train_batch_size") or (1 if axolotl else 8)
    sequence = given.count(*LENGTHS) or (2048 if given.has("stage") else None)
    if sequence is None:
        raise given.refuse(
            "model_name_or_path", f"the tokens of a sequence are not given ({', '.join(LENGTHS)})"
        )
    if not given.yes("packing") and not given.has("block_size"):
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
    alone = "offload" not in layout and software.startswith("fsdp")
    found |= kernels(given) | _precision(given, axolotl, alone)
    found |= _adapters(given, software, layout["zero"]) | _moments(given)
    found |= _listed(given, found)
    found |= attention(given, software, arch)
    if arch.is_moe and not given.yes("torch_compile"):
        given.doubts.append(
            "experts are predicted as grouped products, as transformers 5 runs them; under a release before "
            "it write 'experts' into unfused too, for they run one after the other"
        )
    if "lora" in found and layout["zero"] and software.startswith("fsdp") and not _has_fsdp2(given):
        again = found["layout"].get("recompute") and not given.yes("fsdp_config.activation_checkpointing")
        if stay := bool(again and layout["zero"] == 3):
            found["lora"]["inputs_stay"] = True
        given.doubts.append(
            "without fsdp_version: 2 FSDP gathers every adapter apart, which is not counted: published steps "
            "on two A100 are predicted up to 17 % too short" + STAYING * stay
        )
    return found, arch


def _has_fsdp2(given: Given) -> bool:
    """Whether it asks for FSDP2, which Accelerate does not by default (utils/dataclasses.py,
    FullyShardedDataParallelPlugin: version 1), and which shards adapters with their layer."""
    return any(given.told(name) == "2" for name in ("fsdp_version", "fsdp_config.version"))


def _own(name: str) -> str:
    """One name of a key of FSDP's, which has fsdp_ before it or not."""
    return name.replace("fsdp_config.fsdp_", "fsdp_config.")


def _model(given: Given) -> str:
    """The bundled model of that name."""
    name = given.text("model_name_or_path") or ""
    found = behind(name)
    if found is None:
        raise given.refuse(
            "model_name_or_path", f"'{name}' is no bundled model; give it with --model, or its config.json"
        )
    return found.name


def _sharding(given: Given, gpus: int, beside: Beside, axolotl: bool) -> tuple[dict[str, Any], Software]:
    """What ranks share, and the software that does: DeepSpeed, FSDP, or copies of the model."""
    compiled = given.yes("torch_compile")
    eager: Software = "fsdp-2024" if compiled else "fsdp-2026-eager"
    if given.told("deepspeed") not in ("", "null", "None"):
        return _deepspeed(given, beside), "deepspeed-2026"
    strategy = given.told("fsdp_config.sharding_strategy")
    told = " ".join((*given.words("fsdp"), STRATEGIES.get(strategy, strategy))).lower()
    # to Axolotl the section alone asks for FSDP (core/builders/base.py)
    section = axolotl and any(name.startswith("fsdp_config.") for name in given.values)
    if not told.strip() and not given.has("fsdp_version") and not section:
        if gpus > 1:
            given.doubts.append(
                "neither DeepSpeed nor FSDP is named here: every GPU holds a copy of the model"
            )
        return {"zero": 0}, eager
    found: dict[str, Any] = {"zero": 2 if "shard_grad_op" in told else 0 if "no_shard" in told else 3}
    if "offload" in told or given.yes("fsdp_config.offload_params"):
        found["offload"] = ("weights",)
    if found["zero"] == 3 and not given.yes("fsdp_config.reshard_after_forward", True):
        found["reshard"] = False
    if "hybrid" in told:
        given.doubts.append("hybrid shards: how many GPUs share one copy is yours to say (layout.shard)")
    for name, usual, sentence in GATHERED:
        if given.told(f"fsdp_config.{name}").lower() not in ("", usual):
            given.doubts.append(sentence)
    return found, eager


STAYING = (
    "; inputs of layers are predicted to stay (lora.inputs_stay), as with the reentrant checkpoints that are "
    "the default before transformers 5"
)
"""What else is told of adapters under FSDP of version 1 where layers are computed again."""

STRATEGIES = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard"}
"""Numbers by which Accelerate takes FSDP's strategies too (utils/constants.py)."""

GATHERED = (
    ("limit_all_gathers", "true", "FSDP gathers without a limit; one layer ahead is predicted"),
    ("forward_prefetch", "false", "FSDP's forward prefetch is predicted as without it"),
    ("backward_prefetch", "backward_pre", "FSDP gathers late in the backward pass; one ahead is predicted"),
)
"""Keys of FSDP's, the value that is predicted, and what to say of any other."""


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
    """LLaMA-Factory computes layers again unless it is told not to, the others where they, or FSDP, are told
    to (Axolotl, monkeypatch/accelerate/fsdp2.py)."""
    if given.told("gradient_checkpointing").startswith("offload"):
        given.doubts.append(
            "what layers are computed again from goes to the host; it is predicted on the GPU"
        )
    if given.has("stage") or given.has("template"):
        return {} if given.yes("disable_gradient_checkpointing") else {"recompute": "full"}
    asked = (given.yes("gradient_checkpointing"), given.yes("fsdp_config.activation_checkpointing"))
    return {"recompute": "full"} if any(asked) else {}


def _precision(given: Given, axolotl: bool, alone: bool) -> dict[str, Any]:
    """Number format; and whether weights that PyTorch updates `alone`, sharded or not, have no fp32: without
    autocast, which Accelerate makes fp32 for, they stay as they were loaded (LLaMA-Factory's pure_bf16,
    Axolotl's bf16: full)."""
    if given.told("fp16").lower() in ("true", "1"):
        return {"dtype": "fp16"}
    asked = given.told("bf16").lower() or ("auto" if axolotl else "")
    if asked not in ("true", "1", "auto", "full") and not given.yes("pure_bf16"):
        given.doubts.append("neither bf16 nor fp16 is asked for, which is fp32; bf16 is predicted")
    if alone and (asked == "full" or given.yes("pure_bf16")):
        return {"master": "none"}
    return {}


def _adapters(given: Given, software: str, zero: int) -> dict[str, Any]:
    """LoRA and QLoRA."""
    kind = given.told("finetuning_type").lower()
    if kind not in ("", "none", *TUNED):
        raise given.refuse(
            "finetuning_type", f"'{kind}' is not modelled; one of {', '.join(TUNED)} is expected"
        )
    bits = 4 if given.yes("load_in_4bit") or kind == "qlora" else given.whole("quantization_bit")
    ranks = given.count("lora_rank", "lora_r")
    if kind not in ("lora", "qlora") and ranks is None and not given.yes("use_peft"):
        if kind == "freeze":
            given.doubts.append("training of some layers alone is not modelled; all weights train")
        return {}
    modules = given.words("lora_target") or given.words("lora_target_modules") or ("all",)
    every = given.yes("lora_target_linear") or {"all", "all-linear"} & set(modules)
    if whole := (*given.words("lora_modules_to_save"), *given.words("additional_target")):
        given.doubts.append(
            f"{', '.join(whole)} train whole beside the adapters; their gradients and optimizer states are "
            "not predicted"
        )
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


def _listed(given: Given, found: Mapping[str, Any]) -> dict[str, Any]:
    """PyTorch's AdamW without a kernel of its own, where the run asks for it; what its release takes by
    default (training_args.py, default_optim) nothing here tells."""
    named = given.told("optim").lower()
    if named == "adamw_torch":
        return {"unfused": (*found.get("unfused", ()), "optimizer")}
    if not named and "lora" not in found and "offload" not in found["layout"]:
        given.doubts.append(
            "optim is predicted as adamw_torch_fused, the default from PyTorch 2.8 on; before it is "
            "adamw_torch, which holds a copy of the weights more: write 'optimizer' into unfused too"
        )
    return {}


def _steps(given: Given) -> int:
    steps = given.whole("max_steps") or 0
    if steps > 0:
        return steps
    given.doubts.append("how many samples its data has is not told; one step is predicted (tokens says more)")
    return 1
