"""A TOML file of torchtitan's as a training job.

Each key means what `search.exports.torchtitan` writes it for; tests hold the two to each other.
Sources, read 2026-11-29: torchtitan e347b1e, torchtitan/config/job_config.py (sections and defaults since
April 2025), bfbff6f and eef8bb2 (names of 2024 and early 2025), models/*/__init__.py (flavors) and
distributed/parallel_dims.py.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from railwright.errors import RailwrightError, nearest
from railwright.model import bundled_config, load_model, parse_config
from railwright.model.shape.architecture import Transformer
from railwright.runs.given import ranks_of
from railwright.runs.tables import Tables
from railwright.runs.torchtitan_unread import otherwise, unread
from railwright.spec.training import Layout, Software
from railwright.training.layers.stages import layers_per_piece
from railwright.training.software.eras import eras

FLAVORS = {
    ("llama3", "8b"): "llama-3.1-8b",
    ("llama3", "70b"): "llama-3.1-70b",
    ("llama3", "405b"): "llama-3.1-405b",
    ("llama2", "7b"): "llama-2-7b",
    ("llama2", "13b"): "llama-2-13b",
    ("llama2", "70b"): "llama-2-70b",
    ("llama4", "17bx16e"): "llama-4-scout",
    ("llama4", "17bx128e"): "llama-4-maverick",
    ("deepseek_v3", "16b"): "deepseek-v2-lite",
    ("deepseek_v3", "671b"): "deepseek-v3",
    ("qwen3", "8b"): "qwen3-8b",
    ("qwen3", "32b"): "qwen3-32b",
    ("qwen3", "30b-a3b"): "qwen3-30b-a3b",
    ("qwen3", "235b-a22b"): "qwen3-235b-a22b",
    ("gpt_oss", "20b"): "gpt-oss-20b",
    ("gpt_oss", "120b"): "gpt-oss-120b",
}
"""Names and flavors of its models that are bundled here."""

SCHEDULES = {
    "1f1b": ("1f1b", 1),
    "interleaved1f1b": ("interleaved", 2),
    "interleavedzerobubble": ("zb-h1", 2),
    "gpipe": ("gpipe", 1),
    "zbvzerobubble": ("zb-v", 1),
    "dualpipev": ("dualpipe-v", 1),
}
"""torch.distributed.pipelining's schedules, ours, and the pieces of the model that a stage then has by
default (distributed/pipeline_parallel.py)."""

COMPLEX = ("llama", "deepseek")
"""Models of which positions are complex numbers, whose product torch.compile does not fuse; Qwen3's and
gpt-oss's are cosines and sines (models/*/model/model.py; `model.operators.eager.TURN_LAUNCHES`)."""


def of_torchtitan(
    text: str, file: str, model: str, gpus: int | None
) -> tuple[dict[str, Any], Transformer, Mapping[str, Any] | None, tuple[str, ...]]:
    """Fields of a TrainingJob but for its name, the model, its config.json where it is no bundled one, and
    sentences on what was read otherwise.

    Raises RailwrightError, naming file and key, for what is no TOML, no such file, or a value that is none.
    """
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RailwrightError(f"{file}: this is no TOML: {error}") from None
    if "training" not in read:
        raise RailwrightError(
            f"{file}: there is no section [training]; a TOML file of torchtitan's is expected (since "
            "February 2026 it is configured in Python, which is not read)"
        )
    file_read = Tables(read, file)
    named, arch = _model(file_read, model)
    notes: list[str] = []
    config = None
    if not model and arch.mtp_layers:
        # torchtitan builds no layers of multi-token prediction
        named, config = "", bundled_config(named) | {"num_nextn_predict_layers": 0}
        arch = parse_config(json.dumps(config), f"{arch.name}.json", arch.name)
    fields = {"model": named} | _job(file_read, arch, gpus, notes)
    notes += [*otherwise(file_read), *unread(file_read, fields["layout"], arch)]
    return fields, arch, config, tuple(notes)


def _model(read: Tables, model: str) -> tuple[str, Transformer]:
    name, flavor = read.get("model", "name", ""), read.get("model", "flavor", "")
    if model:
        return model, load_model(model)
    found = FLAVORS.get((name.lower(), flavor.lower().split("_")[0]))
    if found is None:
        known = [f"{n} {f}" for n, f in FLAVORS]
        hint = nearest(f"{name} {flavor}".lower(), known)
        raise RailwrightError(
            f"{read.file}: [model]: '{name}' of flavor '{flavor}' is no bundled model{hint}; give it with "
            "--model: a bundled name, or its config.json"
        )
    return found, load_model(found)


def _job(read: Tables, arch: Transformer, gpus: int | None, notes: list[str]) -> dict[str, Any]:
    layout = _layout(read, arch, notes)
    ranks = ranks_of(layout)
    replicate = read.degree("data_parallel_replicate_degree")
    shard = read.degree("data_parallel_shard_degree", -1)
    if gpus is None and shard > 0:
        gpus = replicate * shard * ranks
    if gpus is None:
        raise RailwrightError(
            f"{read.file}: data_parallel_shard_degree -1 takes what is left of the GPUs, and the file does "
            "not say how many those are; give --gpus"
        )
    if gpus % ranks or (shard > 0 and replicate * shard * ranks != gpus) or (gpus // ranks) % replicate:
        raise RailwrightError(
            f"{read.file}: {gpus} GPUs are not the product of the degrees in [parallelism] ({ranks} without "
            "those of data)"
        )
    data = gpus // ranks
    layout |= _sharding(read, layout, data, replicate)
    local = read.count("training", "local_batch_size", 8, "batch_size")
    batch = read.count("training", "global_batch_size", -1)
    sequence = read.count("training", "seq_len", 2048)
    micro = local
    if layout.get("pipeline", 1) > 1:
        # until 2025 so many of them were asked for, not their size
        pieces = read.degree("pipeline_parallel_microbatches", 0)
        size = local // pieces if pieces else 1
        micro = read.degree("pipeline_parallel_microbatch_size", max(size, 1))
    batch = batch if batch > 0 else local * data
    asked = bool(read.get("compile", "enable", False, "compile"))
    parts = read.get("compile", "components", ["model", "loss"])
    compiled = asked and "model" in parts
    if not compiled:
        what = (
            "the loss alone is compiled, predicted is PyTorch's" if asked and parts else "nothing is compiled"
        )
        notes.append(
            f"{what}: norms, rotary positions and SwiGLU are predicted as Hugging Face's, one kernel per "
            "operation"
        )
    formats = _formats(read, arch, notes) | _masters(read, layout, notes)
    software = _software(read, compiled, "loss" in parts)
    found: dict[str, Any] = {
        "gpus": gpus,
        "sequence": sequence,
        "global_batch": batch,
        "micro_batch": micro,
        "tokens": float(read.count("training", "steps", 10000) * batch * sequence),
        "software": software,
        "layout": layout,
    }
    found |= _attention(read, software, notes)
    if not compiled:
        found["unfused"] = ("rotary", "norm", "activation")
    elif arch.rotary and str(read.get("model", "name", "")).lower().startswith(COMPLEX):
        found["unfused"] = ("rotary",)
    if read.get("parallelism", "enable_async_tensor_parallel", False) and layout.get("tensor", 1) > 1:
        found["overlap"] = {"tp": True}
    if (workers := read.get("training.dataloader", "num_workers", -1)) >= 0:
        found["data"] = {"workers": workers}
    return found | formats


def _is_older(read: Tables) -> bool:
    """Whether a file is of before October 2025: its keys stand where no later release reads them.

    Degrees left [training] and [experimental] by 785c34c9 (18 March 2025), batch_size became local_batch_size
    by 8570415c (5 June), compile a section by 08b8b244 (20 August), and float8 one of quantize by 8a2686c4
    (30 September).
    """
    return bool(read.moved & {"parallelism", "training", "compile", "quantize.linear.float8"})


def _software(read: Tables, compiled: bool, loss: bool) -> Software:
    """The era of the release that the file's keys are of, or today's."""
    if not _is_older(read):
        return "fsdp-2026-eager" if not compiled else "fsdp-2026" if loss else "fsdp-2024"
    if not compiled:
        return "fsdp-2024-eager"
    return "fsdp-2024" if "parallelism" in read.moved or not loss else "fsdp-2025"


def _attention(read: Tables, software: Software, notes: list[str]) -> dict[str, Any]:
    """cuDNN's kernels, which torchtitan prefers on every GPU since 6a3a9da9 (9 October 2025,
    models/attention.py), and on B200 since 3b85aa31 (May 2025); only an older file tells its release."""
    if _is_older(read):
        return {}
    older = eras()[software].like
    notes.append(
        "attention is predicted as torchtitan runs it since October 2025: cuDNN's on H100 and H200; with an "
        f"older one say {f'--software {older}' if older else 'attention_backend: flash'}"
    )
    return {} if older else {"attention_backend": "fused"}


def _layout(read: Tables, arch: Transformer, notes: list[str]) -> dict[str, Any]:
    tensor, context = read.degree("tensor_parallel_degree"), read.degree("context_parallel_degree")
    found: dict[str, Any] = {}
    if tensor > 1:
        found |= {"tensor": tensor, "sequence_parallel": True}
    if context > 1:
        method = read.get("parallelism", "context_parallel_rotate_method", "allgather")
        found |= {"context": context} | ({"context_kind": "all-gather"} if method == "allgather" else {})
    found |= _stages(read, arch, notes)
    if arch.is_moe:
        expert, inner = read.degree("expert_parallel_degree"), read.degree("expert_tensor_parallel_degree")
        found |= {"expert": expert} if expert > 1 else {}
        # without expert parallelism experts are cut as the rest is
        found |= {"expert_tensor": inner} if expert > 1 and inner != tensor else {}
    if tensor > 1 and not _shares_loss(read):
        notes.append(
            "every tensor-parallel rank takes the logits of the whole vocabulary; predicted are those of its "
            "share"
        )
    return found | _again(read, found, arch, notes)


def _shares_loss(read: Tables) -> bool:
    """Whether tensor-parallel ranks share the logits, by the setting of 2025 or that of 2024."""
    apart: bool = read.get("parallelism", "disable_loss_parallel", False)
    together: bool = read.get("parallelism", "enable_loss_parallel", True)
    return together and not apart


def _again(read: Tables, layout: Mapping[str, Any], arch: Transformer, notes: list[str]) -> dict[str, Any]:
    """What is computed again."""
    told = read.get("activation_checkpoint", "mode", "")
    mode = told or "selective"
    option = str(read.get("activation_checkpoint", "selective_ac_option", "2"))
    if mode == "full":
        return {"recompute": "full"}
    if mode == "selective" and option == "op":
        return {"recompute": "selective", "recompute_modules": ("ops",)}
    if mode == "selective":
        kept = int(option) if option.isdigit() else 2
        if kept < 2:
            return {"recompute": "full"}
        stages = layout.get("pipeline", 1) * layout.get("virtual_pipeline", 1)
        why = "" if told else ", torchtitan's default where [activation_checkpoint] mode is not given"
        notes.append(
            f"one of {kept} layers is computed again{why}; predicted are as many at the front of each stage"
        )
        return {"recompute": "full", "recompute_layers": max(arch.layers // stages // kept, 1)}
    if mode != "none":
        notes.append(f"activation checkpointing '{mode}' is not modelled; none is predicted")
    return {}


def _stages(read: Tables, arch: Transformer, notes: list[str]) -> dict[str, Any]:
    stages = read.degree("pipeline_parallel_degree")
    if stages == 1:
        return {}
    named = read.get("parallelism", "pipeline_parallel_schedule", "1F1B")
    if named.lower() not in SCHEDULES:
        raise RailwrightError(
            f"{read.file}: [parallelism] pipeline_parallel_schedule: '{named}' is not modelled; of torch's "
            f"{', '.join(SCHEDULES)} are"
        )
    schedule, virtual = SCHEDULES[named.lower()]
    found: dict[str, Any] = {"pipeline": stages}
    if schedule not in ("1f1b", "interleaved"):
        found["schedule"] = schedule
    if parts := read.get("parallelism", "module_fqns_per_model_part", []):
        return found | _pieces(read, parts, stages, schedule, arch)
    each = read.degree("pipeline_parallel_layers_per_stage", 0)
    less = sum(
        read.get("parallelism", f"pipeline_parallel_{end}_stage_less_layers", 1) for end in ("first", "last")
    )
    if less:
        notes.append(
            f"embedding and output take the room of {less} layers in the first and last stage "
            "(pipeline_parallel_…_stage_less_layers); stages of as many layers each are predicted"
        )
    if each and schedule in ("interleaved", "zb-h1"):
        virtual = max(-(-(arch.layers + less) // each) // stages, 1)
    return found | ({"virtual_pipeline": virtual} if virtual > 1 else {})


def _pieces(read: Tables, parts: Any, stages: int, schedule: str, arch: Transformer) -> dict[str, Any]:
    """The pieces of the model by the modules that each has, which decide how many there are.

    Source: torchtitan e347b1e, distributed/pipeline_parallel.py, pipeline_llm.
    """
    where = f"{read.file}: [parallelism] module_fqns_per_model_part"
    if not all(isinstance(part, list) for part in parts):
        raise RailwrightError(f"{where}: a list of lists of modules is expected, one for each piece")
    sizes = tuple(sum(str(module).startswith("layers.") for module in part) for part in parts)
    alone = schedule in ("1f1b", "gpipe")
    if sum(sizes) != arch.layers or len(sizes) % stages or (alone and len(sizes) > stages):
        each = "one piece" if alone else "as many pieces"
        raise RailwrightError(
            f"{where}: {len(sizes)} pieces with {sum(sizes)} layers are given; expected: {each} on each of "
            f"{stages} stages, with the {arch.layers} layers of {arch.name} together"
        )
    folded = schedule in ("zb-v", "dualpipe-v")
    virtual = 1 if folded else len(sizes) // stages
    layout = Layout(pipeline=stages, virtual_pipeline=virtual)
    found: dict[str, Any] = {"virtual_pipeline": virtual} if virtual > 1 else {}
    usual = sizes == layers_per_piece(arch.layers, len(sizes), layout)
    return found if usual else found | {"layers_per_stage": sizes}


def _sharding(read: Tables, layout: Mapping[str, Any], data: int, replicate: int) -> dict[str, Any]:
    context, staged = layout.get("context", 1), layout.get("pipeline", 1) > 1
    shared = data // replicate * context
    if shared == 1:
        return {"zero": 0}
    found: dict[str, Any] = {"zero": 3}
    if replicate > 1:
        found["shard"] = shared
    kept = read.get("parallelism", "fsdp_reshard_after_forward", "default")
    if kept == "never" or (kept == "default" and staged):
        found["reshard"] = False
    if staged:
        found["reduce_each"] = False
    if read.get("training", "enable_cpu_offload", False):
        found["offload"] = ("weights",)
    return found


def _formats(read: Tables, arch: Transformer, notes: list[str]) -> dict[str, Any]:
    """What matrices are multiplied in, by the converters of the model."""
    given = read.get("model", "converters", [])
    converters = [str(one).strip() for one in (given.split(",") if isinstance(given, str) else given)]
    if read.get("float8", "enable_float8_linear", False):
        converters = [*converters, "float8"]
    found: dict[str, Any] = {}
    for one in converters:
        if one.rsplit(".", 1)[-1] == "float8" and "grouped" not in one:
            found["dtype"] = _float8(read, notes)
        elif one.rsplit(".", 1)[-1] == "mx" and "grouped" not in one:
            found["dtype"] = "mxfp8"
        elif "grouped" not in one:
            notes.append(f"converter {one} is not modelled")
    experts = any("grouped" in one for one in converters)
    if arch.is_moe and experts and not found:
        notes.append("experts alone are multiplied in 8 bits; 16 are predicted")
    if arch.is_moe and found and not experts:
        notes.append(f"experts are multiplied in 16 bits; {found['dtype']} is predicted")
    return found


def _masters(read: Tables, layout: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Whether weights are kept in fp32.  Those that are loaded in 16 bits have gradients and moments like
    them, and gradients are reduced in fp32 all the same (mixed_precision_reduce)."""
    dtype = read.get("training", "dtype", "float32")
    if dtype == "float32":
        return {}
    if dtype == "bfloat16" and layout.get("zero") == 3 and "offload" not in layout:
        return {"master": "none", "gradient_dtype": "fp32"}
    notes.append(
        f"weights, gradients and moments of [training] dtype {dtype} have no copies in fp32; predicted are "
        "those of float32, which take more memory"
    )
    return {}


def _float8(read: Tables, notes: list[str]) -> str:
    """Our name of a recipe of float8, whose weights FSDP gathers in 16 bits unless it is told otherwise."""
    section = "quantize.linear.float8"
    recipe = read.get(section, "recipe_name", "") or "tensorwise"
    narrow = read.get(section, "enable_fsdp_float8_all_gather", False)
    if recipe.startswith("rowwise"):
        return "fp8_rowwise"
    if not narrow:
        notes.append(
            "FSDP gathers weights in 16 bits (enable_fsdp_float8_all_gather is off); in 8 is predicted"
        )
    return "fp8"
