"""Dispatch and combine of a mixture-of-experts layer: NCCL's all-to-all and DeepEP's two kinds of kernels.

n ranks (expert parallelism) in N scale-up domains of L ranks; T tokens per rank, k experts per token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np

from railwright.collectives.constants import nccl
from railwright.collectives.group import Group, group_of
from railwright.collectives.machine import Machine
from railwright.collectives.moe_kernels import (
    Layer,
    Stage,
    Wire,
    low_latency,
    low_latency_rdma,
    moe_facts,
    normal,
    nothing,
)
from railwright.collectives.moe_routing import Copies, copies
from railwright.errors import PlanError
from railwright.traffic.demand import Communicator, Traffic, join

Kernel = Literal["nccl", "deepep", "deepep-low-latency", "deepep-low-latency-rdma"]
DEEPEP = {
    "deepep": normal,
    "deepep-low-latency": low_latency,
    "deepep-low-latency-rdma": low_latency_rdma,
}
"""Kernel -> its model; 'nccl' is `collectives.predict`'s all-to-all."""

UNIT = float(2**20)
"""Bytes per message at which the fabric is solved; time scales linearly from there [byte]."""
MOST_MESSAGES = 20_000_000
"""As in `predict`: every message of a low-latency kernel is solved."""

_SOLVED: WeakKeyDictionary[Machine, dict[tuple[str, bytes], Wire]] = WeakKeyDictionary()


@dataclass(frozen=True)
class MoePrediction:
    """Dispatch and combine of one layer, one microbatch, of the slowest group.

    kernel         which kernels
    ranks, nodes   of one group
    groups         groups that do this at the same time
    dispatch, combine  the two stages
    copies         expected copies of one token, by which the bytes are counted
    sms            streaming multiprocessors that the kernels keep from computing while data are in flight
    """

    kernel: Kernel
    ranks: int
    nodes: int
    groups: int
    dispatch: Stage
    combine: Stage
    copies: Copies
    sms: int

    @property
    def time(self) -> float:
        """Both stages, one after the other. [s]"""
        return self.dispatch.time + self.combine.time


def predict_dispatch(
    machine: Machine,
    groups: Sequence[Communicator],
    tokens: int,
    hidden: int,
    topk: int,
    experts: int,
    *,
    kernel: Kernel = "nccl",
    dispatch_bytes: int = 2,
    combine_bytes: int = 2,
    nodes_limit: int | None = None,
    imbalance: float = 1.0,
    constants: Mapping[str, Any] | None = None,
) -> MoePrediction:
    """Time of one MoE layer's dispatch and combine when all `groups` do it at once.

    tokens       T, of each rank before dispatch
    hidden       elements of one token
    topk         k experts of each token, of `experts` spread evenly over the ranks of a group
    dispatch_bytes, combine_bytes  of one element; 1 is FP8 with a 4-byte scale per 128 elements
    nodes_limit  domains a token may go to (node-limited routing); None: all
    imbalance    what the busiest rank moves over the mean, from 1 to all of it (ranks; experts / topk)
    kernel       'nccl': all-to-all of every copy, through `predict`.  'deepep': one copy per domain over
                 RDMA along the rail, fan-out over NVLink.  'deepep-low-latency': every copy straight to its
                 expert's GPU.  'deepep-low-latency-rdma': the same with NVLink switched off.
    constants    in the place of data/moe.yaml's, of the same form; None: those
    Raises PlanError for sizes, experts or groups that make no sense, and where DeepEP cannot run.
    Source: deepseek-ai/DeepEP README and tests; constants in data/moe.yaml.
    """
    layer = Layer(
        tokens, hidden, topk, experts, dispatch_bytes, combine_bytes, imbalance, constants or moe_facts()
    )
    _check(machine, groups, layer, kernel, nodes_limit)
    shapes = list(dict.fromkeys((group_of(machine, g), _width(machine, g)) for g in groups))
    if kernel == "nccl":
        return _by_nccl(machine, groups, layer, shapes, nodes_limit)
    answers = [_by_deepep(machine, groups, layer, shape, kernel, nodes_limit) for shape in shapes]
    return max(answers, key=lambda answer: answer.time)


def rail_messages(machine: Machine, comm: Communicator) -> Traffic:
    """One byte from each rank to the rank of the same place in every other domain.

    Places follow rank order, so with one NIC per GPU the rail is kept (DeepEP: same nvl_rank).
    """
    domains = _domains(machine, comm)
    block = np.stack([comm.gpus[domains == d] for d in np.unique(domains)])
    count = len(block)
    source, target = np.divmod(np.arange(count * count), max(count, 1))
    other = source != target
    src, dst = block[source[other]].ravel(), block[target[other]].ravel()
    return Traffic(src, dst, np.full(len(src), -1, np.int32), np.ones(len(src)))


def direct_messages(machine: Machine, comm: Communicator) -> Traffic:
    """One byte from each rank to every rank of another domain, without relays."""
    n = len(comm)
    domains = _domains(machine, comm)
    sender, receiver = np.divmod(np.arange(n * n), max(n, 1))
    other = domains[sender] != domains[receiver]
    src, dst = comm.gpus[sender[other]], comm.gpus[receiver[other]]
    return Traffic(src, dst, np.full(len(src), -1, np.int32), np.ones(len(src)))


def _by_deepep(
    machine: Machine,
    groups: Sequence[Communicator],
    layer: Layer,
    shape: tuple[Group, int],
    kernel: Kernel,
    nodes_limit: int | None,
) -> MoePrediction:
    group, width = shape
    average = copies(layer.experts, layer.topk, group.nodes, width, nodes_limit)
    wire = _wire(machine, groups, "rail" if kernel == "deepep" else "direct")
    model = DEEPEP[kernel]
    dispatch, combine = (
        model(name, layer, group, width, average, wire) if group.ranks > 1 else nothing(name)
        for name in ("dispatch", "combine")
    )
    sms = int(moe_facts()["normal" if kernel == "deepep" else "low_latency"]["sms"])
    return MoePrediction(kernel, group.ranks, group.nodes, len(groups), dispatch, combine, average, sms)


def _by_nccl(
    machine: Machine,
    groups: Sequence[Communicator],
    layer: Layer,
    shapes: list[tuple[Group, int]],
    nodes_limit: int | None,
) -> MoePrediction:
    """Every copy of every token in one all-to-all; S counts the sender's own share, as nccl-tests does."""
    from railwright.collectives.predict import predict

    group, width = max(shapes, key=lambda shape: shape[0].ranks)
    average = copies(layer.experts, layer.topk, group.nodes, width, nodes_limit)
    stages = []
    for name in ("dispatch", "combine"):
        size = layer.tokens * layer.topk * layer.token_bytes(name) * layer.imbalance
        answer = predict(machine, "all_to_all", size, groups)
        remote = size * (group.ranks - width) / group.ranks
        stages.append(
            Stage(
                name=name,
                time=answer.time,
                terms=answer.terms,
                bottleneck=answer.bottleneck,
                network_bytes=remote,
                scale_up_bytes=size * (width - 1) / group.ranks,
                logical_bytes=size,
                messages=(group.ranks - width) if group.ranks > width else 0,
                error_low=answer.error_low,
                error_high=answer.error_high,
                notes=(*answer.notes, "every rank sends every other the same; PXN's NVLink hop not counted"),
            )
        )
    channels = int(nccl()["point_to_point"]["channels"])
    return MoePrediction(
        "nccl", group.ranks, group.nodes, len(groups), stages[0], stages[1], average, channels
    )


def _wire(machine: Machine, groups: Sequence[Communicator], pattern: str) -> Wire:
    """Seconds per byte of one message when every group sends its pattern, solved once per machine."""
    from railwright.network import solve

    key = (pattern, b"|".join(np.asarray(g.gpus, np.int32).tobytes() for g in groups))
    known = _SOLVED.setdefault(machine, {})
    if key not in known:
        build = rail_messages if pattern == "rail" else direct_messages
        demands = join([build(machine, g) for g in groups]).scaled(UNIT)
        if not len(demands):
            known[key] = Wire(0.0, 0.0, None)
        else:
            solution = solve(machine.network, demands, "last")
            reference = 2 * machine.nic.latency + sum(
                float(nccl()["one_switch_path"][part]) for part in ("switch", "cable")
            )
            beyond = max(0.0, float(solution.latency.max()) - reference)
            known[key] = Wire(solution.time / UNIT, beyond, solution.bottleneck)
    return known[key]


def _domains(machine: Machine, comm: Communicator) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    from railwright.traffic.placement import domain_of_gpu

    domains: np.ndarray[tuple[int], np.dtype[np.int32]] = domain_of_gpu(machine.network.fabric)[comm.gpus]
    return domains


def _width(machine: Machine, comm: Communicator) -> int:
    """L: ranks of the group in each domain; raises PlanError where they differ."""
    _, counts = np.unique(_domains(machine, comm), return_counts=True)
    if len(counts) and counts.min() != counts.max():
        raise PlanError(
            f"The group '{comm.name}' has {counts.min()} ranks in one node and {counts.max()} in another; "
            "experts are spread evenly over nodes here: give every node as many ranks of the group."
        )
    return int(counts[0]) if len(counts) else 0


def _check(
    machine: Machine, groups: Sequence[Communicator], layer: Layer, kernel: Kernel, nodes_limit: int | None
) -> None:
    if kernel != "nccl" and kernel not in DEEPEP:
        raise PlanError(f"'{kernel}' is not a dispatch kernel; the known ones are nccl, {', '.join(DEEPEP)}.")
    if not groups:
        raise PlanError("No communicator was given for dispatch; give at least one expert-parallel group.")
    layer.check()
    if nodes_limit is not None and nodes_limit < 1:
        raise PlanError(f"nodes_limit = {nodes_limit} leaves a token nowhere to go; give 1 or more, or none.")
    for comm in groups:
        if len(comm) and layer.experts % len(comm):
            raise PlanError(
                f"{layer.experts} experts cannot be spread evenly over the {len(comm)} ranks of "
                f"'{comm.name}'; choose a number of experts that is a multiple of {len(comm)}."
            )
        if len(comm) and layer.imbalance > len(comm):
            raise PlanError(
                f"imbalance = {layer.imbalance:g} is more than one of the {len(comm)} ranks of '{comm.name}' "
                f"can get: all that there is, {len(comm)} times the mean; give 1 to {len(comm)}."
            )
    everyone = np.concatenate([g.gpus for g in groups])
    if len(groups) > 1 and len(np.unique(everyone)) != len(everyone):
        raise PlanError("A GPU is in two of the expert-parallel groups; each can be in one only.")
    messages = sum(len(g) ** 2 for g in groups)
    if kernel != "deepep" and messages > MOST_MESSAGES:
        raise PlanError(
            f"These groups exchange {messages:,} messages and at most {MOST_MESSAGES:,} can be solved; "
            "use smaller or fewer expert-parallel groups."
        )
    if kernel == "deepep" and not machine.gpu.scale_up_bandwidth:
        raise PlanError(
            f"DeepEP's normal kernels forward over NVLink, which the GPU '{machine.gpu.name}' has not; "
            "use kernel 'nccl' or 'deepep-low-latency-rdma'."
        )
