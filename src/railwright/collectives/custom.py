"""Custom all-reduce of inference engines: one kernel that loads from its NVLink peers, in a CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import isfinite, log2
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

    ranks   2, 4, 6 or 8 (TensorRT-LLM: not 6), all joined by NVLink and in one host
    size    buffer of each rank [byte]; above the engine's limit it hands over to NCCL
    engine  'vllm' or 'trtllm': where it changes from one-shot to two-shot, its limit and its constants
    One-shot: every GPU reads all buffers, (n-1) S.  Two-shot: reads and sums its n-th, a barrier, then reads
    the others' sums: 2 (n-1)/n S.  Valid under CUDA graphs; eager launches cost more.
    Raises PlanError for ranks or sizes the engine leaves to NCCL, and GPUs without NVLink.
    Source: vllm-project/vllm csrc/custom_all_reduce.cuh; NVIDIA/TensorRT-LLM common/customAllReduceUtils.h;
    constants in data/custom.yaml, fitted by tools/fit_custom.py.
    """
    rules = _rules(engine)
    why = leaves(rules, engine, ranks, size)
    if not gpu.scale_up_bandwidth:
        raise PlanError(
            f"The GPU '{gpu.name}' has no NVLink, where {engine} leaves all-reduce to NCCL: predict that."
        )
    if why:
        raise PlanError(f"{why}: predict NCCL's all-reduce.")
    if not (isfinite(size) and size > 0):
        raise PlanError(f"A collective of {size:g} bytes cannot be predicted; give a size above zero.")
    facts = _facts()
    row = generation_of(gpu)
    own = facts["constants"][engine].get(facts["stands_in"].get(row, row))
    if own is None:
        raise PlanError(
            f"No custom all-reduce model for the GPU '{gpu.name}' of generation '{gpu.generation}'; "
            f"known are {', '.join(facts['measured'])}: predict NCCL's all-reduce instead."
        )
    kind = kind_of(engine, row, ranks, size)
    parts = terms(kind, ranks, size, gpu.scale_up_bandwidth, own)
    time = sum(term.seconds for term in parts)
    band = facts["error"][engine][kind]
    known = gpu.generation in facts["measured"]
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
        terms=tuple(parts),
        bottleneck=None,
        error_low=float(band["low"]) * (1.0 if known else 0.8),
        error_high=float(band["high"]) * (1.0 if known else 1.25),
        notes=tuple(_notes(rules, engine, gpu, row, ranks, size, known)),
    )


def engine_all_reduce(machine: Machine, size: float, engine: str, ranks: int) -> CollectivePrediction:
    """All-reduce over the first GPUs of a machine as an engine runs it: its own kernel, or NCCL's.

    size   buffer of each rank [byte]
    ranks  of the group
    The engine leaves to NCCL sizes outside its limits, numbers of GPUs it has no kernel for, and groups that
    are not in one host (a compute tray of an NVL72 is one).  A note says so.
    Raises PlanError for an unknown engine, a group that the machine cannot hold, and where the engine has a
    kernel for the server's GPUs that no table was read of.
    """
    import numpy as np

    from railwright.collectives.predict import predict

    have = machine.network.fabric.num_gpus
    if not 2 <= ranks <= have:
        raise PlanError(f"An all-reduce is over 2 to {have} GPUs of this cluster, not over {ranks}.")
    rules, here = _rules(engine), _gpus_of_host(machine)
    why = leaves(rules, engine, ranks, size)
    if not machine.gpu.scale_up_bandwidth and ranks > 2:
        why = f"without NVLink {engine} leaves all-reduce over more than 2 GPUs to NCCL"
    if ranks > here:
        hosts = f"{-(-ranks // here)} hosts (operating systems) of {here}"
        why = f"{ranks} GPUs are in {hosts}, where {rules['between_hosts']}"
    if not why:
        return custom_all_reduce(machine.gpu, ranks, size, engine)
    nccl = predict(machine, "all_reduce", size, [Communicator(np.arange(ranks, dtype=np.int32))])
    return replace(nccl, notes=(*nccl.notes, why))


def engine_group(machine: Machine, engine: str = "vllm") -> int:
    """The most GPUs that an engine's own all-reduce joins on a machine: at most those of one host."""
    here = _gpus_of_host(machine)
    able = [ranks for ranks in _rules(engine)["ranks"] if ranks <= here]
    if not able:
        raise PlanError(
            f"{engine}'s all-reduce is among at least 2 GPUs of one host; '{machine.server.name}' has {here}."
        )
    return int(max(able))


def _gpus_of_host(machine: Machine) -> int:
    """GPUs that one operating system has; of a rack of trays those of a tray."""
    return machine.server.gpus // machine.server.hosts


def leaves(rules: Mapping[str, Any], engine: str, ranks: int, size: float) -> str:
    """Why an engine with these rules leaves an all-reduce inside a host to NCCL; '' where it does not."""
    if ranks not in rules["ranks"]:
        allowed = ", ".join(str(n) for n in rules["ranks"])
        return f"{engine} has no custom all-reduce for {ranks} GPUs, only for {allowed}"
    if size > rules["most"][ranks]:
        return f"above {rules['most'][ranks]:.0f} bytes {engine} leaves it to NCCL"
    if isfinite(size) and size % rules.get("multiple", 1):
        return f"{engine} leaves to NCCL what is no multiple of {rules['multiple']} bytes"
    return ""


def kind_of(engine: str, generation: str, ranks: int, size: float) -> str:
    """'one-shot' or 'two-shot'.

    generation  as `group.generation_of` says
    """
    below = _facts()["engines"][engine]["below"]
    rows = below.get(generation, below["hopper"])
    return "one-shot" if size < next(float(at) for most, at in rows if ranks <= most) else "two-shot"


def terms(kind: str, ranks: int, size: float, rate: float, constants: Mapping[str, float]) -> list[Term]:
    """What a kernel's time is made of.

    rate       what one GPU receives over NVLink, one direction [byte/s]
    constants  launch, barrier [s]; one_shot, two_shot: the part of `rate` that loads reach
    """
    read = bytes_read(kind, ranks, size)
    part = float(constants[kind.replace("-", "_")])
    why = f"{read:.0f} bytes read from {ranks - 1} peer(s) over NVLink"
    found = [
        Term("launch", float(constants["launch"]), "kernel in a CUDA graph, opening and closing barrier"),
        Term("bandwidth", read / (rate * part), why),
    ]
    if kind == "two-shot":
        between = float(constants["barrier"]) * log2(ranks)
        found.insert(1, Term("steps", between, "barrier between the two shots"))
    return found


def bytes_read(kind: str, ranks: int, size: float) -> float:
    """What each GPU reads over NVLink: (n-1) S in one shot, 2 (n-1)/n S in two. [byte]"""
    return size * (ranks - 1) if kind == "one-shot" else size * 2 * (ranks - 1) / ranks


def _notes(
    rules: Mapping[str, Any], engine: str, gpu: Gpu, row: str, ranks: int, size: float, known: bool
) -> list[str]:
    """What a reader must know of a prediction."""
    found = []
    if not known:
        shown = _facts()["stands_in"].get(row, row)
        found.append(f"no table of {gpu.generation} was read; constants of {shown} stand in")
    asked = rules.get("multicast", {})
    most = asked.get(gpu.generation, {}).get(ranks)
    if most is not None and size >= most:
        found.append(
            f"from {most} bytes on recent {engine} multicasts instead where symmetric memory is on (its "
            "default), which is not modelled"
        )
    return found


@cache
def _facts() -> dict[str, Any]:
    return load("custom.yaml")


def _rules(engine: str) -> dict[str, Any]:
    """Where an engine switches and stops; raises PlanError for one that is not known."""
    engines: dict[str, dict[str, Any]] = _facts()["engines"]
    if engine not in engines:
        raise PlanError(f"'{engine}' is not a known engine; the known ones are {', '.join(engines)}.")
    return engines[engine]
