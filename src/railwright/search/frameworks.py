"""What training frameworks run of a layout: schedules and overlaps that they do not have.

Only what changes a step's time or memory counts; names, placements and notes are the exports' matter
(`export_megatron`, `export_torchtitan`, with the versions that were read).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.errors import RailwrightError, nearest
from railwright.search.export_torchtitan import SCHEDULES
from railwright.search.pricing import PASSING
from railwright.search.space import Block
from railwright.training.schedule import SHARED

Bools = NDArray[np.bool_]
Lacks = Callable[[Mapping[str, Any], Sequence[str]], list[str]]
"""(axis -> value, recompute_modules) -> what of a layout a framework has not, in words."""

STRUCTURE = ("schedule", "virtual_pipeline", "pipeline", "tensor", "context", "context_kind", "expert")
CHOICES = ("sequence_parallel", "recompute", "overlap_tp", "overlap_ep", "zero", "offload", "overlap_dp")
"""Axes that `Lacks` may look at; of numbers only whether they are above 1."""


@dataclass(frozen=True)
class Framework:
    """A framework by its name, and what it lacks for a layout."""

    title: str
    lacks: Lacks


def framework_named(name: str) -> Framework:
    """A framework of FRAMEWORKS. Raises RailwrightError for one that is not known."""
    if name not in FRAMEWORKS:
        hint = nearest(name, FRAMEWORKS) or f"; choose one of {', '.join(FRAMEWORKS)}"
        raise RailwrightError(f"there is no framework '{name}'{hint}")
    return FRAMEWORKS[name]


def runs(framework: Framework, block: Block, modules: Sequence[str]) -> tuple[Bools, Bools]:
    """Which layouts of a block a framework runs: (X, zero, overlap_dp) whatever goes to the host, and
    (X, zero, offload) whatever of data parallelism is hidden; the two do not depend on each other.

    modules  that selective recomputation computes again
    """
    few = tuple(min(n, 2) if isinstance(n, int) else n for n in (block.structure[a] for a in STRUCTURE))
    able = _able(framework, few, tuple(block.of(axis) for axis in CHOICES), tuple(modules))
    # every axis of a class of passes, then zero, offload and overlap_dp
    places = {axis: i for i, axis in enumerate(CHOICES)}
    shape = [len(block.of(axis)) if axis in places else 1 for axis in PASSING]
    order = [places[axis] for axis in PASSING if axis in places]
    spread = able.transpose(*order, *(places[a] for a in ("zero", "offload", "overlap_dp")))
    spread = spread.reshape(*shape, *spread.shape[-3:])
    full = np.broadcast_to(spread, (*(len(block.of(axis)) for axis in PASSING), *spread.shape[-3:]))
    flat = full.reshape(-1, *spread.shape[-3:])
    return np.any(flat, axis=2), np.any(flat, axis=3)


@lru_cache(maxsize=1024)
def _able(
    framework: Framework,
    structure: tuple[Any, ...],
    values: tuple[tuple[Any, ...], ...],
    modules: tuple[str, ...],
) -> Bools:
    """Whether a framework runs each choice of CHOICES under a structure of STRUCTURE."""
    names = (*STRUCTURE, *CHOICES)
    able = [
        not framework.lacks(dict(zip(names, (*structure, *choice), strict=True)), modules)
        for choice in product(*values)
    ]
    return np.array(able).reshape([len(v) for v in values])


def _megatron(setting: Mapping[str, Any], modules: Sequence[str]) -> list[str]:
    """Sources: TransformerConfig.__post_init__ (overlap_moe_expert_parallel_comm, tp_comm_overlap,
    cpu_offloading); Megatron-FSDP gathers parameters layer by layer, for which no passes are paired."""
    found = [_schedule(setting)] if setting["schedule"] not in ("auto", "1f1b", "interleaved") else []
    again = setting["recompute"]
    if setting["overlap_ep"] and setting["expert"] > 1 and setting["schedule"] not in SHARED:
        hidden = "expert all-to-alls hidden"
        if setting["pipeline"] > 1 and setting["virtual_pipeline"] == 1:
            found.append(f"{hidden} in a pipeline without virtual stages")
        if setting["zero"] == 3:
            found.append(f"{hidden} beside sharded parameters")
        if again == "full" or (again == "selective" and "moe" in modules):
            found.append(f"{hidden} where experts are computed again")
    if setting["overlap_tp"] and setting["tensor"] > 1 and not setting["sequence_parallel"]:
        found.append("tensor parallelism hidden without sequence parallelism")
    if "activations" in setting["offload"] and (setting["pipeline"] > 1 or again != "none"):
        found.append("activations offloaded beside a pipeline or recomputation")
    return found


def _torchtitan(setting: Mapping[str, Any], modules: Sequence[str]) -> list[str]:
    """Source: torchtitan/config/job_config.py, of the version in `export_torchtitan`."""
    several = setting["schedule"] == "zb-h1" and setting["virtual_pipeline"] > 1
    known = several or setting["schedule"] in ("auto", *SCHEDULES)
    found = [] if known else [_schedule(setting)]
    if setting["overlap_ep"] and setting["expert"] > 1 and setting["schedule"] not in SHARED:
        found.append("expert all-to-alls hidden")
    if setting["tensor"] > 1 and not setting["sequence_parallel"]:
        found.append("tensor parallelism without sequence parallelism")
    if setting["context"] > 1 and setting["context_kind"] == "all-to-all":
        found.append("context parallelism over heads")
    if not setting["overlap_dp"]:
        found.append("data parallelism that is not hidden")
    if "activations" in setting["offload"]:
        found.append("activations offloaded")
    return found


def _schedule(setting: Mapping[str, Any]) -> str:
    virtual = setting["virtual_pipeline"] > 1
    return f"schedule {setting['schedule']}{' with virtual stages' if virtual else ''}"


FRAMEWORKS = {
    "megatron": Framework("Megatron-LM", _megatron),
    "nemo": Framework("NeMo", _megatron),
    "torchtitan": Framework("torchtitan", _torchtitan),
}
