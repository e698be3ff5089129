"""Carry what Megatron-Bridge's performance recipes say of its published steps beyond the tables of results.

Reads a clone of NVIDIA-NeMo/Megatron-Bridge (path as first argument) at the tags of its releases and writes
src/railwright/measure/data/recipes.csv: one row per published combination of release, kind, model, GPU,
format and batch.  Where the published layout is not the recipe's, that of the nearest release with it counts:
tables of results are sometimes older or newer than their release.  Figures and names only; run once per new
collection of records, after carry_training.py.
Release 25.09 has YAML files instead of the tables read here, and 26.08 functions: their rows are put down
below, as read.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

DATA = Path(__file__).parent.parent / "src" / "railwright" / "measure" / "data"
TAGS = {
    "25.11": "v0.2.0",
    "26.02": "v0.3.0",
    "26.02.01": "v0.3.1",
    "26.04": "v0.4.0",
    "26.04.01": "v0.4.1",
    "26.06": "v0.5.0",
    "26.06.01": "v0.5.1",
    "26.08": "v0.5.1",
}
"""Tag whose tables a release ran.  26.08 (v0.6.0) keeps those of v0.5.1 for the published combinations:
perf_recipes/{qwen,deepseek,gpt_oss}/common.py, _enable_*_full_iteration_mxfp8."""
MODELS = {
    "llama3-8b": "LLAMA3_8B",
    "llama3-70b": "LLAMA3_70B",
    "llama3.1-405b-126l": "LLAMA31_405B",
    "deepseek-v3": "DEEPSEEK_V3",
    "gpt-oss-120b": "GPT_OSS_120B",
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
COLUMNS = (*KEYS, "dispatcher", "hidden", "graphs", "recompute", "fused")
FIRST: dict[tuple[str, ...], tuple[str, ...]] = {
    # scripts/performance/configs/*/*.yaml, cuda_graphs, and run_script.py (token drop, no DeepEP, recompute)
    ("qwen3-30b-a3b", "H100"): ("alltoall", "", "", "", ""),
    ("qwen3-30b-a3b", "GB200"): ("alltoall", "", "step", "", ""),
    ("qwen3-30b-a3b", "B200"): ("alltoall", "", "step", "", ""),
    ("llama3-8b", "B200"): ("", "", "step", "", ""),
    ("llama3-8b", "GB200", "fp8-mx"): ("", "", "step", "", ""),
    ("qwen3-235b-a22b", "B200"): ("alltoall", "", "", "", ""),
    ("deepseek-v3", "B200"): ("alltoall", "", "", "mla_up_proj", ""),
    ("deepseek-v3", "GB200"): ("alltoall", "", "", "mla_up_proj", ""),
}
"""Release 25.09 (v0.1.0rc4).  Its graphs hold whole layers, also of experts: with tokens dropped and padded
their shapes do not change."""


def main(clone: Path) -> None:
    """Write recipes.csv."""
    rows: dict[tuple[str, ...], tuple[str, ...]] = {}
    with (DATA / "training.csv").open(encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    tables = {tag: _table(clone, tag) for tag in set(TAGS.values())}
    for r in records:
        if not r["family"].startswith("mbridge") or r["model"] not in MODELS:
            continue
        key = tuple(r[k] for k in KEYS)
        release = r["software"].split()[-1]
        if release == "25.09":
            model = (r["model"], r["gpu"])
            said = FIRST.get((*model, r["dtype"])) or FIRST.get(model)
        else:
            said = _said(_nearest(tables, release, r))
        if said and any(said):
            rows[key] = said
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
    for path in _git(clone, "ls-tree", "-r", "--name-only", tag, "scripts/performance/configs").split():
        if path.endswith("workload_base_configs.py"):
            names: dict[str, Any] = {"__name__": "recipes"}
            exec(_git(clone, "show", f"{tag}:{path}"), names)
            found |= {k: v for k, v in names.items() if type(v).__name__ == "WorkloadBaseConfig"}
    return found


def _nearest(tables: dict[str, dict[str, Any]], release: str, r: dict[str, str]) -> Any:
    """The recipe of a record's release, or of the nearest one whose recipe has the record's layout."""
    order = list(TAGS)
    own = order.index(release)
    near = sorted(order, key=lambda one: (abs(order.index(one) - own), order.index(one) > own))
    known = [_named(tables[TAGS[one]], r) for one in near]
    return next((one for one in known if one and _layout(one) == _stated(r)), known[0])


def _layout(one: Any) -> tuple[int, ...]:
    return (
        one.pipeline_model_parallel_size,
        one.virtual_pipeline_model_parallel_size or 1,
        one.expert_model_parallel_size,
        one.micro_batch_size,
    )


def _stated(r: dict[str, str]) -> tuple[int, ...]:
    return tuple(int(float(r[k] or 1)) for k in ("pp", "vpp", "ep", "mbs"))


def _named(table: dict[str, Any], r: dict[str, str]) -> Any:
    """The recipe of a record: the variant with its batch, else the only one."""
    model, form = MODELS[r["model"]], FORMATS[r["dtype"]]
    names = [f"{model}_{r['kind'].upper()}_CONFIG_{r['gpu']}_{form}_{v}" for v in ("V1", "V2")]
    known = [table[n] for n in (*names, f"{model}_{r['gpu']}_{form}_BASE_CONFIG") if n in table]
    same = [one for one in known if one.global_batch_size == int(r["gbs"])]
    return next(iter(same or known), None)


def _said(one: Any) -> tuple[str, ...]:
    scope = {"moe_router": "router", "moe_preprocess": "router", "attn": "attention", "mlp": "mlp"}
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
