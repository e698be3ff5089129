"""Ranks on GPUs: which GPUs form the tensor-, expert-, data- and pipeline-parallel groups of a job.

Legend: T, D, P tensor-, data- and pipeline-parallel sizes, E experts' group size (inside D).
Rank r = t + T (d + D p), Megatron's order: tensor fastest, pipeline slowest.
Source: Megatron-LM, megatron/core/parallel_state.py, initialize_model_parallel (order 'tp-cp-ep-dp-pp');
expert groups are blocks of E consecutive data-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.spec.study import TrainingJob
from railwright.traffic.demand import Communicator

Ints = NDArray[np.int32]
GroupKind = Literal["tp", "ep", "dp", "expert_dp", "pp", "embedding"]


@dataclass(frozen=True, eq=False)
class Groups:
    """All groups of each kind; the groups of one kind run at the same time and share links.

    grid        (P, D, T) GPU id of every rank
    tp          ranks that share the tensors of one layer
    ep          ranks that hold different experts and exchange tokens
    dp          ranks that hold the same dense parameters
    expert_dp   ranks that hold the same experts
    pp          the stages of one pipeline, first to last
    embedding   first and last stage, which share a tied embedding
    notes       what a reader should know about the placement
    """

    grid: Ints
    tp: tuple[Communicator, ...]
    ep: tuple[Communicator, ...]
    dp: tuple[Communicator, ...]
    expert_dp: tuple[Communicator, ...]
    pp: tuple[Communicator, ...]
    embedding: tuple[Communicator, ...]
    notes: tuple[str, ...] = ()

    def of(self, kind: GroupKind) -> tuple[Communicator, ...]:
        """All groups of one kind."""
        groups: tuple[Communicator, ...] = getattr(self, kind)
        return groups


def place(job: TrainingJob, fabric: Fabric) -> Groups:
    """Put every rank of a job on a GPU and name its groups.

    Raises PlanError where the placement asked for is impossible on this fabric.
    """
    gpus = job.gpus or fabric.num_gpus
    tensor, pipeline, expert = job.layout.tensor, job.layout.pipeline, job.layout.expert
    data = gpus // (tensor * pipeline)
    order, notes = PLACEMENTS[job.layout.placement](job, fabric, data)
    grid = order.reshape(pipeline, data, tensor).astype(np.int32)
    return Groups(
        grid,
        tp=_groups(grid.reshape(-1, tensor), "TP"),
        ep=_groups(
            grid.reshape(pipeline, data // expert, expert, tensor).transpose(0, 1, 3, 2).reshape(-1, expert),
            "EP",
        ),
        dp=_groups(grid.transpose(0, 2, 1).reshape(-1, data), "DP"),
        expert_dp=_groups(
            grid.reshape(pipeline, data // expert, expert, tensor)
            .transpose(0, 2, 3, 1)
            .reshape(-1, data // expert),
            "expert DP",
        ),
        pp=_groups(grid.transpose(1, 2, 0).reshape(-1, pipeline), "PP"),
        embedding=_groups(grid[[0, -1]].transpose(1, 2, 0).reshape(-1, 2), "embedding")
        if pipeline > 1
        else (),
        notes=notes,
    )


def _groups(rows: Ints, name: str) -> tuple[Communicator, ...]:
    return tuple(Communicator(np.ascontiguousarray(row), f"{name} group {i}") for i, row in enumerate(rows))


def _packed(job: TrainingJob, fabric: Fabric, data: int) -> tuple[Ints, tuple[str, ...]]:
    """Ranks fill servers in rank order."""
    return np.arange(job.layout.pipeline * data * job.layout.tensor, dtype=np.int32), ()


def _expert_across(job: TrainingJob, fabric: Fabric, data: int) -> tuple[Ints, tuple[str, ...]]:
    """Consecutive data-parallel ranks go to consecutive servers, at the same place inside each.

    The slots (T neighbouring GPUs) of a stage's servers are walked place by place, all servers first;
    so E consecutive ranks sit on E different servers whenever the stage has that many.
    """
    tensor, pipeline, expert = job.layout.tensor, job.layout.pipeline, job.layout.expert
    per_server = fabric.gpus_per_server
    if (data * tensor) % per_server:
        raise PlanError(
            f"{job.name}: placement expert-across needs whole servers per pipeline stage, but a stage has "
            f"{data * tensor} GPUs and a server {per_server}; use placement packed or fewer stages."
        )
    servers = data * tensor // per_server
    if expert > servers:
        raise PlanError(
            f"{job.name}: placement expert-across puts the {expert} ranks of an expert group on different "
            f"servers, but a pipeline stage has only {servers}; lower layout.expert to at most {servers} "
            "or use placement packed."
        )
    slots = per_server // tensor
    gpu = np.arange(pipeline * data * tensor, dtype=np.int32).reshape(pipeline, servers, slots, tensor)
    order = np.ascontiguousarray(gpu.transpose(0, 2, 1, 3)).reshape(-1)
    straddling = sum(
        1 for first in range(0, data, expert) if first // servers != (first + expert - 1) // servers
    )
    if not straddling:
        return order, ()
    return order, (
        f"{job.name}: {servers} servers per stage are not a multiple of the expert group's {expert} ranks, "
        f"so {straddling} of {data // expert} expert groups of a stage sit on two rails instead of one.",
    )


PLACEMENTS: dict[str, Callable[[TrainingJob, Fabric, int], tuple[Ints, tuple[str, ...]]]] = {
    "packed": _packed,
    "expert-across": _expert_across,
}
