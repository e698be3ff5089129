"""Carry what Megatron-Bridge's performance recipes say of its published steps beyond the tables of results.

Reads a clone of NVIDIA-NeMo/Megatron-Bridge (path as first argument) at the tags of its releases and writes
src/railwright/measure/data/recipes.csv: one row per published combination of release, kind, model, GPU,
format and batch.  The recipe at a release's tag for this number of GPUs and this batch decides all it states:
it is what the published command runs, while tables of results are written by hand and at times repeat the
layout of another release.  Layout columns hold what it says differently from the table.  Where it has other
GPUs or another batch, the table's row cannot be that recipe: its layout stands, and what it leaves out is
taken from the nearest release whose recipe has that layout.
Figures and names only; run once per new collection of records, after carry_training.py.
Release 25.09 has YAML files instead of the tables read here; what its scripts say beyond them is put down
below, as read.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

import yaml

DATA = Path(__file__).parent.parent / "src" / "railwright" / "measure" / "data"
TAGS = {
    "25.11": "v0.2.0",
    "26.02": "v0.3.0",
    "26.02.01": "v0.3.1",
    "26.04": "v0.4.0",
    "26.04.01": "v0.4.2",
    "26.06": "v0.5.0",
    "26.06.01": "v0.5.1",
    "26.08": "v0.5.1",
}
"""Tag that a release ran (docs/versions1.json at v0.6.0).  26.08 is v0.6.0, whose functions keep what v0.5.1
says for the published combinations: src/megatron/bridge/perf_recipes/{qwen,deepseek,gpt_oss}."""
FIRST_TAG = "v0.1.0rc4"
MODELS = {
    "llama3-8b": "LLAMA3_8B",
    "llama3-70b": "LLAMA3_70B",
    "llama3.1-405b-126l": "LLAMA31_405B",
    "deepseek-v3": "DEEPSEEK_V3",
    "gpt-oss-120b": "GPT_OSS_120B",
    "nemotron-3-nano-30b-a3b": "NEMOTRON_3_NANO",
    "nemotron-3-super-120b-a12b": "NEMOTRON_3_SUPER",
    "qwen3-30b-a3b": "QWEN3_30B_A3B",
    "qwen3-235b-a22b": "QWEN3_235B_A22B",
}
FORMATS = {
    "nvfp4": "NVFP4",
    "bf16": "BF16",
    "fp8-cs": "FP8_CS",
    "fp8": "FP8_CS",
    "fp8-mx": "FP8_MX",
    "mxfp8": "FP8_MX",
}
KEYS = ("software", "kind", "model", "gpu", "dtype", "gbs")
LAYOUT = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "mbs": "micro_batch_size",
}
"""Our columns and the recipes' names for them.  Expert tensor parallelism is 1 in all of these recipes."""
COLUMNS = (*KEYS, "dispatcher", "hidden", "graphs", "recompute", "fused", "also", "layers", *LAYOUT)
FIRST: dict[tuple[str, ...], tuple[str, ...]] = {
    # scripts/performance/configs/*/*.yaml, cuda_graphs, and run_script.py (token drop, no DeepEP, recompute)
    ("qwen3-30b-a3b", "H100"): ("alltoall", "", "", "", "", "", ""),
    ("qwen3-30b-a3b", "GB200"): ("alltoall", "", "step", "", "", "", ""),
    ("qwen3-30b-a3b", "B200"): ("alltoall", "", "step", "", "", "", ""),
    ("llama3-8b", "B200"): ("", "", "step", "", "", "", ""),
    ("llama3-8b", "GB200", "fp8-mx"): ("", "", "step", "", "", "", ""),
    ("qwen3-235b-a22b", "B200"): ("alltoall", "", "", "", "", "", ""),
    ("deepseek-v3", "B200"): ("alltoall", "", "", "mla_up_proj", "", "", ""),
    ("deepseek-v3", "GB200"): ("alltoall", "", "", "mla_up_proj", "", "", ""),
}
"""Release 25.09.  Its graphs hold whole layers, also of experts: with tokens dropped and padded
their shapes do not change."""


def main(clone: Path) -> None:
    """Write recipes.csv."""
    rows: dict[tuple[str, ...], tuple[str, ...]] = {}
    records = [
        record
        for name in ("training.csv", "training_read.csv")
        for record in csv.DictReader((DATA / name).read_text(encoding="utf-8").splitlines())
    ]
    tables = {tag: _table(clone, tag) for tag in set(TAGS.values())}
    heads = {tag: _narrow_heads(clone, tag) for tag in set(TAGS.values())}
    for r in records:
        if not r["family"].startswith("mbridge") or r["model"] not in MODELS:
            continue
        release = r["software"].split()[-1]
        if release == "25.09":
            model = (r["model"], r["gpu"])
            said = FIRST.get((*model, r["dtype"])) or FIRST.get(model) or ("",) * 7
            layout = _first_layout(clone, r)
        else:
            known = _named(tables[TAGS[release]], r)
            own = known if known and _same_run(known, r) else None
            chosen = own or _nearest(tables, release, r)
            said = (*_said(chosen), _also(chosen, r, heads[TAGS[release]]), _layers_again(chosen))
            layout = {k: str(getattr(own, name) or 1) for k, name in LAYOUT.items()} if own else {}
        other = tuple(layout[k] if k in layout and layout[k] != _stated(r, k) else "" for k in LAYOUT)
        if any((*said, *other)):
            rows[tuple(r[k] for k in KEYS)] = (*said, *other)
    with (DATA / "recipes.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*key, *said] for key, said in sorted(rows.items()))
    print(f"{len(rows)} recipes")


def _git(clone: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(clone), *words], capture_output=True, text=True, check=True
    ).stdout


def _table(clone: Path, tag: str) -> dict[str, Any]:
    """Name -> recipe, of one release.  Its files of plain dataclasses are executed."""
    source = _git(clone, "show", f"{tag}:scripts/performance/utils/utils.py")
    body = re.search(r"@dataclass\nclass WorkloadBaseConfig.*?(?=\n\n\n?(?:def|@))", source, re.S)
    if body is None:
        raise ValueError(f"{tag}: no WorkloadBaseConfig")
    module = types.ModuleType("utils.utils")
    vars(module).update({"dataclass": dataclass, "Optional": Optional, "List": list, "Dict": dict})
    sys.modules["utils"], sys.modules["utils.utils"] = types.ModuleType("utils"), module
    exec(body.group(0), vars(module))
    found: dict[str, Any] = {}
    unused: set[str] = set()
    for path in _git(clone, "ls-tree", "-r", "--name-only", tag, "scripts/performance/configs").split():
        if path.endswith("workload_base_configs.py"):
            names: dict[str, Any] = {"__name__": "recipes"}
            exec(_git(clone, "show", f"{tag}:{path}"), names)
            found |= {k: v for k, v in names.items() if type(v).__name__ == "WorkloadBaseConfig"}
        if path.endswith("_llm_pretrain.py"):
            unused |= _unused_backends(clone, tag, path)
    return {
        k: replace(v, moe_flex_dispatcher_backend=None) if k.startswith(tuple(unused)) else v
        for k, v in found.items()
    }


def _unused_backends(clone: Path, tag: str, path: str) -> set[str]:
    """How recipes begin whose function asks for all-to-alls, where nothing later applies their backend."""
    source, asked = _git(clone, "show", f"{tag}:{path}"), 'moe_token_dispatcher_type = "alltoall"'
    functions = re.findall(r"^def (\w+)_pretrain_config_(\w+)\((.*?)(?=^def |\Z)", source, re.S | re.M)
    names = {f"{model}_PRETRAIN_CONFIG_{gpu}_".upper() for model, gpu, body in functions if asked in body}
    later = names and _git(clone, "show", f"{tag}:scripts/performance/utils/overrides.py")
    return set() if "settings.moe_flex_dispatcher_backend" in later else names


def _narrow_heads(clone: Path, tag: str) -> set[str]:
    """'DEEPSEEK_V3 GB200': model and GPU whose recipe in MXFP8 computes the head in it (fp8_output_proj)."""
    found: set[str] = set()
    for path in _git(clone, "ls-tree", "-r", "--name-only", tag, "scripts/performance/configs").split():
        if path.endswith("_llm_pretrain.py"):
            source = _git(clone, "show", f"{tag}:{path}")
            functions = re.findall(
                r"^def (\w+)_pretrain_config_(\w+)\((.*?)(?=^def |\Z)", source, re.S | re.M
            )
            found |= {
                f"{model} {gpu}".upper() for model, gpu, body in functions if "fp8_output_proj = True" in body
            }
    return found


def _layers_again(one: Any) -> str:
    """Layers of every virtual stage that a recipe computes again, where it names no modules (overrides.py or
    helpers.py in scripts/performance/utils, set_recompute_overrides: full, by block)."""
    return "" if one.recompute_modules else str(one.recompute_num_layers or "")


def _also(one: Any, r: dict[str, str], heads: set[str]) -> str:
    """What a recipe multiplies in MXFP8 beside the layers' linear parts (`TrainingJob.dtype_also`)."""
    if FORMATS[r["dtype"]] != "FP8_MX" or r["kind"] != "pretrain":
        return ""
    attention = bool(getattr(one, "fp8_dot_product_attention", None))
    head = f"{MODELS[r['model']]} {r['gpu']}" in heads
    return " ".join(["attention"] * attention + ["head"] * head)


def _first_layout(clone: Path, r: dict[str, str]) -> dict[str, str]:
    """Layout of a record's recipe of release 25.09, if that has its GPUs and batch."""
    name = MODELS[r["model"]].lower() + "_llm_pretrain.yaml"
    paths = _git(clone, "ls-tree", "-r", "--name-only", FIRST_TAG, "scripts/performance/configs").split()
    path = next(p for p in paths if p.endswith(name))
    matrix = yaml.safe_load(_git(clone, "show", f"{FIRST_TAG}:{path}"))["perf_matrix"]
    sizes = matrix.get(r["gpu"].lower(), {}).get(f"num_gpus_{r['gpus']}")
    if sizes is None:
        return {}
    own = sizes["common"] | (sizes.get(FORMATS[r["dtype"]].lower()) or {})
    if own["gbs"] != int(r["gbs"]):
        return {}
    return {k: str(own[{"vpp": "vp"}.get(k, k)] or 1) for k in LAYOUT}


def _same_run(one: Any, r: dict[str, str]) -> bool:
    """Whether a recipe can be a record's: as many GPUs and as large a batch."""
    return (one.num_gpus, one.global_batch_size) == (int(r["gpus"]), int(r["gbs"]))


def _nearest(tables: dict[str, dict[str, Any]], release: str, r: dict[str, str]) -> Any:
    """The recipe of the release nearest to a record's whose recipe has the record's layout, else its own."""
    order = list(TAGS)
    own = order.index(release)
    near = sorted(order, key=lambda one: (abs(order.index(one) - own), order.index(one) > own))
    known = [_named(tables[TAGS[one]], r) for one in near]
    like = ("pp", "vpp", "ep", "mbs")
    return next(
        (
            one
            for one in known
            if one and all(str(getattr(one, LAYOUT[k]) or 1) == _stated(r, k) for k in like)
        ),
        known[0],
    )


def _stated(r: dict[str, str], column: str) -> str:
    return str(int(float(r[column] or 1)))


def _named(table: dict[str, Any], r: dict[str, str]) -> Any:
    """The recipe of a record: the variant with its batch, else the only one."""
    model, form = MODELS[r["model"]], FORMATS[r["dtype"]]
    names = [f"{model}_{r['kind'].upper()}_CONFIG_{r['gpu']}_{form}_{v}" for v in ("V1", "V2")]
    known = [table[n] for n in (*names, f"{model}_{r['gpu']}_{form}_BASE_CONFIG") if n in table]
    same = [one for one in known if one.global_batch_size == int(r["gbs"])]
    return next(iter(same or known), None)


def _said(one: Any) -> tuple[str, ...]:
    scope = {"moe_router": "router", "moe_preprocess": "router", "attn": "attention", "mlp": "mlp"}
    scope |= {"mamba": "mixer"}
    given, how = one.cuda_graph_scope or (), one.cuda_graph_impl
    given = [given] if isinstance(given, str) else given
    whole = how == "full_iteration" or (how == "local" and "full_iteration" in given)
    parts = sorted({scope[s] for s in given}) if how == "transformer_engine" else ()
    return (
        (one.moe_flex_dispatcher_backend or "alltoall") if one.expert_model_parallel_size > 1 else "",
        "yes" if one.moe_a2a_overlap else "",
        "step" if whole else " ".join(parts),
        " ".join(one.recompute_modules or ()),
        "yes" if getattr(one, "cutedsl_fused_grouped_mlp", False) else "",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
