"""Custom all-reduce of inference engines: one kernel that loads from its NVLink peers, in a CUDA graph."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import isfinite
from typing import Any

from railwright.catalog.parts import Gpu
from railwright.collectives.constants import load
from railwright.collectives.group import generation_of
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import CollectivePrediction, Term
from railwright.collectives.rates import bus_factor
from railwright.errors import PlanError
from railwright.traffic.demand import Communicator


def custom_all_reduce(gpu: Gpu, ranks: int, size: float, engine: str = "vllm") -> CollectivePrediction:
    """The time of an engine's own all-reduce of `size` bytes per rank inside one NVLink domain.

    ranks   2, 4, 6 or 8, all joined by NVLink
    size    buffer of each rank [byte]; above the engine's limit it hands over to NCCL
    engine  'vllm' or 'trtllm': where it changes from one-shot to two-shot, and its limit
    One-shot: every GPU reads all buffers, (n-1) S.  Two-shot: reads and sums its n-th, a barrier, then reads
    the others' sums: 2 (n-1)/n S.  Valid under CUDA graphs; eager launches cost more.
    Raises PlanError for ranks or sizes the engine leaves to NCCL, and GPUs without NVLink.
    Source: vllm-project/vllm csrc/custom_all_reduce.cuh; NVIDIA/TensorRT-LLM ncclPlugin/allreducePlugin;
    constants in data/custom.yaml.
    """
    facts = _facts()
    if engine not in facts["engines"]:
        raise PlanError(
            f"'{engine}' is not a known engine; the known ones are {', '.join(facts['engines'])}."
        )
    rules = facts["engines"][engine]
    _check(gpu, ranks, size, engine, rules)
    kind = "one-shot" if size < _switch(rules, ranks) else "two-shot"
    own = facts["generations"].get(generation_of(gpu))
    if own is None:
        raise PlanError(
            f"No custom all-reduce model for the GPU '{gpu.name}' of generation '{gpu.generation}'; "
            f"known are {', '.join(facts['generations'])}: predict NCCL's all-reduce instead."
        )
    read = bytes_read(kind, ranks, size)
    terms = [
        Term("launch", float(own["launch"]), "kernel in a CUDA graph, opening and closing barrier"),
        Term(
            "bandwidth",
            read / (gpu.scale_up_bandwidth * float(own["efficiency"])),
            f"{read:.0f} bytes read from {ranks - 1} peer(s) over NVLink",
        ),
    ]
    if kind == "two-shot":
        terms.insert(1, Term("steps", float(own["barrier"]), "barrier between the two shots"))
    time = sum(term.seconds for term in terms)
    band = facts["error"][kind]
    known = own["status"] == "measured"
    notes = () if known else (f"no table of {gpu.generation} was read; Hopper's latencies stand in",)
    return CollectivePrediction(
        op="all_reduce",
        size=size,
        ranks=ranks,
        groups=1,
        time=time,
        algbw=size / time,
        busbw=size / time * bus_factor("all_reduce", ranks),
        algorithm=kind,
        protocol="load",
        terms=tuple(terms),
        bottleneck=None,
        error_low=float(band["low"]) * (1.0 if known else 0.8),
        error_high=float(band["high"]) * (1.0 if known else 1.25),
        notes=notes,
    )


def engine_all_reduce(machine: Machine, size: float, engine: str = "vllm") -> CollectivePrediction:
    """All-reduce over the GPUs of one server as an engine runs it: its own kernel, or NCCL above its limit.

    size  buffer of each rank [byte]
    Raises PlanError for an unknown engine, and where the engine has no kernel for the server's GPUs.
    """
    import numpy as np

    from railwright.collectives.predict import predict

    ranks = machine.server.gpus
    limit = _facts()["engines"].get(engine, {}).get("most", {}).get(ranks)
    if limit is None or size <= limit:
        return custom_all_reduce(machine.gpu, ranks, size, engine)
    nccl = predict(machine, "all_reduce", size, [Communicator(np.arange(ranks, dtype=np.int32))])
    note = f"above {limit:.0f} bytes {engine} leaves it to NCCL"
    return replace(nccl, notes=(*nccl.notes, note))


def bytes_read(kind: str, ranks: int, size: float) -> float:
    """What each GPU reads over NVLink: (n-1) S in one shot, 2 (n-1)/n S in two. [byte]"""
    return size * (ranks - 1) if kind == "one-shot" else size * 2 * (ranks - 1) / ranks


@cache
def _facts() -> dict[str, Any]:
    return load("custom.yaml")


def _switch(rules: dict[str, Any], ranks: int) -> float:
    """Size from which the engine takes two shots. [byte]"""
    return next(float(size) for most, size in rules["below"] if ranks <= most)


def _check(gpu: Gpu, ranks: int, size: float, engine: str, rules: dict[str, Any]) -> None:
    if not gpu.scale_up_bandwidth:
        raise PlanError(
            f"The GPU '{gpu.name}' has no NVLink, where {engine} leaves all-reduce to NCCL: predict that."
        )
    if ranks not in rules["ranks"]:
        allowed = ", ".join(str(n) for n in rules["ranks"])
        raise PlanError(
            f"{engine} has no custom all-reduce for {ranks} GPUs, only for {allowed}; predict NCCL's."
        )
    if not (isfinite(size) and size > 0):
        raise PlanError(f"A collective of {size:g} bytes cannot be predicted; give a size above zero.")
    if size > rules["most"][ranks]:
        raise PlanError(
            f"{size:.0f} bytes exceed the {rules['most'][ranks]:.0f} that {engine} reduces itself on {ranks} "
            "GPUs; it leaves larger ones to NCCL: predict NCCL's all-reduce for this size."
        )
