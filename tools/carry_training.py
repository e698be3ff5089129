"""Carry published training measurements into the project as tables of our own making.

Reads the workplace's collection (path as first argument) and writes
src/railwright/measure/data/training.csv (one row per measured point) and
training_models.json (the architectures they name); with a second path, vTrain's single-server table
(figures only) as vtrain_single.csv.  Run once per new collection; the product never needs it.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "src" / "railwright" / "measure" / "data"
COLUMNS = (
    *("id", "family", "kind", "model", "gpu", "gpus", "gpus_per_node", "nic_gbps", "seq", "tp", "pp", "vpp"),
    *("cp", "ep", "etp", "dp", "mbs", "gbs", "dtype", "zero", "sp", "recompute", "schedule", "fsdp"),
    *("step_time_s", "tokens_s_gpu", "allocated_gib", "resident_gb"),
    *("quality", "software", "source", "source_status", "notes"),
)
SINGLE = ("gpus", "gbs", "mbs", "hidden", "heads", "layers", "seq", "tp", "dp", "pp", "iteration_ms")
LAYOUT = tuple(COLUMNS[COLUMNS.index("tp") : COLUMNS.index("step_time_s")])
RECORD = ("id", "family", "kind", "quality", "software", "source", "source_status", "notes")
MODEL_KEYS = (
    *("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "glu", "experts", "topk"),
    *("moe_ffn", "shared_experts", "first_dense_layers", "mla", "hybrid", "attn"),
)


def model_key(model: dict[str, Any], seen: dict[str, dict[str, Any]]) -> str:
    """A short name for an architecture; proxies with fewer layers get '-<layers>l'."""
    shape = {k: model[k] for k in MODEL_KEYS if model.get(k) is not None}
    for name in (
        model["name"],
        f"{model['name']}-{model['layers']}l",
        f"{model['name']}-{model['layers']}l-{model.get('heads')}h",
    ):
        entry = seen.setdefault(name, {**shape, "source": model.get("arch_src", "")})
        if {k: v for k, v in entry.items() if k != "source"} == shape:
            return str(name)
    raise ValueError(f"two architectures called {model['name']}")


def main(collection: Path) -> None:
    """Write both files."""
    from ruamel.yaml import YAML

    records = YAML(typ="safe").load(collection.read_text(encoding="utf-8"))
    models: dict[str, dict[str, Any]] = {}
    rows = []
    for r in records:
        if r["quality"] not in "AB" or r["metric"] not in ("step_time", "throughput"):
            continue
        m, h, p, measured = r["model"], r["hardware"], r["parallelism"], r["measured"]
        row = {k: p.get(k) for k in LAYOUT} | {k: r.get(k) for k in RECORD}
        row |= {"model": model_key(m, models), "seq": m.get("seq"), "gpu": h["gpu"], "gpus": h["gpus"]}
        row |= {"gpus_per_node": h.get("gpus_per_node"), "nic_gbps": h.get("nic_gbps_per_gpu")}
        row |= {"step_time_s": measured.get("step_time_s"), "tokens_s_gpu": measured.get("tokens_s_gpu")}
        row |= {"allocated_gib": measured.get("mem_alloc_GiB"), "resident_gb": measured.get("mem_GB")}
        rows.append(row)
    with (DATA / "training.csv").open("w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (DATA / "training_models.json").write_text(
        json.dumps(models, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
    print(f"{len(rows)} records, {len(models)} architectures")


def single(table: Path) -> None:
    """Write vTrain's single-server rows, as they are."""
    with table.open(newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    with (DATA / "vtrain_single.csv").open("w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, SINGLE, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: row[key] for key in SINGLE} for row in rows)
    print(f"{len(rows)} single-server rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        single(Path(sys.argv[2]))
