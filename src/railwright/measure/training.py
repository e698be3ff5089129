"""Published training steps replayed: same model, GPUs and layout; our step time beside theirs."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from railwright.errors import PlanError
from railwright.measure.machines import Unsupported, machine_of
from railwright.measure.table import Row, Skipped
from railwright.model.architecture import Transformer
from railwright.spec.study import Layout, TrainingJob
from railwright.training import simulate
from railwright.training.memory import SYSTEM, peak_memory
from railwright.training.plan import check

DTYPES = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "mxfp8": "fp8",
    "fp8-cs": "fp8",
    "fp8-mx": "fp8",
    "fp8-tensorwise": "fp8",
    "fp8-rowwise": "fp8",
}
"""FP8 recipes (per-tensor, current, micro-scaled) count as one dtype at this stage."""


@lru_cache(maxsize=1)
def architectures() -> Mapping[str, Transformer]:
    """The architectures that the training records name."""
    text = (
        resources.files("railwright.measure")
        .joinpath("data/training_models.json")
        .read_text(encoding="utf-8")
    )
    return {name: _transformer(name, m) for name, m in json.loads(text).items() if not m.get("hybrid")}


def _transformer(name: str, m: Mapping[str, Any]) -> Transformer:
    """One record's architecture under our names."""
    mla = m.get("mla") or {}
    return Transformer(
        name=name,
        layers=m["layers"],
        hidden=m["hidden"],
        vocab=m["vocab"],
        heads=m["heads"],
        kv_heads=m["kv_heads"],
        head_dim=mla.get("nope", m["head_dim"]),
        ffn=m["ffn"],
        gated=m["glu"],
        attention="mla" if mla else "gqa",
        q_lora=mla.get("q_lora", 0),
        kv_lora=mla.get("kv_lora", 0),
        rope_dim=mla.get("rope", 0),
        v_head_dim=mla.get("v", 0),
        experts=m.get("experts", 0),
        experts_per_token=m.get("topk", 0),
        expert_ffn=m.get("moe_ffn", 0),
        shared_experts=m.get("shared_experts", 0),
        shared_ffn=m.get("shared_experts", 0) * m.get("moe_ffn", 0),
        dense_layers=min(m.get("first_dense_layers", 0), m["layers"]),
        sliding_window=128 if "sliding window 128" in m["attn"] else 0,
        window_every=2 if "alternate" in m["attn"] else 1,
        source=m.get("source", ""),
    )


def architecture_of(record: Mapping[str, str]) -> Transformer:
    """The record's architecture. Raises Unsupported for one that is not a plain transformer."""
    if record["model"] not in architectures():
        raise Unsupported("not a plain transformer (hybrid of Mamba and attention)")
    return architectures()[record["model"]]


def records() -> Iterator[dict[str, str]]:
    """The carried rows (tools/carry_training.py), as text."""
    text = resources.files("railwright.measure").joinpath("data/training.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


def training_rows() -> Iterator[Row | Skipped]:
    """Every record predicted, or left out with the reason."""
    for record in records():
        family = f"training {family_of(record)}"
        try:
            yield _replay(record, family)
        except (Unsupported, PlanError) as no:
            yield Skipped(family, record["id"], _grouped(str(no), record["id"]))


def memory_rows() -> Iterator[Row | Skipped]:
    """Peak memory of every record that states it: tensors allocated, or all that is resident on the GPU."""
    for record in records():
        if not (record["allocated_gib"] or record["resident_gb"]):
            continue
        try:
            yield _memory(record)
        except (Unsupported, PlanError) as no:
            family = "memory allocated" if record["allocated_gib"] else "memory resident"
            yield Skipped(family, record["id"], _grouped(str(no), record["id"]))


def family_of(record: Mapping[str, str]) -> str:
    """'dense H100 bf16': the GPU generation, dtype and kind of model that share kernels and constants."""
    arch = architectures().get(record["model"])
    kind = "moe" if arch is not None and arch.is_moe else "dense"
    dtype = DTYPES.get(record["dtype"], record["dtype"])
    return f"{kind} {record['gpu'].removesuffix('-40')} {'fp8' if dtype == 'fp8' else '16-bit'}"


def _replay(record: Mapping[str, str], family: str) -> Row:
    """One record through `training.simulate`. Raises Unsupported or PlanError."""
    job, gpus = _job(record), int(record["gpus"])
    nic = float(record["nic_gbps"]) if record["nic_gbps"] else None
    step = simulate(job, architecture_of(record), machine_of(record["gpu"], gpus, nic))
    what = (
        f"{gpus} GPUs, TP{record['tp'] or 1} PP{record['pp'] or 1} EP{record['ep'] or 1} {record['software']}"
    )
    if record["step_time_s"]:
        measured = float(record["step_time_s"])
    else:
        measured = step.tokens / (float(record["tokens_s_gpu"]) * gpus)
    return Row(family, record["id"], what, step.step_time, measured, "s/step", record["source"])


def _memory(record: Mapping[str, str]) -> Row:
    """One record's peak memory. Raises Unsupported or PlanError."""
    job, arch = _job(record), architecture_of(record)
    nic = float(record["nic_gbps"]) if record["nic_gbps"] else None
    machine = machine_of(record["gpu"], int(record["gpus"]), nic)
    check(job, arch, machine.network.fabric)
    memory = peak_memory(job, arch, machine.network.fabric, machine.gpu.hbm_bytes)
    what = f"TP{record['tp'] or 1} PP{record['pp'] or 1} microbatch {record['mbs']}, {record['software']}"
    if record["allocated_gib"]:
        predicted, measured = memory.total - memory.parts[SYSTEM], float(record["allocated_gib"])
        family = "memory allocated"
    else:
        predicted, measured = memory.total, float(record["resident_gb"])
        family = "memory resident"
    return Row(family, record["id"], what, predicted / 2**30, measured, "GiB", record["source"])


def _job(record: Mapping[str, str]) -> TrainingJob:
    """The record's job. Raises Unsupported for what this stage does not model."""
    if record["kind"] == "lora":
        raise Unsupported("LoRA is not modelled yet")
    if (record["cp"] or "1") != "1":
        raise Unsupported("context parallelism is not modelled yet")
    if record["fsdp"] not in ("", "False") or record["zero"] not in ("", "0", "1"):
        raise Unsupported("ZeRO-2/3 and FSDP are not modelled yet")
    if record["dtype"] not in DTYPES:
        raise Unsupported(f"dtype '{record['dtype']}' is not modelled yet")
    if not record["mbs"]:
        raise Unsupported("the record does not state the microbatch")
    if not (record["step_time_s"] or record["tokens_s_gpu"]):
        raise Unsupported("the record states neither step time nor tokens/s per GPU")
    if record["etp"] and record["etp"] != (record["tp"] or "1"):
        raise Unsupported("expert tensor parallelism other than TP is not modelled yet")

    def number(column: str, default: int = 1) -> int:
        return int(float(record[column])) if record[column] else default

    layout = Layout(
        tensor=number("tp"),
        pipeline=number("pp"),
        virtual_pipeline=number("vpp"),
        expert=number("ep"),
        sequence_parallel=record["sp"] == "True" or (record["sp"] == "" and number("tp") > 1),
        zero=0 if record["zero"] == "0" else 1,
        recompute=record["recompute"] or "none",  # type: ignore[arg-type]
    )
    return TrainingJob(
        name=record["id"],
        model=record["model"],
        gpus=int(record["gpus"]),
        sequence=number("seq"),
        global_batch=number("gbs"),
        micro_batch=number("mbs"),
        tokens=1e9,
        dtype=DTYPES[record["dtype"]],  # type: ignore[arg-type]
        layout=layout,
    )


def _grouped(reason: str, record: str) -> str:
    """The reason without the record's name and figures, so that equal reasons are counted together."""
    text = reason.removeprefix(f"{record}: ").split(";")[0].split("\n")[0]
    if "GiB" in text:
        return "does not fit the GPU's memory by our model"
    return re.sub(r"\d+(\.\d+)?", "#", text.split(" (")[0])
